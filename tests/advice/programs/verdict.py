"""Compares the advice on one program with what is wrong with it."""

import statistics

from truth import TOLERANCE

# Findings about the recording or the machine, not about the program. They are neither right nor false.
OF_THE_RECORDING = ("capture-incomplete", "contended-cores", "observer-effect", "warmup-in-window")
ABOVE_LOW = ("medium", "high", "critical")


def urged(report):
    """Returns the findings about the program that ask for a change, in the report's order."""
    return [finding for finding in report["findings"]
            if finding["severity"] != "note" and finding["id"] not in OF_THE_RECORDING]


class Promise:
    """The prediction of the first correct finding, as ratios of the step after / before."""
    def __init__(self, one, report):
        self.finding = next((finding for finding in report["findings"] if finding["id"] in one.expect), None)
        self.kind = self.finding["gain_kind"] if self.finding else "none"
        if self.kind != "none":
            gain, step = self.finding["gain_ms_per_step"], self.finding["baseline_ms"]
            self.ratio, self.least, self.most = (1 - gain[key] / step for key in ("expected", "high", "low"))


class Verdict:
    """One row of the table. REQUIRES: the folder holds the program's recordings."""
    def __init__(self, folder, one):
        report = folder.report(folder.trace(one, False))
        self._judge(one, report)
        if one.expect:
            self.false += [f"{what}, fixed" for what in self._false(folder.report(folder.trace(one, True)), one.also)]
        times = folder.times(one, False)
        self.distortion = statistics.median(times["recorded_ms"]) / statistics.median(times["unrecorded_ms"])
        self.measured = folder.measured(one) if one.expect else None

    @classmethod
    def of_report(cls, one, report):
        """Returns the parts of a verdict that do not need the program's runs."""
        verdict = cls.__new__(cls)
        verdict._judge(one, report)
        return verdict

    def _judge(self, one, report):
        self.one, first = one, urged(report)
        self.first = first[0] if first else None
        self.first_is_right = self.first is not None and self.first["id"] in one.expect
        self.false = self._false(report, (*one.expect, *one.also))
        self.promise, self.measured = Promise(one, report), None

    @staticmethod
    def _false(report, right):
        return [f"{finding['id']} ({finding['severity']})" for finding in urged(report)
                if finding["severity"] in ABOVE_LOW and finding["id"] not in right]

    @property
    def is_scored(self):  # has a predicted and a sufficiently precise measured ratio
        return self.measured is not None and self.measured.decided and self.promise.kind == "predicted"

    @property
    def error(self):
        return self.promise.ratio / self.measured.ratio - 1

    @property
    def is_in_range(self):
        return self.promise.least <= self.measured.ratio <= self.promise.most

    @property
    def bound_fault(self):
        """Returns what is wrong with an upper bound; "" if nothing is, or if the gain is not a bound."""
        if self.promise.kind != "bound" or self.measured is None or not self.measured.decided:
            return ""
        if self.measured.interval.high < self.promise.ratio:
            return "exceeded"
        return "over three times the gain" if 1 - self.promise.ratio > 3 * (1 - self.measured.ratio) else ""

    def outcome(self):
        """Returns the outcome of the prediction in a few words."""
        if self.promise.kind == "none":
            return "no promise"
        if self.measured is None:
            return "not measured"
        if not self.measured.decided:
            return "undecided"
        if self.promise.kind == "bound":
            return self.bound_fault or "kept"
        return f"{100 * self.error:+.0f} %" + ("" if abs(self.error) <= TOLERANCE else " !")
