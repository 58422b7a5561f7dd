"""Converts JSON objects to frozen dataclasses: each field has the name of its key."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import types
import typing
from typing import Any, TypeVar

from ._native import StepscopeError

T = TypeVar("T")

VERSION = 2  # version of the analyze, compare and what-if objects that this package reads


def parse(text: str, what: str) -> Any:
    """Returns the JSON value of `text`. Raises StepscopeError if `text` is not valid JSON."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise StepscopeError(f"{what} is not JSON: {error}") from None


def check_version(value: Any, what: str) -> dict[str, Any]:
    """Returns `value` if it is an object of the version that this package reads."""
    if not isinstance(value, dict):
        raise StepscopeError(f"{what} is not a JSON object")
    if value.get("version") != VERSION:
        raise StepscopeError(f"{what} has version {value.get('version')}; this stepscope reads version {VERSION}")
    return value


@functools.lru_cache(maxsize=None)
def _types_of(kind: Any) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def build(kind: type[T], values: dict[str, Any]) -> T:
    """Builds the dataclass from a JSON object. Unknown keys are ignored, and a missing key leaves the field's default. If a key
    is a Python keyword, the field's name ends with "_"."""
    hints: dict[str, Any] = _types_of(kind)  # type: ignore[arg-type]
    found = {}
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        key = field.name.removesuffix("_")
        if key in values:
            found[field.name] = _convert(hints[field.name], values[key])
    return kind(**found)


def _convert(hint: Any, value: Any) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is types.UnionType:
        return None if value is None else _convert(arguments[0], value)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return build(hint, value)
    if origin is tuple and arguments[-1] is Ellipsis:
        return tuple(_convert(arguments[0], one) for one in value)
    if origin is tuple:
        return tuple(_convert(one, part) for one, part in zip(arguments, value))
    if hint is float:
        return math.nan if value is None else float(value)
    if origin is dict:
        return {key: _convert(arguments[1], one) for key, one in value.items()}
    return value
