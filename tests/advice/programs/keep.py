"""Shortens recordings of the programs for the regression test (programs_test.cc), and writes its expected line for each."""

import json
import pathlib
import subprocess

from truth import write_whole
from verdict import Verdict

MOST_BYTES = 40 << 10  # per recording; all traces in the repository together have at most 10 MiB
LISTING = "verdicts.txt"
# Keys that stepscope does not read in a CPU recording, and that compress badly.
UNUSED = ("Record function id", "Ev Idx", "External id")


def shrunk(trace, steps):
    """Returns the first steps of a recording as bytes for the repository: times rounded to 0.1 us, no arrows from forward to
    backward."""
    begins = sorted(event["ts"] for event in trace["traceEvents"]
                    if event["name"].startswith("ProfilerStep#") and event.get("cat") != "gpu_user_annotation")
    end, kept = begins[steps] if steps < len(begins) else float("inf"), []
    for event in trace["traceEvents"]:
        begins_at = event.get("ts", 0)
        ends_at = begins_at + event.get("dur", 0)
        if event["ph"] in "sf" or ends_at > end:
            continue
        event = dict(event, args={key: value for key, value in event.get("args", {}).items() if key not in UNUSED})
        if "dur" in event:  # rounds both ends, so that nested events stay nested
            event.update(ts=round(begins_at, 1), dur=round(round(ends_at, 1) - round(begins_at, 1), 1))
        kept.append(event)
    text = json.dumps(dict(trace, traceEvents=kept), separators=(",", ":")).encode()
    return subprocess.run(["zstd", "--ultra", "-22", "-c"], input=text, capture_output=True, check=True).stdout


def line(verdict):
    """Returns `name right|wrong rules-that-are-right rules-also-right false-findings`; lists have commas, `-` means none."""
    one, false = verdict.one, sorted({what.split()[0] for what in verdict.false if not what.endswith("fixed")})
    right = verdict.first_is_right if one.expect else not false
    lists = (",".join(names) or "-" for names in (one.expect, one.also, false))
    return " ".join((one.name, "right" if right else "wrong", *lists))


def _short(trace):
    """Returns the largest number of steps, up to twelve, that is small enough, and that number; None if three steps are too
    large."""
    least = len(shrunk(trace, 3))
    for steps in range(min(12, 3 * MOST_BYTES // least + 1), 2, -1):  # the further ones repeat much of the first
        data = shrunk(trace, steps)
        if len(data) <= MOST_BYTES:
            return data, steps
    return None, 0


def keep(folder, programs, target):
    """Writes NAME.json.zst to the folder `target`, and the lines to its listing; lines of other programs do not change."""
    target = pathlib.Path(target)
    target.mkdir(parents=True, exist_ok=True)
    listing = target / LISTING
    lines = {text.split()[0]: text for text in listing.read_text(encoding="utf-8").splitlines()} if listing.exists() else {}
    for one in programs:
        data, steps = _short(json.loads(folder.trace(one, False).read_text(encoding="utf-8")))
        if data is None:
            print(f"{one.name}: too large with three steps, left out")
            continue
        path = target / f"{one.name}.json.zst"
        path.write_bytes(data)
        lines[one.name] = line(Verdict.of_report(one, folder.report(path)))
        write_whole(str(listing), "".join(text + "\n" for _, text in sorted(lines.items())))
        print(f"{len(data) >> 10:3} KiB, {steps} steps: {lines[one.name]}", flush=True)
