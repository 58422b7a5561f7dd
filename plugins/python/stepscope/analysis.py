"""analyze, compare and what_if: analyse recorded traces from Python.

A path is a trace file of torch.profiler or of stepscope, an XSpace, a log directory, or a folder with one trace per rank.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from . import _json, _native
from ._native import StepscopeError
from .comparison import Comparison, Prediction
from .report import Report

StrPath = str | os.PathLike[str]


def analyze(paths: StrPath | Iterable[StrPath]) -> Report:
    """Returns the report on one trace, or on all ranks of one run.

    Raises StepscopeError if a trace cannot be read, or the traces are not the ranks of one run.
    """
    names = [os.fspath(paths)] if isinstance(paths, (str, os.PathLike)) else [os.fspath(path) for path in paths]
    if not names:
        raise StepscopeError("analyze needs at least one path")
    value = _json.parse(_native.call("analyze", {"paths": names, "format": "json", "verbose": False}), "the report")
    if isinstance(value, list):
        raise StepscopeError(f"{', '.join(names)}: these are {len(value)} traces that are not the ranks of one run; "
                             "analyse each by itself")
    return Report.from_dict(value)


def compare(before: StrPath, after: StrPath) -> Comparison:
    """Compares two traces of one program, before and after a change."""
    return Comparison.from_json(_native.call("compare", {"a": os.fspath(before), "b": os.fspath(after), "format": "json"}))


def what_if(path: StrPath, **changes: bool | int | float | str) -> Prediction:
    """Predicts the step time under other settings: what_if("runs/x", workers=2, batch_size=128).

    The keys are those of `stepscope what-if` (docs/command_line.md).
    """
    if not changes:
        raise StepscopeError("what_if needs at least one change, such as workers=2")
    return Prediction.from_json(_native.call("what_if", {"path": os.fspath(path), "changes": changes}))
