"""What recording costs: steps that stepscope records, that torch.profiler records, and that nobody does, in turns.

Needs the package stepscope beside torch: installed, or a clone's (STEPSCOPE_NATIVE_DIR, PYTHONPATH; tests/bench/README.md)."""

import gzip
import json
import pathlib
import statistics
import tempfile
import time
from typing import Callable, NamedTuple

from torch.profiler import ProfilerActivity, profile, schedule

from harness import Running
from timing import RunTimes, median_interval

WARMUP = 3
NOISE = 0.03  # what a recorded step may be longer by, however few events it has

HEADER = ("program", "events a step", "step, ms", "recorded / not (90 %)", "at most", "met", "by torch.profiler (90 %)")


class Turns(NamedTuple):
    """A step of each round in ms: not recorded, recorded by stepscope, by torch.profiler; and the events of a recorded step."""
    plain: list
    ours: list
    theirs: list
    events: float


def _step_ms(one, steps, clock, warm, active, end_step):
    """The typical of `active` steps, each with its end_step(). That of the last one is left to the caller: it closes a window."""
    times = []
    for number in range(warm + active):
        begin = clock()
        next(steps)
        if number + 1 < warm + active:
            end_step()
        times.append(1000 * (clock() - begin))
    return RunTimes(times, warm).median_ms(one.period)


def _ours(one, steps, clock, active, folder):
    import stepscope

    with stepscope.profile(schedule=stepscope.schedule(wait=0, warmup=WARMUP, active=active), print_report=False) as prof:
        step_ms = _step_ms(one, steps, clock, WARMUP, active, prof.step)
        prof.step()
    path = folder / "ours.json.gz"
    prof.export_chrome_trace(path)
    with gzip.open(path, "rt", encoding="utf-8") as file:
        recorded = json.load(file)["traceEvents"]
    return step_ms, sum(event.get("cat") in ("cpu_op", "user_annotation") for event in recorded) / active


def _theirs(one, steps, clock, active):
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True,
                 schedule=schedule(wait=0, warmup=WARMUP, active=active, repeat=1)) as prof:
        step_ms = _step_ms(one, steps, clock, WARMUP, active, prof.step)
        prof.step()
    return step_ms


def turns(one, steps, active, rounds, by_cpu):
    """Runs in the program's process. `by_cpu`: CPU time of the process instead of wall time."""
    clock = time.process_time if by_cpu else time.perf_counter
    active = one.period * -(-active // one.period)
    found = Turns([], [], [], 0)
    with tempfile.TemporaryDirectory() as scratch:
        for number in range(rounds + 1):
            plain = _step_ms(one, steps, clock, one.warm, active, lambda: None)
            ours, events = _ours(one, steps, clock, active, pathlib.Path(scratch))
            theirs = _theirs(one, steps, clock, active)
            if number > 0:  # the first round warms up
                for values, value in zip(found, (plain, ours, theirs)):
                    values.append(value)
    return found._replace(events=events)


def _longer(recorded, plain):
    ratios = [after / before for after, before in zip(recorded, plain)]
    return statistics.median(ratios), median_interval(ratios, 0.9)


def _row(one, found, event_ns):
    plain_ms = statistics.median(found.plain)
    at_most = 1 + max(NOISE, found.events * event_ns / 1e6 / plain_ms)
    (ours, range_ours), (theirs, range_theirs) = (_longer(times, found.plain) for times in (found.ours, found.theirs))
    met = "yes" if ours <= at_most else "within noise" if range_ours.low <= at_most else "no"
    return (one.name, f"{found.events:.0f}", f"{plain_ms:.2f}", f"{ours:.3f} ({range_ours.low:.3f} to {range_ours.high:.3f})",
            f"{at_most:.3f}", met, f"{theirs:.3f} ({range_theirs.low:.3f} to {range_theirs.high:.3f})")


def of(programs, active, rounds, by_cpu, event_ns, show: Callable[[str], None]):
    """Shows the table in Markdown, a row as soon as it is measured."""
    show("| " + " | ".join(HEADER) + " |")
    show("| " + " | ".join("---" for _ in HEADER) + " |")
    for one in programs:
        with Running(one, False) as running:
            found = running.do(turns, active, rounds, by_cpu)
        show("| " + " | ".join(_row(one, found, event_ns)) + " |")
