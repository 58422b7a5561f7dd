#!/usr/bin/env bash
# Builds the correctness bench in Release, without LibTorch, and runs it on 100 fresh seeds; all arguments are passed to it.
# Exits with 1 if a planted fault is missed, anything else is urged, or a prediction is further from the simulated fix than
# README.md allows.
#   bash tests/advice/run.sh [--seeds N] [--seed S] [--only TEXT] [--show]
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../../cmake/setup.sh"

dir=$stepscope_root/build/advice
mkdir -p "$dir"
setup_build
say "building build/advice"
cmake -S "$stepscope_root" -B "$dir" -G Ninja -DCMAKE_BUILD_TYPE=Release -DSTEPSCOPE_TORCH=OFF >"$dir/configure.log" 2>&1 ||
  { tail -n 30 "$dir/configure.log" >&2; die "cmake failed"; }
cmake --build "$dir" -j "${STEPSCOPE_JOBS:-$(nproc)}" --target stepscope_advice_bench >"$dir/build.log" 2>&1 ||
  { tail -n 30 "$dir/build.log" >&2; die "the build failed"; }
exec "$dir/bin/stepscope_advice_bench" --jobs "$(nproc)" "$@"
