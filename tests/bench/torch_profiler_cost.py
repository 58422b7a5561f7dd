"""Measures what torch.profiler adds to a training step per recorded event, compared with the cost that its own file shows.

python tests/bench/torch_profiler_cost.py [--rounds N] [PROGRAM ...]

Blocks of steps with and without the profiler alternate. The lower quartile of each block counts, because other programs only
make a step longer. The columns:

  off, on     one step without and with the profiler, us
  per op      what the profiler adds, divided by the recorded operators (and Python frames) of a step
  spacing     the 10th percentile of the times between two operators of one parent: what the recording shows by itself
  ratio       per op / spacing: the constant of analysis/timeline/recorder_cost.cc
"""

import argparse
import json
import os
import statistics
import tempfile
import time

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, schedule

STEPS = 20
SETTINGS = {
    "plain": {},
    "shapes": {"record_shapes": True},
    "memory": {"profile_memory": True},
    "stacks": {"with_stack": True},
    "all": {"record_shapes": True, "profile_memory": True, "with_stack": True},
}


def training(model, loss_of, optimizer=torch.optim.SGD):
    """Returns a step that trains `model`."""
    update = optimizer(model.parameters(), lr=0.01)

    def step():
        update.zero_grad()
        loss_of(model).backward()
        update.step()

    return step


def mlp(width):
    layers = [layer for _ in range(4) for layer in (nn.Linear(width, width), nn.ReLU())]
    x, y = torch.randn(32, width), torch.randint(0, width, (32,))
    return training(nn.Sequential(*layers), lambda m: nn.functional.cross_entropy(m(x), y))


def lstm_cells():
    x = torch.randn(30, 16, 64)

    def loss(cell):
        h = c = torch.zeros(16, 64)
        for t in range(len(x)):
            h, c = cell(x[t], (h, c))
        return h.sum()

    return training(nn.LSTMCell(64, 64), loss)


def attention():
    x = torch.randn(8, 32, 64)
    layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
    return training(layer, lambda m: m(x).sum(), torch.optim.AdamW)


def pointwise():
    a = torch.randn(64)

    def step():
        b = a
        for _ in range(300):
            b = b * 1.01 + a

    return step


PROGRAMS = {
    "mlp": lambda: mlp(64),
    "wide-mlp": lambda: mlp(512),
    "lstm-cells": lstm_cells,
    "attention": attention,
    "pointwise": pointwise,
}


def quartile(times):
    return statistics.quantiles(times, n=4)[0] * 1e6


def timed(step, after=lambda: None):
    """Returns the times of STEPS steps. `after` is called between them and is not timed."""
    times = []
    for _ in range(STEPS):
        begin = time.perf_counter()
        step()
        times.append(time.perf_counter() - begin)
        after()
    return times


def recorded(step, settings, path):
    plan = schedule(wait=0, warmup=2, active=STEPS, repeat=1)
    with profile(activities=[ProfilerActivity.CPU], schedule=plan, **settings) as prof:
        for _ in range(2):
            step()
            prof.step()
        times = timed(step, prof.step)
    prof.export_chrome_trace(path)
    return times


def read(path):
    """Returns the events per step by category, and the spacing of operators in us."""
    with open(path, encoding="utf-8") as file:
        events = [e for e in json.load(file)["traceEvents"] if e.get("cat") in ("cpu_op", "python_function")]
    ops = sorted((e["tid"], e["ts"], -e["dur"]) for e in events if e["cat"] == "cpu_op")
    spacing, open_ops, last_end = [], [], {}
    for tid, begin, negative in ops:
        while open_ops and (open_ops[-1][0] != tid or open_ops[-1][1] <= begin):
            last_end.pop(len(open_ops), None)
            open_ops.pop()
        depth = len(open_ops)
        if depth > 0 and depth in last_end:
            spacing.append(begin - last_end[depth])
        last_end[depth] = begin - negative
        open_ops.append((tid, begin - negative))
    frames = (len(events) - len(ops)) / STEPS
    return len(ops) / STEPS, frames, statistics.quantiles(spacing, n=10)[0] if len(spacing) > 10 else float("nan")


def measure(name, rounds, path):
    step = PROGRAMS[name]()
    for _ in range(10):
        step()
    for label, settings in SETTINGS.items():
        off, added, counts = [], [], None
        for _ in range(rounds):
            without = min(quartile(timed(step)), quartile(timed(step)))
            added.append(quartile(recorded(step, settings, path)) - without)
            off.append(without)
            counts = read(path)
        ops, frames, spacing = counts
        per_op = statistics.median(added) / ops
        print(
            f"{name:12} {label:7} off {min(off):9.1f}  on {min(off) + statistics.median(added):9.1f}  ops {ops:6.0f}  "
            f"frames {frames:5.0f}  per op {per_op:6.3f}  spacing {spacing:6.3f}  ratio {per_op / spacing:5.2f}",
            flush=True,
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("programs", nargs="*", default=list(PROGRAMS))
    arguments = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.programs:
            measure(name, arguments.rounds, os.path.join(folder, "trace.json"))


if __name__ == "__main__":
    main()
