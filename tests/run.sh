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

say "tests without LibTorch, under address and undefined sanitizers"
ctest --test-dir "$stepscope_root/build/asan" --output-on-failure -j "$(nproc)" --quiet \
  --output-log "$stepscope_root/build/asan/ctest.log" || { tail -n 60 "$stepscope_root/build/asan/ctest.log"; die "asan tests failed"; }
tail -n 4 "$stepscope_root/build/asan/ctest.log"

say "the sample, for the viewers' checks"
STEPSCOPE_SAMPLE_LOGDIR=$stepscope_root/build/sample-logdir
rm -rf "$STEPSCOPE_SAMPLE_LOGDIR"
"$stepscope_root/build/default/bin/resnet" --log-dir "$STEPSCOPE_SAMPLE_LOGDIR" >"$stepscope_root/build/sample.log" 2>&1 ||
  { tail -n 30 "$stepscope_root/build/sample.log" >&2; die "the sample failed"; }
export STEPSCOPE_SAMPLE_LOGDIR

say "ctest"
ctest --test-dir "$stepscope_root/build/default" -LE live --output-on-failure -j "$(nproc)" | tail -n 40
say "pytest"
"$stepscope_viewers/bin/python" -m pytest -q "$stepscope_root/tests/e2e" --durations=5
