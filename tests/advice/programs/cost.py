"""Measures what recording costs: alternates steps recorded by stepscope, recorded by torch.profiler, and not recorded.

Needs torch and the package stepscope: installed, or from a clone (STEPSCOPE_NATIVE_DIR, PYTHONPATH; tests/bench/README.md)."""

import gzip
import json
import pathlib
import statistics
import tempfile
import time
from typing import Callable, NamedTuple

import torch
from torch.profiler import ProfilerActivity, profile, schedule

from harness import Running
from timing import RunTimes, median_interval

WARMUP = 3
NOISE = 0.03  # a recorded step may be longer by this share, however few events it has

HEADER = ("program", "events a step", "an event, ns", "step, ms", "recorded / not (90 %)", "at most", "met", "by torch.profiler (90 %)")
ROUNDS_OF_OPS = 200  # for steps that consist only of events


class Turns(NamedTuple):
    """One step per round in ms: not recorded, recorded by stepscope, and recorded by torch.profiler. Also the number of events
    in a recorded step, and what stepscope adds per event in ns."""
    plain: list
    ours: list
    theirs: list
    events: float
    event_ns: float


def _only_events():
    """Yields steps of small operators with a backward pass; nearly all of their time is PyTorch's own."""
    x = torch.ones(8, requires_grad=True)
    while True:
        y = x
        for _ in range(ROUNDS_OF_OPS):
            y = (y + 1) * 0.5
        y.sum().backward()
        yield


def _step_ms(steps, clock, warm, active, period, end_step):
    """Returns the typical one of `active` steps, each with its end_step(). The caller ends the last step, because that closes a
    window."""
    times = []
    for number in range(warm + active):
        begin = clock()
        next(steps)
        if number + 1 < warm + active:
            end_step()
        times.append(1000 * (clock() - begin))
    return RunTimes(times, warm).median_ms(period)


def _ours(steps, clock, active, period, trace=None):
    import stepscope

    with stepscope.profile(schedule=stepscope.schedule(wait=0, warmup=WARMUP, active=active), print_report=False) as prof:
        step_ms = _step_ms(steps, clock, WARMUP, active, period, prof.step)
        prof.step()
    if trace:
        prof.export_chrome_trace(trace)
    return step_ms


def _theirs(steps, clock, active, period):
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True,
                 schedule=schedule(wait=0, warmup=WARMUP, active=active, repeat=1)) as prof:
        step_ms = _step_ms(steps, clock, WARMUP, active, period, prof.step)
        prof.step()
    return step_ms


def _events_of_a_step(steps, clock, active, period):
    """Counts operators and ranges, for each of which the recorder is called."""
    with tempfile.TemporaryDirectory() as scratch:
        path = pathlib.Path(scratch) / "ours.json.gz"
        _ours(steps, clock, active, period, path)
        with gzip.open(path, "rt", encoding="utf-8") as file:
            recorded = json.load(file)["traceEvents"]
    return sum(event.get("cat") in ("cpu_op", "user_annotation") for event in recorded) / active


def turns(one, steps, active, rounds, by_cpu):
    """Runs in the program's process. `by_cpu`: measures CPU time of the process instead of wall time."""
    clock = time.process_time if by_cpu else time.perf_counter
    period = one.period
    active = period * -(-active // period)
    ops = _only_events()
    events, events_of_ops = (_events_of_a_step(of, clock, count, of_period)  # also runs the first round, which warms up
                             for of, count, of_period in ((steps, active, period), (ops, WARMUP, 1)))
    _theirs(steps, clock, active, period)
    found = Turns([], [], [], events, 0)
    added_ms = []
    for _ in range(rounds):
        found.plain.append(_step_ms(steps, clock, one.warm, active, period, lambda: None))
        found.ours.append(_ours(steps, clock, active, period))
        found.theirs.append(_theirs(steps, clock, active, period))
        without = _step_ms(ops, clock, WARMUP, active, 1, lambda: None)
        added_ms.append(_ours(ops, clock, active, 1) - without)
    return found._replace(event_ns=1e6 * statistics.median(added_ms) / events_of_ops)


def _longer(recorded, plain):
    ratios = [after / before for after, before in zip(recorded, plain)]
    return statistics.median(ratios), median_interval(ratios, 0.9)


def _row(one, found):
    plain_ms = statistics.median(found.plain)
    at_most = 1 + max(NOISE, found.events * found.event_ns / 1e6 / plain_ms)
    (ours, range_ours), (theirs, range_theirs) = (_longer(times, found.plain) for times in (found.ours, found.theirs))
    met = "yes" if ours <= at_most else "within noise" if range_ours.low <= at_most else "no"
    return (one.name, f"{found.events:.0f}", f"{found.event_ns:.0f}", f"{plain_ms:.2f}",
            f"{ours:.3f} ({range_ours.low:.3f} to {range_ours.high:.3f})",
            f"{at_most:.3f}", met, f"{theirs:.3f} ({range_theirs.low:.3f} to {range_theirs.high:.3f})")


def of(programs, active, rounds, by_cpu, show: Callable[[str], None]):
    """Prints the table in Markdown, each row as soon as it is measured."""
    show("| " + " | ".join(HEADER) + " |")
    show("| " + " | ".join("---" for _ in HEADER) + " |")
    for one in programs:
        with Running(one, False) as running:
            try:
                found = running.do(turns, active, rounds, by_cpu)
            except EOFError:  # the program failed and said why on stderr
                show(f"| {one.name} | failed |")
                continue
        show("| " + " | ".join(_row(one, found)) + " |")
