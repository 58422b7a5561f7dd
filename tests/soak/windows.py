"""Records many windows in one Python process, and measures memory, file descriptors and threads, and how they grow per window.

STEPSCOPE_NATIVE_DIR=build/default/lib PYTHONPATH=plugins/python python tests/soak/windows.py \
    [--windows N] [--everything] [--workers N] [--start fork|spawn] [--fork-every N] [--pause SECONDS]

A window is one warm-up step and one recorded step of a small network. A pause follows each window; otherwise windows are
dropped because earlier ones are still being analysed. --everything records shapes, memory, source lines and modules into a log
directory. --workers makes the batches in loader processes, which are started again every ten windows, during a window.
--fork-every forks during every N-th window; the child trains, ends its copy of the profile and exits. The growth per window is
the slope over the second half (least squares). Exits with 3 if memory grows by more than 1 KiB per window, or descriptors or
threads by more than 0.01.
"""

import argparse
import os
import sys
import tempfile
import time

import torch
from torch import nn

import stepscope

KEPT = 10  # a loader's batches, in windows
LIMITS = {"KiB of memory": 1.0, "descriptors": 0.01, "threads": 0.01}


class Samples(torch.utils.data.Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return torch.full((16,), float(index))


def batches(options):
    """Yields batches for ever."""
    while True:
        yield from torch.utils.data.DataLoader(
            Samples(4 * 2 * KEPT), batch_size=4, num_workers=options.workers,
            multiprocessing_context=options.start if options.workers else None)


def usage():
    """Returns this process's own memory in KiB, open descriptors, and threads."""
    with open("/proc/self/statm", encoding="ascii") as file:
        _, resident, shared, *_ = map(int, file.read().split())
    pages = os.sysconf("SC_PAGE_SIZE") // 1024
    return (resident - shared) * pages, len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))


def slope(points):
    """Returns the slope of the least-squares line through the points (x, y)."""
    mean_x, mean_y = (sum(values) / len(points) for values in zip(*points))
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / sum((x - mean_x) ** 2 for x, _ in points)


def fork_and_train(prof, train, batch):
    child = os.fork()
    if child == 0:
        train(batch)
        prof.step()
        prof.stop()
        os._exit(7)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status != 7:
        sys.exit(f"a child that was forked in the middle of a window ended with status {status}")


def run(options, log_dir):
    """Yields (windows, usage) over time."""
    torch.manual_seed(0)
    torch.set_num_threads(1)  # OpenMP's threads do not survive a fork
    model = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def train(batch):
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()

    more = {"record_shapes": False}
    if options.everything:
        more = {"profile_memory": True, "with_stack": True, "with_modules": True, "log_dir": log_dir}
    found, source, ready = [], batches(options), []
    with stepscope.profile(schedule=stepscope.schedule(wait=0, warmup=1, active=1, repeat=0), print_report=False,
                           on_trace_ready=lambda _: ready.append(None), **more) as prof:
        for window in range(1, options.windows + 1):
            for step in range(2):
                batch = next(source)
                train(batch)
                if step == 1 and options.fork_every and window % options.fork_every == 0:
                    fork_and_train(prof, train, batch)
                prof.step()
            time.sleep(options.pause)
            if window % max(1, options.windows // 40) == 0:
                found.append((window, usage()))
                if len(found) % 4 == 0:
                    print("{:6} windows   {:7.0f} KiB   {} descriptors   {} threads".format(window, *found[-1][1]), flush=True)
    print(f"{len(ready)} of {options.windows} windows have a report")
    return found


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--windows", type=int, default=1000)
    arguments.add_argument("--everything", action="store_true")
    arguments.add_argument("--workers", type=int, default=0)
    arguments.add_argument("--start", choices=("fork", "spawn"), default="fork")
    arguments.add_argument("--fork-every", type=int, default=0)
    arguments.add_argument("--pause", type=float, default=0.03)
    options = arguments.parse_args()
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as log_dir:
        found = run(options, log_dir)
    print(f"{options.windows} windows in {time.monotonic() - begin:.0f} s")
    half = found[len(found) // 2:]
    status = 0
    for number, (what, limit) in enumerate(LIMITS.items()):
        each = slope([(window, used[number]) for window, used in half])
        print(f"a window adds {each:.3f} {what}, at most {limit}{'' if each <= limit else ': missed'}")
        status = status if each <= limit else 3
    return status


if __name__ == "__main__":
    sys.exit(main())
