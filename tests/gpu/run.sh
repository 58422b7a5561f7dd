#!/usr/bin/env bash
# The tests that need a GPU: our recording of a program beside LibTorch's own. Leaves what was recorded in tests/data/gpu.
#   bash tests/gpu/run.sh           on a machine with a GPU and torch; no network is needed
#   bash tests/gpu/run.sh --pack    elsewhere: puts the built programs and their libraries into build/gpu-pack, which is used
#                                   instead of building where the compiler or the libraries are missing
#   STEPSCOPE_PYTHON   a Python that has torch; else the active environment's, .venv's, or the first on the path
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
pack=$root/build/gpu-pack
programs=(gpu_program gpu_test gpu_compare_test gpu_buffers_test stepscope)

say() { printf '== %s\n' "$*"; }
die() { printf 'tests/gpu/run.sh: %s\n' "$*" >&2; exit 1; }

find_python() {
  local python
  for python in "${STEPSCOPE_PYTHON:-}" "${VIRTUAL_ENV:+$VIRTUAL_ENV/bin/python}" "$root/.venv/bin/python" python3 python; do
    [ -n "$python" ] || continue
    "$python" -c 'import importlib.util as u, sys; sys.exit(u.find_spec("torch") is None)' 2>/dev/null || continue
    printf '%s' "$python"
    return
  done
  die "no Python with torch was found; name one in STEPSCOPE_PYTHON"
}

build() {
  command -v cmake >/dev/null || die "there is no cmake here and no build/gpu-pack; make one elsewhere with --pack"
  STEPSCOPE_PYTHON=$1 cmake --preset default -S "$root" -DSTEPSCOPE_TORCH=ON -DSTEPSCOPE_PYTHON="$1" >"$root/build/configure-gpu.log" 2>&1 ||
    { tail -n 20 "$root/build/configure-gpu.log" >&2; die "cmake failed"; }
  cmake --build "$root/build/default" --target gpu_program gpu_test gpu_compare_test gpu_buffers_test stepscope_cli
}

mkdir -p "$root/build"
python=$(find_python)

if [ "${1:-}" = --pack ]; then
  bin=${STEPSCOPE_BIN:-$root/build/default/bin}
  [ -n "${STEPSCOPE_BIN:-}" ] || build "$python"
  rm -rf "$pack"
  mkdir -p "$pack"
  for program in "${programs[@]}"; do
    [ -x "$bin/$program" ] || die "$bin/$program is not built"
    strip -o "$pack/$program" "$bin/$program"
    # Not what every Linux has, nor what comes with torch.
    ldd "$bin/$program" | awk '$2 == "=>" && $3 ~ /^\// {print $3}' |
      { grep -Ev '/(libc|libm|libdl|librt|libpthread|libgcc_s|libstdc\+\+)\.so|/torch/|/nvidia/' || true; } |
      xargs -r cp -Lu -t "$pack"
  done
  du -sh "$pack"
  exit 0
fi

if ! nvidia-smi -L 2>/dev/null | grep -q GPU; then
  say "skipped: nvidia-smi finds no GPU on this machine"
  exit 0
fi
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader

if [ -x "$pack/gpu_program" ]; then
  bin=$pack
  # The programs look for torch where they were built; here it is elsewhere.
  libraries=$("$python" - <<'END'
import glob, importlib.util, os
torch = os.path.dirname(importlib.util.find_spec("torch").origin)
print(":".join([os.path.join(torch, "lib")] + glob.glob(os.path.join(os.path.dirname(torch), "nvidia", "*", "lib"))))
END
  )
  export LD_LIBRARY_PATH=$pack:$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  export STEPSCOPE_GPU_PROGRAM=$pack/gpu_program
else
  build "$python"
  bin=$root/build/default/bin
fi

export STEPSCOPE_GPU_RESULTS=${STEPSCOPE_GPU_RESULTS:-$root/tests/data/gpu}
mkdir -p "$STEPSCOPE_GPU_RESULTS"
say "doctor"
"$bin/stepscope" doctor --python "$python" | tee "$STEPSCOPE_GPU_RESULTS/doctor.txt" || true
say "tests"
"$bin/gpu_compare_test"
"$bin/gpu_test"
"$bin/gpu_buffers_test"  # what the line before recorded
say "recorded: $(ls "$STEPSCOPE_GPU_RESULTS" | tr '\n' ' ')"
