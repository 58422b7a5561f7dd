"""A loop of N steps (default 20) that ends as asked: plain.py [N] [--end raise|exit3|sigint] [--compile]

With --signal NAME it sends itself that signal at the start of step 12; with --handler it handles SIGTERM itself.
"""
import argparse
import os
import signal
import sys

import torch

parser = argparse.ArgumentParser()
parser.add_argument("count", type=int, nargs="?", default=20)
parser.add_argument("--end", choices=("raise", "exit3", "sigint"))
parser.add_argument("--compile", action="store_true")
parser.add_argument("--fork", action="store_true")
parser.add_argument("--accumulate", type=int, default=1)
parser.add_argument("--signal")
parser.add_argument("--handler", choices=("exit", "note"))
args = parser.parse_args()


def on_sigterm(number, frame):
    print("SIGTERM is ours", flush=True)
    if args.handler == "exit":
        sys.exit(7)


if args.handler:
    signal.signal(signal.SIGTERM, on_sigterm)
if args.signal == "SIGINT":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it

torch.manual_seed(0)
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def train():
    for _ in range(args.accumulate):
        model(torch.ones(4, 8)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


train_step = torch.compile(train, backend="eager") if args.compile else train
for step in range(args.count):
    if args.signal and step == 12:
        os.kill(os.getpid(), signal.Signals[args.signal])
    train_step()
    if args.fork and step == 11:
        child = os.fork()
        if child == 0:
            for _ in range(20):
                train_step()
            sys.exit(0)
        os.waitpid(child, 0)
if args.compile:
    from torch._dynamo.utils import counters
    print("graphs", counters["stats"]["unique_graphs"], "recompiled", sum(counters["recompile_limit"].values()))
print("argv", sys.argv[1:], __name__, os.path.basename(__file__), "path", os.path.basename(sys.path[0]), file=sys.stdout)
if args.end == "raise":
    raise RuntimeError("the loss is not finite")
if args.end == "exit3":
    sys.exit(3)
if args.end == "sigint":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.kill(os.getpid(), signal.SIGINT)
    signal.pause()
