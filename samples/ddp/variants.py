#!/usr/bin/env python3
"""What each variant of train.py loses, and what stepscope says about it: two ranks on this machine, timed by interleaved runs.

    python3 samples/ddp/variants.py --bin build/default/bin [--work DIR] [--only NAME,...] [--markdown FILE]

torchrun's Python must be able to import the package stepscope (docs/python.md). Results already in --work are not measured
again.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
from dataclasses import dataclass

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "samples/ladder"))

from bench import Journal, run_program, write_whole  # noqa: E402
from report import Failed  # noqa: E402
from tables import table  # noqa: E402
from timing import RunTimes, interleave, median_interval  # noqa: E402

TRAIN = str(ROOT / "samples/ddp/train.py")
STEPS, WARM_STEPS = 24, 4
# Findings about the recording or the machine, not about the program.
OF_THE_RECORDING = ("capture-incomplete", "contended-cores", "observer-effect", "warmup-in-window")
LATE_RANK = ("straggler-rank", "imbalanced-load")


@dataclass(frozen=True)
class Variant:
    """Flags that lose time, flags for the same work without the loss, and the findings of which one should come first."""
    name: str
    flags: str
    fixed: str = ""
    expect: tuple[str, ...] = ()  # empty: no finding above low
    rank: int = -1  # that the finding must name


VARIANTS = (
    Variant("good", ""),
    Variant("one-bucket", "--bucket-mb 1000", "", ("ddp-bucket-shape", "exposed-collective")),
    Variant("tiny-buckets", "--bucket-mb 0.01", "", ("ddp-bucket-shape", "exposed-collective")),
    Variant("by-hand", "--by-hand", "", ("ddp-bucket-shape", "exposed-collective")),
    Variant("good-accumulation", "--accumulate 4"),
    Variant("sync-always", "--accumulate 4 --sync-always", "--accumulate 4", ("missing-no-sync",)),
    Variant("slow-loader", "--slow-loader 40", "", LATE_RANK, 1),
    Variant("slow-host", "--slow-host 200", "", LATE_RANK, 1),
    # The same number of images in equal batches: 8 and 24 in turn are 16 on average.
    Variant("uneven", "--uneven 3", "--batch 16", LATE_RANK),
    Variant("unused", "--unused", "", ("ddp-unused-search",)),
    Variant("good-fsdp", "--fsdp"),
    Variant("one-unit", "--fsdp --one-unit", "--fsdp", ("fsdp-exposed",)),
)


class Runs:
    """Runs torchrun with train.py, and keeps the results measured so far."""
    def __init__(self, args):
        self.args, self.work = args, pathlib.Path(args.work).resolve()
        self.work.mkdir(parents=True, exist_ok=True)
        self.journal = Journal(str(self.work / "runs.jsonl"))

    def train(self, flags, *more):
        run_program([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", TRAIN, *flags.split(), *more])

    def time(self, flags, key):
        if key not in self.journal.runs:
            path = self.work / "steps.json"
            self.train(flags, "--steps", str(STEPS), "--json", str(path))
            record = {**json.loads(path.read_text(encoding="utf-8")), "warm_steps": WARM_STEPS, "batch": 1}
            self.journal.add(key, RunTimes.of(record, f"train.py {flags}"))
        return self.journal.runs[key]

    def compare(self, one):
        """Compares steps with the fix and without it."""
        return interleave(lambda is_after, pair: self.time(one.fixed if is_after else one.flags,
                                                           f"{one.name} {pair} {'after' if is_after else 'before'}"),
                          self.args.pairs)

    def report(self, one):
        folder = self.work / one.name
        if not folder.exists():
            self.train(one.flags, "--log-dir", str(self.work / "new"), "--active", "12")
            (self.work / "new").rename(folder)
        return json.loads(run_program([os.path.join(self.args.bin, "stepscope"), "analyze", "--format", "json", str(folder)]))


def is_right(one, finding):
    if finding is None or not one.expect:
        return not one.expect and (finding is None or finding["severity"] == "low")
    return finding["id"] in one.expect and (one.rank < 0 or f"rank {one.rank}" in finding["where"] + finding["evidence"])


def promised(one, report):
    """Returns the ratio of the step after and before as the finding predicts it, the ends of its range, and its confidence;
    None without a gain."""
    finding = next((finding for finding in report["findings"] if finding["id"] in one.expect), None)
    if finding is None or finding["gain_kind"] == "none":
        return None
    gain, step = finding["gain_ms_per_step"], finding["baseline_ms"]
    return *(1 - gain[key] / step for key in ("expected", "high", "low")), finding["gain_kind"]


def row(one, runs):
    report = runs.report(one)
    urged = [finding for finding in report["findings"]
             if finding["severity"] != "note" and finding["id"] not in OF_THE_RECORDING]
    first = urged[0] if urged else None
    cells = [one.name, f"`{one.flags}`" if one.flags else "", f"{first['id']} ({first['severity']})" if first else "none",
             "yes" if is_right(one, first) else "no"]
    if not one.expect:
        return [*cells, "", "", ""]
    comparison, promise = runs.compare(one), promised(one, report)
    interval = median_interval(comparison.ratios, 0.9)
    measured = f"{comparison.ratio:.2f} ({interval.low:.2f} to {interval.high:.2f})"
    if promise is None:
        return [*cells, "", measured, "no promise"]
    ratio, least, most, kind = promise
    if kind == "bound":
        return [*cells, f"at least {ratio:.2f}", measured, "kept" if comparison.ratio >= ratio else "exceeded"]
    return [*cells, f"{ratio:.2f} ({least:.2f} to {most:.2f})", measured, f"{100 * (ratio / comparison.ratio - 1):+.0f} %"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=str(ROOT / "build/default/bin"), help="folder of stepscope (build/default/bin)")
    parser.add_argument("--work", default=str(ROOT / "build/ddp"), help="recordings and times (build/ddp)")
    parser.add_argument("--only", default="", metavar="NAME,...", help="these variants")
    parser.add_argument("--pairs", type=int, default=5, help="interleaved runs per variant (5)")
    parser.add_argument("--markdown", metavar="FILE", help="write the table there, too")
    args = parser.parse_args()
    names = args.only.split(",") if args.only else [one.name for one in VARIANTS]
    unknown = set(names) - {one.name for one in VARIANTS}
    if unknown:
        parser.error(f"no variant {', '.join(sorted(unknown))}; there are {', '.join(one.name for one in VARIANTS)}")
    try:
        runs, rows = Runs(args), []
        for one in VARIANTS:
            if one.name in names:
                rows.append(row(one, runs))
                print("  ".join(rows[-1]), file=sys.stderr, flush=True)
    except (Failed, subprocess.SubprocessError) as error:
        sys.exit(f"variants.py: {error}")
    text = table(["variant", "flags", "first finding", "right", "predicted", "measured (90 %)", "outcome"], rows)
    print(text)
    if args.markdown:
        write_whole(args.markdown, text + "\n")


if __name__ == "__main__":
    main()
