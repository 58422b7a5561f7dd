"""A work folder with recordings of the programs, and times measured without a profiler. Existing results are not made again."""

import functools
import json
import math
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "samples/ladder"))

from bench import Journal, run_program, write_whole  # noqa: E402
from harness import Running  # noqa: E402
from timing import Comparison, RunTimes, interleave, median_interval  # noqa: E402

TOLERANCE = 0.15  # for a predicted ratio of step times
BLOCK_MS = 500    # a timed stretch of steps
PAIRS, ROUNDS, MOST_ROUNDS = 3, 3, 9  # pairs of stretches per round; each round starts both variants again


class Measured:
    """Compares steps with the fix and without, from alternating runs."""
    def __init__(self, comparison):
        self.before_ms, self.after_ms = comparison.before_ms, comparison.after_ms
        self.ratio, self.interval = comparison.ratio, median_interval(comparison.ratios, 0.9)
        self.decided = self.interval.high - self.interval.low < TOLERANCE * self.ratio


class Folder:
    """A work folder, and the stepscope program that reads its recordings."""
    def __init__(self, path, stepscope):
        self.path, self.stepscope = pathlib.Path(path).resolve(), stepscope
        self.path.mkdir(parents=True, exist_ok=True)
        self.journal = Journal(str(self.path / "runs.jsonl"))

    def trace(self, one, fixed):
        return self.path / one.split / f"{one.name}.{'after' if fixed else 'before'}.json"

    def record(self, one, fixed, active):
        """Records the program unless it is recorded already, and writes the times of its steps beside the recording."""
        path = self.trace(one, fixed)
        if path.exists():
            return
        path.parent.mkdir(exist_ok=True)
        new = path.with_name("new." + path.name)
        with Running(one, fixed) as running:
            times = running.record(str(new), active)
        write_whole(str(path.with_suffix(".times")), json.dumps(times))
        new.rename(path)

    def times(self, one, fixed):
        return json.loads(self.trace(one, fixed).with_suffix(".times").read_text(encoding="utf-8"))

    @functools.cache
    def report(self, trace):
        return json.loads(run_program([self.stepscope, "analyze", "--format", "json", str(trace)]))

    def knob_value(self, one):
        """Returns the value for the setting that is the program's fix: as the report advises, or as declared."""
        if not one.knob:
            return None
        key, default = one.knob
        for finding in self.report(self.trace(one, False))["findings"]:
            settings = finding["settings"]
            if finding["id"] in one.expect and key in settings:
                return settings[key]
            if finding["id"] in one.expect and key == "batch_factor" and "batch_size" in settings and finding["gain_kind"] != "none":
                return settings["batch_size"] / self.samples(one)
        return default

    @functools.cache
    def samples(self, one):
        with Running(one, False) as running:
            return running.time(2)[1]

    def measure(self, one):
        """Measures in rounds until the interval is narrow, and reuses earlier results. Returns Measured; None if nothing is to
        be measured."""
        if not one.expect:
            return None
        value = self.knob_value(one)
        before, after = [], []
        for number in range(MOST_ROUNDS):
            measured = self._round(one, value, number)
            before += measured.before
            after += measured.after
            result = Measured(Comparison(before, after, one.period))
            if number + 1 >= ROUNDS and result.decided:
                break
        return result

    def measured(self, one):
        """Returns Measured from the folder's results so far; None if it has none."""
        value = self.knob_value(one)
        runs = [[self.journal.runs.get(self._key(one, is_after, value, number, pair)) for is_after in (False, True)]
                for number in range(MOST_ROUNDS) for pair in range(PAIRS)]
        whole = [pair for pair in runs if None not in pair]
        return Measured(Comparison(*zip(*whole), one.period)) if whole else None

    @staticmethod
    def _key(one, is_after, value, number, pair):
        return f"{one.name} {'fixed' if is_after else 'as it is'}, value {value}, round {number}, pair {pair}"

    def _round(self, one, value, number):
        running = {}
        lengths = {}

        def stretch(is_after, pair):
            key = self._key(one, is_after, value, number, pair)
            if key not in self.journal.runs:
                if is_after not in running:
                    running[is_after] = Running(one, is_after, value)
                    lengths[is_after] = self._stretch_length(one, running[is_after])
                times, samples = running[is_after].time(one.warm + lengths[is_after])
                self.journal.add(key, RunTimes(times, one.warm, samples))
            return self.journal.runs[key]

        try:
            return interleave(stretch, PAIRS, one.period)
        finally:
            for each in running.values():
                each.__exit__()

    @staticmethod
    def _stretch_length(one, running):
        times, _ = running.time(one.warm + 2 * one.period)
        typical = RunTimes(times, one.warm).median_ms(one.period)
        return one.period * max(1, math.ceil(BLOCK_MS / typical / one.period))
