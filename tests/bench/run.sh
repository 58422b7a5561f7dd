#!/usr/bin/env bash
# Builds the benchmarks and the sample in Release, records the sample once to count its events per step, prints a table that
# compares recording cost with Kineto's, and writes build/bench/results.jsonl. Exits with 3 if a bound is missed: repeat on a
# quiet machine. Then measures reading, writing and analysing trace files (speed, and memory above the Trace), and compares with
# HTA on the same files; STEPSCOPE_BENCH_MILLIONS=10 uses ten million events.
#   bash tests/bench/run.sh [--rounds N] [--only PREFIX]
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../../cmake/setup.sh"

dir=$stepscope_root/build/bench
mkdir -p "$dir"
setup_build libbenchmark-dev
setup_torch
setup_viewers
build bench stepscope_bench trace_files_bench analysis_bench resnet

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
"$stepscope_viewers/bin/python" "$stepscope_root/tests/bench/hta_times.py" "$dir/hta.txt" "${traces[@]}"
millions=${STEPSCOPE_BENCH_MILLIONS:-2}
for bench in trace_files analysis; do
  [ "$bench" = trace_files ] || say "analysing them"
  "$dir/bin/${bench}_bench" --out "$dir/$bench.jsonl" --scratch "$dir" --hta "$dir/hta.txt" --events "$millions" "${traces[@]}" ||
    { files=$?; [ "$files" -eq 3 ] || die "${bench}_bench failed with exit status $files"; status=$files; }
done

case $status in
  0) say "all bounds met; $dir/results.jsonl" ;;
  3) say "a bound was missed; $dir/results.jsonl" ;;
  *) tail -n 20 "$dir/bench.log" >&2; die "the benchmarks failed with exit status $status (all they said is in $dir/bench.log)" ;;
esac
exit "$status"
