#!/usr/bin/env python3
"""Does a change bring what the report promised?

Profiles the sample once before the change and reads the promise from its advice file; then runs it unprofiled before
and after in turn (A B A B ...), so that a drift of the machine hits both alike, and prints promise and measurement side
by side. The interval is a bootstrap over the pairs.

    python3 tests/bench/prediction.py --resnet build/default/bin/resnet \
        --before "--workers 0" --after "--workers 1" --finding sync-data-loading
"""

import argparse
import glob
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile


def run(command):
    """Runs the sample quietly; what it said is shown if it fails."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")


def median_ms(resnet, flags, steps):
    """The median unprofiled step of one run, in ms."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "steps.json")
        command = [resnet, "--no-profile", "--steps", str(steps), "--json", path, *flags.split()]
        run(command)
        with open(path, encoding="utf-8") as file:
            return json.load(file)["median_ms"]


def advice(resnet, flags):
    """The advice of one profiled run."""
    with tempfile.TemporaryDirectory() as folder:
        command = [resnet, "--log-dir", folder, *flags.split()]
        run(command)
        (path,) = glob.glob(os.path.join(folder, "stepscope", "*", "c*", "advice", "rank*.json"))
        with open(path, encoding="utf-8") as file:
            return json.load(file)


def interval(pairs, statistic, draws=2000):
    """The 95 % bootstrap interval of a statistic over pairs."""
    rng = random.Random(1)
    values = sorted(statistic([rng.choice(pairs) for _ in pairs]) for _ in range(draws))
    return values[int(0.025 * draws)], values[int(0.975 * draws)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--resnet", required=True)
    parser.add_argument("--before", default="")
    parser.add_argument("--after", required=True)
    parser.add_argument("--finding", required=True, help="the finding whose fix leads from before to after")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=36)
    args = parser.parse_args()

    report = advice(args.resnet, args.before)
    found = [f for f in report["findings"] if f["id"] == args.finding]
    profiled = report["steps"]["mean_ms"]
    gain = found[0]["gain_ms_per_step"] if found else {"expected": 0, "low": 0, "high": 0}
    after = advice(args.resnet, args.after)
    still = [f["id"] for f in after["findings"] if f["id"] == args.finding]

    pairs = []
    for pair in range(args.pairs):
        a = median_ms(args.resnet, args.before, args.steps)
        b = median_ms(args.resnet, args.after, args.steps)
        pairs.append((a, b))
        print(f"pair {pair + 1}: {a:.1f} -> {b:.1f} ms", flush=True)

    def before_ms(sample):
        return statistics.median(a for a, _ in sample)

    def after_ms(sample):
        return statistics.median(b for _, b in sample)

    def won_ms(sample):
        return statistics.median(a - b for a, b in sample)

    print(f"\n{args.finding}: \"{args.before}\" -> \"{args.after}\", {args.pairs} pairs of {args.steps} steps")
    print(f"  promised   {'nothing (not found)' if not found else ''}"
          f"{'' if not found else '%.1f -> %.1f ms (gain %.1f, likely %.1f to %.1f)' % (profiled, profiled - gain['expected'], gain['expected'], gain['low'], gain['high'])}")
    low, high = interval(pairs, won_ms)
    print(f"  measured   {before_ms(pairs):.1f} -> {after_ms(pairs):.1f} ms (gain {won_ms(pairs):.1f}, 95 % {low:.1f} to {high:.1f})")
    error = (profiled - gain["expected"]) / after_ms(pairs) - 1
    print(f"  promised step against measured step: {100 * error:+.1f} %")
    print(f"  after the fix the finding is {'STILL THERE' if still else 'gone'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
