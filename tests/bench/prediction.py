#!/usr/bin/env python3
"""Does a change bring what the replay of a recording said it would?

In turn, pair after pair, so that a drift of the machine hits all alike: profiles the sample before and after the
change, and runs it unprofiled before and after. `stepscope compare` tells what was predicted for the change from the
recording before it. Prints both as step times (of as many samples, where the batch changes) with a bootstrap interval
over the pairs.

    python3 tests/bench/prediction.py --bin build/default/bin --before "--workers 0" --after "--workers 1"
    python3 tests/bench/prediction.py --bin build/default/bin --all --common "--side 64"
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile

# What the guides change on a CPU, each from the sample's own defaults (batch 32, one thread, no workers).
CHANGES = {
    "workers 0 -> 1": ("", "--workers 1"),
    "threads 1 -> 2": ("", "--threads 2"),
    "batch 32 -> 64": ("", "--batch 64"),
    "batch 32 -> 128": ("", "--batch 128"),
    "set_to_none 0 -> 1": ("--set-to-none 0", ""),
    "fused SGD step": ("", "--sgd fused"),
    "channels_last": ("", "--channels-last"),
    "2 threads, workers 0 -> 1": ("--threads 2", "--threads 2 --workers 1"),
}


def run(command):
    """Runs a program quietly and returns what it printed; what it complained of is shown if it fails."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


class Sample:
    """The sample program under one set of flags."""

    def __init__(self, args, flags):
        self.args = args
        self.flags = [*args.common.split(), *flags.split()]

    def measure(self):
        """The median unprofiled step of one run, in ms, and its batch."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "steps.json")
            run([f"{self.args.bin}/resnet", "--no-profile", "--steps", str(self.args.steps), "--json", path,
                 *self.flags])
            with open(path, encoding="utf-8") as file:
                measured = json.load(file)
        return measured["median_ms"], measured["batch"]

    def profile(self, folder):
        run([f"{self.args.bin}/resnet", "--log-dir", folder, "--active", str(self.args.active), *self.flags])


def compare(args, before, after):
    """What `stepscope compare` says of two profiled runs."""
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
        before.profile(first)
        after.profile(second)
        return json.loads(run([f"{args.stepscope}", "compare", "--format", "json", first, second]))


def interval(values, draws=2000):
    """The 95 % bootstrap interval of the median."""
    rng = random.Random(1)
    medians = sorted(statistics.median(rng.choices(values, k=len(values))) for _ in range(draws))
    return medians[int(0.025 * draws)], medians[int(0.975 * draws)]


def one_pair(args, before, after):
    """Step times in ms of one pair: (measured before, measured after, predicted after), and the comparison."""
    told = compare(args, before, after)
    before_ms, before_batch = before.measure()
    after_ms, after_batch = after.measure()
    recorded = told["before"]["mean_ms"]
    # The recording is of its own minute: what it predicts is a share of its step.
    share = 1 - told["predicted_ms"]["expected"] / recorded
    scale = before_batch / after_batch
    return before_ms, after_ms * scale, before_ms * share, told


def show(args, name, before_flags, after_flags):
    """Measures one change; returns how far the predicted step is off, or None if nothing was predicted."""
    before, after = Sample(args, before_flags), Sample(args, after_flags)
    pairs = [one_pair(args, before, after) for _ in range(args.pairs)]
    told = pairs[0][3]
    measured_before = statistics.median(p[0] for p in pairs)
    measured = statistics.median(p[1] for p in pairs)
    won_low, won_high = interval([p[0] / p[1] for p in pairs])
    print(f"{name} ({' '.join(before.flags) or 'defaults'} -> {' '.join(after.flags)})")
    print(f"  measured   {measured_before:.1f} -> {measured:.1f} ms, {measured_before / measured:.2f}x"
          f" (95 % {won_low:.2f} to {won_high:.2f}, {args.pairs} pairs)")
    if told["predicted_kind"] != "predicted":
        print(f"  predicted  nothing; changed: {', '.join(told['changed']) or 'no setting that was recorded'}", flush=True)
        return None
    predicted = statistics.median(p[2] for p in pairs)
    off = statistics.median(p[2] / p[1] for p in pairs) - 1
    low, high = interval([p[2] / p[1] - 1 for p in pairs])
    recorded = statistics.median(p[3]["before"]["mean_ms"] for p in pairs)
    print(f"  predicted  {measured_before:.1f} -> {predicted:.1f} ms for {', '.join(told['changed'])}; recorded steps took"
          f" {recorded:.1f} ms")
    print(f"  predicted step against measured step: {100 * off:+.1f} % (95 % {100 * low:+.1f} to {100 * high:+.1f})",
          flush=True)
    return off


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True, help="folder with resnet and stepscope")
    parser.add_argument("--stepscope", help="another stepscope than that of --bin")
    parser.add_argument("--before", default="")
    parser.add_argument("--after")
    parser.add_argument("--all", action="store_true", help="all changes of the table, instead of --before and --after")
    parser.add_argument("--only", default="", help="of the table, those whose name contains this")
    parser.add_argument("--common", default="", help="flags of both sides")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=36)
    parser.add_argument("--active", type=int, default=8, help="recorded steps")
    args = parser.parse_args()
    args.stepscope = args.stepscope or f"{args.bin}/stepscope"
    if not args.all and args.after is None:
        parser.error("--after or --all")
    changes = {f"{args.before} -> {args.after}": (args.before, args.after)}
    if args.all:
        changes = {name: flags for name, flags in CHANGES.items() if args.only in name}
    far_off = [name for name, (before, after) in changes.items()
               if abs(show(args, name, before, after) or 0) > 0.15]
    if far_off:
        print(f"more than 15 % off: {', '.join(far_off)}")
    return 1 if far_off else 0


if __name__ == "__main__":
    sys.exit(main())
