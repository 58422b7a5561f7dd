"""The results of an analysis as frozen dataclasses.

Attributes have the names of the keys in docs/json.md, and their units: `_ms` means milliseconds per steady step. Unknown
numbers are -1, unknown texts are "", and numbers that cannot be computed are nan (None if the type says so).
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from . import _json, _render
from .report_parts import (
    Coverage, Example, Finding, Fix, Gain, Loss, Machine, MemoryPeak, Mended, PathPart, Pipeline, PipelineStage, PlaceTime, Plan, RankGroup,
    RankRow, RankWait, Ranks, Replay, Run, Skipped, Stall, StepTime, Steps, TopOp, WholeRun,
)

__all__ = [
    "Report", "SEVERITIES", "Coverage", "Example", "Finding", "Fix", "Gain", "Loss", "Machine", "MemoryPeak", "Mended",
    "PathPart", "Pipeline", "PipelineStage", "PlaceTime", "Plan", "RankGroup", "RankRow", "RankWait", "Ranks", "Replay", "Run", "Skipped",
    "Stall", "StepTime", "Steps", "TopOp", "WholeRun",
]

SEVERITIES = ("note", "low", "medium", "high", "critical")


@dataclass(frozen=True)
class Report:
    """The analysis of one trace, or of all ranks of one run."""

    version: int = _json.VERSION
    run: Run = Run()
    has_gpu: bool = False
    steps: Steps = Steps()
    recording_ms: float = 0
    recording_split_ms: dict[str, float] = field(default_factory=dict)
    time_split_ms: dict[str, float] = field(default_factory=dict)
    time_split_spread_ms: dict[str, tuple[float, float]] = field(default_factory=dict)
    path_split_ms: dict[str, float] = field(default_factory=dict)
    phases_ms: dict[str, float] = field(default_factory=dict)
    replay: Replay = Replay()
    findings: tuple[Finding, ...] = ()
    held_back: tuple[str, ...] = ()
    clean: tuple[str, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    superseded: tuple[str, ...] = ()
    losses: tuple[Loss, ...] = ()
    plan: Plan = Plan()
    coverage: tuple[Coverage, ...] = ()
    top_ops: tuple[TopOp, ...] = ()
    modules: tuple[PlaceTime, ...] = ()
    lines: tuple[PlaceTime, ...] = ()
    critical_path: tuple[PathPart, ...] = ()
    step_times: tuple[StepTime, ...] = ()
    memory_peaks: tuple[MemoryPeak, ...] = ()
    ranks: Ranks | None = None
    whole_run: WholeRun | None = None
    _source: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def from_json(cls, text: str) -> Report:
        """Reads the report of `stepscope analyze --format json`, or a file advice/rank<r>.json."""
        return cls.from_dict(_json.parse(text, "the report"))

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Report:
        report = _json.build(cls, _json.check_version(values, "the report"))
        object.__setattr__(report, "_source", copy.deepcopy(values))
        return report

    def __repr__(self) -> str:  # the dataclass's own repr would fill pages
        first = next(self.advice(), None)
        rest = f"; first: {first.id}, {_render.gain_text(first)}" if first else ""
        return f"<stepscope.Report {self.run.name}: {_render.steps_text(self)}{rest}>"

    def finding(self, id: str) -> Finding | None:
        """Returns the finding of one rule; None if the report has none."""
        return next((finding for finding in self.findings if finding.id == id), None)

    def advice(self, severity: str = "low") -> Iterator[Finding]:
        """Yields the findings that are not notes and are at least as severe as `severity`, in the report's order."""
        if severity not in SEVERITIES:
            raise ValueError(f"a severity is {', '.join(SEVERITIES)}, not {severity!r}")
        least = SEVERITIES.index(severity)
        return (finding for finding in self.findings
                if not finding.is_note and SEVERITIES.index(finding.severity) >= least)

    def to_dict(self) -> dict[str, Any]:
        """Returns the JSON object, including keys of newer versions."""
        return copy.deepcopy(self._source)

    def to_markdown(self) -> str:
        return _render.markdown(self)

    def _repr_html_(self) -> str:
        return _render.html_page(self)
