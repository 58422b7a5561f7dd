"""Decides when a `profile` records: by its schedule, every N steps, or when a signal or a file asks for it."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

from . import _arguments
from ._schedule import WHOLE_LOOP, fitted, schedule

_LOOK_EVERY_S = 0.5  # interval between checks for the file


class Demand:
    """`first` is the schedule from the start (None: nothing is recorded), `window` the schedule after each request."""

    def __init__(self, asked: Callable[[int], Any] | None, every: int | None, on_signal: int | None,
                 on_file: str | os.PathLike[str] | None) -> None:
        told = None if asked is None else fitted(asked)
        shape = told or schedule()
        self.window = schedule(wait=0, warmup=shape.warmup, active=min(shape.active, WHOLE_LOOP - 1), repeat=1)
        self._signal = None if on_signal is None else _signal(on_signal)
        self._path = None if on_file is None else _arguments.path("on_file", on_file)
        if self._signal is not None and threading.current_thread() is not threading.main_thread():
            raise ValueError("on_signal: Python handles signals on the main thread only; make the profile there")
        if every is not None:
            self.first: schedule | None = _every(every, shape)
        elif told is None and (self._signal is not None or self._path is not None):
            self.first = None
        else:
            self.first = told or schedule(wait=0, warmup=0, active=WHOLE_LOOP, repeat=1)
        self._wanted = False
        self._next_look = 0.0
        self._before: Any = None  # the previous signal handler
        self._armed = False

    def arm(self) -> None:
        if self._signal is not None and not self._armed:
            self._before = signal.signal(self._signal, self._on_signal)
            self._armed = True

    def disarm(self) -> None:
        if self._armed and self._signal is not None:
            self._armed = False
            # Only the main thread may change handlers. After a stop() on another one ours stays, and calls the one before it.
            if threading.current_thread() is threading.main_thread() and signal.getsignal(self._signal) == self._on_signal:
                signal.signal(self._signal, self._before if self._before is not None else signal.SIG_DFL)

    def _on_signal(self, number: int, frame: Any) -> None:
        self._wanted = self._armed
        if callable(self._before):
            self._before(number, frame)

    def is_asked(self) -> bool:
        """Returns True if a window was requested since the last call; raises nothing."""
        if self._path is not None:
            now = time.monotonic()
            if now >= self._next_look:
                self._next_look = now + _LOOK_EVERY_S
                self._wanted |= self._take_file()
        wanted, self._wanted = self._wanted, False
        return wanted

    def _take_file(self) -> bool:
        try:
            os.unlink(self._path or "")
        except OSError:
            return False
        return True


def _signal(number: int) -> signal.Signals:
    try:
        asked = signal.Signals(number)
    except ValueError:
        asked = None
    if asked in (None, signal.SIGKILL, signal.SIGSTOP):
        raise ValueError(f"profile: on_signal is {number!r}, but must be a signal that a program can handle, such as"
                         " signal.SIGUSR2")
    return asked


def _every(steps: int, shape: schedule) -> schedule:
    window = shape.warmup + shape.active
    _arguments.whole("every", steps, window, f"a whole number of at least {window}, the steps of one window with its warm-up")
    return schedule(wait=steps - window, warmup=shape.warmup, active=shape.active, repeat=0, skip_first=shape.skip_first)
