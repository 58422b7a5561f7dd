#!/usr/bin/env python3
"""Times HTA on trace files: a line "NAME LOAD TEMPORAL" (seconds) for each.

Usage: hta_times.py OUT TRACE...

LOAD is the time to read the uncompressed file into HTA's tables, and TEMPORAL
that of its temporal breakdown. Both are medians of three runs in one process,
with the file in the page cache. A trace that HTA cannot load or break down is
left out, with a line on stderr.
"""
import gzip
import logging
import os
import statistics
import sys
import tempfile
import time
import warnings

ROUNDS = 3


def plain_copy(path, folder):
    name = os.path.basename(path).split(".")[0]
    copy = os.path.join(folder, name + ".json")
    with (gzip.open if path.endswith(".gz") else open)(path, "rb") as source:
        with open(copy, "wb") as out:
            out.write(source.read())
    return name


def seconds(work):
    begin = time.perf_counter()
    value = work()
    return time.perf_counter() - begin, value


def times_of(path):
    from hta.trace_analysis import TraceAnalysis
    with tempfile.TemporaryDirectory() as folder:
        name = plain_copy(path, folder)
        loads, breakdowns = [], []
        for _ in range(ROUNDS):
            load, analysis = seconds(
                lambda: TraceAnalysis(trace_dir=folder, include_last_profiler_step=True))
            breakdown, _ = seconds(
                lambda: analysis.get_temporal_breakdown(visualize=False))
            loads.append(load)
            breakdowns.append(breakdown)
    return name, statistics.median(loads), statistics.median(breakdowns)


def main():
    os.environ["HTA_DISABLE_NS_ROUNDING"] = "1"
    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)
    out, paths = sys.argv[1], sys.argv[2:]
    with open(out, "w", encoding="utf-8") as file:
        for path in paths:
            try:
                name, load, temporal = times_of(path)
            except Exception as error:  # an error of HTA must not stop the others
                print(f"hta_times: {path}: {error}", file=sys.stderr)
                continue
            print(f"{name} {load:.6f} {temporal:.6f}", file=file, flush=True)


if __name__ == "__main__":
    main()
