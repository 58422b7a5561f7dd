"""Training programs for a GPU, with and without one fault each: timed, and recorded by torch.profiler and stepscope.

    python tests/gpu/programs/harness.py --out DIR [--only NAME...]

`bash tests/gpu/slot.sh programs` runs this, and judges what stepscope says about the recordings. A program is a function
make(device, better, size) that builds model, data and optimizer and returns step(), one whole step including its batch.
`better` leaves the fault out. `size` is 1 on a GPU; on a CPU, where times mean nothing, a small size shows that everything
runs. The authors of the programs had not seen the rules, and the expected rules were listed before the first verdict.
"""

import argparse
import gc
import gzip
import json
import os
import pathlib
import shutil
import statistics
import sys
import time
import traceback

os.environ.setdefault("KINETO_LOG_LEVEL", "5")
import torch

PROGRAMS = {}
MOST_STEPS = 60  # in one timed stretch


def program(fault, expect):
    """`fault`: what is wrong, and the fix. `expect`: one of these rules should be the first finding."""
    def declare(make):
        if make.__name__ in PROGRAMS:
            raise ValueError(f"two programs are called {make.__name__}: rename one")
        PROGRAMS[make.__name__] = (make, fault, expect.split())
        return make
    return declare


def scaled(number, size, least=1, multiple=1):
    return max(least, int(round(number * size / multiple)) * multiple)


def synchronize():
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def reset():
    """Resets torch's settings that a program may change to their defaults."""
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = False
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = True
    torch.set_float32_matmul_precision("highest")
    torch.use_deterministic_algorithms(False)
    torch.autograd.set_detect_anomaly(False)


def step_ms(step, seconds):
    """Returns the mean of as many steps as fit into the time, at least three."""
    synchronize()
    begin, steps = time.perf_counter(), 0
    while steps < 3 or (steps < MOST_STEPS and time.perf_counter() - begin < seconds):
        step()
        steps += 1
    synchronize()
    return (time.perf_counter() - begin) / steps * 1e3


def recorded(step, prof, warmup, active):
    """Runs the schedule. Returns the mean length of an active step in ms."""
    for number in range(warmup + active):
        if number == warmup:
            synchronize()
            begin = time.perf_counter()
        step()
        if number == warmup + active - 1:
            synchronize()
            took = time.perf_counter() - begin
        prof.step()
    return took / active * 1e3


def under_kineto(step, path, active):
    from torch.profiler import ProfilerActivity, profile, schedule
    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if torch.cuda.is_available() else [])
    with profile(activities=activities, schedule=schedule(wait=1, warmup=2, active=active), record_shapes=True,
                 on_trace_ready=lambda prof: prof.export_chrome_trace(path)) as prof:
        took = recorded(step, prof, 3, active)
    with open(path, "rb") as plain, gzip.open(path + ".gz", "wb", 6) as packed:
        shutil.copyfileobj(plain, packed)
    os.remove(path)
    return took


def under_stepscope(step, folder, active):
    import stepscope
    with stepscope.profile(log_dir=folder, schedule=stepscope.schedule(wait=4, warmup=2, active=active), print_report=False) as prof:
        return recorded(step, prof, 6, active)


def run(name, out, device, options):
    """Returns the measurements of one program as JSON."""
    make, fault, expect = PROGRAMS[name]
    result, steps = {"name": name, "fault": fault, "expect": expect, "bad_ms": [], "better_ms": []}, {}
    for better in (False, True):
        reset()
        torch.manual_seed(1)
        steps[better] = make(device, better, options.size)
        for _ in range(4):
            steps[better]()
    for _ in range(options.rounds):  # alternately, because a machine drifts
        for better, key in ((False, "bad_ms"), (True, "better_ms")):
            reset()
            result[key].append(step_ms(steps[better], options.seconds))
    for better, word in ((False, name), (True, name + "_better")):
        reset()
        active = 4 if statistics.median(result["better_ms" if better else "bad_ms"]) < 40 else 3
        key = "_better" if better else ""
        result["kineto_ms" + key] = under_kineto(steps[better], os.path.join(out, word + ".json"), active)
        if options.own and not better:
            result["own_ms"] = under_stepscope(steps[better], os.path.join(out, "own", word), active)
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", required=True)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--size", type=float, default=1.0 if torch.cuda.is_available() else 0.05)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.2, help="of each round of a version")
    parser.add_argument("--own", action="store_true", help="record with stepscope, too (TEARDOWN_CUPTI=1)")
    options = parser.parse_args()
    sys.modules["harness"] = sys.modules["__main__"]
    import code_base_faults  # noqa: F401
    import common_faults  # noqa: F401
    out = pathlib.Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    journal = out / "journal.jsonl"
    done = {json.loads(line)["name"] for line in journal.read_text().splitlines()} if journal.exists() else set()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    for name in options.only or PROGRAMS:
        if name in done:
            continue
        try:
            result = run(name, options.out, device, options)
            before, after = (statistics.median(result[key]) for key in ("bad_ms", "better_ms"))
            print(f"{name:30} {before:8.2f} to {after:8.2f} ms, x{before / after:.2f}", flush=True)
        except Exception:  # of one program; the others continue
            traceback.print_exc()
            continue
        with open(journal, "a", encoding="utf-8") as file:
            file.write(json.dumps(result) + "\n")
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
