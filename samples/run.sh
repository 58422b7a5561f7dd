#!/usr/bin/env bash
# Installs what is missing, trains ResNet-18 under a Profile scope, prints what to change, and says how to view the run.
#   bash samples/run.sh [--out DIR] [flags of the sample: see --help]
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../cmake/setup.sh"

out=runs/resnet
flags=()
while [ $# -gt 0 ]; do
  case $1 in
    --out) [ $# -ge 2 ] || die "--out needs a folder"; out=$2; shift 2 ;;
    --out=*) out=${1#--out=}; shift ;;
    *) flags+=("$1"); shift ;;
  esac
done
case $out in /*) ;; *) out=$PWD/$out ;; esac

mkdir -p "$stepscope_root/build"
setup_build
setup_torch
setup_tensorboard
build default resnet stepscope_cli

say "training ResNet-18 under stepscope (files go to $out)"
"$stepscope_root/build/default/bin/resnet" --log-dir "$out" ${flags[@]+"${flags[@]}"}
case " ${flags[*]-} " in *" --help "* | *" --no-profile "*) exit 0 ;; esac

say "to see the run"
echo "   $stepscope_viewers/bin/tensorboard --logdir $out     then open http://localhost:6006 (Profile: XProf; PyTorch Profiler: the plugin)"
echo "   $stepscope_root/build/default/bin/stepscope analyze $out     prints the report again"
echo "   https://ui.perfetto.dev opens $(ls -t "$out"/stepscope/*/c*/trace/rank0.json.gz 2>/dev/null | head -n 1)"
