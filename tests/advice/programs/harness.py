"""Defines what a program of this folder is, and runs, times and records its steps.

A program is a generator that trains for ever. It yields once per step, where a user's loop would call prof.step(), and it
yields the number of samples in the step. `fixed` says whether it runs with or without its inefficiency."""

import contextlib
import itertools
import multiprocessing
import os
import socket
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from typing import Callable

os.environ.setdefault("KINETO_LOG_LEVEL", "5")  # hides the profiler's complaint that there is no GPU

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, schedule

PROGRAMS = {}
_FORK = multiprocessing.get_context("fork")  # so that torch is imported only once for all programs


@dataclass(frozen=True)
class Program:
    """A program as its @program line declares it."""
    name: str
    kind: str  # what users call such a program
    split: str  # "tune": the engine may be improved with it; "held": only for judging
    expect: tuple  # one of these rules must be the first finding; none: nothing is wrong
    also: tuple  # further rules that are right about it, fixed or not
    knob: tuple  # (key of a finding's settings, value if no finding names one) if the fix is a setting; else ()
    period: int  # number of steps after which it repeats
    warm: int  # steps left out at the start of a timed stretch, such as those that use batches made before
    ranks: int  # processes; the first one is timed and recorded
    make: Callable

    def steps(self, fixed, value=None):
        """Returns the running program."""
        return self.make(fixed, self.knob[1] if value is None else value) if self.knob else self.make(fixed)


def program(kind, split, expect=(), also=(), knob=(), period=1, warm=2, ranks=1):
    """Declares a program; its name is the function's, and its docstring says what is wrong and what the fix is."""
    def declare(make):
        if make.__name__ in PROGRAMS:
            raise ValueError(f"two programs are called {make.__name__}: rename one")
        PROGRAMS[make.__name__] = Program(make.__name__, kind, split, expect, also, knob, period, warm, ranks, make)
        return make
    return declare


# Code that many programs share.

def mlp(*widths):
    """Returns linear layers of these widths with ReLU between them."""
    layers = [layer for pair in itertools.pairwise(widths) for layer in (nn.Linear(*pair), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


def endless(batch, *tensors):
    """Yields batches of tensors in memory for ever."""
    while True:
        yield from zip(*(tensor.split(batch) for tensor in tensors))


def update(optimizer, loss):
    """Runs the rest of a training step after the loss."""
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


# Functions that run programs.

def _start(one, fixed, value):
    torch.manual_seed(0)
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return one.steps(fixed, value)


def _follow(one, fixed, value, rank):
    os.environ["RANK"] = str(rank)
    for _ in _start(one, fixed, value):
        pass  # blocked in a collective while the first rank does not step


def _join_ranks(one, fixed, value):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free.getsockname()[1]), RANK="0",
                          WORLD_SIZE=str(one.ranks))
    for rank in range(1, one.ranks):
        _FORK.Process(target=_follow, args=(one, fixed, value, rank), daemon=True).start()


def _time(steps, count):
    """Returns the times of `count` steps in ms, and the samples per step."""
    times, samples, begin = [], [], time.perf_counter()
    for _ in range(count):
        samples.append(next(steps) or 1)
        end = time.perf_counter()
        times.append(1000 * (end - begin))
        begin = end
    return times, statistics.fmean(samples)


def _serve(one, fixed, value, pipe, asker):
    asker.close()  # if the parent is killed, the pipe then ends, and this process with it
    if one.ranks > 1:
        _join_ranks(one, fixed, value)
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)
        steps = _start(one, fixed, value)
        with contextlib.suppress(EOFError):
            while (job := pipe.recv()) is not None:
                what, *arguments = job
                pipe.send(what(one, steps, *arguments))
    for child in multiprocessing.active_children():
        child.terminate()
    os._exit(0)  # does not wait for loaders or other ranks


def _timed(_, steps, count):
    return _time(steps, count)


def _record(one, steps, path, active):
    """Records `active` steps with torch.profiler. Returns the times of the recorded steps, and of unrecorded steps before and
    after them."""
    warm, whole = one.warm, one.period * -(-active // one.period)
    before = _time(steps, warm + whole)[0][warm:]
    recorded = []
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True,
                 schedule=schedule(wait=3, warmup=3, active=active, repeat=1),
                 on_trace_ready=lambda prof: prof.export_chrome_trace(path)) as prof:
        for number in range(3 + 3 + active):
            took = _time(steps, 1)[0]
            recorded += took if number >= 6 else []
            prof.step()
    after = _time(steps, warm + whole)[0][warm:]
    return {"recorded_ms": recorded, "unrecorded_ms": before + after}


class Running:
    """A program in a separate process, which is paused between two calls."""
    def __init__(self, one, fixed, value=None):
        self._pipe, theirs = _FORK.Pipe()
        self._process = _FORK.Process(target=_serve, args=(one, fixed, value, theirs, self._pipe))
        self._process.start()
        theirs.close()

    def do(self, what, *arguments):
        """Calls what(program, its steps, *arguments), a function of a module, in the program's process."""
        self._pipe.send((what, *arguments))
        return self._pipe.recv()  # EOFError: the program failed and said why on stderr

    def time(self, count):
        return self.do(_timed, count)

    def record(self, path, active):
        return self.do(_record, path, active)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self._pipe.send(None)
        except OSError:
            pass  # it failed
        self._process.join(10)
        self._process.kill()
