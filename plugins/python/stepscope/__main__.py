"""The command `stepscope`: the native program, which this package carries, and the commands that need Python."""

from __future__ import annotations

import importlib
import sys

from . import _program

# Of each, the module that has it: a function of the command's name, from the words after it to the exit status.
COMMANDS = {"run": "run", "view": "view", "mcp": "mcp_server", "catalogue": "fleet.catalogue_command"}


def main() -> int:
    """Does what the words ask for; returns the exit status where it does not become another program."""
    words = sys.argv[1:]
    if words and words[0] in COMMANDS:
        # All usage texts come from the native program, which also completes the options in a shell.
        if any(word in ("--help", "-h") for word in words[1:2]):
            return _program.start(["help", words[0]])
        module = importlib.import_module(f".{COMMANDS[words[0]]}", __package__)
        return int(getattr(module, words[0])(words[1:]))
    return _program.start(words)


if __name__ == "__main__":
    sys.exit(main())
