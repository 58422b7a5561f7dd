#!/usr/bin/env bash
# Runs clang-tidy (.clang-tidy) on the C++ sources that the last commit changed, or on the given files. Leaves out sources that
# need LibTorch. Without clang-tidy, it says so and passes.
#   bash tests/tools/tidy.sh [FILE...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

if ! command -v clang-tidy >/dev/null || ! command -v clang++ >/dev/null; then
  echo "clang-tidy is not installed: changed files are not checked (apt-get install clang clang-tidy)"
  exit 0
fi
if [ $# -gt 0 ]; then
  files=("$@")
else
  mapfile -t files < <(git diff --name-only --diff-filter=AMR HEAD~1 HEAD -- '*.cc' 2>/dev/null)
fi
[ ${#files[@]} -eq 0 ] && exit 0

# Only configured, without building: clang cannot read precompiled headers made by another compiler.
mkdir -p build
if [ ! -f build/tidy/compile_commands.json ]; then
  cmake -G Ninja -S . -B build/tidy -DCMAKE_CXX_COMPILER=clang++ -DSTEPSCOPE_TORCH=OFF -DSTEPSCOPE_PRECOMPILE=OFF >build/tidy.log 2>&1 ||
    { tail -n 30 build/tidy.log >&2; exit 1; }
fi
# Generates protoc's headers with its command alone, because ninja would first build what the tests link.
for header in $(ninja -C build/tidy -t targets all | sed -n 's/^\([^/].*\.pb\.h\): .*/\1/p'); do
  bash -c "$(ninja -C build/tidy -t commands -s "$header")"
done
known=()
for file in ${files[@]+"${files[@]}"}; do
  if grep -qF "\"$PWD/$file\"" build/tidy/compile_commands.json; then known+=("$file"); fi
done
[ ${#known[@]} -eq 0 ] && exit 0
printf '%s\n' "${known[@]}" | xargs -P "$(nproc)" -n 1 clang-tidy --quiet -p build/tidy 2> >(grep -v 'warnings generated' >&2)
