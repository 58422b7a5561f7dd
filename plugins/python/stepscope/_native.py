"""Where the native core is, and the errors of the package.

The core is one shared library without LibTorch and without Python. It is loaded on first use, and with it what only that
needs (_abi.py): `import stepscope` imports this file. STEPSCOPE_NATIVE_DIR names the folder of another build, for work on
stepscope itself.
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
    """What stepscope was asked for cannot be done; the message says why and what to do."""


def say(text: str) -> None:
    """A line for the user, on stderr, where programs keep what is not their output."""
    print(f"stepscope: {text}", file=sys.stderr, flush=True)


def library_dir() -> pathlib.Path:
    """The folder of the native libraries."""
    import pathlib

    told = os.environ.get("STEPSCOPE_NATIVE_DIR")
    return pathlib.Path(told) if told else pathlib.Path(__file__).parent / "_lib"


_core: Core | None = None
_lock = threading.Lock()


def core() -> Core:
    """The core, loaded by the first call. Raises StepscopeError where it is missing or of another version."""
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
