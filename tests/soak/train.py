"""Trains a small network for a number of steps under stepscope, while something happens to the process; soak.py starts it.

The last line on stdout is JSON: `losses` is a bitwise digest of all losses, `windows` the number of closed windows, `reports`
the number of reports. The computed numbers depend only on the number of steps, so that they can be compared with a run without
stepscope.
"""

import argparse
import contextlib
import hashlib
import json
import multiprocessing
import os
import signal
import struct
import sys
import threading
import time

import torch
from torch import nn

STEPS_OF_A_WINDOW = 2  # one of warm-up and one recorded


def child_of_spawn():
    """Imports torch and stepscope in a new process, and trains without a profile."""
    nn.Linear(4, 4)(torch.ones(1, 4)).sum().backward()


def busy_thread():
    nn.Linear(8, 8)(torch.ones(2, 8)).sum().backward()


class Threads:
    """Keeps `count` threads running; each lives for one small computation."""

    def __init__(self, count):
        self.stopped, self.started = threading.Event(), 0
        self.keeper = threading.Thread(target=self.keep, args=(count,))
        self.keeper.start()

    def keep(self, count):
        while not self.stopped.is_set():
            batch = [threading.Thread(target=busy_thread) for _ in range(count)]
            for thread in batch:
                thread.start()
            for thread in batch:
                thread.join()
            self.started += count

    def stop(self):
        self.stopped.set()
        self.keeper.join()


def fork_in_a_window(train):
    """Forks a child, which also trains and then ends."""
    child = os.fork()
    if child == 0:
        train()
        os._exit(7)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 7:
        sys.exit("a forked child did not end as it should")


def spawn_in_a_window():
    process = multiprocessing.get_context("spawn").Process(target=child_of_spawn)
    process.start()
    process.join()
    if process.exitcode != 0:
        sys.exit("a spawned child did not end as it should")


def profiler(options, ready):
    if not options.log_dir:
        return contextlib.nullcontext()
    import stepscope
    return stepscope.profile(
        schedule=stepscope.schedule(wait=0, warmup=1, active=1, repeat=0), log_dir=options.log_dir, name="soak", with_stack=True,
        with_modules=True, profile_memory=True, print_report=False, on_trace_ready=lambda _: ready.append(None))


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--log-dir", default="", help="records into it; without it the run is not profiled")
    arguments.add_argument("--steps", type=int, default=40)
    arguments.add_argument("--pause", type=float, default=0.02, help="seconds after each window, for its analysis")
    arguments.add_argument("--threads", type=int, default=0, help="so many others come and go")
    arguments.add_argument("--fork-every", type=int, default=0, metavar="WINDOWS")
    arguments.add_argument("--spawn-every", type=int, default=0, metavar="WINDOWS")
    arguments.add_argument("--alarms", type=float, default=0, metavar="SECONDS", help="a signal each so many seconds")
    options = arguments.parse_args()

    torch.set_num_threads(1)  # OpenMP's threads do not survive a fork
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    numbers = torch.Generator().manual_seed(1)

    def train():
        optimizer.zero_grad()
        loss = model(torch.randn(8, 16, generator=numbers)).square().mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    alarms = []
    if options.alarms:
        signal.signal(signal.SIGALRM, lambda *_: alarms.append(None))
        signal.setitimer(signal.ITIMER_REAL, options.alarms, options.alarms)
    others = Threads(options.threads) if options.threads else None
    digest, ready = hashlib.sha256(), []
    with profiler(options, ready) as prof:
        for step in range(options.steps):
            window, closes = divmod(step, STEPS_OF_A_WINDOW)
            digest.update(struct.pack("d", train()))
            if closes and options.fork_every and window % options.fork_every == 0:
                fork_in_a_window(train)
            if closes and options.spawn_every and window % options.spawn_every == 0:
                spawn_in_a_window()
            if prof is not None:
                prof.step()
            if closes:
                time.sleep(options.pause)
    if options.alarms:
        signal.setitimer(signal.ITIMER_REAL, 0)
    if others is not None:
        others.stop()
    print(json.dumps({"losses": digest.hexdigest(), "windows": options.steps // STEPS_OF_A_WINDOW, "reports": len(ready),
                      "threads": others.started if others else 0, "alarms": len(alarms)}))


if __name__ == "__main__":
    main()
