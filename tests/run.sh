#!/usr/bin/env bash
# Installs what is missing and runs the tests.
#   bash tests/run.sh           all of them; about 25 minutes on two cores the first time
#   bash tests/run.sh --quick   tests that need neither LibTorch nor the viewers; minutes, once built
# Two builds share the work. build/asan runs every test that does not need LibTorch, with the address and undefined-behaviour
# sanitizers. build/default runs the tests that need LibTorch, and makes the log directory that the viewers open.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../cmake/setup.sh"

quick=""
case ${1-} in
  "") ;;
  --quick) quick=1 ;;
  *) die "unknown option $1: bash tests/run.sh [--quick]" ;;
esac

# run_ctest PRESET [FLAG...]: runs the preset's tests with their output in a log; prints the output of failed tests and a
# summary.
run_ctest() {
  local dir=$stepscope_root/build/$1
  shift
  if ! ctest --test-dir "$dir" --output-on-failure -j "$(nproc)" "$@" >"$dir/ctest.log" 2>&1; then
    awk '/Start +[0-9]+:/ { next } /\*\*\*(Failed|Timeout|Exception|Not Run)/ { show = 1 }
      / Passed +[0-9.]+ sec|\*\*\*Skipped/ { show = 0 } show && lines++ < 400' "$dir/ctest.log"
    tail -n 40 "$dir/ctest.log"
    die "tests failed (all output: $dir/ctest.log)"
  fi
  grep -A 2 'tests passed' "$dir/ctest.log" || die "ctest ran no tests in $dir"
}

mkdir -p "$stepscope_root/build"
setup_build
say "structure: no folder includes what it must not"
python3 "$stepscope_root/tests/tools/structure.py" --check
say "clang-tidy on the files of the last commit"
bash "$stepscope_root/tests/tools/tidy.sh"

if [ -n "$quick" ]; then
  # Builds with its earlier configuration: --quick has no Python with torch, and so no CUPTI headers.
  if [ -f "$stepscope_root/build/asan/build.ninja" ]; then cmake --build "$stepscope_root/build/asan"; else build asan; fi
  say "tests without LibTorch, under sanitizers"
  run_ctest asan
  exit 0
fi

apt-cache show chromium >/dev/null 2>&1 && apt_packages chromium
setup_torch
setup_viewers
stepscope_cmake_flags=(-DSTEPSCOPE_WERROR=ON)
build asan
stepscope_cmake_flags+=(-DSTEPSCOPE_TESTS=TORCH)
build default

say "tests without LibTorch, under sanitizers"
run_ctest asan

say "the sample, whose files the viewers open"
STEPSCOPE_SAMPLE_LOGDIR=$stepscope_root/build/sample-logdir
rm -rf "$STEPSCOPE_SAMPLE_LOGDIR"
"$stepscope_root/build/default/bin/resnet" --log-dir "$STEPSCOPE_SAMPLE_LOGDIR" >"$stepscope_root/build/sample.log" 2>&1 ||
  { tail -n 30 "$stepscope_root/build/sample.log" >&2; die "the sample failed"; }
export STEPSCOPE_SAMPLE_LOGDIR

say "tests with LibTorch"
run_ctest default -LE live
say "pytest: viewers, shell commands, tools"
"$stepscope_viewers/bin/python" -m pytest -q "$stepscope_root/tests/e2e" "$stepscope_root/tests/tools" \
  "$stepscope_root/tests/gpu" "$stepscope_root/tests/samples" "$stepscope_root/tests/soak" "$stepscope_root/tests/plugins/python" -n "$(nproc)" --dist loadfile --durations=5
