#!/usr/bin/env bash
# Records programs of the gallery again, for recorded_programs_test.cc. Runs each program up to RUNS times, until its steps vary
# by less than 4 %, and keeps the run whose steps vary least, whatever its report says.
#   bash tests/samples/gallery/record.sh [--device cuda] [--out DIR] [--missing] [RULE...]
#   --device cuda   records the programs for a GPU, on a GPU; without it, those for a CPU
#   --out DIR       where to write the recordings; default: tests/data/gallery, or tests/data/gpu/gallery
#   --missing       only records missing programs, to continue after a stop
#   RUNS, GALLERY   maximum number of runs (12), and the program (build/default/bin/gallery)
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)
gallery=${GALLERY:-$root/build/default/bin/gallery}
runs=${RUNS:-12}
out="" device=cpu missing=""
while [ $# -gt 0 ]; do
  case $1 in
    --device) device=$2; shift 2 ;;
    --out) out=$2; shift 2 ;;
    --missing) missing=1; shift ;;
    --*) echo "record.sh: unknown option $1" >&2; exit 2 ;;
    *) break ;;
  esac
done
if [ "$device" = cuda ]; then
  out=${out:-$root/tests/data/gpu/gallery}
  shown() { grep '(GPU)'; }
else
  out=${out:-$root/tests/data/gallery}
  shown() { grep -v '(GPU)'; }
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$out"

# The repository has .zst files, which are half as large; a borrowed machine may lack zstd.
if command -v zstd >/dev/null; then
  kind=zst
  pack() { zstd --ultra -22 -q -c; }
else
  kind=gz
  pack() { gzip -9n; }
fi

# calmest REPORT...: prints how much the steps of the calmest report vary, and its name
calmest() {
  python3 -c '
import json, sys
cov, name = min((json.load(open(name))["steps"]["cov"], name) for name in sys.argv[1:])
print("%.1f" % (100 * cov), name)' "$@"
}

[ $# -gt 0 ] || set -- $("$gallery" --list | shown | cut -d' ' -f1)
failed=0
for rule in "$@"; do
  for fixed in "" --fixed; do
    file=$out/${rule//-/_}${fixed:+_fixed}.json.$kind
    if [ -n "$missing" ] && [ -f "$file" ]; then continue; fi
    rm -rf "${work:?}"/*
    for run in $(seq "$runs"); do
      "$gallery" "$rule" $fixed --device "$device" --quiet --log-dir "$work/$run" --json "$work/$run.json" 2>"$work/err" ||
        { echo "record.sh: $rule${fixed:+ $fixed} fails: $(tail -n 3 "$work/err")" >&2; failed=1; continue 2; }
      read -r percent best < <(calmest "$work"/*.json)
      [ "${percent%.*}" -ge 4 ] || break
    done
    zcat "${best%.json}"/stepscope/*/c0/trace/rank0.json.gz | pack >"$file.new"
    mv "$file.new" "$file"
    echo "$(basename "$file"): steps vary by $percent %, $(($(stat -c %s "$file") >> 10)) KiB, $run runs"
  done
done
exit "$failed"
