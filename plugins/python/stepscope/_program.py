"""The native program `stepscope`, which this package carries."""

from __future__ import annotations

import os
import pathlib
import subprocess
from collections.abc import Sequence

from ._native import StepscopeError, library_dir, say


def path() -> pathlib.Path:
    """Where the program is; it may be missing."""
    carried = library_dir() / "stepscope"
    return carried if carried.is_file() else library_dir().parent / "bin" / "stepscope"  # the second: of a build


def start(words: Sequence[str]) -> int:
    """Becomes the program; returns 1 only if it cannot be started."""
    program = path()
    try:
        os.execv(program, ["stepscope", *words])
    except OSError as error:
        say(f"cannot start {program}: {error.strerror}; install stepscope again")
        return 1


def output(words: Sequence[str]) -> str:
    """What the program prints. Raises StepscopeError with its own message where it fails."""
    try:
        done = subprocess.run([str(path()), *words], capture_output=True, text=True, errors="replace", check=False,
                              stdin=subprocess.DEVNULL)
    except OSError as error:
        raise StepscopeError(f"cannot start {path()}: {error.strerror}; install stepscope again") from None
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"stepscope {words[0]} ended with status {done.returncode}"]
        raise StepscopeError(lines[0].removeprefix("stepscope: "))
    return done.stdout
