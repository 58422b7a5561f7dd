#!/usr/bin/env bash
# Turns the results of slot.sh into tests/data/gpu (small recordings, and how they were made) and a dated section of
# samples/resnet/RESULTS.md. Also writes build/gpu-state.tar.gz: copied to a fresh machine, it lets slot.sh continue there.
#   bash tests/gpu/unpack.sh DIR... [--root FOLDER]
#   DIR...          the folder STEPSCOPE_GPU_RESULTS; if several machines continued each other's state, in their order
#   --root FOLDER   writes to FOLDER instead of this tree; required for results of a fake GPU
set -euo pipefail
exec python3 "$(dirname "${BASH_SOURCE[0]}")/unpack.py" "$@"
