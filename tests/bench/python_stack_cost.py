"""What recording with stacks adds to a step of a Python program, beside torch.profiler's with_stack.

python tests/bench/python_stack_cost.py [--rounds N] LIBRARY

LIBRARY is build/bench/.../stepscope_python_probe.so. The program launches small operators only, so that a step is nothing
but dispatch. Recorders take turns in blocks; of each block the lower quartile of the recorded steps counts, because other
programs only make a step longer. The ratio is (ours - off) / (torch - off), with 95 % by bootstrap over the rounds.
"""

import argparse
import ctypes
import os
import random
import statistics
import sys
import time

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, schedule

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../collectors/torch"))
from python_modules import DESCRIBE, OPEN_CALLS, ModuleCalls  # noqa: E402

WARMUP, ACTIVE = 2, 20
MODULES = ModuleCalls()


def program():
    model = nn.Sequential(*[layer for _ in range(16) for layer in (nn.Linear(16, 16), nn.ReLU())])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, foreach=False)
    x = torch.randn(4, 16)

    def step():
        optimizer.zero_grad()
        loss = model(x).sum()
        loss.backward()
        optimizer.step()
        loss.item()

    return step


def quartile(step, end_step):
    times = []
    for _ in range(WARMUP + ACTIVE):
        begin = time.perf_counter()
        step()
        times.append(time.perf_counter() - begin)
        end_step()
    return statistics.quantiles(times[WARMUP:], n=4)[0] * 1e6


def ours(lib, step, with_stack, modules):
    hook = (MODULES.open_calls, MODULES.describe) if modules else (OPEN_CALLS(), DESCRIBE())
    handle = lib.probe_open(b"", 0, WARMUP, ACTIVE, with_stack, *hook)
    time_us = quartile(step, lambda: lib.probe_step(handle))
    lib.probe_close(handle)
    return time_us


def theirs(step, with_stack):
    with profile(activities=[ProfilerActivity.CPU], with_stack=with_stack,
                 schedule=schedule(wait=0, warmup=WARMUP, active=ACTIVE, repeat=1)) as prof:
        return quartile(step, prof.step)


def interval(ratios_of):
    """95 % of the ratio of medians, over rounds drawn anew."""
    rounds = len(ratios_of)
    drawn = sorted(
        statistics.median(ratios_of[random.randrange(rounds)] for _ in range(rounds)) for _ in range(2000))
    return drawn[50], drawn[1949]


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--rounds", type=int, default=12)
    arguments.add_argument("library")
    chosen = arguments.parse_args()
    lib = ctypes.CDLL(os.path.abspath(chosen.library))
    lib.probe_open.restype = ctypes.c_void_p
    lib.probe_open.argtypes = [ctypes.c_char_p] + [ctypes.c_int64] * 3 + [ctypes.c_int, OPEN_CALLS, DESCRIBE]
    lib.probe_step.argtypes = lib.probe_close.argtypes = [ctypes.c_void_p]
    torch.set_num_threads(1)
    step = program()
    recorders = {
        "off": lambda: quartile(step, lambda: None),
        "ours": lambda: ours(lib, step, False, False),
        "ours, stacks": lambda: ours(lib, step, True, False),
        "ours, stacks and modules": lambda: ours(lib, step, True, True),
        "torch": lambda: theirs(step, False),
        "torch, stacks": lambda: theirs(step, True),
    }
    times = {name: [] for name in recorders}
    for number in range(chosen.rounds + 1):
        for name, record in recorders.items():
            time_us = record()
            if number > 0:  # the first round warms up
                times[name].append(time_us)
    off = statistics.median(times["off"])
    for name, values in times.items():
        print(f"{name:26} {statistics.median(values):9.1f} us a step  {statistics.median(values) - off:+9.1f}")
    for name, peer in (("ours", "torch"), ("ours, stacks", "torch, stacks"),
                       ("ours, stacks and modules", "torch, stacks")):
        ratios = [(a - o) / (b - o) for a, b, o in zip(times[name], times[peer], times["off"])]
        low, high = interval(ratios)
        print(f"({name}) / ({peer}): {statistics.median(ratios):.3f} ({low:.3f} to {high:.3f})")


if __name__ == "__main__":
    main()
