"""What a comparison of two traces, and a prediction, found: frozen dataclasses with the keys of docs/json.md."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

from . import _json
from ._native import StepscopeError
from ._render import number

# The range of so few steps is no 95 % interval of their median: of n steps it covers the median in 1 - 2 / 2^n of all cases.
LEAST_STEPS = 6


@dataclass(frozen=True)
class Interval:
    expected: float = 0
    low: float = 0
    high: float = 0


@dataclass(frozen=True)
class ComparedTrace:
    source: str = ""
    name: str = ""
    steps: int = 0
    mean_ms: float = 0
    median_ms: float = 0
    min_ms: float = 0
    max_ms: float = 0
    batch_size: int = -1


@dataclass(frozen=True)
class ComparedTime:
    name: str = ""
    before_ms: float = 0
    after_ms: float = 0
    before_calls: float = 0
    after_calls: float = 0
    fused_ops: tuple[str, ...] = ()  # of a kernel that PyTorch's compiler generated


@dataclass(frozen=True)
class Comparison:
    """Two traces of one program; positive differences are faster."""

    version: int = _json.VERSION
    before: ComparedTrace = ComparedTrace()
    after: ComparedTrace = ComparedTrace()
    why_not: str = ""
    measured_ms: Interval = Interval()
    batch_normalised: bool = False
    batch_scale: float = 1
    significant: bool = False
    shared_ops_frac: float = -1
    doubt: str = ""
    predicted_ms: Interval = Interval()
    predicted_kind: str = "none"
    resolved_findings: tuple[str, ...] = ()
    changed_settings: tuple[str, ...] = ()
    remaining_findings: tuple[str, ...] = ()
    new_findings: tuple[str, ...] = ()
    reduced_findings: tuple[str, ...] = ()
    causes: tuple[ComparedTime, ...] = ()
    ops: tuple[ComparedTime, ...] = ()
    kernels: tuple[ComparedTime, ...] = ()
    modules: tuple[ComparedTime, ...] = ()
    _source: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def from_json(cls, text: str) -> Comparison:
        values = _json.check_version(_json.parse(text, "the comparison"), "the comparison")
        comparison = _json.build(cls, values)
        object.__setattr__(comparison, "_source", values)
        return comparison

    def is_slower(self, fail_over: float = 0.05, min_ms: float = 0) -> bool:
        """Whether the whole 95 % interval says: slower by more than `fail_over` of the step and more than `min_ms`.

        The verdict of `stepscope compare --fail-over`. StepscopeError where the traces allow none.
        """
        if self.why_not:
            raise StepscopeError(f"the steps cannot be compared: {self.why_not}")
        least = min(self.before.steps, self.after.steps)
        if least < LEAST_STEPS:
            raise StepscopeError(f"a verdict needs {LEAST_STEPS} steady steps in each trace, and one has {least}: record more")
        # Time for which the training thread had no core is the machine's doing, not the program's.
        row = next((cause for cause in self.causes if cause.name == "contended"), ComparedTime())
        contended_ms = max(row.after_ms * self.batch_scale - row.before_ms, 0)
        return -self.measured_ms.high - contended_ms > max(fail_over * self.before.median_ms, min_ms)

    def to_dict(self) -> dict[str, Any]:
        return copy.deepcopy(self._source)

    def __str__(self) -> str:
        if self.why_not:
            return f"the steps cannot be compared: {self.why_not}"
        won, noise = self.measured_ms, "" if self.significant else ", within the noise"
        return (f"{number(self.before.median_ms)} to {number(self.after.median_ms)} ms per step: gained {number(won.expected)} ms"
                f" (95 %: {number(won.low)} to {number(won.high)}{noise})")


@dataclass(frozen=True)
class Prediction:
    """The step time that a replay predicts under other settings; None and `why_not` where it cannot."""

    version: int = _json.VERSION
    findings: tuple[str, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)
    baseline_ms: float = 0
    predicted_ms: float | None = None
    low_ms: float | None = None
    high_ms: float | None = None
    why_not: str = ""

    @classmethod
    def from_json(cls, text: str) -> Prediction:
        return _json.build(cls, _json.check_version(_json.parse(text, "the prediction"), "the prediction"))

    @property
    def speedup(self) -> float | None:
        return self.baseline_ms / self.predicted_ms if self.predicted_ms else None
