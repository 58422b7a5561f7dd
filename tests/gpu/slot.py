"""The command behind slot.sh."""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tarfile
import time
from collections.abc import Sequence

from slot_engine import STATE, Slot, summary
from slot_parts import PARTS


def take_over_state(work: pathlib.Path) -> None:
    """Continues with what unpack.sh kept of an earlier machine, unless this machine has results of its own."""
    archive = work.parent / "gpu-state.tar.gz"
    if archive.exists() and not (work / STATE).exists():
        work.mkdir(parents=True, exist_ok=True)
        with tarfile.open(archive) as tar:
            tar.extractall(work, filter="data")


def describe_machine(bin_folder: pathlib.Path, fake: str) -> str:
    """Describes, as JSON, the machine on which the numbers were measured."""
    def said(*command: str) -> str:
        try:
            return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stdout.strip()
        except (OSError, subprocess.TimeoutExpired):
            return ""
    made = bin_folder / "made.txt"
    return json.dumps({
        "date": time.strftime("%Y-%m-%d", time.gmtime()), "fake": bool(fake),
        "gpu": said("nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"),
        "cores": len(os.sched_getaffinity(0)), "kernel": os.uname().release, "python": sys.version.split()[0],
        "torch": said(sys.executable, "-c", "import torch; print(torch.__version__)"),
        "build": made.read_text().strip() if made.exists() else ""}, indent=1) + "\n"


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="slot.sh", description="Runs the parts that need a GPU.")
    parser.add_argument("parts", nargs="*", metavar="PART")
    parser.add_argument("--bin", type=pathlib.Path, default="build/default/bin")
    parser.add_argument("--work", type=pathlib.Path, default="build/gpu-slot")
    parser.add_argument("--results", type=pathlib.Path, default="build/gpu-results")
    parser.add_argument("--limit", type=float, default=540, metavar="SECONDS")
    parser.add_argument("--again", action="store_true", help="also parts that have a result")
    parser.add_argument("--list", action="store_true", help="the parts")
    options = parser.parse_args(words)
    if options.list:
        print("".join(f"{part.name:10} {part.what}\n" for part in PARTS), end="")
        return 0
    unknown = sorted(set(options.parts) - {part.name for part in PARTS})
    if unknown:
        parser.error(f"no such part: {', '.join(unknown)} (--list)")
    take_over_state(options.work)
    fake = os.environ.get("STEPSCOPE_GPU_FAKE", "")
    slot = Slot(PARTS, options.bin.absolute(), options.work.absolute(), options.results, options.limit, sys.executable, fake)
    (slot.work / "machine.json").write_text(describe_machine(options.bin, fake))
    status = slot.run(options.parts, options.again)
    print(summary(PARTS, slot.state), end="")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
