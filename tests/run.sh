#!/usr/bin/env bash
# Sets everything up and passes the tests: the default build with LibTorch, a build without it under the address and
# undefined sanitizers, and the real viewers on the sample's log directory.
#   bash tests/run.sh
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../cmake/setup.sh"

mkdir -p "$stepscope_root/build"
setup_build
apt-cache show chromium >/dev/null 2>&1 && apt_packages chromium
setup_torch
setup_viewers
build default
build asan

# ctests PRESET [FLAG...]: its tests, the list in a log; what failed is shown whole.
ctests() {
  local dir=$stepscope_root/build/$1
  shift
  if ! ctest --test-dir "$dir" --output-on-failure -j "$(nproc)" "$@" >"$dir/ctest.log" 2>&1; then
    awk '/Start +[0-9]+:/ { next } /\*\*\*(Failed|Timeout|Exception|Not Run)/ { show = 1 }
      / Passed +[0-9.]+ sec|\*\*\*Skipped/ { show = 0 } show && lines++ < 400' "$dir/ctest.log"
    tail -n 40 "$dir/ctest.log"
    die "tests failed (the whole output is in $dir/ctest.log)"
  fi
  grep -A 2 'tests passed' "$dir/ctest.log" || die "no tests in $dir"
}

say "tests without LibTorch, under address and undefined sanitizers"
ctests asan

say "the sample, for the viewers' checks"
STEPSCOPE_SAMPLE_LOGDIR=$stepscope_root/build/sample-logdir
rm -rf "$STEPSCOPE_SAMPLE_LOGDIR"
"$stepscope_root/build/default/bin/resnet" --log-dir "$STEPSCOPE_SAMPLE_LOGDIR" >"$stepscope_root/build/sample.log" 2>&1 ||
  { tail -n 30 "$stepscope_root/build/sample.log" >&2; die "the sample failed"; }
export STEPSCOPE_SAMPLE_LOGDIR

say "ctest"
ctests default -LE live
say "pytest"
"$stepscope_viewers/bin/python" -m pytest -q "$stepscope_root/tests/e2e" "$stepscope_root/tests/samples/ladder" --durations=5
