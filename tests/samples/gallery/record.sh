#!/usr/bin/env bash
# Records the programs of the gallery that show on a CPU again, for recorded_programs_test.cc: each up to RUNS times,
# until steps vary by less than 4 %, and keeps the run whose steps vary least, whatever its report says.
#   bash tests/samples/gallery/record.sh [RULE...]
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)
gallery=${GALLERY:-$root/build/default/bin/gallery}
runs=${RUNS:-12}
out=$root/tests/data/gallery
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$out"

# calmest REPORT...: by how much its steps vary, and its name
calmest() {
  python3 -c '
import json, sys
cov, name = min((json.load(open(name))["steps"]["cov"], name) for name in sys.argv[1:])
print("%.1f" % (100 * cov), name)' "$@"
}

[ $# -gt 0 ] || set -- $("$gallery" --list | grep -v '(GPU)' | cut -d' ' -f1)
for rule in "$@"; do
  for fixed in "" --fixed; do
    for run in $(seq "$runs"); do
      "$gallery" "$rule" $fixed --quiet --log-dir "$work/$run" --json "$work/$run.json" 2>"$work/err" ||
        { cat "$work/err" >&2; exit 1; }
      read -r percent best < <(calmest "$work"/*.json)
      [ "${percent%.*}" -ge 4 ] || break
    done
    file=$out/${rule//-/_}${fixed:+_fixed}.json.gz
    zcat "${best%.json}"/stepscope/*/c0/trace/rank0.json.gz | gzip -9n >"$file"
    echo "$(basename "$file"): steps vary by $percent %, $(($(stat -c %s "$file") >> 10)) KiB, $run runs"
    rm -rf "${work:?}"/*
  done
done
