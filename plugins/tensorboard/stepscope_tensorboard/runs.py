"""The recorded windows of a log directory, and their reports as HTML. Does not depend on TensorBoard."""

from __future__ import annotations

import json
import os
import pathlib
import threading
import time
from collections import OrderedDict
from typing import Any, Callable

from stepscope import _native, _page
from stepscope._native import StepscopeError

FRESH_S = 2.0  # seconds for which a list of runs is reused, because TensorBoard asks several times at once
PAGES_KEPT = 16


class Runs:
    """The contents of one log directory. Any thread may use it."""

    def __init__(self, log_dir: str) -> None:
        self._root = os.path.realpath(log_dir) if log_dir else ""
        self._lock = threading.Lock()
        self._listed: list[dict[str, Any]] = []
        self._listed_at = -FRESH_S
        self._pages: OrderedDict[tuple[Any, ...], str] = OrderedDict()

    def windows(self) -> list[dict[str, Any]]:
        """Returns the windows with traces, newest first: `id` (the folder, relative to the log directory), `name`, `start`,
        `cycle`, `traces`, and the report's first finding."""
        with self._lock:
            if time.monotonic() - self._listed_at >= FRESH_S:
                self._listed = self._list()
                self._listed_at = time.monotonic()
            return self._listed

    def _list(self) -> list[dict[str, Any]]:
        if not os.path.isdir(self._root):
            return []
        found = json.loads(_native.call("list", {"dir": self._root}))
        windows = []
        for run in found["runs"]:
            for window in run["windows"]:
                paths = [window["folder"], *window["traces"], *filter(None, window["pages"])]
                if not all(map(self._is_inside, paths)):
                    continue  # a link that leads out of the log directory
                windows.append({**window, "id": os.path.relpath(window["folder"], self._root), "name": run["name"],
                                "start": run["start"]})
        return windows[::-1]

    def _is_inside(self, path: str) -> bool:
        return os.path.commonpath([os.path.realpath(path), self._root]) == self._root

    def _window(self, window: str) -> dict[str, Any]:
        for one in self.windows():
            if one["id"] == window:
                return one
        raise StepscopeError(f"no run '{window}' in the log directory")

    def _paths(self, window: str, trace: str) -> tuple[list[str], str]:
        """Returns the traces to read, and the page written with them ("" if there is none)."""
        found = self._window(window)
        if not trace:
            return found["traces"], found["pages"][0] if len(found["traces"]) == 1 else ""
        for path, page in zip(found["traces"], found["pages"]):
            if os.path.basename(path) == trace:
                return [path], page
        raise StepscopeError(f"no trace '{trace}' in {window}")

    def page(self, window: str, trace: str = "") -> str:
        """Returns the report on a window's ranks, or on one trace, as HTML. Raises StepscopeError."""
        paths, written = self._paths(window, trace)
        if written:
            return pathlib.Path(written).read_text(encoding="utf-8", errors="replace")
        return self._made(paths, lambda: _page.report(paths))

    def comparison(self, before: str, after: str) -> str:
        """Returns the comparison of two windows as HTML. Raises StepscopeError."""
        a, b = self._window(before), self._window(after)
        return self._made([a["folder"], b["folder"]], lambda: _page.comparison(a["folder"], b["folder"]))

    def _made(self, paths: list[str], make: Callable[[], str]) -> str:
        key = (*paths, *(os.stat(path).st_mtime_ns for path in paths))
        with self._lock:
            if key in self._pages:
                self._pages.move_to_end(key)
                return self._pages[key]
        made = make()
        with self._lock:
            self._pages[key] = made
            while len(self._pages) > PAGES_KEPT:
                self._pages.popitem(last=False)
        return made
