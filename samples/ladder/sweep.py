"""sweep: times every combination of some flags, says which flags affect each other, and compares with the replay's predictions.

The model: log(rate) of a run = effect of its combination + effect of its round + noise. The noise has the same size for all
runs, and is estimated from the residuals. An effect is a weighted sum of combinations, so its error follows.
"""

import collections
import functools
import itertools
import math
import statistics

from bench import ProgramFailed
from report import Failed, Finding
from resnet_flags import NAMED, Factor, UsageError, cross, follow, follow_settings, spelled
from tables import figure, ranged, table
from timing import Length, student_factor

MOST_POINTS, REFUSED, WORTH_NAMING, AS_PRODUCT = 2000, 2, 0.01, "as the product"
# Samples per second relative to a baseline, as a factor, with its 95 % (measured) or likely (predicted) range.
Ratio = collections.namedtuple("Ratio", "ratio low high")


class Cube:
    """Samples per second of each combination, {levels: [one per round]}, baseline first. Combinations may be missing. A change
    is (factor, level), where the level is not the first value of the flag."""

    def __init__(self, factors, rates):
        self.factors, self.rates, self.rounds = factors, rates, len(next(iter(rates.values())))
        logs = {levels: [math.log(rate) for rate in runs] for levels, runs in rates.items()}
        self.mean = {levels: statistics.fmean(runs) for levels, runs in logs.items()}
        drift = [statistics.fmean(runs) for runs in zip(*logs.values())]
        self.freedom = (len(logs) - 1) * (self.rounds - 1)
        self.variance = sum((log - self.mean[levels] - drift[i] + statistics.fmean(drift)) ** 2 for levels, runs in
                            logs.items() for i, log in enumerate(runs)) / max(1, self.freedom)
        self.text = lambda f, level: factors[f].text(level)
        self.changes = [(f, level) for f, factor in enumerate(factors) for level in range(1, len(factor.values))]

    def contrast(self, *corners, confidence=0.95, at_baseline=False):
        """Returns the mean of the corners' sum over all points that have every corner, as a Ratio; None if there is no such
        point. A corner is (sign, {factor: level}). `at_baseline`: only the point where all other flags have their first
        value."""
        weights, count = {}, 0
        for point in self.rates:
            at = [tuple(levels.get(f, level) for f, level in enumerate(point)) for _, levels in corners]
            others = any(level for f, level in enumerate(point) if f not in corners[0][1])
            if point == at[0] and all(levels in self.rates for levels in at) and not (at_baseline and others):
                count += 1
                for (sign, _), levels in zip(corners, at):
                    weights[levels] = weights.get(levels, 0) + sign
        if not count:
            return None
        value = sum(weight * self.mean[levels] for levels, weight in weights.items()) / count
        error = math.sqrt(sum(weight ** 2 for weight in weights.values()) * self.variance / self.rounds) / count
        half = min(700, student_factor(confidence, self.freedom) * error if self.freedom else math.inf)
        return Ratio(*(math.exp(value + end) for end in (0, -half, half)))

    def effects(self):
        """Returns {change: (Ratio at the baseline, or None; average Ratio over all other flags)}."""
        effects = {(f, level): [self.contrast((1, {f: level}), (-1, {f: 0}), at_baseline=at) for at in (True, False)]
                   for f, level in self.changes}
        return {change: ratios for change, ratios in effects.items() if ratios[1]}

    def pairs(self):
        """Returns {two changes: {name: Ratio, averaged over all other flags}}, those farthest from the product first. The
        intervals of both_over_product hold for all pairs together with 95 % (Bonferroni): if flags only multiply, then in 19 of
        20 sweeps no pair is named."""
        found = {}
        for (f, a), (g, b) in itertools.combinations(self.changes, 2):
            none, first, second, both = ({f: x, g: y} for x, y in ((0, 0), (a, 0), (0, b), (a, b)))
            product = (1, both), (-1, first), (-1, second), (1, none)
            if f != g and self.contrast(*product):  # alone: with the first value of the other flag
                found[(f, a), (g, b)] = product, {name: self.contrast((1, one), (-1, none)) for name, one in (
                    ("first_alone", first), ("second_alone", second), ("both", both))}
        pairs = {changes: ratios | {"both_over_product": self.contrast(*product, confidence=1 - 0.05 / len(found))}
                 for changes, (product, ratios) in found.items()}
        return dict(sorted(pairs.items(), key=lambda pair: -abs(math.log(pair[1]["both_over_product"].ratio))))


def verdict(a, b, both, over):
    """Names what two flags do together. Claims about one flag alone are made only if its interval leaves no doubt."""
    if abs(over.ratio - 1) < WORTH_NAMING or over.low <= 1 <= over.high:
        return AS_PRODUCT
    more, better = over.low > 1, max(a.ratio, b.ratio)
    helps, costs = sum(one.low > 1 for one in (a, b)), sum(one.high < 1 for one in (a, b))
    if (both.low > 1 and not helps) if more else (both.high < 1 and not costs):
        return "help only together" if more else "cost only together"
    if costs == 2:
        return f"cost {'less' if more else 'more'} together than the product of their single costs"
    if helps and costs:
        return f"one helps, one costs: together {'more' if more else 'less'} than the product"
    if more:
        return "help each other" if helps and both.ratio > better else "more than the product"
    return "less than the product" if helps < 2 or both.ratio > better else "cancel: no more than the better one alone"


def changes_of(report, factor, level, baseline):
    """Returns what may predict a flag at one of its values: a setting of what-if, or the ID of a finding that leads to it."""
    after = factor.at(level, baseline)
    for key, (flag, *only) in NAMED.items():
        value = only[0] if only else factor.values[level]
        if flag == factor.flag and spelled(follow_settings({key: value}, baseline)) == spelled(after):
            yield f"{key}={value}"
    for one in report.findings:  # a finding that other flags may also cause does not count
        if all(spelled(follow(one, report, now)) == spelled(after) for now in (baseline, after)):
            yield one.id


def predict(bench, report, factors, points):
    """Returns ({levels: Ratio}, {value of a flag: why its points are not predicted}), baseline first. Asks `stepscope what-if`
    for all changes of a point together."""
    baseline, known, predicted, unknown = next(iter(points.values())), {}, {}, {}

    @functools.lru_cache(maxsize=None)
    def ask(changes):  # (Ratio or None, why not)
        if not changes:
            return Ratio(1, 1, 1), ""
        ids = [change for change in changes if "=" not in change]
        words = [change for change in changes if "=" in change] + (["--finding", ",".join(ids)] if ids else [])
        try:
            told = bench.stepscope("what-if", report.path, *words)
        except Failed as failure:
            return None, str(failure)
        if told["why_not"]:
            return None, told["why_not"]
        gains = [told["baseline_ms"] - told[key] for key in ("predicted_ms", "high_ms", "low_ms")]
        before, after, low, high = report.predicted(Finding("", "", "", *gains), bench.period(baseline))
        if gains[0] >= before:
            return None, "a gain of the whole step is no prediction"
        return Ratio(before / after, before / high, before / low), ""

    for f, level in sorted({value for levels in points for value in enumerate(levels)}):
        same = spelled(factors[f].at(level, baseline)) == spelled(baseline)
        changes = [()] if same else [(one,) for one in changes_of(report, factors[f], level, baseline)]
        known[f, level] = next((change for change in changes if ask(change)[0]), None)
        if known[f, level] is None:
            whys = dict.fromkeys(ask(change)[1] for change in changes)
            unknown[factors[f].text(level)] = "; ".join(whys) or "no setting of what-if and no finding stands for it"
    for levels in points:
        changes = [known[value] for value in enumerate(levels)]
        ratio = None if None in changes else ask(tuple(sorted(sum(changes, ()))))[0]
        predicted |= {levels: ratio} if ratio else {}
    return predicted, unknown


def sweep(bench, flags, rounds, steps, alone=False):
    """Returns the record for --json (README.md). Rounds go up and down the list of combinations, so that drift cancels out."""
    factors = [Factor(flag, *value.split(",")) for flag, value in sorted(flags.items()) if "," in value]
    points = math.prod(len(factor.values) for factor in factors)
    if not factors or points > MOST_POINTS or any("" in factor.values for factor in factors):
        raise UsageError("sweep needs flags with several values (--workers 0,1 --channels-last off,on), none of them"
                         f" empty, and at most {MOST_POINTS} combinations; these are {points}")
    points = cross(factors, flags.without(*(factor.flag for factor in factors)))
    points = {levels: one for levels, one in points.items() if not alone or sum(map(bool, levels)) <= 1}
    baseline, rates, left_out = next(iter(points.values())), {levels: [] for levels in points}, []

    reports = [bench.profile(baseline, f"baseline.{i}") for i in range(3)]
    report = sorted(reports, key=lambda one: one.step_ms)[1]  # the middle one, because the machine may have disturbed one
    for number in range(rounds):
        for levels in list(rates) if number % 2 == 0 else reversed(list(rates)):
            period = bench.period(points[levels])
            try:
                run = bench.time(points[levels], Length(steps, 3).whole(period), "sweep", number)
                rates[levels].append(run.rate(period))
            except ProgramFailed as failure:
                if failure.returncode != REFUSED:
                    raise
                left_out.append({"flags": points[levels].text(), "why": str(failure).splitlines()[-1].strip()})
                del rates[levels]
    if len(rates) < 2:
        raise UsageError(f"fewer than two combinations are left: {left_out[0]['why']}")
    told = predict(bench, report, factors, {levels: points[levels] for levels in rates})
    return {"version": 2, "baseline": baseline.text(), "left_out": left_out, **to_record(Cube(factors, rates), *told)}


def to_record(cube, predicted, unknown):
    def known(**ratios):
        found = [figure(key, ratio.ratio, ratio[1:]) for key, ratio in ratios.items() if ratio]
        return {key: value for one in found for key, value in one.items()}

    record = {"not_predictable": unknown, "points": [], "effects": [], "pairs": []}
    base = statistics.median(next(iter(cube.rates.values())))
    for levels, runs in cube.rates.items():
        texts = [cube.text(f, level) for f, level in enumerate(levels) if cube.factors[f].values[level] != "off"]
        middle, cuts = statistics.median(runs), statistics.quantiles(runs, n=6, method="inclusive")
        record["points"].append({
            "flags": " ".join(texts) or "(none of the flags)", "samples_per_s": middle, "runs": runs,
            # One standard deviation over the rounds if they are normally distributed.
            "spread": (cuts[-1] - cuts[0]) / 2 / middle,
            "factor": middle / base, **known(predicted=predicted.get(levels))})
    for change, (at_baseline, on_average) in cube.effects().items():
        ratio = predicted.get(tuple(change[1] if f == change[0] else 0 for f in range(len(cube.factors))))
        # The relative difference between the predicted and the measured step.
        error = Ratio(*(one / ratio.ratio - 1 for one in at_baseline)) if ratio and at_baseline else None
        record["effects"].append({"change": cube.text(*change), **known(at_baseline=at_baseline, on_average=on_average,
                                                                   predicted=ratio, error=error)})
    # Points with a prediction, as if measured without noise.
    exact = {levels: [one.ratio] * 2 for levels, one in predicted.items()}
    same = Cube(cube.factors, exact).pairs() if exact else {}
    for (first, second), ratios in cube.pairs().items():
        called = verdict(*ratios.values())
        record["pairs"].append({"first": cube.text(*first), "second": cube.text(*second), "verdict": called,
                                "beyond_noise": called != AS_PRODUCT, **known(**ratios)})
        if (first, second) in same:
            record["pairs"][-1]["predicted"] = {key: one.ratio for key, one in same[first, second].items()}
    return record


def to_text(record):
    """Returns the tables for the user."""
    def short(one, key):
        return f"×{one[key]:.2f}" if key in one else "-"

    points = sorted(record["points"], key=lambda point: -point["samples_per_s"])
    lines = [f"{len(points)} settings, {len(points[0]['runs'])} interleaved rounds; medians over the rounds\n",
             table(("flags", "samples/s", "spread", "factor", "predicted"), [
                 (point["flags"], f"{point['samples_per_s']:.1f}", f"{point['spread']:.1%}", short(point, "factor"),
                  short(point, "predicted")) for point in points])]
    lines += [f"nothing is predicted where {flag} is set: {why}" for flag, why in record["not_predictable"].items()]
    lines += ["\nWhat each does to the samples/s (95 %):\n", table(
        ("flag", "at the baseline", "on average over all", "predicted, at the baseline", "predicted / measured step"), [
            (one["change"], *(ranged(one, key) for key in ("at_baseline", "on_average", "predicted")),
             ranged(one, "error", "{:+.1%}")) for one in record["effects"]])]
    if record["pairs"]:
        named = sum(pair["beyond_noise"] for pair in record["pairs"])
        lines += [f"\n{named} of {len(record['pairs'])} pairs are not the product of both, beyond the noise:\n", table(
            ("flags", "first alone", "second", "together", "together / product", "predicted", "/ product", "verdict"), [
                (f"{one['first']} with {one['second']}", short(one, "first_alone"), short(one, "second_alone"),
                 ranged(one, "both"), ranged(one, "both_over_product"), short(one.get("predicted", {}), "both"),
                 short(one.get("predicted", {}), "both_over_product"), one["verdict"]) for one in record["pairs"]])]
    return "\n".join(lines + [f"left out: {one['flags']}: {one['why']}" for one in record["left_out"]])
