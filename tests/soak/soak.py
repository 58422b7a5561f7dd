"""Runs train.py repeatedly while faults occur around it, and counts the results.

`bash tests/soak/run.sh` builds what it needs and starts it.

Each part repeats its round until its share of the time is used. A round is broken if the program ended differently or computed
other losses than without stepscope; if a window has neither a report nor a line that says why; or if a report has neither files
nor such a line. Results are saved in build/soak/state.json after each round.
"""

import argparse
import contextlib
import dataclasses
import functools
import gzip
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BUILD = ROOT / "build/default"
STEPSCOPE = BUILD / "bin/stepscope"
TRAIN = HERE / "train.py"
LINE = "stepscope: "  # starts each line of ours on stderr
IN_SMALL_DISK = "mount -t tmpfs -o size={size}{flags} none '{log_dir}' && \"$@\"; status=$?; cp -r '{log_dir}' '{copy}'; exit $status"


class Broken(Exception):
    """A round is broken; the message says how."""


class Untried(Exception):
    """A part cannot run here; the message says why."""


@dataclasses.dataclass
class Run:
    status: int
    out: str
    err: str
    seconds: float

    @functools.cached_property
    def said(self):
        """Returns what the program reported about itself; {} if it did not get that far."""
        lines = self.out.strip().splitlines()
        return json.loads(lines[-1]) if lines and lines[-1].startswith("{") else {}

    @property
    def lines(self):
        return [line for line in self.err.splitlines() if LINE in line]


def environment(**more):
    """Returns the environment for a process that uses this tree's package."""
    return {**os.environ, "PYTHONPATH": str(ROOT / "plugins/python"), "STEPSCOPE_NATIVE_DIR": str(BUILD / "lib"),
            "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore::UserWarning", **more}


def start(words, **more):
    return subprocess.Popen([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            errors="replace", env=environment(**more))


def end(process, begun):
    try:
        out, err = process.communicate(timeout=300)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise Broken("still running after 300 s") from None
    return Run(process.returncode, out, err, time.monotonic() - begun)


def run(words, **more):
    return end(start(words, **more), time.monotonic())


def train(*flags, wrap=(), **more):
    return run([*wrap, sys.executable, TRAIN, *flags], **more)


@functools.cache
def losses_of(steps):
    """Returns the digest of the losses without stepscope."""
    return train("--steps", steps).said["losses"]


def traces_of(log_dir):
    return sorted(pathlib.Path(log_dir).glob("stepscope/*/c*/trace/rank0.json.gz"))


def check_trace(path):
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            events = json.load(file)["traceEvents"]
    except (OSError, EOFError, ValueError, KeyError) as error:
        raise Broken(f"{path} cannot be read: {error}") from error
    if not events:
        raise Broken(f"{path} is empty")


def check_program(found, steps):
    """Checks that the program ended and computed as it would without stepscope."""
    if found.status != 0:
        raise Broken(f"status {found.status}: {found.err[-1500:]}")
    if found.said["losses"] != losses_of(steps):
        raise Broken("other losses than without stepscope")


def dropped(found):
    return sum("was dropped" in line for line in found.lines)


def add(figures, more):
    for key, value in more.items():
        figures[key] = max(figures.get(key, 0), value) if key.startswith("most") else figures.get(key, 0) + value


def check_windows(log_dir, *runs):
    """Checks that each window of the runs in a log directory has a report and a trace, or is named as dropped. Returns the
    counts."""
    figures = {"windows": 0, "reports": 0, "dropped": 0}
    for found in runs:
        windows, reports = found.said["windows"], found.said["reports"]
        if reports + dropped(found) != windows:
            raise Broken(f"{windows} windows, {reports} reports, {dropped(found)} said to be dropped: {found.lines}")
        add(figures, {"windows": windows, "reports": reports, "dropped": dropped(found)})
    traces = traces_of(log_dir)
    if len(traces) != figures["reports"]:
        raise Broken(f"{figures['reports']} reports, {len(traces)} traces: {[found.lines for found in runs]}")
    for path in traces:
        check_trace(path)
    return figures


def check_said(found):
    """Checks that everything lost is named. Returns the counts."""
    windows, reports = found.said["windows"], found.said["reports"]
    if reports < windows and not found.lines:
        raise Broken(f"{windows} windows, {reports} reports, and not a word about it")
    return {"windows": windows, "reports": reports, "lines": len(found.lines)}


def undisturbed(folder, steps, *flags, **more):
    """Runs a round of a part that must lose nothing."""
    found = train("--log-dir", folder, "--steps", steps, *flags, **more)
    check_program(found, steps)
    return check_windows(folder, found) | {key: found.said[key] for key in ("threads", "alarms") if found.said[key]}


def threads(folder):
    return undisturbed(folder, 60, "--threads", 50)


def processes(folder):
    return undisturbed(folder, 60, "--fork-every", 3, "--spawn-every", 10)


def signals(folder):
    """The program's signal handler interrupts system calls, and now and then the process is stopped and continued."""
    begun, steps = time.monotonic(), 120
    process = start([sys.executable, TRAIN, "--log-dir", folder, "--steps", steps, "--alarms", 0.003])
    for _ in range(8):
        time.sleep(random.uniform(0.2, 0.6))
        if process.poll() is None:
            process.send_signal(signal.SIGSTOP)
            time.sleep(0.1)
            process.send_signal(signal.SIGCONT)
    found = end(process, begun)
    check_program(found, steps)
    return check_windows(folder, found) | {"alarms": found.said["alarms"]}


def killed(folder):
    """Kills the process: files written before must be complete, and the next run in the same log directory must work."""
    process = start([sys.executable, TRAIN, "--log-dir", folder, "--steps", 4000, "--pause", 0.005])
    deadline = time.monotonic() + 60
    while not traces_of(folder) and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(random.uniform(0, 1))
    process.kill()
    process.communicate()
    left = traces_of(folder)
    for path in left:
        check_trace(path)
    if (analysis := run([STEPSCOPE, "analyze", folder])).status != 0:
        raise Broken(f"analyze after SIGKILL: {analysis.err}")
    steps = 20
    found = train("--log-dir", folder, "--steps", steps)
    check_program(found, steps)
    if len(traces_of(folder)) != len(left) + found.said["reports"]:
        raise Broken(f"{len(left)} traces before, {found.said['reports']} reports, {len(traces_of(folder))} traces after")
    return {"kills": 1, "windows kept": len(left)}


def ranks(folder):
    """Kills one of two ranks during a window: the other rank's report must name it within 10 s."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    def both(*flags):
        begun = time.monotonic()
        started = [start([sys.executable, ROOT / "samples/ddp/train.py", "--side", 32, "--batch", 2, "--active", 4, "--die", 6, *flags],
                         RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", LOCAL_WORLD_SIZE="2", MASTER_ADDR="127.0.0.1",
                         MASTER_PORT=str(port)) for rank in range(2)]
        started[1].wait(timeout=300)
        died = time.monotonic()
        return end(started[0], begun), time.monotonic() - died

    plain, _ = both()
    found, after = both("--log-dir", folder, "--rank-timeout", 5)
    if found.status != plain.status:
        raise Broken(f"rank 0 ended with {found.status}, without stepscope with {plain.status}")
    if "rank 1" not in found.out + found.err:
        raise Broken(f"rank 1 is not named: {found.out[-800:]} {found.err[-800:]}")
    if after > 10:
        raise Broken(f"rank 0 ended {after:.1f} s after rank 1")
    return {"kills": 1, "most s until rank 0 ended": round(after, 1)}


def on_small_disk(folder, size, flags=""):
    """Runs train.py with its log directory on a separate file system in a private namespace."""
    if run(["unshare", "--user", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"]).status != 0:
        raise Untried("a file system of its own needs user namespaces")
    log_dir, steps = folder / "disk", 60
    log_dir.mkdir()
    script = IN_SMALL_DISK.format(size=size, flags=flags, log_dir=log_dir, copy=folder / "copy")
    found = train("--log-dir", log_dir, "--steps", steps,
                  wrap=["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"])
    check_program(found, steps)
    for path in traces_of(folder / "copy"):
        check_trace(path)
    if not found.lines:
        raise Broken("nothing was said of a disk that could not be written to")
    return check_said(found) | {"traces": len(traces_of(folder / "copy"))}


def full_disk(folder):
    return on_small_disk(folder, "1m")


def read_only(folder):
    return on_small_disk(folder, "1m", ",ro")


def vanishing(folder):
    """Removes the log directory repeatedly while it is written to."""
    over, removed = threading.Event(), []

    def remove():
        while not over.wait(0.15):
            if (folder / "log/stepscope").exists():
                shutil.rmtree(folder / "log", ignore_errors=True)
                removed.append(None)

    remover = threading.Thread(target=remove)
    remover.start()
    try:
        found = train("--log-dir", folder / "log", "--steps", 60)
    finally:
        over.set()
        remover.join()
    check_program(found, 60)
    return check_said(found) | {"removals": len(removed)}


def faults(found):
    """Returns (clock steps, failed allocations) that the preloaded library made."""
    said = re.search(r"soak: (\d+) clock steps, (\d+) failed allocations", found.err)
    if said is None:
        raise Broken(f"the preloaded library said nothing: {found.err[-800:]}")
    return int(said[1]), int(said[2])


def preloaded(**more):
    return {"LD_PRELOAD": str(BUILD / "lib/libsoak_faults.so"), **more}


def clock(folder):
    found = train("--log-dir", folder, "--steps", 80, **preloaded(STEPSCOPE_SOAK_CLOCK="3600"))
    check_program(found, 80)
    return check_windows(folder, found) | {"clock steps": faults(found)[0]}


def memory(folder):
    one_in, seed = random.choice((300, 3000, 30000)), random.randrange(1 << 30)
    found = train("--log-dir", folder, "--steps", 80, **preloaded(STEPSCOPE_SOAK_MEMORY=str(one_in), STEPSCOPE_SOAK_SEED=str(seed)))
    try:
        check_program(found, 80)
    except Broken as what:
        raise Broken(f"STEPSCOPE_SOAK_MEMORY={one_in} STEPSCOPE_SOAK_SEED={seed}: {what}") from None
    for path in traces_of(folder):
        check_trace(path)
    return check_said(found) | {"failed allocations": faults(found)[1]}


def shared(folder):
    """Two independent processes write into one log directory."""
    begun, steps = time.monotonic(), 60
    both = [start([sys.executable, TRAIN, "--log-dir", folder, "--steps", steps]) for _ in range(2)]
    found = [end(process, begun) for process in both]
    for one in found:
        check_program(one, steps)
    return check_windows(folder, *found)


def many(folder):
    """Runs `stepscope list` on 10,000 runs."""
    undisturbed(folder / "one", 4)
    source = next((folder / "one/stepscope").iterdir())
    for number in range(10_000):
        target = folder / f"all/stepscope/{source.name}_{number}"
        shutil.copytree(source, target, copy_function=os.link)
    begun = time.monotonic()
    process = subprocess.Popen([STEPSCOPE, "list", folder / "all"], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        raise Broken(f"list ended with {status}")
    return {"runs": 10_000, "most s": round(time.monotonic() - begun, 1), "most MiB": usage.ru_maxrss // 1024}


# Each part's share of the time.
PARTS = {threads: 2, processes: 2, signals: 2, killed: 1, ranks: 1, full_disk: 1, read_only: 0.5, vanishing: 1, clock: 2, memory: 4,
         shared: 1, many: 0.5}
# One process that records windows for this share of the time; the first 100 windows are not counted.
SHARE_OF_WINDOWS = 0.4
WINDOWS_PER_SECOND = 15


class State:
    """The finished work, stored on disk."""

    def __init__(self, out, again):
        self.out = out.resolve()
        self.path = self.out / "state.json"
        self.parts = {} if again or not self.path.exists() else json.loads(self.path.read_text(encoding="utf-8"))

    def part(self, name):
        return self.parts.setdefault(name, {"seconds": 0.0, "rounds": 0, "broken": [], "untried": "", "figures": {}})

    def save(self):
        whole = self.path.with_suffix(".new")
        whole.write_text(json.dumps(self.parts, indent=1), encoding="utf-8")
        whole.replace(self.path)


def do_round(folder, function, done):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    begun = time.monotonic()
    try:
        add(done["figures"], function(folder))
    except Untried as why:
        done["untried"] = str(why)
    except Broken as what:
        done["broken"].append(str(what))
    done["rounds"] += 1
    done["seconds"] += time.monotonic() - begun
    if not done["broken"]:
        shutil.rmtree(folder, ignore_errors=True)


def do_windows(seconds, done):
    begun = time.monotonic()
    count = max(200, int(seconds * WINDOWS_PER_SECOND))
    found = subprocess.run([sys.executable, HERE / "windows.py", "--everything", "--windows", str(count), "--fork-every", "50"],
                           env=environment(), capture_output=True, text=True, check=False)
    done["rounds"] += 1
    done["seconds"] = seconds  # however long it took, because it is one run
    lines = found.stdout.splitlines()
    done["figures"] = {"windows": count, "took s": round(time.monotonic() - begun)}
    done["growth"] = [line for line in lines if "window adds" in line]
    if found.returncode != 0:
        done["broken"].append("; ".join(done["growth"]) or found.stderr[-1500:])


def show(state):
    for name, done in state.parts.items():
        figures = ", ".join(f"{key} {value:,}" if key.startswith("most") else f"{value:,} {key}" for key, value in done["figures"].items())
        print(f"{name:<10} {done['rounds']:4} rounds  {done['seconds']:6.0f} s  {figures}")
        for line in done.get("growth", []):
            print(f"{'':10} {line}")
        if done["untried"]:
            print(f"{'':10} not tried: {done['untried']}")
        for what in done["broken"][:3]:
            print(f"{'':10} BROKEN: {what}")


def main():
    names = {"windows": None} | {part.__name__: part for part in PARTS}
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--minutes", type=float, default=90, help="of all parts together; 0: one round of each (90)")
    arguments.add_argument("--only", default=",".join(names), metavar="PART,...")
    arguments.add_argument("--seed", type=int, help="of what is left to chance: which allocations fail, when a process is stopped")
    arguments.add_argument("--again", action="store_true", help="forget what earlier calls did")
    arguments.add_argument("--out", type=pathlib.Path, default=ROOT / "build/soak", metavar="DIR",
                           help="for figures and what is left of broken rounds")
    options = arguments.parse_args()
    random.seed(options.seed)
    wanted = options.only.split(",")
    if unknown := [name for name in wanted if name not in names]:
        arguments.error(f"no part {unknown[0]}; the parts are {', '.join(names)}")
    options.out.mkdir(parents=True, exist_ok=True)
    state = State(options.out, options.again)
    seconds = options.minutes * 60
    weights = sum(PARTS.values())
    for name in wanted:
        done = state.part(name)
        part = names[name]
        share = seconds * (SHARE_OF_WINDOWS if part is None else (1 - SHARE_OF_WINDOWS) * PARTS[part] / weights)
        while not done["untried"] and (done["rounds"] == 0 or done["seconds"] < share):
            do_windows(share, done) if part is None else do_round(state.out / name, part, done)
            state.save()
        print(f"{name}: {done['rounds']} rounds, {len(done['broken'])} broken", flush=True)
    show(state)
    return 1 if any(state.part(name)["broken"] for name in wanted) else 0


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
    sys.exit(130)
