"""Measures the analysis of jobs with many ranks: time and memory of `stepscope analyze FOLDER`, stepscope.fleet and merging.

cmake --build build/default --target stepscope_cli stepscope_core job_traces
STEPSCOPE_NATIVE_DIR=build/default/lib PYTHONPATH=plugins/python python tests/bench/fleet.py \
    [--ranks 64,256,1000] [--events 100000] [--merge 4096] [--engines cli,local,ray] [--scratch DIR]

Eight ranks are simulated (job_traces.cc). Rank r of a larger job has the events of rank r % 8. A gzip file may have several
members, so only the member with the header, which names the rank, is written again for each rank. Exits with 3 if a bound is
missed: 2 GB per process, 2 s for the merge, and at most 1.25 times as long per rank for the largest job as for the smallest.
"""

import argparse
import gzip
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

from stepscope import _program

SIMULATED = 8
MOST_BYTES = 2e9
MOST_MERGE_S = 2.0
MOST_GROWTH = 1.25


def simulate(folder, ranks, events, digests):
    """Returns the simulated ranks: each rank's header as text and the rest as a gzip member. Also returns the digests'
    files."""
    program = _program.path().parent / "job_traces"
    print(subprocess.run([program, folder, str(ranks), str(events), str(digests)], check=True, capture_output=True, text=True).stdout.strip())
    parts = []
    for rank in range(SIMULATED):
        path = folder / f"rank{rank}.json"
        text = path.read_bytes()
        at = text.index(b'"traceEvents"')
        parts.append((text[:at], gzip.compress(text[at:], 6)))
        path.unlink()
    return parts


def make_job(folder, parts, ranks):
    folder.mkdir()
    for rank in range(ranks):
        head, events = parts[rank % SIMULATED]
        head = re.sub(rb'("rank": )\d+', rb"\g<1>%d" % rank, head)
        head, replaced = re.subn(rb'("world_size": )\d+', rb"\g<1>%d" % ranks, head)
        assert replaced >= 1, head
        (folder / f"rank{rank}.json.gz").write_bytes(gzip.compress(head) + events)


def measured(words):
    """Returns the seconds, and the peak memory in bytes of the largest process."""
    report = tempfile.NamedTemporaryFile(mode="w+", suffix=".txt")
    begin = time.monotonic()
    done = subprocess.run(["/usr/bin/time", "-f", "%M", "-o", report.name, *map(str, words)], capture_output=True, text=True)
    seconds = time.monotonic() - begin
    if done.returncode != 0:
        sys.exit(done.stderr)
    return seconds, int(report.read().split()[-1]) * 1024, done.stdout


FLEET = """import json, sys
from stepscope import fleet
if sys.argv[2] == "ray":
    import ray
    ray.init(num_cpus=int(sys.argv[3]), include_dashboard=False)
print(json.dumps(fleet.analyze(sys.argv[1], engine=sys.argv[2], workers=int(sys.argv[3])).to_dict()))"""


def run(engine, folder, workers):
    if engine == "cli":
        return measured([_program.path(), "analyze", "--format", "json", folder])
    return measured([sys.executable, "-c", FLEET, folder, engine, workers])


def merge(folder, count):
    """Returns the seconds of the job "merge" in a separate process, and its peak memory in bytes."""
    program = ("import sys, time; from stepscope import _native; folder, count = sys.argv[1], int(sys.argv[2])\n"
               "begin = time.monotonic(); text = _native.call('merge', {'digests': [f'{folder}/rank{r}.pb' for r in range(count)]})\n"
               "print(time.monotonic() - begin); assert f'\"rank\": {count - 1},' in text")
    _, most, printed = measured([sys.executable, "-c", program, folder, count])
    return float(printed), most


def main():
    words = argparse.ArgumentParser()
    words.add_argument("--ranks", default="64,256,1000")
    words.add_argument("--events", type=int, default=100_000)
    words.add_argument("--merge", type=int, default=4096)
    words.add_argument("--engines", default="cli,local")
    words.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    words.add_argument("--scratch")
    options = words.parse_args()
    missed = []
    with tempfile.TemporaryDirectory(dir=options.scratch) as name:
        scratch = pathlib.Path(name)
        counts = [int(count) for count in options.ranks.split(",") if count]
        parts = simulate(scratch, max([*counts, SIMULATED]), options.events, options.merge)
        per_rank = {}
        for count in counts:
            make_job(scratch / "job", parts, count)
            reports = {}
            for engine in options.engines.split(","):
                seconds, most, reports[engine] = run(engine, scratch / "job", options.workers)
                per_rank.setdefault(engine, []).append(seconds / count)
                print(f"{engine}: {count} ranks in {seconds:.1f} s, {seconds / count * 1e3:.0f} ms each; largest process {most / 1e6:.0f} MB",
                      flush=True)
                if most > MOST_BYTES:
                    missed.append(f"{engine}: memory of {count} ranks")
            values = [json.loads(text) for text in reports.values()]
            print(f"the reports are {'equal' if all(value == values[0] for value in values) else 'DIFFERENT'}")
            shutil.rmtree(scratch / "job")
        for engine, times in per_rank.items():
            if times[-1] > MOST_GROWTH * times[0]:
                missed.append(f"{engine}: linear in the ranks")
        if options.merge:
            seconds, most = merge(scratch, options.merge)
            size = sum(path.stat().st_size for path in scratch.glob("*.pb"))
            print(f"merge: {options.merge} digests, {size / 1e6:.0f} MB, in {seconds:.2f} s; {most / 1e6:.0f} MB")
            if seconds > MOST_MERGE_S or most > MOST_BYTES:
                missed.append("merge")
    print("missed: " + "; ".join(missed) if missed else "all bounds met")
    return 3 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
