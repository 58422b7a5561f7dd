"""The command `stepscope`: runs the native program that the package contains, or a command written in Python."""

from __future__ import annotations

import importlib
import sys

from . import _program

# The module of each Python command. It has a function of the command's name, which takes the words after it and returns the
# exit status.
COMMANDS = {"run": "run", "view": "view", "mcp": "mcp_server", "catalogue": "fleet.catalogue_command"}


def main() -> int:
    """Runs the command line. Returns the exit status, unless this process becomes another program."""
    words = sys.argv[1:]
    if words and words[0] in COMMANDS:
        # The native program prints all usage texts, because it also completes the options in a shell.
        if any(word in ("--help", "-h") for word in words[1:2]):
            return _program.start(["help", words[0]])
        module = importlib.import_module(f".{COMMANDS[words[0]]}", __package__)
        return int(getattr(module, words[0])(words[1:]))
    return _program.start(words)


if __name__ == "__main__":
    sys.exit(main())
