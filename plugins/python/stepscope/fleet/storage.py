"""Finds traces in folders of this machine or at URLs of fsspec, which is imported only for URLs."""

from __future__ import annotations

import json
import os
import pathlib
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from .. import _native
from .._native import StepscopeError

HEAD = 64 * 1024  # bytes of a remote trace that show its run, rank and cycle
TRACE_ENDINGS = (".json", ".json.gz", ".json.zst", ".xplane.pb")


@dataclass(frozen=True)
class Traces:
    """A window's traces sorted by rank, the files that were left out ("path: why"), and the unreadable files."""

    paths: list[str]
    passed_over: list[str]
    unreadable: dict[str, str]  # path -> why


def is_url(path: str) -> bool:
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", path) is not None


def traces(where: str, run: str, cycle: int, options: dict[str, Any]) -> Traces:
    """Returns what `stepscope analyze` would read in `where`."""
    if not is_url(where):
        return _choose(where, run, cycle)
    system, root = _open(where, options)
    if system.isfile(root):
        return Traces([where], [], {})
    with tempfile.TemporaryDirectory(prefix="stepscope-fleet-") as folder:
        _sketch(system, root, folder)
        try:
            found = _choose(folder, run, cycle)
        except StepscopeError as error:
            raise StepscopeError(str(error).replace(folder, where)) from None
        home = where.rstrip("/")
        return Traces([f"{home}/{os.path.relpath(path, folder)}" for path in found.paths],
                      [note.replace(folder, home) for note in found.passed_over],
                      {path.replace(folder, home): why.replace(folder, home) for path, why in found.unreadable.items()})


@contextmanager
def fetched(path: str, options: dict[str, Any]) -> Iterator[str]:
    """Yields the trace as a local file. If it had to be copied, it is removed afterwards."""
    if not is_url(path):
        yield path
        return
    system, name = _open(path, options)
    with tempfile.TemporaryDirectory(prefix="stepscope-fleet-") as folder:
        copy = os.path.join(folder, os.path.basename(name))
        try:
            system.get_file(name, copy)
        except Exception as error:  # each storage has its own error classes
            raise StepscopeError(f"cannot read {path}: {error or type(error).__name__}") from None
        yield copy


def _choose(folder: str, run: str, cycle: int) -> Traces:
    found = json.loads(_native.call("traces", {"path": folder, "run": run, "cycle": cycle}))
    return Traces(found["traces"], found["passed_over"], found["unreadable"])


def _open(url: str, options: dict[str, Any]) -> tuple[Any, str]:
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise StepscopeError(f"{url} needs the package fsspec: pip install 'stepscope[fleet]'") from None
    try:
        system, path = url_to_fs(url, **options)
    except (ImportError, ValueError) as error:  # the storage's package is missing, or the storage is unknown
        raise StepscopeError(f"cannot open {url}: {error}") from None
    return system, str(path)


def _sketch(system: Any, root: str, folder: str) -> None:
    """Fills `folder` so that the core can choose: the names of all traces below `root`, with their first bytes."""
    try:
        names = [str(name) for name in system.find(root) if str(name).endswith(TRACE_ENDINGS)]
    except Exception as error:
        raise StepscopeError(f"cannot list {root}: {error or type(error).__name__}") from None
    own = [name for name in names if re.search(r"/stepscope/[^/]+/c\d+/trace/[^/]+$", name)]
    names = own or names  # in a log directory, not the copies for other viewers
    heads = system.cat_ranges(names, [0] * len(names), [HEAD] * len(names), on_error="return")
    for name, head in zip(names, heads):
        copy = os.path.normpath(os.path.join(folder, os.path.relpath(name, root)))
        if not copy.startswith(folder + os.sep):  # an object store's key may contain ".."
            continue
        os.makedirs(os.path.dirname(copy), exist_ok=True)
        pathlib.Path(copy).write_bytes(head if isinstance(head, bytes) else b"")
