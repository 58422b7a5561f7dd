"""The parts of `stepscope analyze --format json` that a program can follow. docs/json.md describes the format."""

import json
from dataclasses import dataclass, field


class Failed(Exception):
    """Work cannot continue; the message says why."""
    exit_status = 1


@dataclass
class Finding:
    id: str
    severity: str = "high"        # "critical" to "note"
    gain_kind: str = "predicted"  # "predicted", "bound" or "none"
    gain_ms: float = 0  # per step with the recorded batch
    low_ms: float = 0  # start of the gain's likely range
    high_ms: float = 0
    baseline_ms: float = 0  # the step to which the gain refers; 0: the steady step
    text: str = ""                # evidence, place and fix
    settings: dict = field(default_factory=dict)  # what to set, with the report's keys; values are texts

    def worth_doing(self):
        """True if the finding is more than a note and gains time."""
        return self.severity != "note" and self.gain_kind != "none" and self.gain_ms > 0


@dataclass
class Report:
    step_ms: float  # mean of the steady recorded steps
    all_mean_ms: float = 0  # also with steps that validate or save; 0: unknown
    findings: list = field(default_factory=list)   # in the report's order
    held_back: list = field(default_factory=list)  # IDs of findings that the noise of the steps may hide
    usable_cores: int = -1
    machine: str = ""        # "AMD EPYC, 2 cores; LibTorch 2.11.0"
    split: dict = field(default_factory=dict)      # {cause: ms}, longest first; adds up to step_ms
    has_gpu: bool = False
    path: str = ""           # the log directory of the recording

    def healthy(self):
        """True if nothing worth doing is left and nothing is held back."""
        return not self.held_back and not any(finding.worth_doing() for finding in self.findings)

    def predicted(self, finding, period=1):
        """Returns (before, after, low, high) in ms: the step before and after `finding`'s change, and the likely range after
        it. If a step is measured as the mean of `period` > 1 steps, slow steps are included. A gain of the whole step is no
        prediction and is left out."""
        before = finding.baseline_ms or (period > 1 and self.all_mean_ms) or self.step_ms
        if finding.gain_ms >= before:
            return before, before, before, before
        after = before - finding.gain_ms
        return before, after, before - finding.high_ms if finding.high_ms < before else after, before - finding.low_ms


def read_report(record, path):
    """Returns the Report of a parsed JSON object; `path` is the recording's log directory. Raises Failed."""
    try:
        if record["version"] != 2 or not record["steps"]["mean_ms"] > 0:
            raise Failed(f"{path}: no report of version 2, or no steps were recorded")
        run, findings = record.get("run", {}), []
        for one in record["findings"]:
            gain = [one["gain_ms_per_step"][key] for key in ("expected", "low", "high")]
            text = "\n".join((one["evidence"], one["where"], one["fix"]["cpp"]))
            settings = {key: json.dumps(value).strip('"') for key, value in one["settings"].items()}
            findings.append(Finding(*(one[key] for key in ("id", "severity", "gain_kind")), *gain,
                                    one["baseline_ms"] or 0, text, settings))
        cores = run.get("usable_cores", -1)
        machine = run.get("cpu_model", "") + (f", {cores} core{'s' * (cores > 1)}" if cores > 0 else "")
        return Report(record["steps"]["mean_ms"], max(0, record["steps"].get("all_mean_ms", 0)), findings,
                      record.get("held_back", []), cores,
                      "; ".join([machine, *run.get("devices", []), f"LibTorch {run.get('torch_version', '')}"]),
                      dict(sorted(record.get("time_split_ms", {}).items(), key=lambda part: -part[1])),
                      record.get("has_gpu", False), path)
    except (KeyError, TypeError, AttributeError) as error:
        raise Failed(f"{path}: not a report of stepscope ({type(error).__name__}: {error})") from None
