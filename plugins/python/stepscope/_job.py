"""Sends the windows of a job's ranks to rank 0, through the store of torch.distributed's default process group.

The core makes these calls on its background thread, never while the program waits for it. They use a separate client of the
store (`Store.clone`), so that our calls and the program's never wait for each other. No collective is used.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
import threading
from typing import Any

from ._abi import Core

PUT = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int64)
GET = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int64)

EMPTY, NONE, FAILED = -1, -2, -3  # STEPSCOPE_STORE_* in stepscope_c.h


class JobStore:
    """The job's store. It is connected at `begin`, or at the first use if the process group is created later."""

    def __init__(self) -> None:
        self._client: Any = None
        self._found: dict[str, bytes] = {}  # values whose size was asked for, until their bytes are read

    def begin(self) -> None:
        """Called when a profile starts, because the process group may be a new one. Connects a client now: when the first
        window has been analysed, the program may have destroyed the group. Raises nothing."""
        self._client = None
        self._found.clear()
        with contextlib.suppress(Exception):
            self._store()

    def _store(self) -> Any:
        if self._client is None:
            distributed = sys.modules.get("torch.distributed")
            if distributed is None or not distributed.is_available() or not distributed.is_initialized():
                return None
            # The client outlives the group: programs destroy the group before their profile ends. But we must not keep the
            # group's own store, because its port would remain in use.
            self._client = distributed.distributed_c10d._get_default_store().clone()
        return self._client

    def put(self, _user: int, key: bytes, value: int, size: int) -> int:
        """Implements stepscope_put; raises nothing."""
        try:
            store = self._store()
            if store is None:
                return NONE
            store.set(key.decode(), ctypes.string_at(value, size))
            return 0
        except Exception:
            return FAILED

    def get(self, _user: int, key: bytes, out: int | None, capacity: int) -> int:
        """Implements stepscope_get; raises nothing."""
        try:
            name = key.decode()
            value = self._found.pop(name, None) if out else None
            if value is None:
                store = self._store()
                if store is None:
                    return NONE
                if not store.check([name]):
                    return EMPTY
                value = bytes(store.get(name))
            if not out:
                self._found = {name: value}
            elif len(value) <= capacity:
                ctypes.memmove(out, value, len(value))
            return len(value)
        except Exception:
            return FAILED


_store = JobStore()
_calls: tuple[Any, Any] | None = None  # the core keeps their addresses
_lock = threading.Lock()


def install(core: Core) -> None:
    """Connects the store for the next profile."""
    global _calls
    with _lock:
        _store.begin()
        if _calls is None:
            _calls = PUT(_store.put), GET(_store.get)
            core.exchange(*_calls)
