"""Interleaved timing of two variants of a program, and statistics of few and noisy runs; tests import it by path, too.

A machine drifts, so both variants run in turn and each pair of runs gives one ratio; the median of the ratios and its
95 % interval are the result.
"""

import functools
import math
import random
import statistics
from dataclasses import dataclass
from typing import NamedTuple


class Interval(NamedTuple):
    """A range that holds a figure with 95 % confidence, if nothing else is said."""
    low: float
    high: float

    def inverse(self):  # of 1 / figure, for a figure above 0
        return Interval(1 / self.high, 1 / self.low if self.low > 0 else math.inf)


@functools.lru_cache(maxsize=None)
def student_factor(confidence, freedom):
    """Half the width of a two-sided Student interval, in standard errors, good to 1 %. REQUIRES: freedom > 0."""
    scale = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(freedom * math.pi)

    def tails(t, parts=400):  # P(|T| > t) by Simpson's rule; t = tan(angle) makes the range finite
        width, total = (math.pi / 2 - math.atan(t)) / parts, 0.0
        for i in range(parts):  # the end adds something for freedom 1 only, less than 0.1 %
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
    """The interval of the median of many such values, 95 % by default; the same values give the same interval.
    Six values or more are drawn again with replacement (bootstrap). Of n values even the range from the least to the
    most holds the median in only 1 - 2^(1 - n) of all cases, so fewer than six get Student's t instead, as if they
    came from a normal distribution. One value says nothing about its spread: its interval is all numbers."""
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
    """How much of a run is timed."""
    steps: int           # with the warm ones
    warm_steps: int = 4  # at the start; left out of every figure

    def whole(self, period):  # this, or so many more steps that the timed ones are whole periods
        timed = max(1, self.steps - self.warm_steps)
        return Length(self.warm_steps + -(-timed // period) * period, self.warm_steps)


@dataclass
class RunTimes:
    """The steps of one run, as resnet's --json writes them."""
    step_ms: list
    warm_steps: int = 0  # at the start; left out of every figure
    batch: int = 1       # samples per step

    @staticmethod
    def of(record, what):
        """Reads the object that resnet writes. Raises ValueError, which names `what`."""
        try:
            run = RunTimes([float(step) for step in record["step_ms"]], int(record["warm_steps"]), int(record["batch"]))
            if min(run.step_ms) <= 0 or run.warm_steps < 0 or run.batch < 1:
                raise ValueError
            return run
        except (KeyError, TypeError, ValueError):
            raise ValueError(f"{what}: no step_ms, warm_steps and batch as resnet writes them") from None

    def median_ms(self, period=1):
        """The typical step. Where something happens in every `period`-th step only, a step is the mean of `period`."""
        steps = self.step_ms[self.warm_steps:] or self.step_ms
        block = min(max(1, period), len(steps))
        return statistics.median(statistics.fmean(steps[at:at + block])
                                 for at in range(0, len(steps) - block + 1, block))

    def rate(self, period=1):  # samples per second
        return 1000 * self.batch / self.median_ms(period)


class Comparison:
    """Runs before and after a change, pair by pair; `period` as in RunTimes.median_ms. Figures are medians over pairs.
    ratio, ratios and interval are of the time per sample, after / before: below 1 is faster."""
    def __init__(self, before, after, period=1):
        self.before, self.after, self.period = before, after, period
        self.before_ms, self.after_ms = (
            statistics.median(run.median_ms(period) for run in side) for side in (before, after))
        rates = [[run.rate(period) for run in side] for side in (before, after)]
        self.before_rate, self.after_rate = map(statistics.median, rates)
        self.before_range, self.after_range = ((min(side), max(side)) for side in rates)  # not intervals of 95 %
        self.ratios = [first / second for first, second in zip(*rates)]
        self.ratio, self.interval = statistics.median(self.ratios), median_interval(self.ratios)
        # Faster or slower only beyond the noise.
        self.outcome = "faster" if self.interval.high < 1 else "slower" if self.interval.low > 1 else "unclear"
        # What gains nothing is not worth a flag; what is the faster of the two is, beyond the noise or not.
        self.to_be_kept = self.ratio < 1
        # The step after, as the interval of the ratio leaves it; and of what the step grows by.
        self.after_interval_ms = Interval(*(end * self.after_ms / self.ratio for end in self.interval))
        self.cost_interval_ms = median_interval([two.median_ms(period) - one.median_ms(period)
                                                 for one, two in zip(before, after)])


def interleave(run, pairs, period=1):
    """The Comparison of `pairs` times run(is_after, pair), which returns RunTimes.
    The variant that ran last in one pair runs first in the next, so that a drift of the machine hits both alike."""
    sides = [], []
    for pair in range(pairs):
        for is_after in (pair % 2 == 1, pair % 2 == 0):
            sides[is_after].append(run(is_after, pair))
    return Comparison(*sides, period)
