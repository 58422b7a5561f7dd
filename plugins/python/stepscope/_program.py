"""The native program `stepscope`, which is part of this package."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import NoReturn

from ._native import StepscopeError, library_dir, say, write


def path() -> pathlib.Path:
    """Returns the program's path; the file may be missing."""
    carried = library_dir() / "stepscope"
    return carried if carried.is_file() else library_dir().parent / "bin" / "stepscope"  # the second place is that of a build


def become(program: str | os.PathLike[str], words: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
    """Replaces this process with another program. Raises OSError if it cannot be started."""
    write(sys.stdout, "")  # flushes
    # Python ignores these two signals, and a started program would inherit that: a closed pipe would become an error.
    for changed in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(changed, signal.SIG_DFL)
    os.execve(program, list(words), dict(environment))


def start(words: Sequence[str]) -> int:
    """Becomes the native program; returns 1 only if it cannot be started."""
    program = path()
    try:
        # doctor looks for torch in this Python, unless the user names another one.
        become(program, ["stepscope", *words], {"STEPSCOPE_PYTHON": sys.executable or "python3", **os.environ})
    except OSError as error:
        say(f"cannot start {program}: {error.strerror}; install stepscope again")
        return 1


def output(words: Sequence[str]) -> str:
    """Returns what the program prints. If it fails, raises StepscopeError with the program's message."""
    try:
        done = subprocess.run([str(path()), *words], capture_output=True, text=True, errors="replace", check=False,
                              stdin=subprocess.DEVNULL)
    except OSError as error:
        raise StepscopeError(f"cannot start {path()}: {error.strerror}; install stepscope again") from None
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"stepscope {words[0]} ended with status {done.returncode}"]
        raise StepscopeError(lines[0].removeprefix("stepscope: "))
    return done.stdout
