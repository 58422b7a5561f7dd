"""Measures what recording adds to a Python program, compared with torch.profiler.

STEPSCOPE_NATIVE_DIR=build/default/lib PYTHONPATH=plugins/python python tests/bench/python_cost.py \
    [--rounds N] [--cpu] [--json FILE]

The first program only calls small operators on one thread. Recorders take turns in blocks of 20 recorded steps. The lower
quartile of each block counts, because other programs only make a step longer. Each round has one block without a recorder. A
step includes prof.step(). The ratios are of the added time, ours / torch.profiler's: medians over the rounds, with 95 %
intervals by bootstrap over the rounds.

The second program trains a small network on all cores. A recorded step may be longer than a plain step by 3 %, or by the number
of operators times the cost per operator in the first program.

With --cpu, CPU time counts instead of wall time: the training thread's for steps, the process's for files. This can also be
measured while other programs use the machine. Exits with 3 if a bound is missed.
"""

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable

import torch
from torch import nn
from torch.profiler import ProfilerActivity

import stepscope

WARMUP, ACTIVE = 3, 20
WAITING = 20000
# (ours, torch.profiler's, maximum ratio)
BOUNDS = [("ours", "torch", 0.35), ("ours, shapes", "torch, shapes", 0.4), ("ours, stacks", "torch, stacks", 0.4),
          ("ours, all", "torch, stacks", 0.4)]
FILES_BOUND, WAITING_BOUND = 0.25, 0.005

step_clock = files_clock = time.perf_counter


def training(width, batch, optimizer_options):
    """Returns a step of a network with 16 layers that does the same on every call."""
    layers = [layer for _ in range(16) for layer in (nn.Linear(width, width), nn.ReLU())]
    model = nn.Sequential(*layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, **optimizer_options)
    x = torch.randn(batch, width)

    def step():
        optimizer.zero_grad()
        loss = model(x).sum()
        loss.backward()
        optimizer.step()
        loss.item()

    return step


class Block:
    """The recorded steps of one window: us per step, and seconds from the last step until the files are written."""

    def __init__(self, step: Callable[[], None], end_step: Callable[[], object], end: Callable[[], object]):
        times = []
        for number in range(WARMUP + ACTIVE):
            last = step_clock()
            step()
            if number + 1 < WARMUP + ACTIVE:  # the last call also closes the window
                end_step()
            times.append(step_clock() - last)
        closed = files_clock()
        end_step()
        end()
        self.files_s = files_clock() - closed
        self.step_us = statistics.quantiles(times[WARMUP:], n=4)[0] * 1e6


def nothing():
    pass


def ours(step, **settings):
    with tempfile.TemporaryDirectory() as folder:
        prof = stepscope.profile(schedule=stepscope.schedule(wait=0, warmup=WARMUP, active=ACTIVE), log_dir=folder,
                                 print_report=False, **settings)
        prof.start()
        return Block(step, prof.step, prof.stop)


def theirs(step, **settings):
    with tempfile.TemporaryDirectory() as folder:
        prof = torch.profiler.profile(
            activities=[ProfilerActivity.CPU], schedule=torch.profiler.schedule(wait=0, warmup=WARMUP, active=ACTIVE, repeat=1),
            on_trace_ready=torch.profiler.tensorboard_trace_handler(folder, use_gzip=True), **settings)
        prof.start()
        return Block(step, prof.step, prof.stop)


RECORDERS = {
    "off": lambda step: Block(step, nothing, nothing),
    "ours": lambda step: ours(step, record_shapes=False),
    "torch": theirs,
    "ours, shapes": lambda step: ours(step, record_shapes=True),
    "torch, shapes": lambda step: theirs(step, record_shapes=True),
    "ours, stacks": lambda step: ours(step, record_shapes=False, with_stack=True),
    "ours, all": lambda step: ours(step, record_shapes=True, with_stack=True, with_modules=True),
    "torch, stacks": lambda step: theirs(step, with_stack=True),
}


def waiting_us():
    """Measures a step of a profile that waits for its window."""
    with stepscope.profile(schedule=stepscope.schedule(wait=2 * WAITING), print_report=False) as prof:
        begin = step_clock()
        for _ in range(WAITING):
            prof.step()
        took = step_clock() - begin
    return took / WAITING * 1e6


def interval(values):
    """Returns the 95 % bootstrap interval of the median over rounds."""
    drawn = sorted(statistics.median(random.choices(values, k=len(values))) for _ in range(2000))
    return drawn[50], drawn[1949]


def told(what, values, bound, results):
    """Prints a ratio with its bound. Returns True if the bound is met."""
    low, high = interval(values)
    middle = statistics.median(values)
    results[what] = {"ratio": middle, "low": low, "high": high, "bound": bound}
    print(f"{what}: {middle:.4g} ({low:.4g} to {high:.4g}), at most {bound}{'' if middle <= bound else ': missed'}")
    return middle <= bound


def in_turns(step, names, rounds):
    """Returns each recorder's blocks, one per round."""
    blocks = {name: [] for name in names}
    for number in range(rounds + 1):
        for name in names:
            block = RECORDERS[name](step)
            if number > 0:  # the first round warms up
                blocks[name].append(block)
    for name, found in blocks.items():
        step_us, files_s = (statistics.median(getattr(block, field) for block in found) for field in ("step_us", "files_s"))
        print(f"{name:16} {step_us:9.1f} us a step   files {files_s:6.3f} s", flush=True)
    return blocks


def operators(step):
    """Returns the number of operators and autograd nodes in a step."""
    with torch.profiler.profile(activities=[ProfilerActivity.CPU]) as prof:
        step()
    return len(prof.events())


def dispatching(rounds, results):
    """The first program. Returns whether all bounds are met, and the cost of an operator with everything on, in us."""
    torch.set_num_threads(1)
    step = training(16, 4, {"foreach": False})
    blocks = in_turns(step, list(RECORDERS), rounds)
    times = {name: [block.step_us for block in found] for name, found in blocks.items()}
    met = True
    for mine, peer, bound in BOUNDS:
        ratios = [(a - o) / (b - o) for a, b, o in zip(times[mine], times[peer], times["off"])]
        met &= told(f"added, {mine} / {peer}", ratios, bound, results)
        ratios = [a.files_s / b.files_s for a, b in zip(blocks[mine], blocks[peer])]
        met &= told(f"files, {mine} / {peer}", ratios, FILES_BOUND, results)
    off = statistics.median(times["off"])
    met &= told("waiting / step", [waiting_us() / off for _ in range(rounds)], WAITING_BOUND, results)
    count = operators(step)
    costs = {name: (statistics.median(values) - off) / count for name, values in times.items() if name != "off"}
    results["added_us_per_op"] = costs
    print(f"{count} operators; each adds, in ns: " + ", ".join(f"{name} {cost * 1e3:.0f}" for name, cost in costs.items()))
    return met, costs["ours, all"]


def computing(threads, rounds, op_us, results):
    """The second program. Returns True if a recorded step is not too long."""
    torch.set_num_threads(threads)
    step = training(256, 256, {})
    blocks = in_turns(step, ["off", "ours", "ours, all"], rounds)
    off = [block.step_us for block in blocks["off"]]
    bound = 1 + max(0.03, operators(step) * op_us / statistics.median(off))
    met = True
    for name in ("ours", "ours, all"):
        ratios = [block.step_us / plain for block, plain in zip(blocks[name], off)]
        met &= told(f"recorded step / plain, {name}", ratios, round(bound, 4), results)
    return met


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--rounds", type=int, default=12)
    arguments.add_argument("--cpu", action="store_true", help="CPU time instead of wall time")
    arguments.add_argument("--json", help="a file for the results")
    chosen = arguments.parse_args()
    if chosen.cpu:
        global step_clock, files_clock
        step_clock, files_clock = time.thread_time, time.process_time
    threads = torch.get_num_threads()
    results = {}
    met, op_us = dispatching(chosen.rounds, results)
    met &= computing(threads, chosen.rounds, op_us, results)
    if chosen.json:
        with open(chosen.json, "w", encoding="utf-8") as file:
            json.dump(results, file, indent=2)
    return 0 if met else 3


if __name__ == "__main__":
    sys.exit(main())
