"""Finds the native core, and defines the package's errors.

The core is one shared library without LibTorch and without Python. The first use loads it together with _abi.py, which only the
core needs, because `import stepscope` imports this file. For work on stepscope itself, STEPSCOPE_NATIVE_DIR can name the folder
of another build.
"""

from __future__ import annotations

import os
import sys
import threading

TYPE_CHECKING = False  # typing is slow to import
if TYPE_CHECKING:
    import pathlib
    from typing import Any

    from ._abi import Core

CORE = "libstepscope_core.so"

STEP_RECORDING = 1  # collectors are on in the next step
STEP_WINDOW = 2  # a window was analysed since the last step
STEP_DONE = 4  # no further window will be recorded
STEP_ENDING = 8  # a signal asks the program to end

RANGE_KINDS = {"user": 0, "phase": 1, "module": 2}


class StepscopeError(RuntimeError):
    """stepscope cannot do what it was asked for. The message says why and what to do."""


def say(text: str) -> None:
    """Prints a line for the user to stderr, because stdout is for the program's output."""
    print(f"stepscope: {text}", file=sys.stderr, flush=True)


def library_dir() -> pathlib.Path:
    """Returns the folder of the native libraries."""
    import pathlib

    told = os.environ.get("STEPSCOPE_NATIVE_DIR")
    return pathlib.Path(told) if told else pathlib.Path(__file__).parent / "_lib"


_core: Core | None = None
_lock = threading.Lock()


def core() -> Core:
    """Returns the core; the first call loads it. Raises StepscopeError if it is missing or of another version."""
    global _core
    if _core is None:
        with _lock:
            if _core is None:
                _core = _load()
    return _core


def _load() -> Core:
    from ._abi import Core

    path = library_dir() / CORE
    if not path.is_file():
        raise StepscopeError(f"{path} is missing: install stepscope with `pip install .` from its clone"
                             " (or set STEPSCOPE_NATIVE_DIR to the folder of a build)")
    return Core(path)


def call(name: str, request: dict[str, Any]) -> str:
    """Runs a job that needs no torch, such as "analyze"; stepscope_c.h lists the jobs and their keys."""
    return core().call(name, request)
