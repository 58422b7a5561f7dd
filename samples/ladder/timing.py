"""Interleaved timing of two variants of a program, and statistics for few noisy runs. Tests also import it by path.

A machine drifts, so both variants run in turn, and each pair of runs gives one ratio. The result is the median of the ratios
with its 95 % interval.
"""

import functools
import math
import random
import statistics
from dataclasses import dataclass
from typing import NamedTuple


class Interval(NamedTuple):
    """A range that contains a value with 95 % confidence unless stated otherwise."""
    low: float
    high: float

    def inverse(self):  # the interval of 1 / value, for a value above 0
        return Interval(1 / self.high, 1 / self.low if self.low > 0 else math.inf)


@functools.lru_cache(maxsize=None)
def student_factor(confidence, freedom):
    """Returns half the width of a two-sided Student interval, in standard errors, accurate to 1 %. REQUIRES: freedom > 0."""
    scale = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(freedom * math.pi)

    def tails(t, parts=400):  # P(|T| > t) by Simpson's rule; t = tan(angle) makes the range finite
        width, total = (math.pi / 2 - math.atan(t)) / parts, 0.0
        for i in range(parts):  # the end matters only for freedom 1, by less than 0.1 %
            angle = math.atan(t) + i * width
            density = math.exp(-(freedom + 1) / 2 * math.log1p(math.tan(angle) ** 2 / freedom)) / math.cos(angle) ** 2
            total += density * (1 if i == 0 else 4 if i % 2 else 2)
        return 2 * scale * total * width / 3
    low, high = 0.0, 1000.0
    while high - low > 1e-4 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if tails(middle) > 1 - confidence else (low, middle)
    return high


def median_interval(values, confidence=0.95, draws=4000):
    """Returns the interval of the median of such values, 95 % by default; the same values give the same interval. With six or
    more values, it is a bootstrap interval (sampling with replacement). For n values, even the range from the smallest to the
    largest holds the median with a probability of only 1 - 2^(1 - n), so fewer than six values use Student's t, as if normally
    distributed. One value shows no spread: its interval is infinite."""
    count = len(values)
    if count < 2:
        return Interval(-math.inf, math.inf)
    if count < 6:
        half = student_factor(confidence, count - 1) * statistics.stdev(values) / math.sqrt(count)
        return Interval(statistics.fmean(values) - half, statistics.fmean(values) + half)
    rng = random.Random(1)
    medians = [statistics.median(rng.choices(values, k=count)) for _ in range(draws)]
    cuts = statistics.quantiles(medians, n=round(2 / (1 - confidence)), method="inclusive")  # 2.5 %, 5 % ... 97.5 %
    return Interval(cuts[0], cuts[-1])


class Length(NamedTuple):
    """How many steps of a run are timed."""
    steps: int  # including the warm ones
    warm_steps: int = 4  # at the start; excluded from all results

    def whole(self, period):  # extended so that the timed steps are whole periods
        timed = max(1, self.steps - self.warm_steps)
        return Length(self.warm_steps + -(-timed // period) * period, self.warm_steps)


@dataclass
class RunTimes:
    """The steps of one run, as resnet's --json writes them."""
    step_ms: list
    warm_steps: int = 0  # at the start; excluded from all results
    batch: int = 1       # samples per step

    @staticmethod
    def of(record, what):
        """Parses the object that resnet writes. Raises ValueError, which names `what`."""
        try:
            run = RunTimes([float(step) for step in record["step_ms"]], int(record["warm_steps"]), int(record["batch"]))
            if min(run.step_ms) <= 0 or run.warm_steps < 0 or run.batch < 1:
                raise ValueError
            return run
        except (KeyError, TypeError, ValueError):
            raise ValueError(f"{what}: no step_ms, warm_steps and batch as resnet writes them") from None

    def median_ms(self, period=1):
        """Returns the typical step. If something happens only in every `period`-th step, a step is the mean of `period`
        steps."""
        steps = self.step_ms[self.warm_steps:] or self.step_ms
        block = min(max(1, period), len(steps))
        return statistics.median(statistics.fmean(steps[at:at + block])
                                 for at in range(0, len(steps) - block + 1, block))

    def rate(self, period=1):  # samples per second
        return 1000 * self.batch / self.median_ms(period)


class Comparison:
    """Runs before and after a change, in pairs; `period` is as in RunTimes.median_ms. Results are medians over pairs. ratio,
    ratios and interval are of the time per sample, after / before: below 1 is faster."""
    def __init__(self, before, after, period=1):
        self.before, self.after, self.period = before, after, period
        self.before_ms, self.after_ms = (
            statistics.median(run.median_ms(period) for run in side) for side in (before, after))
        rates = [[run.rate(period) for run in side] for side in (before, after)]
        self.before_rate, self.after_rate = map(statistics.median, rates)
        self.before_range, self.after_range = ((min(side), max(side)) for side in rates)  # ranges, not 95 % intervals
        self.ratios = [first / second for first, second in zip(*rates)]
        self.ratio, self.interval = statistics.median(self.ratios), median_interval(self.ratios)
        # "faster" and "slower" only if the difference is larger than the noise.
        self.outcome = "faster" if self.interval.high < 1 else "slower" if self.interval.low > 1 else "unclear"
        # A change is kept if it is the faster of the two, even within the noise.
        self.to_be_kept = self.ratio < 1
        # The interval of the step after the change, and of the increase of the step.
        self.after_interval_ms = Interval(*(end * self.after_ms / self.ratio for end in self.interval))
        self.cost_interval_ms = median_interval([two.median_ms(period) - one.median_ms(period)
                                                 for one, two in zip(before, after)])


def interleave(run, pairs, period=1):
    """Returns the Comparison of `pairs` times run(is_after, pair), which returns RunTimes. The variant that ran last in one
    pair runs first in the next one, so that drift affects both alike."""
    sides = [], []
    for pair in range(pairs):
        for is_after in (pair % 2 == 1, pair % 2 == 0):
            sides[is_after].append(run(is_after, pair))
    return Comparison(*sides, period)
