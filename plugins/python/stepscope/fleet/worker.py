"""Analyses one rank's trace. Also the main loop of the local engine's worker processes, which do one task after another."""

from __future__ import annotations

import base64
import json
import os
import pickle
import signal
import sys
from dataclasses import dataclass, field
from typing import Any

from .. import _native
from .._native import StepscopeError
from . import storage


@dataclass(frozen=True)
class Task:
    path: str  # or a URL
    storage_options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Answer:
    """A trace's digest, or a sentence that says why there is none."""

    digest: bytes = b""
    error: str = ""


def digest(task: Task) -> Answer:
    """Reads and analyses one trace. Raises nothing."""
    try:
        with storage.fetched(task.path, task.storage_options) as path:
            try:
                answer = json.loads(_native.call("digest", {"path": path, "source": task.path}))
            except StepscopeError as error:
                return Answer(error=str(error).replace(path, task.path))
    except StepscopeError as error:
        return Answer(error=str(error))
    return Answer(base64.b64decode(answer["digest"]))


def main() -> None:
    """Reads tasks from standard input until its end, and writes each answer to standard output."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # output of libraries must not be taken for an answer
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the engine, which then ends this process
    while True:
        try:
            task = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        pickle.dump(digest(task), answers)
        answers.flush()
