"""climb: follows a report's first finding, measures the change, keeps or reverts it, and repeats until nothing is left to
do."""

import statistics

from bench import ProgramFailed
from resnet_flags import CPU_HABITS, DEFAULTS, Factor, cross, difference, follow, spelled
from tables import figure, ranged, table
from timing import Length

MOST_TIMES = 4  # if a report holds something back, at most this many times as many steps are recorded
GOOD = 0.15  # a prediction within this share of the measured step is called good


def promise(finding, report, before, after, period):
    """Returns the report's prediction for `finding`'s change as JSON (README.md). Steps repeat after `period`."""
    recorded, to, low, high = report.predicted(finding, period)
    # Gains are per recorded batch size. A larger batch has its own, longer step.
    larger = DEFAULTS.plus(after).number("--batch", 0) / DEFAULTS.plus(before).number("--batch", 0)
    return {"id": finding.id, "gain_kind": finding.gain_kind, "recorded_ms": recorded,
            **figure("predicted_ms", larger * to, (larger * low, larger * high)),
            **figure("predicted_ratio", to / recorded, (low / recorded, high / recorded))}


def attempt(bench, promised, before, after, pairs, purpose, length):
    """Returns the prediction `promised` for a change and the result of interleaved runs as JSON. Ratios are of the time per
    sample, so that drift since the recording does not matter. A change with which the program fails is reverted. Raises
    ProgramFailed if the program also fails without the change."""
    step = {"change": difference(before, after), "before": before.text(), "after": after.text(), **promised,
            "habits_dropped": [habit.name for habit in CPU_HABITS if habit.is_in(before) and not habit.is_in(after)]}
    try:
        runs = bench.compare(before, after, pairs, purpose, length)
    except ProgramFailed as failure:
        bench.time(before, length, f"{purpose}, without the change", 0)
        return step | {"kept": False, "outcome": "failed", "failed": str(failure)}
    step |= {"kept": runs.to_be_kept, "outcome": runs.outcome, "pairs": pairs, "measured_before_ms": runs.before_ms,
             **figure("measured_ms", runs.after_ms, runs.after_interval_ms),
             **figure("measured_ratio", runs.ratio, runs.interval),
             **figure("before_samples_per_s", runs.before_rate, runs.before_range),
             **figure("samples_per_s", runs.after_rate, runs.after_range)}
    return step | ({"error": step["predicted_ms"] / runs.after_ms - 1,
                    "ratio_error": step["predicted_ratio"] / runs.ratio - 1} if promised else {})


def choose(report, now, tried):
    """Returns (finding, settings after it, what is left) for the first finding that leads to settings not tried before."""
    left = []
    for finding in report.findings:
        after = follow(finding, report, now)
        same = spelled(after) == spelled(now)
        if finding.worth_doing() and not same and spelled(after) not in tried:
            return finding, after, left
        why = "no flag of resnet does that" if same else f"tried before: {after.text()}"
        left += [{"id": finding.id, "why": why}] * finding.worth_doing()
    return None, now, left


def decide(reports, now, tried):
    """Returns (report, *choose()) for one of several `reports` on the same settings. The report with the middle step time is
    used, so that a disturbed recording is not followed. If it asks for nothing, the change that most reports ask for is used,
    because a noisy recording does not report what it cannot distinguish from noise."""
    choices = [(report, *choose(report, now, tried)) for report in reports]
    middle = choices[(len(choices) - 1) // 2]
    asked = [(finding.id, spelled(after)) for _, finding, after, _ in choices if finding]
    agreed = [one for one in choices if one[1] and 2 * asked.count((one[1].id, spelled(one[2]))) > len(choices)]
    return middle if middle[1] or not agreed else agreed[0]


def ascend(bench, start, options, tell=print):
    """Returns (the climb's record for --json, its final Settings). Calls `tell` with a text for each step."""
    record, now, tried, times = {"start": start.text(), "steps": []}, start, {spelled(start)}, 1
    while True:
        number = len(record["steps"])
        reports = sorted((bench.profile(now, f"profiles/{number}.{i}.{times}", times) for i in range(options.profiles)),
                         key=lambda report: report.step_ms)
        report, finding, after, left = decide(reports, now, tried)
        if not finding and report.held_back and times < MOST_TIMES:
            times *= 2
            continue
        if not finding or number >= options.max_changes:
            left += [{"id": finding.id, "why": "enough changes were made"}] if finding else [
                {"id": id, "why": "held back: the steps vary too much to tell"} for id in report.held_back]
            return record | {"end": now.text(), "healthy": report.healthy(), "left": left}, now
        step = attempt(bench, promise(finding, report, now, after, bench.period(now, after)), now, after, options.pairs,
                       f"change {number + 1}", Length(options.steps))
        tell(f"{number + 1}  {step['id']}: {step['change']}: {verdict(step)}")
        record["steps"].append(step)
        tried.add(spelled(after))
        now, times = (after, 1) if step["kept"] else (now, times)


def verdict(step):
    return f"{step['outcome']}, {'kept' if step['kept'] else 'taken back'}" + f": {step.get('failed')}" * ("failed" in step)


def price_habits(bench, settings, options, where):
    """Returns {name: cost per step if only this habit is removed} for the habits in `settings`, as JSON."""
    prices = {}
    for habit in CPU_HABITS:
        if habit.is_in(settings):
            runs = bench.compare(habit.dropped_from(settings), settings, options.pairs, f"{habit.name} {where}",
                                 Length(options.steps))
            prices[habit.name] = {**figure("cost_ms", runs.after_ms - runs.before_ms, runs.cost_interval_ms),
                                  "beyond_noise": runs.outcome == "slower"}
    return prices


def judge_habits(steps, at_start, at_end):
    """Returns the record of habits for --json. A decision is wrong if a costly habit stays, or a habit is removed before a more
    costly one."""
    dropped = {name: at for at, step in enumerate(steps, 1) if step["kept"] for name in step["habits_dropped"]}
    habits = [{"name": name, **price, "removed_at_step": dropped.get(name, 0),
               **({"at_end": at_end[name]} if name in at_end else {})} for name, price in at_start.items()]
    wrong = [f"{one['name']} stays, and costs more than the noise at the end" for one in habits
             if one.get("at_end", {}).get("beyond_noise")]
    wrong += [f"{one['name']} goes before {other['name']}, which costs more" for one in habits for other in habits
              if 0 < one["removed_at_step"] < other["removed_at_step"]
              and one["cost_ms_interval"]["high"] < other["cost_ms_interval"]["low"]]
    return {"habits": habits, "complaints": wrong}


# The values that the climb's sweep combines: 144 combinations.
EVERYTHING = [
    Factor("--workers", "0", "1", "2"), Factor("--threads", "1", "2"), Factor("--batch", "16", "32", "64"),
    Factor("--channels-last", "off", "on"), Factor("--set-to-none", "0", "1"), Factor("--sgd", "loop", "fused")]


def find_best(bench, factors, base, steps, rounds, few=6):
    """Returns [(settings, [samples/s of each run])] of all combinations, best first. All combinations run once. The better
    third runs again and longer, and so on until `few` are left, which run `rounds` more times."""
    points, number = [(settings, []) for settings in cross(factors, base).values()], 0
    still_in = len(points)
    while True:
        last = still_in <= few
        for number in range(number, number + (rounds if last else 1)):
            for settings, rates in points[:still_in]:
                # Small batches have shorter steps, so they run more steps.
                batch, period = max(1, settings.number("--batch", 32)), bench.period(settings)
                length = Length(max(steps, steps * 32 // batch) + 2, 2).whole(period)
                rates.append(bench.time(settings, length, "sweep", number).rate(period))
        points[:still_in] = sorted(points[:still_in], key=lambda point: -statistics.median(point[1]))
        if last:
            return points
        still_in, steps, number = max(few, still_in // 3), steps + steps // 2, number + 1


def climb(bench, options, tell=print):
    """Runs the whole command; returns the record for --json (README.md)."""
    start, base, length = options.start, options.start, Length(options.steps)
    for habit in CPU_HABITS if options.bad_habits else ():
        start, base = habit.added_to(start), habit.dropped_from(habit.added_to(base))
    at_start = price_habits(bench, start, options, "at the start") if options.bad_habits else {}
    record, end = ascend(bench, start, options, tell)
    whole = bench.compare(start, end, options.pairs, "the whole climb", length)
    record |= {"version": 2, "start_samples_per_s": whole.before_rate, "samples_per_s": whole.after_rate,
               **figure("speedup", 1 / whole.ratio, whole.interval.inverse())}
    if options.bad_habits:
        record |= judge_habits(record["steps"], at_start, price_habits(bench, end, options, "at the end"))
    if options.sweep:
        points = find_best(bench, EVERYTHING, base, options.sweep_steps, options.pairs)
        best = points[0][0]
        record |= {"sweep_best": best.text(), "sweep_best_samples_per_s": record["samples_per_s"], "sweep": [
            {"flags": settings.text(), "samples_per_s": statistics.median(rates), "runs": rates}
            for settings, rates in points], **figure("of_sweep_best", 1.0, (1.0, 1.0))}
        if spelled(best) != spelled(end):
            runs = bench.compare(best, end, options.pairs, "against the best", length)
            record |= {"samples_per_s": runs.after_rate, "sweep_best_samples_per_s": runs.before_rate,
                       **figure("of_sweep_best", 1 / runs.ratio, runs.interval.inverse())}
    return record


def to_text(record):
    """Returns the summary for the user at the end."""
    tried = [step for step in record["steps"] if "failed" not in step]
    errors = [abs(step["error"]) for step in tried if step["gain_kind"] == "predicted"]
    wrong, worst = sum(step["outcome"] in ("slower", "failed") for step in record["steps"]), max(errors, default=0)
    rows = [(f"{step['id']}: `{step['change']}`", f"{step['recorded_ms']:.1f} to"
             f" {'at best ' * (step['gain_kind'] == 'bound')}{step['predicted_ms']:.1f} ms",
             f"{step['measured_before_ms']:.1f} to {ranged(step, 'measured_ms', '{:.1f}')} ms, {verdict(step)}",
             f"×{step['predicted_ratio']:.3f}, ×{step['measured_ratio']:.3f}",
             f"{step['error']:+.1%}; {step['ratio_error']:+.1%}") for step in tried]
    head = ("finding, change", "report", "measured (95 %)", "time per sample: predicted, measured",
            "predicted / measured: step; per sample")
    lines = [table(head, rows)] * bool(rows) + ["The report finds nothing worth doing."] * record["healthy"]
    lines += [f"left: {one['id']} ({one['why']})" for one in record["left"]]
    lines += [f"predictions: {sum(error <= GOOD for error in errors)} of {len(errors)} within {GOOD:.0%} of the"
              f" measured step, the worst off by {worst:.1%}; changes that made it slower or fail: {wrong}",
              f"from {record['start']}", f"to   {record['end']}",
              f"{record['start_samples_per_s']:.1f} samples/s at the start, {ranged(record, 'speedup')} at the end"]
    lines += [f"{one['name']} costs {ranged(one, 'cost_ms', '{:.1f}')} ms per step at the start and " + (
        f"goes at step {one['removed_at_step']}" if one["removed_at_step"] else
        f"{ranged(one.get('at_end', {}), 'cost_ms', '{:.1f}')} ms at the end") for one in record.get("habits", [])]
    lines += [f"WRONG: {complaint}" for complaint in record.get("complaints", [])]
    if "sweep" in record:
        lines += [f"the best of {len(record['sweep'])} settings: {record['sweep_best']}",
                  f"the climb's end against the best, interleaved: {record['samples_per_s']:.1f} against"
                  f" {record['sweep_best_samples_per_s']:.1f} samples/s, {ranged(record, 'of_sweep_best', '{:.1%}')}"]
    return "\n".join(lines)
