#!/usr/bin/env python3
# A tool from outside this repository, kept unchanged; only this line is ours.
"""Run HolisticTraceAnalysis (HTA) over a folder of Chrome traces and say what each analysis got.

Usage:
    python hta_check.py TRACEDIR [--strict] [--drop-last-step] [--hta-rounding] [--critical-path]
                        [--expect-ranks N] [--cpu-ok] [--out FILE]

TRACEDIR holds one *.json or *.json.gz per rank (HTA does not look into subfolders, and takes every .json and .gz).

Needs (Python 3.11):
    pip install "HolisticTraceAnalysis==0.5.0" "pandas==3.1.1" "numpy==2.4.6" "plotly==7.1.0"
Proved to work with these newest versions: temporal, kernel, idle-time and user-annotation breakdown, overlap, queue
length, memory bandwidth, launch statistics. --critical-path (and HTA's frequent kernel sequences) need
    "pandas==2.3.3"
because HTA 0.5.0 calls DataFrame.drop in a way that pandas 3 refuses. HTA pulls in jupyterlab; to stay small install
it with --no-deps and add: pandas numpy plotly networkx psutil pydot pyyaml typing_extensions.

By default this script (not HTA) sets HTA_DISABLE_NS_ROUNDING=1, because HTA otherwise rounds every start up and every
end down to whole microseconds: kernels below 1 us get negative length and idle time grows. --hta-rounding keeps
HTA's own default. It also keeps the last ProfilerStep, which HTA throws away by default (--drop-last-step).

Prints one JSON document. Exit status:
    0  every analysis that the raw events call for gave numbers that add up
    1  a file or rank was lost, an analysis failed or contradicts the raw events, or (--strict) there is a warning
    2  wrong arguments, or a package is missing
"""
import argparse
import collections
import gzip
import json
import logging
import math
import os
import re
import sys
import traceback
import warnings as pywarnings

LAUNCHES = {"cudaLaunchKernel", "cudaLaunchKernelExC", "cuLaunchKernel", "cudaMemcpyAsync", "cudaMemsetAsync",
            "hipLaunchKernel", "hipExtModuleLaunchKernel", "hipMemsetAsync", "hipMemcpyAsync", "hipMemcpyWithStream"}
GPU_CATS = ("kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset")


def raw_facts(path):
    with (gzip.open if path.endswith(".gz") else open)(path, "rb") as f:
        trace = json.loads(f.read())
    f = collections.Counter()
    streams, gpu_us = set(), 0.0
    kernel_corr, runtime_corr = set(), set()
    for i, e in enumerate(trace.get("traceEvents", [])):
        if e.get("ph") != "X":
            continue
        cat, name = str(e.get("cat") or ""), str(e.get("name") or "")
        args = e.get("args") if isinstance(e.get("args"), dict) else {}
        low = cat.lower()
        if name.startswith("ProfilerStep#") and low != "gpu_user_annotation":
            f["steps"] += 1
        if low in GPU_CATS:
            f["gpu_events"] += 1
            f["kernels"] += low == "kernel"
            gpu_us += float(e.get("dur") or 0)
            streams.add(args.get("stream"))
            kernel_corr.add(args.get("correlation"))
            f["gpu_without_stream"] += "stream" not in args
            f["gpu_without_correlation"] += "correlation" not in args
            f["gpu_below_1us"] += float(e.get("dur") or 0) < 1
            f["comm_kernels"] += bool(re.match(r"nccl.*Kernel", name))
            f["comm_like_names"] += low == "kernel" and bool(re.search(r"nccl|all_?reduce", name, re.I)) and \
                not re.match(r"nccl.*Kernel", name)
        elif low.endswith(("runtime", "driver")):
            f["runtime"] += 1
            runtime_corr.add(args.get("correlation"))
            f["launches_not_known"] += "aunch" in name and name not in LAUNCHES
            f["runtime_first_event"] += i == 0
        elif low == "gpu_user_annotation":
            f["gpu_annotations"] += 1
            f["gpu_annotations_with_stream"] += "stream" in args
        elif low == "cuda_sync":
            f["cuda_sync"] += 1
    f["linked"] = len((kernel_corr & runtime_corr) - {None})
    dist = trace.get("distributedInfo") or {}
    return f, {"gpu_us": round(gpu_us, 3), "streams": sorted(map(str, streams)), "rank": dist.get("rank"),
               "header_has_rank": "rank" in dist, "minified_rank": None}


def rank_pattern_found(path):
    """HTA finds the rank with a text search that wants white space behind the colon."""
    with (gzip.open if path.endswith(".gz") else open)(path, "rb") as f:
        for line in f:
            if re.search(rb'"rank":\s+(\d+)', line):
                return True
    return False


def rows(df):
    if df is None:
        return None
    flat = df.copy()
    flat.columns = ["/".join(map(str, c)) if isinstance(c, tuple) else str(c) for c in flat.columns]
    return [{k: (None if isinstance(v, float) and math.isnan(v) else v) for k, v in r.items()}
            for r in flat.to_dict("records")]


def plain(x):
    return x.item() if hasattr(x, "item") else str(x)


def main():
    ap = argparse.ArgumentParser(description="Check traces with HolisticTraceAnalysis", epilog="See the docstring.")
    ap.add_argument("tracedir")
    ap.add_argument("--strict", action="store_true", help="warnings count as errors")
    ap.add_argument("--drop-last-step", action="store_true", help="as HTA does by default")
    ap.add_argument("--hta-rounding", action="store_true", help="keep HTA's rounding to whole microseconds")
    ap.add_argument("--critical-path", action="store_true", help="also run the critical path (pandas below 3)")
    ap.add_argument("--expect-ranks", type=int, help="how many ranks there must be")
    ap.add_argument("--cpu-ok", action="store_true", help="a trace without GPU events is no error")
    ap.add_argument("--out", help="write the JSON here instead of stdout")
    args = ap.parse_args()
    if not os.path.isdir(args.tracedir):
        print(f"hta_check: no folder {args.tracedir}", file=sys.stderr)
        return 2
    if not args.hta_rounding:
        os.environ["HTA_DISABLE_NS_ROUNDING"] = "1"
    pywarnings.simplefilter("ignore")
    try:
        import numpy
        import pandas
        from hta.trace_analysis import TraceAnalysis
    except ImportError as ex:
        print(f"hta_check: {ex}; see the docstring for the packages", file=sys.stderr)
        return 2
    logging.disable(logging.ERROR)

    errors, warnings = [], []
    report = {"pandas": pandas.__version__, "numpy": numpy.__version__, "files": {}, "analyses": {}}
    folder = os.path.abspath(args.tracedir)
    files = [f for f in sorted(os.listdir(folder)) if f.endswith((".gz", ".json"))]
    facts = {}
    for name in files:
        try:
            f, info = raw_facts(os.path.join(folder, name))
            info["minified_rank"] = info["header_has_rank"] and not rank_pattern_found(os.path.join(folder, name))
            facts[name] = f
            report["files"][name] = {**info, **{k: v for k, v in sorted(f.items()) if v}}
        except (ValueError, OSError, AttributeError) as ex:
            errors.append(f"{name}: not readable as strict JSON: {ex}")
    if not files:
        errors.append("no .json or .gz file in the folder")

    a = None
    if files and not errors:
        try:
            a = TraceAnalysis(trace_dir=folder, include_last_profiler_step=not args.drop_last_step)
        except Exception as ex:
            where = traceback.extract_tb(ex.__traceback__)[-1]
            errors.append(f"HTA cannot load the folder: {type(ex).__name__}: {ex} "
                          f"({os.path.basename(where.filename)}:{where.lineno})")
    if a is not None:
        used = {os.path.basename(p): r for r, p in a.t.trace_files.items()}
        ranks = sorted(a.t.traces)
        report["ranks"] = ranks
        report["steps"] = {r: [int(i) for i in a.t.get_iterations(r)] for r in ranks}
        for name in files:
            info = report["files"][name]
            if name not in used:
                errors.append(f"{name}: lost, another file has the same rank (HTA wants \"rank\": N with white space "
                              "behind the colon in distributedInfo; without it every file is rank 0)")
            elif info["header_has_rank"] and used[name] != info["rank"]:
                errors.append(f"{name}: HTA reads rank {used[name]}, the header says {info['rank']}: write a blank "
                              "behind the colon of \"rank\": N")
            if not info["header_has_rank"]:
                warnings.append(f"{name}: no distributedInfo.rank, HTA takes it as rank 0")
        if args.expect_ranks is not None and len(ranks) != args.expect_ranks:
            errors.append(f"{len(ranks)} ranks loaded, {args.expect_ranks} expected")

        f_all = sum(facts.values(), collections.Counter())
        for name, f in facts.items():
            if f["steps"] == 0:
                warnings.append(f"{name}: no ProfilerStep#N event: no steps, nothing is trimmed to whole steps")
            elif f["steps"] == 1:
                warnings.append(f"{name}: only one step; HTA wants two or more")
            if f["gpu_without_stream"]:
                errors.append(f"{name}: {f['gpu_without_stream']} GPU events have no args.stream: HTA takes them "
                              "for CPU events")
            if f["gpu_without_correlation"]:
                warnings.append(f"{name}: {f['gpu_without_correlation']} GPU events have no args.correlation: they "
                                "vanish when HTA trims to whole steps")
            if f["gpu_annotations_with_stream"]:
                errors.append(f"{name}: {f['gpu_annotations_with_stream']} gpu_user_annotation events have "
                              "args.stream: HTA counts them as computation kernels")
            if f["launches_not_known"]:
                warnings.append(f"{name}: {f['launches_not_known']} launch calls have names that HTA's queue length "
                                "does not know (for example cuLaunchKernelEx)")
            if f["gpu_below_1us"] and args.hta_rounding:
                warnings.append(f"{name}: {f['gpu_below_1us']} GPU events below 1 us are spoilt by HTA's rounding")
            if f["comm_like_names"]:
                warnings.append(f"{name}: {f['comm_like_names']} kernels look like collectives but their names do "
                                "not start with nccl...Kernel: HTA counts them as computation")
            if f["cuda_sync"]:
                warnings.append(f"{name}: cuda_sync events with a stream count as busy time in HTA's temporal "
                                "breakdown")
            if f["runtime_first_event"]:
                warnings.append(f"{name}: the first event of the file is a runtime call; HTA takes index 0 for "
                                "'not linked'")

        def run(what, fn, check=None):
            try:
                value = fn()
            except Exception as ex:
                where = traceback.extract_tb(ex.__traceback__)[-1]
                errors.append(f"{what} failed: {type(ex).__name__}: {ex} "
                              f"({os.path.basename(where.filename)}:{where.lineno})")
                return
            report["analyses"][what] = value
            if check:
                problem = check(value)
                if problem:
                    errors.append(f"{what}: {problem}")

        def temporal_ok(v):
            for r in v:
                parts = r["idle_time(us)"] + r["compute_time(us)"] + r["non_compute_time(us)"]
                if r["kernel_time(us)"] <= 0 or abs(parts - r["kernel_time(us)"]) > 1e-3 * r["kernel_time(us)"] + 1:
                    return f"rank {r['rank']}: parts {parts} do not add up to {r['kernel_time(us)']}"
            return None if len(v) == len(ranks) else "a rank is missing"

        gpu_ranks = [r for r in ranks if facts[os.path.basename(a.t.trace_files[r])]["gpu_events"]]
        if not gpu_ranks:
            (warnings if args.cpu_ok else errors).append("no GPU events in any trace: HTA has nothing to analyse")
        else:
            if len(gpu_ranks) < len(ranks):
                errors.append(f"ranks without GPU events make HTA fail: {sorted(set(ranks) - set(gpu_ranks))}")
            run("temporal_breakdown", lambda: rows(a.get_temporal_breakdown(visualize=False)), temporal_ok)

            def kernels():
                types, names = a.get_gpu_kernel_breakdown(visualize=False, include_memory_kernels=True, num_kernels=10)
                return {"types": rows(types), "kernels": rows(names)}
            run("kernel_breakdown", kernels,
                lambda v: None if v["types"] and v["kernels"] else "no rows although there are kernels")
            run("idle_time_breakdown", lambda: rows(a.get_idle_time_breakdown(ranks=gpu_ranks, visualize=False)[0]),
                lambda v: None if {r["rank"] for r in v} == set(gpu_ranks) else "a rank is missing")
            if f_all["comm_kernels"]:
                run("comm_comp_overlap", lambda: rows(a.get_comm_comp_overlap(visualize=False)),
                    lambda v: "no number for a rank" if any(
                        r["comp_comm_overlap_pctg"] is None and
                        facts[os.path.basename(a.t.trace_files[r["rank"]])]["comm_kernels"] for r in v) else None)
            else:
                report["analyses"]["comm_comp_overlap"] = "skipped: no kernel named nccl...Kernel..."
            if f_all["linked"]:
                def queue():
                    out = []
                    for r in gpu_ranks:
                        q = a.get_queue_length_summary(ranks=[r])
                        out += [] if q is None else rows(q.reset_index())
                    return out
                run("queue_length", queue, lambda v: None if v else "no rows: launch names or correlation ids")
                for r in report["analyses"].get("queue_length") or []:
                    if (r.get("queue_length/min") or 0) < 0:
                        warnings.append(f"rank {r['rank/']}: negative queue length: a kernel starts before its launch")
                run("launch_stats", lambda: {str(r): len(a.get_cuda_kernel_launch_stats(
                    ranks=[r], visualize=False)[r]) for r in gpu_ranks})
            else:
                errors.append("no GPU event is linked to a runtime call by args.correlation")
            if f_all["gpu_annotations"]:
                run("gpu_user_annotations", lambda: rows(a.get_gpu_user_annotation_breakdown(visualize=False)))
            if args.critical_path:
                def critical():
                    graph, ok = a.critical_path_analysis(rank=gpu_ranks[0], annotation="ProfilerStep", instance_id=0)
                    return {"ok": bool(ok), "graph": str(graph)}
                run("critical_path", critical, lambda v: None if v["ok"] else "HTA says no")
    if args.strict:
        errors += warnings
    report["errors"], report["warnings"], report["ok"] = errors, warnings, not errors
    text = json.dumps(report, indent=1, default=plain)
    if args.out:
        with open(args.out, "w") as f:
            f.write(text + "\n")
    else:
        print(text)
    for e in errors:
        print("hta_check: ERROR " + e, file=sys.stderr)
    if not args.strict:
        for w in warnings:
            print("hta_check: warning " + w, file=sys.stderr)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
