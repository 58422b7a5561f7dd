"""The table of all programs, and a summary of each split."""

from verdict import Verdict

HEADER = ("program", "split", "first finding", "right", "false findings above low", "predicted", "measured (90 %)", "outcome",
          "in range", "recorded")


def _predicted(promise):
    if promise.kind == "none":
        return ""
    if promise.kind == "bound":
        return f"at least {promise.ratio:.2f}"
    return f"{promise.ratio:.2f} ({promise.least:.2f} to {promise.most:.2f})"


def _row(verdict):
    one, measured = verdict.one, verdict.measured
    first = f"{verdict.first['id']} ({verdict.first['severity']})" if verdict.first else "none"
    right = ("yes" if verdict.first_is_right else "no") if one.expect else ""
    ratio = f"{measured.ratio:.2f} ({measured.interval.low:.2f} to {measured.interval.high:.2f})" if measured else ""
    return (one.name, one.split, first, right, ", ".join(verdict.false), _predicted(verdict.promise), ratio,
            verdict.outcome() if one.expect else "", ("yes" if verdict.is_in_range else "no") if verdict.is_scored else "",
            f"x {verdict.distortion:.2f}")


def _share(part, whole):
    return f"{part} of {whole}" + (f" ({100 * part / whole:.0f} %)" if whole else "")


def summary(verdicts):
    """Returns the summary of one split, one line each."""
    wrong = [v for v in verdicts if v.one.expect]
    good = [v for v in verdicts if not v.one.expect]
    scored = [v for v in verdicts if v.is_scored]
    bounds = [v for v in wrong if v.promise.kind == "bound" and v.measured and v.measured.decided]
    return [
        f"first finding right: {_share(sum(v.first_is_right for v in wrong), len(wrong))}",
        f"good programs without a finding above low: {_share(sum(not v.false for v in good), len(good))}",
        f"false findings above low: {sum(len(v.false) for v in verdicts)}, in {sum(bool(v.false) for v in verdicts)} programs",
        f"predicted steps within 15 %: {_share(sum(abs(v.error) <= 0.15 for v in scored), len(scored))}; "
        f"within 25 %: {_share(sum(abs(v.error) <= 0.25 for v in scored), len(scored))}; "
        f"inside the printed range: {_share(sum(v.is_in_range for v in scored), len(scored))}",
        f"bounds: {len(bounds)}, exceeded {sum(v.bound_fault == 'exceeded' for v in bounds)}, "
        f"over three times the gain {sum(v.bound_fault.startswith('over') for v in bounds)}",
        f"undecided: {sum(v.measured is not None and not v.measured.decided for v in verdicts)}; "
        f"known, but nothing promised: {sum(v.promise.finding is not None and v.promise.kind == 'none' for v in wrong)}; "
        f"unknown: {sum(v.promise.finding is None for v in wrong)}",
        f"recorded step / unrecorded step above 1.1: {_share(sum(v.distortion > 1.1 for v in verdicts), len(verdicts))}",
    ]


def of(folder, programs):
    """Returns the table in Markdown, with the summaries below it."""
    verdicts = [Verdict(folder, one) for one in programs]
    lines = ["| " + " | ".join(HEADER) + " |", "| " + " | ".join("---" for _ in HEADER) + " |"]
    lines += ["| " + " | ".join(_row(verdict)) + " |" for verdict in verdicts]
    for split in ("tune", "held"):
        half = [verdict for verdict in verdicts if verdict.one.split == split]
        lines += ["", f"{split}, {len(half)} programs", *(f"- {line}" for line in summary(half))] if half else []
    return "\n".join(lines)
