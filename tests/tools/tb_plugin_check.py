#!/usr/bin/env python3
# A tool from outside this repository, kept unchanged; only this line is ours.
"""Load *.pt.trace.json[.gz] files through torch-tb-profiler's own loader and say what each view got.

Usage:
    python tb_plugin_check.py LOGDIR [--strict] [--expect VIEW ...] [--forbid VIEW ...] [--http PORT] [--out FILE]

LOGDIR is what one would give to `tensorboard --logdir`. Every folder below it that has trace files is one run.
The files go through the very classes the TensorBoard server uses (RunLoader -> RunProfileData -> RunGenerator,
one spawned process per file); no HTTP is needed. --http PORT also starts a real TensorBoard on 127.0.0.1:PORT,
asks every route of the plugin, and stops it again.

Needs (newest set proved to work, Python 3.11):
    pip install "torch-tb-profiler==0.4.3" "tensorboard==2.21.0" "pandas==3.1.1" "numpy==2.4.6"
Nothing else has to be pinned; setuptools is not needed. torch-tb-profiler 0.4.3 is the last release there is.

Prints one JSON document on stdout. Exit status:
    0  every view that the raw events call for is there
    1  a file was not loaded, a view is missing, a route/view failed, or (--strict) the data shown is degraded
    2  wrong arguments, or a package is missing

"errors" make the exit status 1. "warnings" name events that are in the file but that plugin 0.4.3 drops or
misreads (for example cat "cuda_runtime"); --strict turns them into errors. Messages go to stderr too.
"""
import argparse
import collections
import gzip
import json
import logging
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import traceback
import urllib.error
import urllib.parse
import urllib.request

VIEWS = ("Overview", "Operator", "Kernel", "Trace", "Distributed", "Memory", "Module", "Lightning")
STEP = re.compile(r"ProfilerStep#\d+$")
KNOWN_COMM = {f"{lib}:{op}" for lib in ("nccl", "gloo")
              for op in ("broadcast", "reduce", "all_reduce", "all_gather", "reduce_scatter")}


def is_dataloader(name):
    return (name.startswith("enumerate(DataLoader)#") and name.endswith(".__next__")) or \
        name.startswith("enumerate(DataPipe)#")


def read_raw(path):
    with (gzip.open if path.endswith(".gz") else open)(path, "rb") as f:
        return f.read()


def raw_facts(trace):
    """What the file itself holds, counted without the plugin."""
    f = collections.Counter()
    f["steps"] = 0
    names = collections.Counter()
    kernel_us = 0.0
    devices = set()
    comm_ids = set()
    nccl_kernel_ids = []
    for e in trace["traceEvents"]:
        ph, cat, name = e.get("ph"), str(e.get("cat") or "").lower(), str(e.get("name") or "")
        args = e.get("args") if isinstance(e.get("args"), dict) else {}
        if ph == "i" and name == "[memory]":
            f["memory"] += 1
            f["memory_with_addr"] += "Addr" in args
            f["memory_with_total"] += "Total Allocated" in args
        if ph != "X":
            f["flow_" + cat] += ph in "sf"
            continue
        f["cat_" + cat] += 1
        if cat in ("cpu_op", "operator"):
            f["ops"] += 1
            f["ops_with_stack"] += bool(args.get("Call stack"))
        if cat == "kernel":
            f["kernels"] += 1
            kernel_us += float(e.get("dur") or 0)
            devices.add(args.get("device"))
            if name.startswith("nccl"):
                nccl_kernel_ids.append(args.get("External id", args.get("external id")))
        if cat.endswith("runtime") or cat.endswith("driver"):
            f["runtime"] += 1
        if cat == "python_function" and args.get("Python module id") is not None:
            f["modules"] += 1
        if is_dataloader(name):
            f["dataloader"] += 1
        if STEP.match(name) and cat in ("user_annotation", "cpu_op", "operator"):
            f["steps"] += 1
        if STEP.match(name) and cat == "gpu_user_annotation":
            f["gpu_steps"] += 1
        if name.startswith(("nccl:", "gloo:")) and cat in ("user_annotation", "cpu_op", "operator"):
            names[name] += 1
            if name in KNOWN_COMM:
                comm_ids.add(args.get("External id", args.get("external id")))
    f["nccl_kernels"] = len(nccl_kernel_ids)
    f["nccl_kernels_linked"] = sum(i is not None and i in comm_ids for i in nccl_kernel_ids)
    f["comm_ops"] = sum(v for k, v in names.items() if k in KNOWN_COMM)
    f["comm_ops_unknown"] = sum(v for k, v in names.items() if k not in KNOWN_COMM)
    return f, names, kernel_us, sorted(devices, key=str)


def reparse(worker, span, path, cache_dir):
    """The loader swallows the exception of a failed file; run the same step here to get its text."""
    from torch_tb_profiler.profiler.data import RunProfileData
    from torch_tb_profiler.profiler.run_generator import RunGenerator
    try:
        data = RunProfileData.parse(worker, span, path, cache_dir)
        RunGenerator(worker, span, data).generate_run_profile()
        return "the second try, in one process, worked (worker process died?)"
    except Exception as ex:
        where = traceback.extract_tb(ex.__traceback__)[-1]
        return f"{type(ex).__name__}: {ex} (at {os.path.basename(where.filename)}:{where.lineno})"


def attempt(errors, what, fn):
    try:
        value = fn()
        json.loads(json.dumps(value, allow_nan=False))  # a browser refuses NaN and Infinity
        return value
    except Exception as ex:
        errors.append(f"{what}: {type(ex).__name__}: {ex}")
        return None


def number(text):
    m = re.match(r"\s*([-\d.]+)\s*%", str(text))
    return float(m.group(1)) if m else None


def check_profile(profile, raw, trace, errors, warnings):
    facts, comm_names, kernel_us, devices = raw_facts(trace)
    views = [v.display_name for v in profile.views]
    out = {"views": views}

    perf = profile.overview["performance"][0]
    parts = {c["name"]: {"us": c["value"], "pct": c["extra"]} for c in perf["children"]}
    rows = profile.overview["steps"]["rows"]
    out["steps"] = {"count": len(rows), "names": [r[0] for r in rows], "average_us": perf["value"],
                    "events_in_file": facts["steps"]}
    out["breakdown"] = parts
    out["recommendations"] = [re.sub(r"<[^>]+>", "", r) for r in
                              re.findall(r"<li>(.*?)</li>", profile.overview["recommendations"]) if r != "N/A"]
    attempt(errors, "Overview is not valid JSON", lambda: profile.overview)

    gpus, gpu = [], None
    for item in profile.gpu_summary or []:
        if re.match(r"GPU \d+:$", item["title"]):
            gpu = {"gpu": int(item["title"][4:-1])}
            gpus.append(gpu)
        elif gpu is not None and item["title"] != "<hr/>":
            gpu[item["title"]] = item["value"]
    out["gpus"] = gpus
    out["gpu_utilization_pct"] = {str(g["gpu"]): number(g.get("GPU Utilization")) for g in gpus}
    out["tensor_core_pct"] = {str(g["gpu"]): number(g.get("Kernel Time using Tensor Cores")) for g in gpus}

    table = profile.operation_table_by_name["data"]
    out["operator"] = {
        "rows": len(table), "rows_by_shape": len(profile.operation_table_by_name_input["data"]),
        "rows_with_call_stack": sum(bool(r.get("has_call_stack")) for r in table),
        "device_self_us": sum(r.get("device_self_duration", 0) for r in table),
        "tensor_core_eligible": sum(r["tc_eligible"] == "Yes" for r in table)}
    if profile.has_kernel:
        cols = [c["name"] for c in profile.kernel_table["data"]["columns"]]
        krows = profile.kernel_table["data"]["rows"]
        used = [r for r in krows if r[1] == "Yes"]
        total = sum(r[cols.index("Total Duration (us)")] for r in krows)
        out["kernel"] = {
            "rows": len(krows), "rows_by_operator": len(profile.kernel_op_table["data"]["rows"]),
            "rows_without_operator": sum(r[1] in ("N/A", "CallTreeRoot") or r[1].startswith("nn.Module: ")
                                         for r in profile.kernel_op_table["data"]["rows"]),
            "tensor_core_rows": len(used), "columns": cols,
            "tensor_core_pct_of_kernel_time":
                round(100 * sum(r[cols.index("Total Duration (us)")] for r in used) / total, 2) if total else None}
    else:
        out["kernel"] = None

    if "Memory" in views:
        curve = attempt(errors, "Memory curve failed", profile.get_memory_curve)
        stats = attempt(errors, "Memory table failed", profile.get_memory_stats)
        events = attempt(errors, "Memory events failed", profile.get_memory_events)
        out["memory"] = {
            "devices": curve and curve["metadata"]["devices"],
            "peaks": curve and curve["metadata"]["peaks"],
            "curve_points": curve and {k: len(v) for k, v in curve["rows"].items()},
            "operators": stats and {k: len(v) for k, v in stats["rows"].items()},
            "events": events and {k: len(v) for k, v in events["rows"].items()}}
        if curve is not None and not curve["rows"]:
            warnings.append('Memory view has no curve: "[memory]" events need args Addr, Total Allocated and '
                            'Total Reserved')
        elif stats is not None and not any(stats["rows"].values()):
            warnings.append("Memory view has no operator rows: no \"[memory]\" event lies inside an operator of "
                            "its own tid")
    else:
        out["memory"] = None
    module = attempt(errors, "Module view failed", profile.get_module_view) if "Module" in views else None
    out["module"] = {"roots": [m["name"] for m in module["data"]]} if module else None
    attempt(errors, "operator tree failed", profile.get_operator_tree)

    def diff():
        summary = profile.compare_run(profile).get_diff_tree_summary()
        return len(summary.get("children", []))
    out["diff_children"] = attempt(errors, "Diff view failed", diff)

    # the Trace view gets the file itself, with GPU counters put in by cutting at the last "]"
    if profile.has_kernel:
        try:
            served = json.loads(gzip.decompress(profile.append_gpu_metrics(raw)),
                                parse_constant=lambda c: (_ for _ in ()).throw(ValueError("constant " + c)))
            counters = sum(e.get("ph") == "C" for e in served["traceEvents"]) - \
                sum(e.get("ph") == "C" for e in trace["traceEvents"])
            out["trace"] = {"events": len(served["traceEvents"]), "gpu_counters_added": counters}
            if counters <= 0:
                warnings.append('Trace view has no GPU counters: an array stands after "traceEvents" in the file')
        except ValueError as ex:
            errors.append(f"Trace view is broken JSON ({ex}): after \"traceEvents\" the file may hold no other "
                          "array, no nested object and no \"]\" in a string; NaN/Infinity are not allowed either")
            out["trace"] = None
    else:
        try:
            json.loads(raw, parse_constant=lambda c: (_ for _ in ()).throw(ValueError("constant " + c)))
            out["trace"] = {"events": len(trace["traceEvents"]), "gpu_counters_added": 0}
        except ValueError as ex:
            errors.append(f"Trace view: the browser cannot read the file: {ex}")
            out["trace"] = None

    want = ["Overview", "Trace"]
    if facts["ops"]:
        want.append("Operator")
    if facts["kernels"]:
        want.append("Kernel")
    if facts["memory"]:
        want.append("Memory")
    if facts["modules"]:
        want.append("Module")
    for view in want:
        if view not in views:
            errors.append(f"view {view} is missing")

    if facts["steps"] == 0:
        warnings.append('no "ProfilerStep#N" event: the whole trace counts as one step named 0')
    elif len(rows) > facts["steps"]:
        warnings.append(f"{len(rows)} steps shown for {facts['steps']} step events: a gpu_user_annotation named "
                        "ProfilerStep#N is counted as a step too")
    elif len(rows) < facts["steps"]:
        out["steps"]["dropped_tail"] = facts["steps"] - len(rows)
    if facts["gpu_steps"]:
        warnings.append("gpu_user_annotation events named ProfilerStep#N distort the steps (0.4.3 can also die "
                        "on them with a division by zero)")
    if facts["runtime"] and not profile.has_runtime:
        warnings.append('runtime events are ignored: cat must be "Runtime" (0.4.3 does not know "cuda_runtime" and '
                        '"cuda_driver"); no device time per operator, no Tensor Core share, step end not moved to '
                        'the last kernel')
    elif facts["cat_cuda_runtime"] or facts["cat_cuda_driver"]:
        warnings.append('some runtime events have cat "cuda_runtime"/"cuda_driver" and are ignored')
    elif facts["kernels"] and facts["ops"] and out["operator"]["device_self_us"] == 0:
        warnings.append('no operator has device time: runtime "External id" must equal the operator\'s, and '
                        '"correlation" must equal the kernel\'s')
    if facts["dataloader"] and parts.get("DataLoader", {}).get("us", 0) == 0:
        warnings.append('DataLoader time is 0 although its events are there: cat must be "cpu_op" or "Operator"')
    if facts["comm_ops_unknown"]:
        unknown = sorted(n for n in comm_names if n not in KNOWN_COMM)
        warnings.append(f"collectives not known to the plugin (time counted as Kernel): {unknown[:6]}")
    if facts["comm_ops"] and facts["nccl_kernels"] > facts["nccl_kernels_linked"]:
        warnings.append(f'{facts["nccl_kernels"] - facts["nccl_kernels_linked"]} of {facts["nccl_kernels"]} NCCL '
                        'kernels count as Kernel, not Communication: their "External id" must be that of the '
                        '"nccl:..." event (not of record_param_comms)')
    if facts["kernels"] and not trace.get("deviceProperties"):
        warnings.append("no deviceProperties: GPU name, memory, the AMP and the memory-limit advice are missing")
    out["raw"] = {k: v for k, v in sorted(facts.items()) if v}
    out["raw"]["kernel_us"] = round(kernel_us, 3)
    out["raw"]["devices"] = devices
    return out, facts


def check_run(name, run_dir, cache, cache_dir, errors_all, warnings_all):
    from torch_tb_profiler import consts
    from torch_tb_profiler.profiler import RunLoader
    files = [(p, consts.WORKER_PATTERN.match(p)) for p in sorted(os.listdir(run_dir))
             if not os.path.isdir(os.path.join(run_dir, p))]
    files = [(p, m.group(1), m.group(2)[1:] if m.group(2) else None) for p, m in files if m]
    spans = collections.defaultdict(list)
    for _, worker, span in files:
        if span is not None:
            spans[worker].append(span)
    result = {"workers": {}, "files": len(files)}
    seen = collections.Counter((w, s) for _, w, s in files)
    for (w, s), n in seen.items():
        if n > 1:
            errors_all.append(f"{name}: {n} files are worker {w} span {s}; only one of them is shown")
    try:
        run = RunLoader(name, run_dir, cache).load()
    except Exception as ex:
        where = traceback.extract_tb(ex.__traceback__)[-1]
        errors_all.append(f"{name}: the run does not appear at all, none of its workers: {type(ex).__name__}: {ex} "
                          f"(at {os.path.basename(where.filename)}:{where.lineno}); in communication.py this means "
                          'an "nccl:..." event whose "Input Dims" has no matching "Input type", or nested dims')
        return result
    comm_files = 0
    for path, worker, span in files:
        errors, warnings = [], []
        # as the loader does it: a repeated span gets the highest index
        index = None if span is None else len([x for x in spans[worker] if x <= span])
        key = (worker, "default" if index is None else str(index))
        full = os.path.join(run_dir, path)
        profile = run.profiles.get(key)
        entry = {"file": path, "span": key[1]}
        if profile is None:
            errors.append("not loaded: " + reparse(worker, index, full, cache_dir))
        else:
            raw = read_raw(full)
            try:
                trace = json.loads(raw, strict=False)
            except ValueError as ex:
                errors.append(f"not strict JSON ({ex}); the plugin repaired it into a temporary file")
                raw = read_raw(profile.trace_file_path)
                trace = json.loads(raw)
            more, facts = check_profile(profile, raw, trace, errors, warnings)
            entry.update(more)
            comm_files += facts["comm_ops"] > 0
        entry["errors"], entry["warnings"] = errors, warnings
        result["workers"].setdefault(worker, []).append(entry)
        errors_all += [f"{name}/{path}: {e}" for e in errors]
        warnings_all += [f"{name}/{path}: {w}" for w in warnings]

    dist = {s: p for (w, s), p in run.profiles.items() if w == "All"}
    result["distributed"] = {
        s: {"gpu_info": p.gpu_info and p.gpu_info["data"],
            "overlap_us[compute,overlap,comm,other]": p.steps_to_overlap["data"].get("all"),
            "wait_us[transfer,sync]": p.steps_to_wait["data"].get("all"),
            "collectives": {w: {r[0]: {"calls": r[1], "bytes": r[2], "latency_us": r[4]} for r in t["rows"]}
                            for w, t in p.comm_ops["data"].items()}} for s, p in dist.items()} or None
    if 0 < comm_files < len(files):
        warnings_all.append(f"{name}: only {comm_files} of {len(files)} files have collectives known to the plugin; "
                            "one file without them hides the Distributed view")
    elif comm_files and not dist:
        errors_all.append(f"{name}: view Distributed is missing although every worker has collectives: the number "
                          "of collectives, or of time ranges of one of them, differs between workers")
    for s, p in dist.items():
        attempt(errors_all, f"{name}: Distributed view (span {s}) failed",
                lambda p=p: [p.gpu_info, p.steps_to_overlap, p.steps_to_wait, p.comm_ops])
        for w, t in p.comm_ops["data"].items():
            if any(r[2] == 0 for r in t["rows"]):
                warnings_all.append(f"{name}: worker {w}: collectives without size: give the nccl: op args "
                                    '"Input Dims" and "Input type" (C++ type names such as float, c10::Half)')
    result["views"] = [v.display_name for v in run.views]
    return result


def http_check(logdir, port, errors):
    with socket.socket() as s:
        if s.connect_ex(("127.0.0.1", port)) == 0:
            errors.append(f"http: port {port} is taken")
            return None
    exe = os.path.join(os.path.dirname(sys.executable), "tensorboard")
    cmd = [exe] if os.path.exists(exe) else [sys.executable, "-m", "tensorboard.main"]
    log = tempfile.TemporaryFile()
    proc = subprocess.Popen(cmd + ["--logdir", logdir, "--host", "127.0.0.1", "--port", str(port)],
                            stdout=log, stderr=subprocess.STDOUT)
    base = f"http://127.0.0.1:{port}/data/plugin/pytorch_profiler/"

    def get(route, **query):
        url = base + route + ("?" + urllib.parse.urlencode(query) if query else "")
        with urllib.request.urlopen(url, timeout=120) as r:
            body = r.read()
            if r.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            return json.loads(body)

    done = {}
    try:
        end = time.time() + 180
        runs = None
        while time.time() < end:
            try:
                runs = get("runs")
                if runs["runs"] and not runs["loading"]:
                    break
            except (OSError, ValueError):
                pass
            if proc.poll() is not None:
                break
            time.sleep(1)
        if not runs or not runs["runs"]:
            log.seek(0)
            errors.append("http: TensorBoard shows no run; log ends: " +
                          log.read()[-600:].decode("utf-8", "replace"))
            return None
        routes = {"Overview": ["overview"], "Trace": ["trace"], "Module": ["module", "tree"],
                  "Operator": ["operation", "operation/table"], "Kernel": ["kernel", "kernel/table", "kernel/tc_pie"],
                  "Memory": ["memory", "memory_curve", "memory_events"],
                  "Distributed": ["distributed/gpuinfo", "distributed/overlap", "distributed/waittime",
                                  "distributed/commops"]}
        for run in runs["runs"]:
            for view in get("views", run=run):
                for worker in get("workers", run=run, view=view):
                    for span in get("spans", run=run, worker=worker) or ["default"]:
                        for route in routes.get(view, []):
                            try:
                                get(route, run=run, worker=worker, span=span)
                                done[route] = done.get(route, 0) + 1
                            except (OSError, ValueError) as ex:
                                errors.append(f"http: {run}/{worker}/{span} {route}: {ex}")
        return done
    finally:
        proc.terminate()
        try:
            proc.wait(20)
        except subprocess.TimeoutExpired:
            proc.kill()


def main():
    ap = argparse.ArgumentParser(description="Check traces with torch-tb-profiler 0.4.3", epilog="See the docstring.")
    ap.add_argument("logdir")
    ap.add_argument("--strict", action="store_true", help="warnings (degraded data) count as errors")
    ap.add_argument("--expect", nargs="+", default=[], choices=VIEWS, help="views every run must have")
    ap.add_argument("--forbid", nargs="+", default=[], choices=VIEWS, help="views no run may have")
    ap.add_argument("--http", type=int, metavar="PORT", help="also ask a TensorBoard started on 127.0.0.1:PORT")
    ap.add_argument("--out", help="write the JSON here instead of stdout")
    args = ap.parse_args()
    if not os.path.isdir(args.logdir):
        print(f"tb_plugin_check: no folder {args.logdir}", file=sys.stderr)
        return 2
    os.environ.setdefault("TORCH_PROFILER_LOG_LEVEL", "CRITICAL")
    try:
        import torch_tb_profiler
        from torch_tb_profiler import io, utils
        import numpy
        import pandas
    except ImportError as ex:
        print(f"tb_plugin_check: {ex}; see the docstring for the packages", file=sys.stderr)
        return 2
    logging.getLogger("pytorch_profiler").setLevel(logging.CRITICAL + 1)
    errors, warnings = [], []
    logdir = os.path.abspath(args.logdir)
    report = {"plugin": torch_tb_profiler.__version__, "pandas": pandas.__version__, "numpy": numpy.__version__,
              "runs": {}}
    cache_dir = tempfile.mkdtemp()
    try:
        cache = io.Cache(cache_dir)
        for root, dirs, names in os.walk(logdir, followlinks=True):
            dirs.sort()
            if any(utils.is_chrome_trace_file(n) for n in names):
                name = os.path.basename(root) if root == logdir else os.path.relpath(root, logdir)
                report["runs"][name] = check_run(name, root, cache, cache_dir, errors, warnings)
        cache.__exit__(None, None, None)
    finally:
        shutil.rmtree(cache_dir, ignore_errors=True)
    if not report["runs"]:
        errors.append("no file named WORKER[.SPAN].pt.trace.json[.gz] below the folder")
    for name, run in report["runs"].items():
        for view in args.expect:
            if view not in run.get("views", []):
                errors.append(f"{name}: expected view {view} is missing")
        for view in args.forbid:
            if view in run.get("views", []):
                errors.append(f"{name}: view {view} must not be there")
    if args.http:
        report["http"] = http_check(logdir, args.http, errors)
    if args.strict:
        errors += warnings
    report["errors"], report["warnings"] = errors, warnings
    report["ok"] = not errors
    text = json.dumps(report, indent=1, default=str)
    if args.out:
        with open(args.out, "w") as f:
            f.write(text + "\n")
    else:
        print(text)
    for e in errors:
        print("tb_plugin_check: ERROR " + e, file=sys.stderr)
    if not args.strict:
        for w in warnings:
            print("tb_plugin_check: warning " + w, file=sys.stderr)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
