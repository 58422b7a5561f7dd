#!/usr/bin/env bash
# Turns what slot.sh brought back into tests/data/gpu (small recordings, and how they were made) and a dated section of
# samples/resnet/RESULTS.md, and writes build/gpu-state.tar.gz: carried to a fresh machine, slot.sh goes on from it.
#   bash tests/gpu/unpack.sh DIR... [--root FOLDER]
#   DIR...          what STEPSCOPE_GPU_RESULTS named; of several machines that went on with each other's state, in their order
#   --root FOLDER   write there instead of into this tree; required for results of a fake GPU
set -euo pipefail
exec python3 "$(dirname "${BASH_SOURCE[0]}")/unpack.py" "$@"
