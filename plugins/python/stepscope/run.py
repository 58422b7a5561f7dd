"""`stepscope run`: starts an unmodified training program so that it records some of its steps.

The program replaces this process, so it keeps its own arguments, output, exit status and signals. A sitecustomize on PYTHONPATH
arms the recorder in the program and in every Python that it starts.
"""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import sys
import time
from collections.abc import Sequence

from . import _program
from ._native import StepscopeError, say

SITE = pathlib.Path(__file__).parent / "_site"
WARM_UP = 3  # steps before the recorded ones, with the recorder on
SIGNAL_GRACE = 10.0  # seconds after SIGTERM; torchrun and most schedulers send SIGKILL after 30
OPS_ONLY = "--ops-only"
NUMBERS = {"--skip": (0, 10), "--steps": (1, 10)}  # least value and default
COUNTERS = "--gpu-counters"
LEAST_HZ, MOST_HZ = 10, 10_000


def parse(words: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Returns the options, and the program's words, which start with the first word that is not an option."""
    options: dict[str, str] = {}
    rest = list(words)
    while rest and rest[0].startswith("-") and rest[0] not in ("-m", "-c"):
        name, equals, value = rest.pop(0).partition("=")
        if name == "--":
            break
        if name == OPS_ONLY and not equals:
            options[name] = ""
            continue
        if name not in (*NUMBERS, COUNTERS, "--out"):
            raise StepscopeError(f"unknown option '{name}'; stepscope help run lists the options")
        if not equals:
            value = rest.pop(0) if rest else ""
        if not value:
            raise StepscopeError(f"{name} needs a value")
        if name in NUMBERS and not (value.isdecimal() and int(value) >= NUMBERS[name][0]):
            raise StepscopeError(f"{name} must be a whole number of at least {NUMBERS[name][0]}, not '{value}'")
        if name == COUNTERS and not (value.isdecimal() and LEAST_HZ <= int(value) <= MOST_HZ):
            raise StepscopeError(f"{name} must be a whole number from {LEAST_HZ} to {MOST_HZ}, not '{value}'")
        options[name] = value
    if not rest:
        raise StepscopeError("run needs a program: stepscope run train.py ARGUMENT...")
    return options, rest


def command_of(words: Sequence[str]) -> list[str]:
    """Returns the program and its arguments. A Python file, -m and -c run in this Python."""
    first = words[0]
    if first in ("-m", "-c") or first.endswith(".py") or (os.path.exists(first) and not os.access(first, os.X_OK)):
        return [sys.executable, *words]
    # The second place is for an environment that is not activated.
    found = shutil.which(first) or shutil.which(first, path=os.path.dirname(sys.executable))
    if found is None:
        raise FileNotFoundError(f"no program '{first}'")
    return [found, *words[1:]]


def ignored_by(command: Sequence[str]) -> str:
    """Returns the flag of `command` that makes Python ignore PYTHONPATH, so that nothing could be recorded."""
    if not os.path.basename(command[0]).startswith("python"):
        return ""
    for word in command[1:]:
        if not word.startswith("-") or word.startswith("--") or word in ("-m", "-c", "-"):
            return ""
        if any(letter in "IES" for letter in word[1:].partition("W")[0].partition("X")[0]):
            return word
    return ""


def name_of(words: Sequence[str]) -> str:
    """Returns the program's name: the Python file or module in the words, else the program."""
    for place, word in enumerate(words):
        if word.endswith(".py"):
            return pathlib.Path(word).stem
        if word == "-m" and place + 1 < len(words):
            return words[place + 1].rpartition(".")[2]
    return pathlib.Path(words[0]).stem.lstrip("-") or "python"


def environment(options: dict[str, str], words: Sequence[str]) -> dict[str, str]:
    """Returns the program's environment."""
    out = os.path.abspath(options.get("--out") or os.path.join("runs", name_of(words)))
    wanted = {"out": out, "name": os.path.basename(out) or name_of(words), "pid": os.getpid(),
              "started": time.time_ns(), "ops_only": OPS_ONLY in options,
              **{option[2:]: int(options.get(option, default)) for option, (_, default) in NUMBERS.items()}}
    path = [str(SITE), *filter(None, [os.environ.get("PYTHONPATH")])]
    counters = {"STEPSCOPE_GPU_COUNTERS": options[COUNTERS]} if COUNTERS in options else {}
    # Compiling a recorder first would delay the training, so torch.profiler records in that case.
    return {"STEPSCOPE_BUILD_SHIM": "0", **os.environ, **counters, "PYTHONPATH": os.pathsep.join(path),
            "STEPSCOPE_RUN": json.dumps(wanted)}


def preloaded(program: str, recording: dict[str, str]) -> dict[str, str]:
    """Returns further variables for a LibTorch program; {} for any other program. Raises StepscopeError if nothing can record
    it."""
    from . import _libtorch

    library = _libtorch.library_of(program)
    if library is None:
        return {}
    wanted = json.loads(recording["STEPSCOPE_RUN"])
    chosen = {"STEPSCOPE_START_MS": "1000", "STEPSCOPE_PRINT": "0", "STEPSCOPE_NAME": wanted["name"]}
    if "STEPSCOPE_STEP_RANGE" in recording:
        warmup = min(WARM_UP, wanted["skip"])
        chosen["STEPSCOPE_SCHEDULE"] = f"{wanted['skip'] - warmup},{warmup},{wanted['steps']}"
    return {**chosen, **recording, "STEPSCOPE_LOG_DIR": wanted["out"], **_libtorch.environment(library)}


def run(words: Sequence[str]) -> int:
    """Becomes the program; returns the exit status only if the program cannot be started."""
    try:
        options, program = parse(words)
        command = command_of(program)
    except StepscopeError as error:
        say(str(error))
        return 2
    except FileNotFoundError as error:
        say(str(error))
        return 127
    flag = ignored_by(command)
    if flag:
        say(f"nothing will be recorded: {flag} makes Python ignore PYTHONPATH")
    variables = environment(options, program)
    try:
        variables = preloaded(command[0], variables) or variables
    except StepscopeError as error:
        say(str(error))
    try:
        _program.become(command[0], command, variables)
    except OSError as error:
        say(f"cannot start {command[0]}: {error.strerror}")
        return 127
