#!/usr/bin/env bash
# Runs everything that needs a GPU: tests, recordings, overhead compared with Kineto, the ladder and the gallery. Needs a
# machine with a GPU and torch, but no network, and installs nothing.
#   bash tests/gpu/slot.sh [PART...]   runs these parts, or all parts without a result. Stops after STEPSCOPE_GPU_LIMIT seconds
#                                      (540); run it again to continue. Exit status: 0 all passed, 1 a part failed, 3 some left
#   bash tests/gpu/slot.sh --again PART...   also runs parts that have a result
#   bash tests/gpu/slot.sh --list      lists the parts
#   bash tests/gpu/slot.sh --pack      on a machine that can build: puts the programs into build/gpu-pack
#   bash tests/gpu/unpack.sh DIR       on the developer's machine, with the results
# Recordings are in build/gpu-slot, and after each part also, as a few files, in STEPSCOPE_GPU_RESULTS (build/gpu-results).
#   STEPSCOPE_PYTHON    a Python with torch; default: the active environment's, .venv's, or the first on the path
#   STEPSCOPE_BIN       the programs if there is no build/gpu-pack (build/default/bin)
#   STEPSCOPE_GPU_FAKE  a libfakecupti_ops.so that replaces the GPU (tests/README.md): only tests this script
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
pack=$root/build/gpu-pack
work=$root/build/gpu-slot

fail() { printf 'tests/gpu/slot.sh: %s\n' "$*" >&2; exit 2; }

find_python() {
  local python
  for python in "${STEPSCOPE_PYTHON:-}" "${VIRTUAL_ENV:+$VIRTUAL_ENV/bin/python}" "$root/.venv/bin/python" python3 python; do
    [ -n "$python" ] || continue
    "$python" -c 'import importlib.util as u, sys; sys.exit(u.find_spec("torch") is None)' 2>/dev/null || continue
    printf '%s' "$python"
    return
  done
  fail "no Python with torch was found; name one in STEPSCOPE_PYTHON"
}

# Prints the libraries that a program links, except those that every Linux has and those that come with torch.
libraries_of() {
  ldd "$@" | awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u |
    { grep -Ev '/(libc|libm|libdl|librt|libutil|libpthread|libgcc_s|libstdc\+\+|libz|libzstd)\.so|/torch/|/nvidia/' || true; }
}

make_pack() {
  local programs=(gpu_program gpu_test gpu_compare_test gpu_buffers_test stepscope resnet libresnet_cuda_graph.so gallery gallery_test)
  local bin=${STEPSCOPE_BIN:-$root/build/default/bin} file bytes
  if [ -z "${STEPSCOPE_BIN:-}" ]; then
    source "$root/cmake/setup.sh"
    setup_build
    setup_torch
    build default gpu_program gpu_test gpu_compare_test gpu_buffers_test stepscope_cli resnet resnet_cuda_graph gallery gallery_test \
      stepscope_python
  fi
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
  for file in "${programs[@]/#/$bin/}" "$bin"/../lib/{libstepscope_core.so,shim-torch*.so}; do
    [ -e "$file" ] || fail "$file is not built"
    strip -o "$folder/${file##*/}" "$file" 2>/dev/null || cp "$file" "$folder"
    libraries_of "$file" | xargs -r cp -Lu -t "$folder"
  done
  {
    echo "commit $(git -C "$root" rev-parse HEAD)"
    echo "packed $(date -u +%Y-%m-%dT%H:%MZ)"
  } >"$folder/made.txt"
  mkdir -p "$pack"
  tar -C "$folder" -czf "$pack/programs.tar.gz" .
  # The files to transfer: the files that git tracks, and the pack.
  bytes=$(cd "$root" && { git ls-files -z | xargs -0 stat -c %s; stat -c %s "$pack/programs.tar.gz"; } | awk '{sum += $1} END {print sum}')
  echo "$pack/programs.tar.gz: $(($(stat -c %s "$pack/programs.tar.gz") >> 20)) MiB; with the source tree $((bytes >> 20)) MiB"
  [ "$bytes" -le $((64 << 20)) ] || fail "tree and pack are larger than the 64 MiB that travel"
}

# Sets `bin`. Unpacks the pack only once.
find_programs() {
  if [ -f "$pack/programs.tar.gz" ]; then
    bin=$work/bin
    if [ ! -f "$bin/made.txt" ] || [ "$pack/programs.tar.gz" -nt "$bin/made.txt" ]; then
      rm -rf "$bin"
      mkdir -p "$bin"
      tar -C "$bin" -xzf "$pack/programs.tar.gz"
      touch "$bin/made.txt"
    fi
    # The programs look for torch where they were built; on this machine it is elsewhere.
    LD_LIBRARY_PATH=$bin:$("$python" - <<'END'
import glob, importlib.util, os
torch = os.path.dirname(importlib.util.find_spec("torch").origin)
print(":".join([os.path.join(torch, "lib")] + glob.glob(os.path.join(os.path.dirname(torch), "nvidia", "*", "lib"))))
END
    )${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    export LD_LIBRARY_PATH
  else
    bin=${STEPSCOPE_BIN:-$root/build/default/bin}
    [ -x "$bin/gpu_program" ] || fail "no programs: neither build/gpu-pack (made elsewhere with --pack) nor $bin/gpu_program"
  fi
}

case ${1-} in
  --pack) make_pack; exit 0 ;;
  --list) exec python3 "$root/tests/gpu/slot.py" --list ;;
esac
if [ -z "${STEPSCOPE_GPU_FAKE:-}" ] && ! nvidia-smi -L 2>/dev/null | grep -q GPU; then
  echo "== skipped: nvidia-smi finds no GPU on this machine"
  exit 0
fi
python=$(find_python)
find_programs
exec "$python" "$root/tests/gpu/slot.py" --bin "$bin" --work "$work" --results "${STEPSCOPE_GPU_RESULTS:-$root/build/gpu-results}" \
  --limit "${STEPSCOPE_GPU_LIMIT:-540}" "$@"
