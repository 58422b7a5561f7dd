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


_ASCII = str.maketrans({"▇": "#", "▁": ".", "·": "|"})  # for the bars and separators of reports
_shown_lately = True


def write(stream: Any, text: str) -> str:
    """Writes the text and flushes. Returns "" or what went wrong; raises nothing. Streams are often the program's own objects."""
    if stream is None:  # it was closed when Python started; print() would write to stdout instead of stderr
        return ""
    try:
        try:
            stream.write(text)
        except UnicodeEncodeError:
            encoding = stream.encoding or "ascii"
            stream.write(text.translate(_ASCII).encode(encoding, "replace").decode(encoding))
        stream.flush()
    except Exception as error:
        return str(error) or type(error).__name__
    return ""


def say(text: str) -> None:
    """Prints a line for the user to stderr, because stdout is for the program's output. Raises nothing."""
    write(sys.stderr, f"stepscope: {text}\n")


def show(text: str) -> bool:
    """Prints the text to stdout; returns False if that failed. The first of several failures is a line on stderr. Raises
    nothing."""
    global _shown_lately
    problem = write(sys.stdout, text)
    if problem and _shown_lately:
        say(f"cannot print to stdout: {problem}")
    _shown_lately = not problem
    return _shown_lately


def is_terminal(stream: Any) -> bool:
    """Raises nothing."""
    try:
        return bool(stream.isatty())
    except Exception:  # closed, or without this method
        return False


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
