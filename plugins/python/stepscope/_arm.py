"""Finds the steps of an unmodified program, and records some of them.

A step ends when an optimizer's step() ends: micro-batches stay inside a step. Of several optimizers that take turns, only one
counts, and an optimizer that replaces another one goes on counting. In a program without an optimizer, a step ends when a
DataLoader has delivered a batch. Errors in this module never reach the program.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import sys
import weakref
from collections.abc import Callable, Iterator
from types import CodeType, ModuleType
from typing import Any

from . import _native, _rank, _render
from ._native import StepscopeError, say
from .run import SIGNAL_GRACE, WARM_UP


class StepCounter:
    """Counts a program's steps from the steps of the objects that make them: its optimizers, or its loaders.

    One of them leads: each of its steps is a step of the program, and the steps of others in between are part of it, as with
    the two optimizers of a GAN. The lead passes to another one that goes on without the leader, as the optimizer of the next
    fold does. An object that steps again after another one runs beside others, so it gets the lead, and keeps it while another
    one makes up to PATIENCE steps.
    """

    PATIENCE = 10

    def __init__(self) -> None:
        self.steps = 0
        self._leader: Callable[[], Any] = _nobody
        self._last: Callable[[], Any] = _nobody
        self._known: weakref.WeakSet[Any] = weakref.WeakSet()
        self._returned: weakref.WeakSet[Any] = weakref.WeakSet()  # have stepped again after another one
        # Since the leader's last step: what was made, and how often the others stepped.
        self._made: weakref.WeakSet[Any] = weakref.WeakSet()
        self._counts: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    def made(self, owner: Any) -> None:
        """Notes that `owner` was made now. Objects that were not noted are taken to exist from the start."""
        self._made.add(owner)

    def count(self, owner: Any) -> bool:
        """Counts one step of `owner`. Returns True if this is a new step of the program."""
        if owner in self._known and self._last() is not owner:
            self._returned.add(owner)
        self._known.add(owner)
        self._last = weakref.ref(owner)
        if not self._leads(owner, self._leader()):
            return False
        self._leader = weakref.ref(owner)
        self._made.clear()
        self._counts.clear()
        self.steps += 1
        return True

    def _leads(self, owner: Any, leader: Any) -> bool:
        if leader is None or owner is leader:  # a leader that is gone makes no more steps
            return True
        self._counts[owner] = self._counts.get(owner, 0) + 1
        if leader in self._returned:
            return self._counts[owner] > self.PATIENCE
        return owner in self._returned or owner in self._made or self._counts[owner] > 1


def _nobody() -> None:
    return None


class Recording:
    """The recording that `stepscope run` asked for, in one process."""

    def __init__(self, wanted: dict[str, Any]) -> None:
        self.out, self.name = str(wanted["out"]), str(wanted["name"])
        self.first = max(int(wanted["skip"]), 1)  # recording cannot start before the first step has ended
        self.active = int(wanted["steps"])
        self.details = not wanted.get("ops_only", False)
        self.started_s = int(wanted["started"]) * 1e-9
        self.optimizers, self.loaders = StepCounter(), StepCounter()
        self.has_optimizer = False
        self.source = ""  # "optimizer" or "loader": what the open profile counts
        self.profile: Any = None
        self.report: Any = None
        self.text = ""  # the report for people
        self.kept = False  # True if its trace is in the log directory
        self.rank = 0
        self.off = False
        self.failed = False  # True if it failed and the user was told why
        self.pid = int(wanted["pid"])  # process ID of the program that the user started
        if self.pid == os.getpid():
            atexit.register(self.say_if_nothing_stepped)

    def optimizer_made(self, optimizer: Any) -> None:
        self.has_optimizer = True
        self.optimizers.made(optimizer)

    def optimizer_stepped(self, optimizer: Any) -> None:
        if self.off or not self.optimizers.count(optimizer):
            return
        if self.source != "optimizer":
            warmup = min(WARM_UP, self.first - 1)
            self._open("optimizer", 0, wait=self.first - warmup, warmup=warmup)
        self.profile.step()  # also for the step that opened it, so that step numbers are the program's

    def batch_arrived(self, owner: Any) -> None:
        if self.off or self.has_optimizer or not self.loaders.count(owner):
            return
        warmup = min(WARM_UP, self.first)
        if self.source:
            self.profile.step()
        elif self.loaders.steps == self.first - warmup + 1:
            self._open("loader", self.loaders.steps - 1, wait=0, warmup=warmup)

    def _open(self, source: str, first_step: int, wait: int, warmup: int) -> None:
        """Opens a profile in the program's step `first_step`."""
        from . import profile, schedule
        self.close()
        if not self.source:
            _at_exit(self.end)
        self.source = source
        job, self.rank = _job()
        with _environment(job):
            self.profile = profile(log_dir=self.out, name=self.name, print_report=False, record_shapes=self.details,
                                   with_stack=self.details, with_modules=self.details, signal_grace=SIGNAL_GRACE,
                                   schedule=schedule(wait=wait, warmup=warmup, active=self.active))
            self.profile._before_end = self.end
            self.profile.step_num = first_step
            self.profile.start()

    def close(self) -> None:
        """Ends the open profile, which keeps the complete steps of an open window."""
        profile, self.profile = self.profile, None
        if profile is not None:
            profile.stop()
            with contextlib.suppress(StepscopeError):  # no step was recorded
                self.report = profile.job_report or profile.report
                self.text = profile._last("text")
                self.kept = _is_in(profile._last("trace"), self.out)

    def end(self) -> None:
        self.off = True
        try:
            self.close()
        finally:
            _remember_interrupt()
        if self.source and self.rank == 0:
            for line in self.summary():
                say(line)
            if not self.kept:
                _native.write(sys.stderr, self.text)

    def summary(self) -> list[str]:
        """Returns the lines for the user at the end."""
        if self.report is None and self.failed:
            return []
        if self.report is None:
            steps = max(self.optimizers.steps, self.loaders.steps - 1)
            if steps > self.first:  # the profile has already said why
                return ["nothing was recorded"]
            return [f"nothing was recorded: the program made only {steps} steps, but recording starts after step {self.first} "
                    "(change it with stepscope run --skip)"]
        first = next(self.report.advice(), None)
        found = f"; first: {first.id}, {_render.gain_text(first) or 'gain unknown'}" if first else "; found nothing to improve"
        if self.kept:
            where = f"the report: stepscope analyze {self.out}"
        else:
            where = f"no trace could be kept in {self.out}; choose another folder with stepscope run --out. The report:"
        return [f"recorded {_render.steps_text(self.report)}{found}", where]

    def say_if_nothing_stepped(self) -> None:
        """Only for the process that the user started. If its children trained, they have created the log directory."""
        runs = os.path.join(self.out, "stepscope")
        if self.source or self.pid != os.getpid() or os.path.isdir(runs) and os.path.getmtime(runs) >= self.started_s:
            return
        steps = self.loaders.steps
        if steps:
            say(f"nothing was recorded: saw only {steps} DataLoader batches, but recording starts after step {self.first} "
                "(change it with stepscope run --skip)")
        else:
            say("nothing was recorded: saw no optimizer step and no DataLoader batch. Without them, mark the steps: "
                "with stepscope.profile(log_dir=...) as prof, and prof.step() at the end of each")

    def forked(self) -> None:
        """Runs in a forked child: an open recording belongs to the parent."""
        if self.source:
            self.source, self.profile, self.off = "", None, True


def _remember_interrupt() -> None:
    """Makes Python remember an unhandled KeyboardInterrupt again.

    Python ends such a process by SIGINT, unless code was executed from a string in the meantime, as dataclasses do. Raising one
    from a string restores this state.
    """
    if getattr(sys, "last_type", None) is KeyboardInterrupt:
        with contextlib.suppress(KeyboardInterrupt):
            exec("raise KeyboardInterrupt")


def _at_exit(end: Callable[[], None]) -> None:
    """Calls end() once when the process ends: normally, by an exception, or as a child of multiprocessing."""
    once = functools.lru_cache(maxsize=None)(_guarded(end))
    atexit.register(once)
    if "multiprocessing.process" in sys.modules:
        from multiprocessing import process, util
        if process.parent_process() is not None:  # such a child may exit by os._exit()
            util.Finalize(None, once, exitpriority=100)


def _guarded(call: Callable[..., None]) -> Callable[..., None]:
    """Wraps `call` so that it raises nothing: its first error ends the recording."""
    @functools.wraps(call)
    def guarded(*arguments: Any) -> None:
        try:
            call(*arguments)
        except Exception as error:
            _recording.off = _recording.failed = True
            say(f"the recording ended: {type(error).__name__}: {error}")
    return guarded


def _job() -> tuple[dict[str, str], int]:
    """Returns the variables that torchrun would set, also for a process started by spawn(), and the rank."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        rank, world_size = int(distributed.get_rank()), int(distributed.get_world_size())
        return {"RANK": str(rank), "WORLD_SIZE": str(world_size)}, rank
    return {}, _rank.own().rank


@contextlib.contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    """Sets those of the environment variables `values` that are not set yet, while a profile starts."""
    new = {key: value for key, value in values.items() if key not in os.environ}
    os.environ.update(new)
    try:
        yield
    finally:
        for key in new:
            os.environ.pop(key, None)


def _is_in(path: str, folder: str) -> bool:
    return os.path.commonpath([os.path.abspath(path), os.path.abspath(folder)]) == os.path.abspath(folder)


def _in_loader_worker() -> bool:
    data = sys.modules.get("torch.utils.data")
    return data is not None and data.get_worker_info() is not None


def _calls_of(code: CodeType) -> int:
    """Returns how many calls of `code` are on this thread's stack."""
    frame, calls = sys._getframe(1), 0
    while frame is not None:
        calls += frame.f_code is code
        frame = frame.f_back  # type: ignore[assignment]
    return calls


def install_optimizer(module: ModuleType) -> None:
    """Counts the steps of every torch.optim.Optimizer. `module` is torch.optim.optimizer, which was just loaded."""
    optimizer_class = module.Optimizer
    patch = optimizer_class._patch_step_function
    hook: list[Callable[[Any], None]] = []

    def stepped(optimizer: Any) -> None:
        # An optimizer that calls another one's step, or its base class's, makes only one step.
        if _calls_of(code) <= 1 and not _in_loader_worker():
            _recording.optimizer_stepped(optimizer)

    def counting(step: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(step)
        def counted_step(*arguments: Any, **named: Any) -> Any:
            result = step(*arguments, **named)
            hook[0](arguments[0])
            return result
        counted_step._counts_steps = True  # type: ignore[attr-defined]
        return counted_step

    code = counting(lambda: None).__code__
    made = _guarded(lambda optimizer: _recording.optimizer_made(optimizer))

    @functools.wraps(patch)
    def patch_step_function(self: Any) -> None:
        patch(self)
        if not hook:
            import torch
            uncompiled: Any = torch.compiler.disable  # loads torch._dynamo, which the new optimizer would load anyway
            hook.append(uncompiled(_guarded(stepped)))
        made(self)
        kind = type(self)
        if not getattr(kind.step, "_counts_steps", False):
            kind.step = counting(kind.step)

    optimizer_class._patch_step_function = patch_step_function


def install_loader(module: ModuleType) -> None:
    """Counts the batches of every DataLoader. `module` is torch.utils.data.dataloader, which was just loaded."""
    iterator = module._BaseDataLoaderIter
    following = iterator.__next__
    arrived = _guarded(_recording.batch_arrived)

    @functools.wraps(following)
    def counting_next(self: Any) -> Any:
        batch = following(self)
        if not _recording.has_optimizer and not _in_loader_worker():
            arrived(getattr(self, "_index_sampler", self))  # the same object in every epoch
        return batch

    iterator.__next__ = counting_next


_recording = Recording(json.loads(os.environ["STEPSCOPE_RUN"]))
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_recording.forked)
