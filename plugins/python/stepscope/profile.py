"""`profile`: takes torch.profiler's arguments and works like it, with our recorder and a report."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import weakref

from . import _native
from ._native import say, show

TYPE_CHECKING = False  # typing is slow to import
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from ._averages import KeyAverages
    from ._recording import Recording
    from ._schedule import schedule
    from .report import Report

_MOST_REPORTS = 16
_UNUSED = ("experimental_config", "execution_trace_observer", "acc_events", "custom_trace_id_callback", "use_cuda",
           "post_processing_timeout_s")  # arguments of torch.profiler.profile


def default_name(log_dir: str) -> str:
    """Returns what tells a run from others: the last part of its log directory, or else the name of the script."""
    folder = os.path.basename(os.path.abspath(log_dir)) if log_dir else ""
    if folder:
        return folder
    script = getattr(sys.modules.get("__main__"), "__file__", None) or "train"  # a notebook and `python -c` have no file
    where, name = os.path.split(os.path.splitext(script)[0])
    return os.path.basename(where) if name == "__main__" else name


class profile:  # noqa: N801 - torch.profiler's name
    """Records steps of a training loop, reports where their time goes and which changes save the most.

        with profile(log_dir="runs/x", schedule=schedule(wait=3, warmup=3, active=3)) as prof:
            for batch in loader:
                train(batch)
                prof.step()
        prof.report

    Arguments of torch.profiler.profile mean the same here; record_shapes is on, because rules need shapes. Without a schedule,
    the whole loop is recorded. When a window ends, its report is made in the background and printed in the next step, and then
    `on_trace_ready(prof)` is called.

    log_dir            the folder for traces and reports; "": none are kept
    name               the run's name in reports and viewers; by default the last part of log_dir, or else the name of the
                       script
    print_report       whether rank 0 prints reports
    every              records a new window every `every` steps, for as long as the loop runs
    on_signal          a signal (signal.SIGUSR2) that starts a window whenever it arrives
    on_file            a path: when a file appears there, it is removed and a window starts
    only_inside        the name of a stepscope.range: each execution of the range on this thread is a step, and no operators
                       are recorded between steps. step() is not needed and does nothing
    max_buffer_bytes   memory for the events of one window; events that do not fit are counted, and the report says so
    rank_timeout       with several ranks: how many seconds rank 0 waits for the windows of the other ranks, to report on all
                       of them together; 0: each rank reports alone
    stop_timeout       how many seconds the end of the loop waits for reports and files
    signal_grace       SIGTERM during a window ends the profile after the current step, with a report on its complete steps;
                       then the same signal ends the program, at the latest this many seconds after it came. 0: SIGTERM ends
                       the program at once, and an open window is lost. The program's own handlers are never replaced
    write_step_times   writes the time of every step of the run to the log directory
    status_every       seconds between status lines about the run on stderr; 0: none

    Wrong arguments raise ValueError or TypeError here. After that, nothing raises: an error is a line on stderr, and training
    continues.
    """

    def __init__(self, *, activities: Iterable[Any] | None = None, schedule: Callable[[int], Any] | None = None,
                 on_trace_ready: Callable[[profile], Any] | None = None, record_shapes: bool = True,
                 profile_memory: bool = False, with_stack: bool = False, with_flops: bool = False,
                 with_modules: bool = False, log_dir: str | os.PathLike[str] = "", name: str | None = None,
                 print_report: bool = True, every: int | None = None, on_signal: int | None = None,
                 on_file: str | os.PathLike[str] | None = None, only_inside: str = "", max_buffer_bytes: int = 256 << 20,
                 stop_timeout: float = 120.0, rank_timeout: float = 10.0, signal_grace: float = 0.0, write_step_times: bool = False,
                 status_every: float = 0.0, **unused: Any) -> None:
        from . import _arguments, _rank
        from ._demand import Demand
        from ._recording import Options

        for key, value in unused.items():
            if key not in _UNUSED:
                raise TypeError(f"profile() got an unexpected keyword argument {key!r}")
            if value:
                say(f"{key} has no meaning here and is ignored")
        (record_shapes, profile_memory, with_stack, with_flops, with_modules, print_report,
         write_step_times) = _arguments.flags(
             record_shapes=record_shapes, profile_memory=profile_memory, with_stack=with_stack, with_flops=with_flops,
             with_modules=with_modules, print_report=print_report, write_step_times=write_step_times)
        _arguments.seconds(stop_timeout=stop_timeout, rank_timeout=rank_timeout, signal_grace=signal_grace,
                           status_every=status_every)
        _arguments.whole("max_buffer_bytes", max_buffer_bytes, 1 << 16, "a whole number of at least 65536")
        _arguments.function("on_trace_ready", on_trace_ready)
        folder = _arguments.path("log_dir", log_dir)
        name = default_name(folder) if name is None else name
        _arguments.texts(name=name, only_inside=only_inside)
        kinds = _arguments.activities(activities)
        self._options = Options(
            log_dir=folder, name=name,
            record_shapes=record_shapes or with_flops,
            profile_memory=profile_memory, with_stack=with_stack, with_modules=with_modules,
            marked_steps=bool(only_inside),
            cpu=kinds is None or "CPU" in kinds, gpu=kinds is None or "CUDA" in kinds,
            max_buffer_bytes=max_buffer_bytes, stop_timeout=stop_timeout, rank_timeout=rank_timeout, signal_grace=signal_grace,
            write_step_times=write_step_times, status_every=status_every)
        self._only_inside = only_inside
        self._steps: _RangeSteps | None = None
        self._demand = Demand(schedule, every, on_signal, on_file)
        self._when = self._demand.first
        self.on_trace_ready = on_trace_ready
        self.step_num = 0
        self._recording: Recording | None = None
        self._finished: Recording | None = None  # the last one
        self._seen = 0  # windows of self._recording that were handled
        self._texts: list[str] = []  # JSON of the last reports
        self._job_text = ""  # JSON of the last window's report of all ranks
        self._stopped = False
        # A broken installation must raise here, before training starts.
        self._print_report = print_report and _rank.own().rank == 0
        self._before_end: Callable[[], None] | None = None  # called if a signal ends the program

    def start(self) -> None:
        """Starts, as entering the `with` block does."""
        if self._stopped:
            say("this profile has ended, so nothing is recorded: make a new one")
        if self._recording is not None or self._stopped:
            return
        _live.add(self)
        self._demand.arm()
        if self._only_inside:
            self._steps = _RangeSteps(self._only_inside, self)
            _ranges()._steps = self._steps
        if self._when is not None:
            self._guard("nothing is recorded", self._begin, self._when)

    def __enter__(self) -> profile:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def step(self) -> None:
        """Marks the end of a step."""
        if not self._only_inside:
            self._end_step()

    def _begin_step(self) -> None:
        if self._recording is not None:
            self._recording.begin_step()

    def _end_step(self) -> None:
        recording = self._recording
        self.step_num += 1
        if recording is not None:
            flags = recording.step()
            if flags & _native.STEP_ENDING:
                self.stop()
                return
            if flags & _native.STEP_WINDOW:
                self._guard("a report was lost", self._show, recording)
            if not flags & _native.STEP_DONE:
                return
        if not self._stopped and self._demand.is_asked():
            self._guard("recording on request failed", self._begin, self._demand.window)

    def stop(self) -> None:
        """Ends the loop: closes the window and waits for its report and files."""
        if self._stopped:
            return
        self._stopped = True
        _live.discard(self)
        self._demand.disarm()
        if self._steps is not None and _ranges()._steps is self._steps:
            _ranges()._steps = None
        if self._recording is not None:
            self._guard("the profile did not end well", self._end, self._recording)

    def _begin(self, when: schedule) -> None:
        """Starts recording, or says why that is impossible."""
        from . import _recording

        if self._recording is not None:
            self._finish(self._recording)
        self._options.first_step = self.step_num
        self._recording, self._seen = _recording.start(self._options, when), 0
        if self._print_report:
            say(f'"{self._options.name}": {self._recording.get(-1, "plan")}')

    def _end(self, recording: Recording) -> None:
        no_step = self.step_num == self._options.first_step and not self._only_inside
        if no_step and self._when is not None and self._when.is_whole_loop:
            recording.step()  # a block without step() is one step
        self._finish(recording)

    def _finish(self, recording: Recording) -> None:
        try:
            try:
                recording.finish()
            except _native.StepscopeError as error:
                say(str(error))
            self._show(recording)
            text = recording.get(-1, "run")
            if self._print_report and text:
                show("\n" + text)
        finally:
            self._finished, self._recording = recording, None
            if recording.is_ending():
                if self._before_end is not None:
                    self._guard("the profile did not end well", self._before_end)
                recording.close()

    def _show(self, recording: Recording) -> None:
        """Prints and keeps the reports that arrived since the last call."""
        while self._seen < recording.windows():
            window, self._seen = self._seen, self._seen + 1
            self._finished = recording
            self._guard("a report was lost", self._keep, recording, window)
            if self.on_trace_ready is not None:
                self._guard("on_trace_ready failed", self.on_trace_ready, self)

    def _keep(self, recording: Recording, window: int) -> None:
        self._texts = [*self._texts[1 - _MOST_REPORTS:], recording.get(window, "json")]
        self._job_text = recording.get(window, "job")
        if self._print_report:
            show(recording.get(window, "text"))

    def _guard(self, what: str, function: Callable[..., Any], *arguments: Any) -> None:
        """Calls the function; an exception becomes a line on stderr."""
        try:
            function(*arguments)
        except _native.StepscopeError as error:
            if not str(error).endswith("unprofiled"):  # the core has already said that
                say(f"{what}: {error}; training goes on")
        except Exception as error:
            import traceback

            say(f"{what}: {error}; training goes on\n{traceback.format_exc().rstrip()}")

    @property
    def reports(self) -> list[Report]:
        """The reports on the windows so far, at most the last 16."""
        from .report import Report

        return [Report.from_json(text) for text in self._texts]

    @property
    def report(self) -> Report:
        """The report on the last window. Raises StepscopeError if there is none yet."""
        from .report import Report

        if not self._texts:
            raise _native.StepscopeError("no window has been recorded and analysed yet")
        return Report.from_json(self._texts[-1])

    @property
    def job_report(self) -> Report | None:
        """The report on the last window of all ranks. None except on rank 0 of a job, and None if no other rank records."""
        from .report import Report

        return Report.from_json(self._job_text) if self._job_text else None

    def key_averages(self, group_by_input_shape: bool = False) -> KeyAverages:
        """The last window's operators by time, as torch.profiler lists them. Raises StepscopeError if there is no window."""
        from ._averages import KeyAverages

        return KeyAverages(self._last("trace"), group_by_input_shape)

    def _last(self, what: str) -> str:
        """Returns the last window's trace (its path) or text."""
        if self._finished is None:
            raise _native.StepscopeError(f"no window has been recorded yet, so there is no {what}")
        return self._finished.get(-1, what)

    def export_chrome_trace(self, path: str | os.PathLike[str]) -> None:
        """Writes the last window's trace, gzipped if the path ends in .gz. Raises StepscopeError if there is none."""
        from . import _recording

        _recording.export(self._last("trace"), path)


def _ranges() -> Any:
    return sys.modules["stepscope.range"]  # the package's attribute `range` is the class


class _RangeSteps:
    """Makes a profile's steps from executions of a range, on the thread that started the profile."""

    def __init__(self, name: str, owner: profile) -> None:
        self.name = name
        self._owner = owner
        self._thread = threading.get_ident()
        self._depth = 0

    def begin(self) -> bool:
        if threading.get_ident() != self._thread:
            return False
        self._depth += 1
        if self._depth == 1:
            self._owner._begin_step()
        return True

    def end(self) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._owner._end_step()


# Profiles that were started and not stopped: a script may end inside the block.
_live: weakref.WeakSet[profile] = weakref.WeakSet()
_pid = os.getpid()


@atexit.register
def _stop_all() -> None:
    if os.getpid() == _pid:
        for each in list(_live):
            each.stop()
