"""The recorders of a `profile`: our own collectors (this file), or torch.profiler (_fallback.py)."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import gzip
import os
import pathlib
import shutil
import sys
import tempfile
import weakref
from typing import Any, Protocol

from . import _job, _loaders, _modules, _native, _shim
from ._abi import Core
from ._schedule import schedule


@dataclasses.dataclass
class Options:
    """The options of a recording, without its schedule."""

    log_dir: str = ""
    name: str = "train"
    record_shapes: bool = True
    profile_memory: bool = False
    with_stack: bool = False
    with_modules: bool = False
    first_step: int = 0  # number of the first step in the loop; the schedule counts from it
    marked_steps: bool = False  # begin_step() starts each step, and nothing is recorded between steps
    cpu: bool = True
    gpu: bool = True
    max_buffer_bytes: int = 256 << 20
    stop_timeout: float = 120.0
    rank_timeout: float = 10.0
    signal_grace: float = 0.0
    write_step_times: bool = False
    status_every: float = 0.0
    color: bool = False
    width: int = 100


class Recording(Protocol):
    """The recording of a loop. step() and begin_step() raise nothing; the other methods raise StepscopeError."""

    def begin_step(self) -> None: ...  # only if steps are marked
    def step(self) -> int: ...  # bits STEP_*
    def finish(self) -> None: ...
    def windows(self) -> int: ...
    def get(self, window: int, what: str) -> str: ...  # "json", "text", "markdown", "trace", "run", "job"
    def is_ending(self) -> bool: ...  # True if a signal asks the program to end; close() then ends it
    def close(self) -> None: ...


def start(options: Options, when: schedule) -> Recording:
    """Starts recording with our collectors, or with torch.profiler if they cannot record this torch, and says so. Raises
    StepscopeError."""
    import torch  # the loop uses it, and its loaders are watched

    options.color = _native.is_terminal(sys.stdout) and not os.environ.get("NO_COLOR")
    options.width = shutil.get_terminal_size((100, 24)).columns if options.color else 100
    _loaders.watch()
    try:
        shim = _shim.shim_for(torch) if options.cpu else None
    except _shim.NoShim as why:
        from ._fallback import TorchRecording

        _native.say(f"recording with torch.profiler, because {why}")
        return TorchRecording(options, when, str(why))
    return NativeRecording(options, when, shim)


def export(trace: str, path: str | os.PathLike[str]) -> None:
    """Copies a gzipped trace, and unpacks it unless the path ends in .gz. Raises StepscopeError."""
    target = pathlib.Path(path)
    try:
        if target.suffix == ".gz":
            shutil.copyfile(trace, target)
        else:
            with gzip.open(trace, "rb") as compressed, open(target, "wb") as plain:
                shutil.copyfileobj(compressed, plain)
    except OSError as error:
        raise _native.StepscopeError(f"cannot write {target}: {error}") from error


def _remove(folder: str, pid: int) -> None:
    if os.getpid() == pid:  # a forked child inherits the finalizers
        shutil.rmtree(folder, ignore_errors=True)


def temporary_folder(owner: object) -> str:
    """Makes a folder that is removed with `owner`, or when this process ends."""
    folder = tempfile.mkdtemp(prefix="stepscope-")
    weakref.finalize(owner, _remove, folder, os.getpid())
    return folder


class NativeRecording:
    """Records with our own collectors, through the core."""

    def __init__(self, options: Options, when: schedule, shim: int | None) -> None:
        self._core = _native.core()
        self._spool = "" if options.log_dir else temporary_folder(self)
        request = {
            "log_dir": str(pathlib.Path(options.log_dir)) if options.log_dir else "",
            "name": options.name,
            "schedule": when.numbers(),
            "first_step": options.first_step,
            "record_shapes": options.record_shapes,
            "profile_memory": options.profile_memory,
            "with_stack": options.with_stack,
            "with_modules": options.with_modules,
            "marked_steps": options.marked_steps,
            "gpu": options.gpu,
            "max_buffer_bytes": options.max_buffer_bytes,
            "stop_timeout_ms": round(options.stop_timeout * 1000),
            "rank_timeout_ms": round(options.rank_timeout * 1000),
            "signal_grace_ms": round(options.signal_grace * 1000),
            "write_step_times": options.write_step_times,
            "status_every_ms": round(options.status_every * 1000),
            "color": options.color,
            "width": options.width,
            "spool_dir": self._spool,
        }
        if options.with_modules:
            _modules.install(self._core)
        _job.install(self._core)
        self._handle = self._core.profile_start(request, shim)
        self._recording = False
        self._gc = _Collections(self._core)
        self._switch(when.phase(0) != "N")

    def begin_step(self) -> None:
        self._core.profile_begin_step(self._handle)

    def step(self) -> int:
        if self._recording:
            _loaders.mark_waits(self._core)
        flags = self._core.profile_step(self._handle)
        if flags < 0:
            return _native.STEP_DONE
        if bool(flags & _native.STEP_RECORDING) != self._recording:
            self._switch(not self._recording)
        _modules.raise_interrupt()
        return flags

    def _switch(self, on: bool) -> None:
        self._recording = on
        if on:
            self._gc.start()
            _loaders.begin(self._core)
        else:
            self._gc.stop()
            _modules.forget()

    def finish(self) -> None:
        if self._recording:
            _loaders.mark_waits(self._core)
            self._gc.stop()
        try:
            with contextlib.suppress(_native.StepscopeError):  # the core has already said it
                self._core.profile_finish(self._handle)
        finally:  # not earlier: the core asks for the modules' names when it closes the window
            if self._recording:  # else they may be those of another profile's window
                self._switch(False)

    def windows(self) -> int:
        return self._core.profile_windows(self._handle)

    def get(self, window: int, what: str) -> str:
        return self._core.profile_report(self._handle, window, what)

    def is_ending(self) -> bool:
        return self._core.profile_ending(self._handle)

    def close(self) -> None:
        self._gc.stop()
        handle, self._handle = self._handle, 0
        if handle:
            if self._spool and self._core.profile_ending(handle):  # the signal ends the process without finalizers
                _remove(self._spool, os.getpid())
            self._core.profile_close(handle)

    def __del__(self) -> None:
        try:
            self.close()
        except (AttributeError, _native.StepscopeError):
            pass  # it never started, or the core has said what went wrong


class _Collections:
    """Records Python's garbage collections as ranges while a window is open."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._range = 0

    def start(self) -> None:
        if self._on_gc not in gc.callbacks:
            gc.callbacks.append(self._on_gc)

    def stop(self) -> None:
        if self._on_gc in gc.callbacks:
            gc.callbacks.remove(self._on_gc)

    # A collection starts and ends on one thread, and collections do not nest.
    def _on_gc(self, phase: str, info: dict[str, Any]) -> None:
        if phase == "start":
            name = f"Python garbage collection, generation {info.get('generation', 0)}"
            self._range = self._core.range_open(0, name.encode())
        elif self._range:
            self._core.range_close(self._range)
            self._range = 0
