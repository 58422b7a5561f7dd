"""Checks the arguments of `profile`, so that a wrong one raises where it is given, and not in the middle of training."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from typing import Any


def _wrong(name: str, value: Any, wanted: str, kind: type[Exception] = TypeError) -> Exception:
    return kind(f"profile: {name} is {value!r}, but must be {wanted}")


def flags(**values: Any) -> list[bool]:
    """Returns the values in order. None, 0 and 1 are taken as well, as torch.profiler takes them."""
    for name, value in values.items():
        if value is not None and (not hasattr(type(value), "__bool__") or value not in (0, 1)):
            raise _wrong(name, value, "True or False")
    return [bool(value) for value in values.values()]


def texts(**values: Any) -> None:
    for name, value in values.items():
        if not isinstance(value, str):
            raise _wrong(name, value, "a str")


def path(name: str, value: Any) -> str:
    """Returns the path as text."""
    text = os.fspath(value) if isinstance(value, (str, os.PathLike)) else None
    if not isinstance(text, str):
        raise _wrong(name, value, "a path: a str or a pathlib.Path")
    return text


def seconds(**values: Any) -> None:
    for name, value in values.items():
        if isinstance(value, (bool, str)) or not hasattr(type(value), "__float__"):
            raise _wrong(name, value, "a number of seconds")
        if not 0 <= float(value) < math.inf:
            raise _wrong(name, value, "a number of seconds that is not negative", ValueError)


def whole(name: str, value: Any, least: int, what: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _wrong(name, value, what)
    if value < least:
        raise _wrong(name, value, what, ValueError)


def function(name: str, value: Any) -> None:
    if value is not None and not callable(value):
        raise _wrong(name, value, "a function or None")


def activities(value: Any) -> set[str] | None:
    """Returns the names of the activities; None for all."""
    if value is None:
        return None
    wanted = "a list of torch.profiler.ProfilerActivity"
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise _wrong("activities", value, wanted)
    given = list(value)
    if not all(each in ("CPU", "CUDA") or isinstance(getattr(each, "name", None), str) for each in given):
        raise _wrong("activities", given, wanted)
    names = {getattr(each, "name", each) for each in given}
    if not names:
        raise _wrong("activities", given, "a list with at least one torch.profiler.ProfilerActivity, or None for all",
                     ValueError)
    return names
