"""Bench: runs resnet and stepscope, and keeps all measurements, so that a stopped measurement can continue."""

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from report import Failed, read_report
from resnet_flags import Settings, period_of
from timing import RunTimes, interleave


class ProgramFailed(Failed):
    """A program was started and failed. The message contains its command and its last lines."""

    def __init__(self, message, returncode, out=""):
        super().__init__(message)
        self.returncode, self.out = returncode, out  # negative: a signal, or the time limit


class TimeOver(Failed):
    """The time of --limit is over. Measurements are kept."""
    exit_status = 3


def run_program(command, limit_s=600):
    """Runs a program and returns its stdout. Raises ProgramFailed, or Failed if it cannot be started."""
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=limit_s, check=False)
        code, how = done.returncode, f"failed with exit code {done.returncode}"
        if code < 0:
            how = f"was ended by signal {-code} ({signal.strsignal(-code)})"
    except subprocess.TimeoutExpired as late:
        done, code, how = late, -signal.SIGKILL, f"was stopped after {limit_s} s"
    except OSError as error:
        raise Failed(f"cannot start {command[0]}: {error.strerror} (--bin names its folder)") from None
    out, err = ((text or b"").decode(errors="replace") for text in (done.stdout, done.stderr))
    if code != 0:
        lines = (out + err).strip("\n")[-4096:].split("\n")[-12:]
        said = "\n  ".join(lines if lines != [""] else ["(it printed nothing)"])
        raise ProgramFailed(f"{' '.join(map(str, command))}\n{how}:\n  {said}", code, out)
    return out


def write_whole(path, text):
    """Writes a second file and renames it, so that a full disk or a kill does not lose the old file."""
    with open(path + ".new", "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(path + ".new", path)


class Journal:
    """All runs measured so far, one line of JSON each."""
    def __init__(self, path):
        self.path, self.runs = path, {}
        with open(path, "a+b") as file:
            file.seek(0)
            *lines, torn = file.read().split(b"\n")
            file.truncate(file.tell() - len(torn))  # of a program killed while writing
        for number, line in enumerate(lines, 1):
            try:
                record = json.loads(line)
                self.runs[record["key"]] = RunTimes.of(record["run"], "the run")
            except (ValueError, KeyError, TypeError):
                raise Failed(f"{path}, line {number} is no run noted by this program") from None

    def add(self, key, run):
        self.runs[key] = run
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps({"key": key, "run": vars(run)}) + "\n")


class Bench:
    """Times and profiles resnet, or another program given as `train`, under Settings. Results already in `folder` are not
    measured again. `always` are flags for every run; a run's own settings take precedence. All functions that start programs
    may raise ProgramFailed, and they raise TimeOver `limit_s` seconds after the bench was made."""

    def __init__(self, bin_dir, folder, always=(), limit_s=math.inf, active=10, run=run_program, train=()):
        self.train = list(train) or [os.path.join(bin_dir, "resnet")]
        self.bin, self.folder, self.run, self.active, self.always = bin_dir, folder, run, active, Settings(always)
        self.deadline = time.monotonic() + limit_s
        os.makedirs(folder, exist_ok=True)
        self.journal = Journal(os.path.join(folder, "runs.jsonl"))

    def _resnet(self, what, settings, **more):
        if time.monotonic() >= self.deadline:
            raise TimeOver(f"the time is over; the same command goes on from {self.folder}")
        if sys.stderr.isatty():
            sys.stderr.write(f"\r\33[K{what[:100]}")
        more = {f"--{flag.replace('_', '-')}": str(value) for flag, value in more.items()}
        self.run([*self.train, *self.always.plus(settings).plus(more).arguments()])

    def stepscope(self, *words):
        """Returns a command's JSON output, also that of a what-if that fails to predict. Raises Failed."""
        try:
            return json.loads(self.run([os.path.join(self.bin, "stepscope"), *words, "--format", "json"]))
        except (ProgramFailed, ValueError) as error:  # resnet's settings did not cause this
            if getattr(error, "out", "").startswith("{"):
                return json.loads(error.out)
            raise Failed(f"stepscope {' '.join(words)}: {error}") from None

    def period(self, *settings):  # number of steps after which all of them repeat
        return math.lcm(*(period_of(self.always.plus(one)) for one in settings))

    def time(self, settings, length, purpose, number, partner=None):
        """Returns the RunTimes of a run without a profile. `purpose`, `number` and the interleaved `partner` distinguish runs
        of the same settings: a run interleaved with another partner, minutes ago, says nothing about this pair."""
        text = self.always.plus(settings).text()
        key = f"{purpose} {number}, {length.steps} steps: {text}"
        key += "" if partner is None else f", beside: {self.always.plus(partner).text()}"
        if key not in self.journal.runs:
            with tempfile.TemporaryDirectory() as scratch:
                path = os.path.join(scratch, "times.json")
                self._resnet(f"{purpose} {number + 1}: {text}", settings, no_profile="", steps=length.steps, json=path,
                             warm_steps=length.warm_steps, log_dir=os.path.join(self.folder, "timed"))
                try:
                    with open(path, encoding="utf-8") as file:
                        self.journal.add(key, RunTimes.of(json.load(file), "resnet " + text))
                except (OSError, ValueError) as error:
                    raise Failed(str(error)) from None
        return self.journal.runs[key]

    def compare(self, before, after, pairs, purpose, length):
        """Returns the Comparison of interleaved runs. Each run has whole periods."""
        period = self.period(before, after)

        def run(is_after, pair):
            settings, partner = (after, before) if is_after else (before, after)
            return self.time(settings, length.whole(period), purpose, pair, partner)

        return interleave(run, pairs, period)

    def profile(self, settings, name, times=1):
        """Returns the Report on one recorded window with `times` as many steps as usual. Its files are in folder/`name`."""
        text, folder = self.always.plus(settings).text(), os.path.join(self.folder, name)
        window = {"wait": 2, "warmup": 3, "active": self.active * times, "repeat": 1}
        key, known = f"{text}, {window}", {}
        if os.path.exists(folder + ".json"):
            with open(folder + ".json", encoding="utf-8") as file:
                known = json.load(file)
        if known.get("key") != key:
            shutil.rmtree(folder, ignore_errors=True)
            self._resnet(f"profiling {text}", settings, log_dir=folder, **window)
            known = {"key": key, "report": self.stepscope("analyze", folder)}
            write_whole(folder + ".json", json.dumps(known))
        return read_report(known["report"], folder)
