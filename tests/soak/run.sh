#!/usr/bin/env bash
# Hours of recording while things go wrong: what stepscope costs then, loses and breaks.
#   bash tests/soak/run.sh [--minutes N (90)] [--only PART,...] [--again]
# Goes on where an earlier call stopped, unless told --again. Figures are in build/soak. README.md has the parts.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../../cmake/setup.sh"
mkdir -p "$stepscope_root/build"
setup_build
setup_torch
build default stepscope_cli stepscope_python soak_faults
exec "$STEPSCOPE_PYTHON" "$stepscope_root/tests/soak/soak.py" "$@"
