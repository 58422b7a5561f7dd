"""Records with torch.profiler if our own collectors cannot run. The analysis is still ours, and the report says who
recorded."""

from __future__ import annotations

import importlib
import itertools
import json
import pathlib
import socket
import time
from typing import Any

from . import _native, _rank
from ._recording import Options, temporary_folder
from ._schedule import schedule

LOSS = "recorded-by-torch-profiler"


def _ranges_by(opener: Any) -> None:
    """Sets what stepscope.range() opens; None: the core's ranges."""
    importlib.import_module("stepscope.range")._elsewhere = opener  # type: ignore[attr-defined]


def _run_name(name: str) -> str:
    kept = "".join(letter if letter.isalnum() or letter in "._-" else "-" for letter in name)[:64]
    return f"{kept}_{time.strftime('%Y_%m_%d_%H_%M_%S')}"


class TorchRecording:
    """Records with torch.profiler. The traces are written to the same places as ours, with a report for each."""

    def __init__(self, options: Options, when: schedule, why: str) -> None:
        import torch.profiler

        self._options, self._when, self._why = options, when, why
        # Read it now, because `stepscope run` sets the rank only while a profile starts.
        launched = _rank.own()
        self._rank = launched.rank
        if launched.problem:
            _native.say(launched.problem)
        self._steps = 0
        self._reports: list[str] = []
        self._traces: list[str] = []
        self._error = ""
        self._folder = pathlib.Path(options.log_dir or temporary_folder(self))
        self._run = self._free_run(_run_name(options.name))
        activities = [torch.profiler.ProfilerActivity.CPU] if options.cpu else []
        if options.gpu and torch.cuda.is_available():
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        first = options.first_step
        self._profiler = torch.profiler.profile(
            activities=activities,
            schedule=None if when.is_whole_loop else lambda step: when(max(step - first, 0)),
            on_trace_ready=self._on_trace,
            record_shapes=options.record_shapes,
            profile_memory=options.profile_memory,
            with_stack=options.with_stack,
            with_modules=options.with_modules)
        self._profiler.step_num = first  # the number in its step marks, and the schedule's argument
        self._open: torch.profiler.profile | None = self._profiler
        self._profiler.start()
        _ranges_by(torch.profiler.record_function)

    def _trace_path(self, run: str, cycle: int) -> pathlib.Path:
        return self._folder / "stepscope" / run / f"c{cycle}" / "trace" / f"rank{self._rank}.json.gz"

    def _free_run(self, name: str) -> str:
        """Returns the name, with a number if an earlier recording has it: two windows may be requested in one second."""
        names = (name if number == 1 else f"{name}_{number}" for number in itertools.count(1))
        return next(each for each in names if not self._trace_path(each, 0).exists())

    def _on_trace(self, profiler: Any) -> None:
        try:
            path = self._place_for_trace()
            profiler.export_chrome_trace(str(path))
            self._traces.append(str(path))
            self._reports.append(self._report(path))
            if self._options.log_dir:
                self._advice(path, ".html").write_text(self._analysed(str(path), "html"), encoding="utf-8")
        except (OSError, RuntimeError) as error:
            self._error = self._error or f"the window was not analysed: {error}"

    def _place_for_trace(self) -> pathlib.Path:
        """Makes the folder of the next trace: in the log directory, or else in a temporary folder. Raises OSError."""
        path = self._trace_path(self._run, len(self._traces))
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            if self._folder != pathlib.Path(self._options.log_dir):
                raise
            _native.say(f"cannot write to log_dir: {error.filename}: {error.strerror}; choose another log_dir (training goes"
                        " on, and the report is still printed)")
            self._folder = pathlib.Path(temporary_folder(self))
            path = self._trace_path(self._run, len(self._traces))
            path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def _analysed(self, path: str, form: str) -> str:
        """Returns our report on the trace, with a note about the recorder."""
        loss = {"name": LOSS, "detail": self.told()}
        return _native.call("analyze", {"paths": [path], "format": form, "loss": loss})

    @staticmethod
    def _advice(path: pathlib.Path, suffix: str) -> pathlib.Path:
        return path.parent.parent / "advice" / path.name.replace(".json.gz", suffix)

    def _report(self, path: pathlib.Path) -> str:
        report = json.loads(self._analysed(str(path), "json"))
        report["run"]["host"] = report["run"].get("host") or socket.gethostname()
        text = json.dumps(report, indent=2)
        advice = self._advice(path, ".json")
        advice.parent.mkdir(exist_ok=True)
        advice.write_text(text + "\n", encoding="utf-8")
        return text

    def told(self) -> str:
        between = ", which also records what lies between the ranges" if self._options.marked_steps else ""
        return f"recorded with torch.profiler{between}, because {self._why}; stepscope analysed it"

    def begin_step(self) -> None:
        """Does nothing: torch.profiler also records between steps."""

    def step(self) -> int:
        if self._open is None:
            return _native.STEP_DONE
        before = len(self._reports)
        try:
            self._open.step()
        except Exception as error:  # an error of torch.profiler; training continues
            self._fail(error)
            return _native.STEP_DONE
        self._steps += 1
        flags = _native.STEP_DONE if self._when.is_over(self._steps) else 0
        if self._when.phase(self._steps) != "N":
            flags |= _native.STEP_RECORDING
        if len(self._reports) > before:
            flags |= _native.STEP_WINDOW
        return flags

    def _fail(self, error: Exception) -> None:
        self._error = self._error or f"torch.profiler failed: {error}"
        self._open = None
        _ranges_by(None)

    def finish(self) -> None:
        if self._open is not None:
            profiler, self._open = self._open, None
            _ranges_by(None)
            try:
                profiler.stop()
            except Exception as error:
                self._fail(error)
        if self._error:
            raise _native.StepscopeError(self._error)

    def windows(self) -> int:
        return len(self._reports)

    def get(self, window: int, what: str) -> str:
        if what in ("run", "plan", "job"):
            return self.told() if what == "plan" else ""
        if not -len(self._reports) <= window < len(self._reports):
            raise _native.StepscopeError("no window was recorded")
        if what == "json":
            return self._reports[window]
        if what == "trace":
            return self._traces[window]
        text = _native.call("analyze", {"paths": [self._traces[window]], "format": what})
        return f"Note: {self.told()}.\n\n{text}"

    def is_ending(self) -> bool:
        return False  # torch.profiler leaves signals alone

    def close(self) -> None:
        self.finish()
