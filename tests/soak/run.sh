#!/usr/bin/env bash
# Records for hours while faults occur, and counts what stepscope costs, loses and breaks.
#   bash tests/soak/run.sh [--minutes N (90)] [--only PART,...] [--again]
# Continues where an earlier call stopped, unless given --again. Results are in build/soak. README.md describes the parts.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../../cmake/setup.sh"
mkdir -p "$stepscope_root/build"
setup_build
setup_torch
build default stepscope_cli stepscope_python soak_faults
exec "$STEPSCOPE_PYTHON" "$stepscope_root/tests/soak/soak.py" "$@"
