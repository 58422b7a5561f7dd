#!/usr/bin/env bash
# Builds the benchmarks and the sample in Release, records the sample once for its events per step, prints the table of what
# recording costs beside Kineto, and writes build/bench/results.jsonl. Exit 3 if a bound is missed: repeat on a quiet machine.
#   bash tests/bench/run.sh [--rounds N] [--only PREFIX]
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../../cmake/setup.sh"

dir=$stepscope_root/build/bench
mkdir -p "$dir"
setup_build
setup_torch
build bench stepscope_bench resnet

say "the sample, for its events per step"
rm -rf "$dir/sample"
"$dir/bin/resnet" --log-dir "$dir/sample" >"$dir/sample.log" 2>&1 || { tail -n 20 "$dir/sample.log" >&2; die "the sample failed"; }
trace=$(find "$dir/sample/stepscope" -path '*/trace/rank0.json.gz' | head -n 1)

say "benchmarks"
"$dir/bin/stepscope_bench" --out "$dir/results.jsonl" --scratch "$dir" --sample-trace "$trace" "$@"
