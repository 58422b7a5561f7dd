#!/usr/bin/env bash
# Builds only the program `stepscope`, without LibTorch. That is enough to read existing traces.
#   bash plugins/cli/build.sh
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../../cmake/setup.sh"

mkdir -p "$stepscope_root/build"
setup_build
build cli stepscope_cli
say "$stepscope_root/build/cli/bin/stepscope analyze TRACE"
echo "   a trace to try: $stepscope_root/tests/data/traces/resnet50_v100_workers0.pt.trace.json.gz"
