#!/usr/bin/env bash
# Builds the benchmarks and the sample in Release, records the sample once for its events per step, prints the table of what
# recording costs beside Kineto, and writes build/bench/results.jsonl. Exit 3 if a bound is missed: repeat on a quiet machine.
# Then reads and writes trace files: speed, and memory above the Trace (STEPSCOPE_BENCH_MILLIONS=10 for ten million events).
#   bash tests/bench/run.sh [--rounds N] [--only PREFIX]
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../../cmake/setup.sh"

dir=$stepscope_root/build/bench
mkdir -p "$dir"
setup_build libbenchmark-dev
setup_torch
build bench stepscope_bench trace_files_bench resnet

say "the sample, for its events per step"
rm -rf "$dir/sample"
"$dir/bin/resnet" --log-dir "$dir/sample" >"$dir/sample.log" 2>&1 || { tail -n 20 "$dir/sample.log" >&2; die "the sample failed"; }
trace=$(find "$dir/sample/stepscope" -path '*/trace/rank0.json.gz' | head -n 1)

say "benchmarks"
status=0
"$dir/bin/stepscope_bench" --out "$dir/results.jsonl" --scratch "$dir" --sample-trace "$trace" "$@" 2>"$dir/bench.log" || status=$?

say "reading and writing trace files"
traces=("$stepscope_root"/tests/data/traces/resnet50_v100_workers0.pt.trace.json.gz)
for more in flux_mi300x_large owlv2_h100 recsys_a100_rank3of8; do
  for folder in "${STEPSCOPE_TRACES:-}" "$stepscope_root/../shared/traces"; do
    if [ -f "$folder/$more.json.gz" ]; then traces+=("$folder/$more.json.gz"); break; fi
  done
done
"$dir/bin/trace_files_bench" --out "$dir/trace_files.jsonl" --scratch "$dir" --events "${STEPSCOPE_BENCH_MILLIONS:-2}" "${traces[@]}" ||
  { files=$?; [ "$files" -eq 3 ] || die "trace_files_bench failed with exit status $files"; status=$files; }

case $status in
  0) say "all bounds met; $dir/results.jsonl" ;;
  3) say "a bound was missed; $dir/results.jsonl" ;;
  *) tail -n 20 "$dir/bench.log" >&2; die "the benchmarks failed with exit status $status (all they said is in $dir/bench.log)" ;;
esac
exit "$status"
