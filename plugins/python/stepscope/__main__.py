"""The command `stepscope`: the native program, which this package carries, and what needs Python (`stepscope run`)."""

from __future__ import annotations

import os
import sys

from . import _native


def main() -> int:
    """Becomes the native program, or the one that `run` starts; never returns where that can be started."""
    if sys.argv[1:2] == ["run"]:
        from .run import run

        return run(sys.argv[2:])
    program = _native.library_dir() / "stepscope"
    if not program.is_file():
        program = _native.library_dir().parent / "bin" / "stepscope"  # of a build
    try:
        os.execv(program, ["stepscope", *sys.argv[1:]])
    except OSError as error:
        _native.say(f"cannot start {program}: {error.strerror}; install stepscope again")
        return 1


if __name__ == "__main__":
    sys.exit(main())
