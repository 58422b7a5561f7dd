"""analyze, compare and what_if: analyse recorded traces from Python.

A path is a trace file of torch.profiler or of stepscope, an XSpace, a log directory, or a folder with one trace per rank.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from . import _json, _native
from ._native import StepscopeError
from .comparison import Comparison, Prediction
from .report import Report

StrPath = str | os.PathLike[str]


def _text(path: Any) -> str:
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"a trace is given by its path, a str or a pathlib.Path, not by {path!r}")
    return str(os.fspath(path))


def analyze(paths: StrPath | Iterable[StrPath]) -> Report:
    """Returns the report on one trace, or on all ranks of one run.

    Raises StepscopeError if a trace cannot be read, or the traces are not the ranks of one run.
    """
    if isinstance(paths, (str, bytes, os.PathLike)) or not isinstance(paths, Iterable):
        names = [_text(paths)]
    else:
        names = [_text(path) for path in paths]
    if not names:
        raise StepscopeError("analyze needs at least one path")
    value = _json.parse(_native.call("analyze", {"paths": names, "format": "json", "verbose": False}), "the report")
    if isinstance(value, list):
        raise StepscopeError(f"{', '.join(names)}: these are {len(value)} traces that are not the ranks of one run; "
                             "analyse each by itself")
    return Report.from_dict(value)


def compare(before: StrPath, after: StrPath) -> Comparison:
    """Compares two traces of one program, before and after a change."""
    return Comparison.from_json(_native.call("compare", {"a": _text(before), "b": _text(after), "format": "json"}))


def what_if(path: StrPath, **changes: bool | int | float | str) -> Prediction:
    """Predicts the step time under other settings: what_if("runs/x", workers=2, batch_size=128).

    The keys are those of `stepscope what-if` (docs/command_line.md).
    """
    if not changes:
        raise StepscopeError("what_if needs at least one change, such as workers=2")
    return Prediction.from_json(_native.call("what_if", {"path": _text(path), "changes": changes}))
