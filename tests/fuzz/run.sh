#!/usr/bin/env bash
# Runs the fuzz targets (clang, libFuzzer, address and undefined-behaviour sanitizers) from their seeds.
#   bash tests/fuzz/run.sh [MINUTES each (10)] [TARGET...]
# Findings are in build/fuzz/found, with logs beside it; then the exit status is 1.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
minutes=${1:-10}
[ $# -gt 0 ] && shift
declare -A seeds=([fuzz_chrome_reader]=chrome [fuzz_trace_use]=chrome [fuzz_xspace_reader]=xspace [fuzz_cupti_decode]=cupti [fuzz_rank_digest]=digest)
targets=("$@")
[ ${#targets[@]} -gt 0 ] || targets=(fuzz_chrome_reader fuzz_trace_use fuzz_xspace_reader fuzz_cupti_decode fuzz_rank_digest)

cd "$root"
cmake --preset fuzz > /dev/null
cmake --build build/fuzz --target "${targets[@]}"
mkdir -p build/fuzz/found
failed=0
for target in "${targets[@]}"; do
  corpus=build/fuzz/corpus/$target
  mkdir -p "$corpus"
  # Long inputs from the start, because breaking a reader of events takes more than one event.
  build/fuzz/bin/"$target" -len_control=0 -max_len=65536 -timeout=30 -rss_limit_mb=2048 \
    -max_total_time=$((minutes * 60)) -artifact_prefix=build/fuzz/found/ -print_final_stats=1 \
    "$corpus" tests/fuzz/seeds/"${seeds[$target]}" >build/fuzz/"$target".log 2>&1 || failed=1
  grep -E 'ERROR|SUMMARY|runtime error|number_of_exec|DONE' build/fuzz/"$target".log || true
  # An overflow does not end a run, but it is still a finding.
  ! grep -q 'runtime error' build/fuzz/"$target".log || failed=1
done
exit "$failed"
