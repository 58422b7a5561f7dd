"""Runs parts within a time limit, remembers which parts ended, and keeps their recordings in a few files.

A part is first recorded and then judged. Both times, all of its files are added to the results. A part that fails, hangs or
crashes never stops the others.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tarfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

ROOT = pathlib.Path(__file__).resolve().parents[2]  # of the source tree
STATE = "state.json"
MOST_BYTES = 15 << 20  # per file of the results
MOST_FILES = 4  # besides summary.txt and state.json
RESERVE_S = 20  # of the limit, for the results and for what cannot stop at once
MOST_TRIES = 2  # for a part during which the machine disappeared
AT_ONCE = 4  # parts; starting a CUDA process takes seconds but hardly uses the GPU


class PartFailed(Exception):
    """A part failed; the message says why."""


class TimeOver(Exception):
    """The time limit is reached; the part continues in the next call."""


@dataclass(frozen=True)
class Done:
    """A command that ended. returncode is negative after a signal."""

    returncode: int
    out: str  # stdout and stderr


@dataclass
class Place:
    """The environment of one part: its programs, folder and time."""

    folder: pathlib.Path
    bin: pathlib.Path
    python: str
    fake: str  # the library that replaces the GPU; "": there is a GPU
    deadline: float  # time.monotonic()
    goes_on: bool  # at the deadline, the part is unfinished, not failed

    def program(self, name: str) -> str:
        return str(self.bin / name)

    def seconds_left(self) -> float:
        return self.deadline - time.monotonic()

    def environment(self, more: Mapping[str, str], preload: bool) -> dict[str, str]:
        env = {**os.environ, "STEPSCOPE_GPU_RECORDED": str(self.folder.parent), **more}
        if self.fake and preload:
            env |= {"LD_PRELOAD": self.fake, "STEPSCOPE_CUDA_LIBRARY": self.fake}
        return env

    def run(self, *command: object, env: Mapping[str, str] = {}, check: bool = True, preload: bool = False) -> Done:
        """Runs a command with its output in the part's log. `preload` is loaded in addition to the fake, if there is one.

        Raises PartFailed if the command cannot be started, or if it fails and `check` is set. At the deadline, it is ended with
        all of its children, and TimeOver is raised if the part can continue later, else PartFailed.
        """
        words = [str(word) for word in command]
        try:
            child = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                     env=self.environment(env, preload), start_new_session=True)
        except OSError as error:
            raise PartFailed(f"cannot start {words[0]}: {error.strerror}") from None
        late = False
        try:
            out, _ = child.communicate(timeout=max(0.0, self.seconds_left()))
        except subprocess.TimeoutExpired:
            late = True
            os.killpg(child.pid, signal.SIGKILL)
            out, _ = child.communicate()
        text = out.decode(errors="replace")
        with open(self.folder / "log.txt", "a", encoding="utf-8") as log:
            log.write(f"$ {' '.join(words)}\n{text}[exit status {child.returncode}]\n")
        if late and self.goes_on:
            raise TimeOver
        name = pathlib.Path(words[0]).name
        if late:
            raise PartFailed(f"{name} did not end and was stopped: {last_line(text)}")
        if check and child.returncode != 0:
            raise PartFailed(f"{name} ended with {child.returncode}: {last_line(text)}")
        return Done(child.returncode, text)


def last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip()[:300] if lines else "(no output)"


@dataclass(frozen=True)
class Part:
    name: str
    what: str
    record: Callable[[Place], None]
    judge: Callable[[Place], str]  # returns the findings as text; raises PartFailed
    # Maximum duration in seconds: the part is started only if this much time is left. For a part that can continue, the minimum
    # time for which a start is worthwhile.
    seconds: int = 90
    goes_on: bool = False  # can continue after being stopped
    alone: bool = True  # measures time, so nothing else may run
    missing: str = ""  # why the product records nothing; the part only reports this
    keeps: Callable[[pathlib.PurePath], bool] = lambda path: True  # files of its folder to keep in the results


@dataclass(frozen=True)
class Outcome:
    """The outcome of a part. Its state is passed, failed, unfinished (can continue), begun (the machine disappeared) or not
    built."""

    state: str = "not begun"
    said: str = ""
    seconds: int = 0
    tries: int = 0

    def ended(self) -> bool:
        return self.state in ("passed", "failed", "not built")


class State:
    """The outcomes of all parts, stored in a file."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        self.outcomes: dict[str, Outcome] = {}
        if path.exists():
            self.outcomes = {name: Outcome(**one) for name, one in json.loads(path.read_text()).items()}

    def of(self, part: Part) -> Outcome:
        return self.outcomes.get(part.name, Outcome())

    def put(self, part: Part, outcome: Outcome) -> None:
        self.outcomes[part.name] = outcome
        temporary = self.path.with_suffix(".new")
        temporary.write_text(json.dumps({name: dataclasses.asdict(one) for name, one in self.outcomes.items()}, indent=1) + "\n")
        temporary.replace(self.path)


def summary(parts: Sequence[Part], state: State) -> str:
    """Returns one line per part, followed by its findings."""
    text = ""
    for part in parts:
        one = state.of(part)
        text += f"{part.name:10} {one.state:11} {one.seconds:>4} s  {part.what}\n"
        text += "".join(f"           | {line}\n" for line in one.said.strip().splitlines())
    return text


def pieces(files: Sequence[pathlib.Path]) -> tuple[list[list[pathlib.Path]], list[pathlib.Path]]:
    """Splits `files` into at most MOST_FILES groups of at most MOST_BYTES each. Returns also the files that did not fit: the
    largest."""
    groups: list[list[pathlib.Path]] = []
    sizes: list[int] = []
    left_out = []
    for file in sorted(files, key=lambda one: (one.stat().st_size, one)):
        size = file.stat().st_size + 2048  # tar's header and padding
        room = [at for at, used in enumerate(sizes) if used + size + 10240 <= MOST_BYTES]
        if room:
            groups[room[0]].append(file)
            sizes[room[0]] += size
        elif len(groups) < MOST_FILES and size + 10240 <= MOST_BYTES:
            groups.append([file])
            sizes.append(size)
        else:
            left_out.append(file)
    return groups, left_out


def keep(done: Sequence[Part], parts: Sequence[Part], state: State, work: pathlib.Path, results: pathlib.Path) -> None:
    """Writes all results again: summary.txt, state.json and, with the recordings of `done`, slot-N.tar."""
    results.mkdir(parents=True, exist_ok=True)
    files = [file for part in done for file in sorted((work / part.name).rglob("*"))
             if file.is_file() and not file.is_symlink() and part.keeps(file.relative_to(work / part.name))]
    machine = work / "machine.json"
    groups, left_out = pieces(files + [machine] * machine.exists())
    for number, group in enumerate(groups):
        temporary = results / "slot.new"
        with tarfile.open(temporary, "w") as tar:
            for file in group:
                tar.add(file, arcname=str(file.relative_to(work)), recursive=False)
        temporary.replace(results / f"slot-{number}.tar")
    for stale in results.glob("slot-*.tar"):
        if int(stale.stem.split("-")[1]) >= len(groups):
            stale.unlink()
    shutil.copyfile(state.path, results / STATE)
    lost = "".join(f"left out for its size: {file.relative_to(work)}, {file.stat().st_size >> 10} KiB\n" for file in left_out)
    (results / "summary.txt").write_text(summary(parts, state) + lost)


class Slot:
    """One command's time on the GPU: `limit` seconds. `fake`: see Place."""

    def __init__(self, parts: Sequence[Part], bin_folder: pathlib.Path, work: pathlib.Path, results: pathlib.Path, limit: float,
                 python: str, fake: str) -> None:
        self.parts, self.bin, self.work, self.results, self.python, self.fake = parts, bin_folder, work, results, python, fake
        self.deadline = time.monotonic() + limit - RESERVE_S
        work.mkdir(parents=True, exist_ok=True)
        self.state = State(work / STATE)
        self.lock = threading.Lock()  # protects the state, the results and the following members
        self.recording: set[str] = set()

    def put(self, part: Part, outcome: Outcome) -> None:
        with self.lock:
            self.state.put(part, outcome)

    def keep(self) -> None:
        """Keeps results, except of parts that are still recording, because their files change."""
        with self.lock:
            keep([part for part in self.parts if part.name not in self.recording], self.parts, self.state, self.work, self.results)

    def record(self, part: Part, place: Place) -> None:
        with self.lock:
            self.recording.add(part.name)
        try:
            part.record(place)
        finally:
            with self.lock:
                self.recording.remove(part.name)
            self.keep()

    def place(self, part: Part) -> Place:
        folder = self.work / part.name
        if not part.goes_on:
            shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(exist_ok=True)
        deadline = self.deadline if part.goes_on else min(self.deadline, time.monotonic() + part.seconds)
        return Place(folder, self.bin, self.python, self.fake, deadline, part.goes_on)

    def do(self, part: Part) -> Outcome:
        """Records, keeps the results, judges, and keeps the results again."""
        before, begin = self.state.of(part), time.monotonic()
        tries = before.tries + 1 if before.state == "begun" else 1
        self.put(part, Outcome("begun", "", before.seconds, tries))
        ended, said = "passed", ""
        try:
            place = self.place(part)
            self.record(part, place)
            said = part.judge(place)
        except TimeOver:
            ended, said = "unfinished", "goes on with the next command"
        except PartFailed as failure:
            ended, said = "failed", str(failure)
        except Exception as error:  # in a part's own code; the others continue
            ended, said = "failed", f"{type(error).__name__}: {error}"
        seconds = time.monotonic() - begin + (before.seconds if part.goes_on else 0)
        outcome = Outcome(ended, said, round(seconds), tries)
        self.put(part, outcome)
        self.keep()
        return outcome

    def outcome(self, part: Part) -> Outcome | None:
        """Returns None if too little time is left to start."""
        now = self.state.of(part)
        if part.missing:
            now = Outcome("not built", part.missing)
        elif now.state == "begun" and now.tries >= MOST_TRIES:
            now = Outcome("failed", f"did not end in {now.tries} tries: the machine went away", now.seconds, now.tries)
        elif self.deadline - time.monotonic() < part.seconds:
            return None
        else:
            return self.do(part)
        self.put(part, now)
        return now

    def tell(self, part: Part) -> None:
        outcome = self.outcome(part)
        said = f"{outcome.state}: {outcome.said}" if outcome else "for the next command: too little time is left"
        print(f"== {part.name}: {part.what}\n   {said}", flush=True)

    def run(self, names: Sequence[str], again: bool) -> int:
        """Runs the named parts (default: all) that have not ended; with `again`, also those that have. Exit status: see
        slot.sh."""
        wanted = [part for part in self.parts if not names or part.name in names]
        left = [part for part in wanted if again or not self.state.of(part).ended()]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for done in [pool.submit(self.tell, part) for part in left if not part.alone]:
                done.result()
        for part in left:
            if part.alone:
                self.tell(part)
        self.keep()
        if not all(self.state.of(part).ended() for part in wanted):
            print("== parts are left: the same command goes on", flush=True)
            return 3
        return int(any(self.state.of(part).state == "failed" for part in wanted))
