"""Finds which module calls are running, for `with_modules`: implements the ModuleHook of module_hook.h.

The core asks before each outermost operator of the one step that it samples. A running call is a frame of `Module._call_impl`
on the thread's stack. No hook of torch.nn is used, because any hook would slow down all calls of all modules.
"""

from __future__ import annotations

import ctypes
import itertools
import sys
import threading
import types
from typing import Any

from ._abi import Core

OPEN_CALLS = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.POINTER(ctypes.c_uint64), ctypes.c_int32)
DESCRIBE = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_int32)


class ModuleCalls:
    """Numbers the calls of modules, and returns their names later."""

    def __init__(self, call: types.CodeType) -> None:
        self._call = call
        self.interrupted = False  # True after a KeyboardInterrupt that could not be raised
        self._numbers = itertools.count(1)
        self._open: dict[int, list[tuple[types.FrameType, int]]] = {}  # per thread: the calls at the last request
        self._modules: dict[int, tuple[Any, Any]] = {}  # per call: the outermost module on its stack, and its own module
        self._paths: dict[int, dict[int, str]] = {}  # per outermost module: the path of each inner module

    def open_calls(self, _user: int, out: Any, capacity: int) -> int:
        """Implements ModuleHook::open_calls; raises nothing."""
        try:
            calls = self._calls(sys._getframe(1), capacity)
            for depth, (_, number) in enumerate(calls):
                out[depth] = number
            return len(calls)
        except KeyboardInterrupt:  # ctypes would swallow it
            self.interrupted = True
            return 0
        except Exception:  # never disturb training for these facts
            return 0

    def _calls(self, frame: types.FrameType | None, capacity: int) -> list[tuple[types.FrameType, int]]:
        frames = []
        code = self._call
        while frame is not None:
            if frame.f_code is code:
                frames.append(frame)
            frame = frame.f_back
        frames.reverse()
        thread = threading.get_ident()
        known = self._open.get(thread, [])
        calls: list[tuple[types.FrameType, int]] = []
        if not self._modules:
            self._paths.clear()  # of an earlier window; its modules may be gone
        same = True
        for depth, running in enumerate(frames[:capacity]):
            # A frame that still exists is the same call. Frames are kept, because a new frame could otherwise reuse the
            # address.
            same = same and depth < len(known) and known[depth][0] is running
            if same:
                calls.append(known[depth])
                continue
            number = next(self._numbers)
            self._modules[number] = (frames[0].f_locals["self"], running.f_locals["self"])
            calls.append((running, number))
        self._open[thread] = calls
        return calls

    def describe(self, _user: int, call: int, text: int, capacity: int) -> int:
        """Implements ModuleHook::describe; raises nothing."""
        try:
            self._open.clear()  # the step is over; frames would keep its tensors alive
            root, module = self._modules.pop(call, (None, None))
            if root is None:
                return 0
            if id(root) not in self._paths:
                self._paths[id(root)] = {id(inner): path for path, inner in root.named_modules()}
            kind = type(module).__name__
            path = self._paths[id(root)].get(id(module), kind).replace("_orig_mod.", "")  # the root's path is ""
            if path[:1].isdigit():  # inside a Sequential that is the root: "0" alone would name nothing
                path = f"{type(root).__name__}.{path}"
            words = f"{path}\n{kind}".encode()[:capacity]
            ctypes.memmove(text, words, len(words))
            return len(words)
        except Exception:
            return 0

    def forget(self) -> None:
        """Called when the window is over."""
        self._open.clear()
        self._modules.clear()
        self._paths.clear()


class _Hook:
    """Never freed, because a thread may be in a callback when the window closes."""

    def __init__(self, core: Core) -> None:
        import torch

        self.calls = ModuleCalls(torch.nn.Module._call_impl.__code__)
        disable: Any = torch.compiler.disable  # otherwise torch.compile would compile these, too
        self._open_calls = OPEN_CALLS(disable(self.calls.open_calls))
        self._describe = DESCRIBE(disable(self.calls.describe))
        core.module_hook(self._open_calls, self._describe)


_hook: _Hook | None = None


def install(core: Core) -> None:
    """Lets the core ask for modules from now on. May be called again."""
    global _hook
    if _hook is None:
        _hook = _Hook(core)


def forget() -> None:
    if _hook is not None:
        _hook.calls.forget()


def raise_interrupt() -> None:
    """Raises the KeyboardInterrupt that arrived during a lookup of modules, if there was one."""
    if _hook is not None and _hook.calls.interrupted:
        _hook.calls.interrupted = False
        raise KeyboardInterrupt
