#!/usr/bin/env python3
# A tool from outside this repository, kept unchanged; only this line is ours.
"""Check what TensorBoard's profile plugin (XProf) makes of an exported profile.

Runs XProf's own converter over every `*.xplane.pb` below a TensorBoard log
directory, once per tool the plugin would offer, and prints one JSON document
with a short summary per tool (steps, average step time, input share, kernels,
Tensor Core share, peak memory, trace events, ...).  Exit status:

    0  every required tool gave content and every --expect held
    1  a required tool failed or came out empty, or an --expect did not hold
    2  nothing to check (no profile found, packages missing, bad arguments)

The reasons are repeated as plain lines on stderr.

Needs:  pip install tensorboard tensorboard-plugin-profile
        (the second brings the package `xprof`; written against 2.24.2,
         TensorFlow is not needed)

Usage:  xprof_check.py LOGDIR [--run NAME] [--tools a,b] [--require a,b]
                       [--allow-empty a,b] [--expect 'TOOL.KEY OP VALUE']...
                       [--compact]

        xprof_check.py logs --expect 'overview_page.step_count >= 3' \\
                            --expect 'kernel_stats.tensor_core_pct > 50'

The profile is copied to a temporary directory first, because the converter
leaves cache files next to its input and would later serve stale answers.
By default these tools must give content: trace_viewer@, overview_page,
input_pipeline_analyzer, framework_op_stats, and kernel_stats where the profile
has a GPU plane.  All others may be empty.
"""

import argparse
import collections
import contextlib
import json
import os
import pathlib
import shutil
import sys
import tempfile

SUFFIX = ".xplane.pb"
REQUIRED = ["trace_viewer@", "overview_page", "input_pipeline_analyzer", "framework_op_stats"]
# These take one host's file at a time; the others combine all hosts.
PER_HOST = {"memory_profile", "op_profile", "hlo_stats", "roofline_model", "graph_viewer", "memory_viewer"}


class Empty(Exception):
    """The tool answered, but with nothing to show."""


class NoAnswer(Exception):
    """The converter gave back nothing at all."""


def die(message):
    print("xprof_check: " + message, file=sys.stderr)
    sys.exit(2)


@contextlib.contextmanager
def quiet_stderr(keep):
    """Send file descriptor 2 to the file `keep` while native code runs."""
    sys.stderr.flush()
    saved = os.dup(2)
    os.dup2(keep.fileno(), 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(saved, 2)
        os.close(saved)


# ---------------------------------------------------------------- JSON helpers

def rows_of(table):
    """A DataTable in JSON -> list of dicts keyed by column id."""
    ids = [c.get("id") or c.get("label") for c in table.get("cols", [])]
    return [{i: (cell or {}).get("v") for i, cell in zip(ids, row["c"])} for row in table.get("rows", [])]


def num(value, digits=3):
    try:
        x = float(value)
    except (TypeError, ValueError):
        return value
    return int(x) if x == int(x) and abs(x) < 2**53 else round(x, digits)


def pct(part, whole):
    return round(100.0 * part / whole, 2) if whole else 0.0


def tables_with(data, column):
    return [t for t in data if isinstance(t, dict) and any(c.get("id") == column for c in t.get("cols", []))]


# ------------------------------------------------------------- one per tool

def steps_summary(data):
    found = tables_with(data, "stepTimeMs") or tables_with(data, "stepnum")
    if not found:
        raise Empty("no step table")
    table = found[0]
    props = table.get("p", {})
    rows = rows_of(table)
    out = {
        "step_count": len(rows),
        "steps": [r.get("stepnum") for r in rows][:50],
        "step_ms_avg": num(props.get("steptime_ms_average")),
        "step_ms_min": num(props.get("steptime_ms_minimum")),
        "step_ms_max": num(props.get("steptime_ms_maximum")),
        "hardware": props.get("hardware_type"),
        "conclusion": props.get("input_conclusion", ""),
    }
    for key, name in (("device_compute", "device_compute"), ("device_to_device", "device_to_device"),
                      ("device_collectives", "collectives"), ("host_compute", "host_compute"),
                      ("kernel_launch", "kernel_launch"), ("infeed", "input"), ("outfeed", "output"),
                      ("compile", "compile"), ("other", "other")):
        if f"{key}_time_ms_avg" in props:
            out[name + "_ms_avg"] = num(props[f"{key}_time_ms_avg"])
    total = sum(r.get("stepTimeMs") or 0 for r in rows)
    out["input_pct"] = pct(sum(r.get("infeedTimeMs") or 0 for r in rows), total)
    return out


def overview_page(data):
    out = steps_summary(data)
    for table in data:
        props = table.get("p", {}) if isinstance(table, dict) else {}
        if "device_type" in props:
            out["device_type"] = props["device_type"]
            out["device_core_count"] = num(props.get("device_core_count"))
            out["host_count"] = num(props.get("host_count"))
            out["is_training"] = props.get("is_training") == "true"
        if "device_compute_16bit_percent" in props:
            out["compute_16bit_pct"] = num(props["device_compute_16bit_percent"].rstrip("%"))
            out["top_device_ops"] = len(table.get("rows", []))
        if "bottleneck" in props:
            out["bottleneck"] = props["bottleneck"]
    notes = [r for t in tables_with(data, "severity") for r in rows_of(t)]
    out["diagnostics"] = collections.Counter(str(r.get("severity")) for r in notes)
    out["messages"] = [str(r.get("message"))[:200] for r in notes][:10]
    if not out["step_count"]:
        raise Empty("no step was recognised: " + "; ".join(out["messages"]))
    return out


def input_pipeline_analyzer(data):
    out = steps_summary(data)
    ops = [r for t in tables_with(data, "opName") for r in rows_of(t)]
    out["input_ops"] = {r["opName"]: {"count": num(r.get("count")), "self_ms": num(r.get("selfTimeInMs")),
                                      "category": r.get("category")} for r in ops[:20]}
    if not out["step_count"]:
        raise Empty("no step was recognised")
    return out


def framework_op_stats(data):
    rows = rows_of(data[0] if isinstance(data, list) else data)
    out = {"rows": len(rows)}
    for side in ("Device", "Host"):
        mine = [r for r in rows if r.get("host_or_device") == side]
        total = sum(r.get("total_self_time") or 0 for r in mine)
        ops = [r for r in mine if r.get("type") != "IDLE"]
        out[side.lower()] = {
            "ops": len(ops),
            "self_ms": num(sum(r.get("total_self_time") or 0 for r in ops) / 1e3),
            "idle_pct": pct(sum(r.get("total_self_time") or 0 for r in mine if r.get("type") == "IDLE"), total),
            "top": ops[0].get("operation") if ops else None,
            "with_flops": sum(1 for r in ops if r.get("measured_flop_rate")),
        }
    if not out["device"]["ops"] and not out["host"]["ops"]:
        raise Empty("no op on device or host")
    return out


def kernel_stats(data):
    rows = rows_of(data)
    if not rows:
        raise Empty("no kernel")
    total = sum(r["total_duration_us"] for r in rows)
    weigh = lambda test: sum(r["total_duration_us"] for r in rows if test(r))
    return {
        "rows": len(rows),
        "kernels": len({r["kernel_name"] for r in rows}),
        "launches": num(sum(r["occurrences"] for r in rows)),
        "total_ms": num(total / 1e3),
        "tensor_core_pct": pct(weigh(lambda r: r["is_kernel_using_tensor_core"]), total),
        "tensor_core_eligible_pct": pct(weigh(lambda r: r["is_op_tensor_core_eligible"]), total),
        "occupancy_pct_time_weighted": num(sum(r["occupancy_pct"] * r["total_duration_us"] for r in rows) / total)
        if total else 0,
        "named_op_pct": pct(weigh(lambda r: r["op_name"]), total),
        "top": rows[0]["kernel_name"][:100],
    }


def memory_profile(data):
    out = {}
    for name, mem in data.get("memoryProfilePerAllocator", {}).items():
        peak = mem.get("profileSummary", {}).get("peakStats", {})
        out[name] = {
            "peak_bytes": num(peak.get("peakBytesInUse", 0)),
            "lifetime_peak_bytes": num(mem.get("profileSummary", {}).get("peakBytesUsageLifetime", 0)),
            "capacity_bytes": num(mem.get("profileSummary", {}).get("memoryCapacity", 0)),
            "fragmentation": num(peak.get("fragmentation", 0)),
            "timeline_points": len(mem.get("sampledTimelineSnapshots", [])),
            "allocations_at_peak": len(mem.get("activeAllocations", [])),
        }
    if not out:
        raise Empty("no MemoryAllocation/MemoryDeallocation event")
    return {"allocators": out, "peak_bytes": max(a["peak_bytes"] for a in out.values())}


def op_profile(data):
    top = next((v for k, v in data.items() if k.startswith("by") and not k.endswith("ExcludeIdle")), {})
    leaves = []

    def walk(node):
        kids = node.get("children", [])
        if not kids and node.get("name") != "IDLE":
            leaves.append(node)
        for kid in kids:
            walk(kid)

    walk(top)
    metrics = top.get("metrics", {})
    if not top.get("children"):
        raise Empty("no op")
    return {"device": data.get("deviceType"), "ops": len(leaves), "total_ms": num(metrics.get("rawTime", 0) / 1e9),
            "flops": num(metrics.get("rawFlops", 0)), "flops_utilization_pct": num(100 * metrics.get("flops", 0)),
            "groups": [c.get("name") for c in top["children"]][:10]}


def hlo_stats(data):
    rows = [r for r in rows_of(data) if r.get("category") != "IDLE"]
    if not rows:
        raise Empty("no op")
    return {"rows": len(rows), "with_flops": sum(1 for r in rows if r.get("model_flop_rate")),
            "top": rows[0].get("hlo_op_name")}


def roofline_model(data):
    table = data[0]
    # Each op comes twice, with and without infeed/outfeed; one of them is enough.
    props = table.get("p", {})
    rows = [r for r in rows_of(table) if r.get("include_infeed_outfeed") is not False]
    program = [r for r in rows if r.get("step") == "Total" and r.get("category") == "Program"]
    ops = [r for r in rows if r.get("step") == "Total" and r.get("category") not in ("Program", "IDLE")]
    if not ops:
        raise Empty("no op (a GPU or TPU profile is needed)")
    return {"device_type": props.get("device_type"), "peak_gflops": num(props.get("peak_flop_rate")),
            "peak_hbm_gib_s": num(props.get("peak_hbm_bw")), "ops": len(ops),
            "ops_with_flops": sum(1 for r in ops if r.get("measured_flop_rate")),
            "program_gflops": num(program[0].get("measured_flop_rate")) if program else 0,
            "program_efficiency_pct": num(100 * (program[0].get("roofline_efficiency") or 0)) if program else 0,
            "bound_by": collections.Counter(str(r.get("bound_by")) for r in ops)}


def trace_viewer(data):
    events = data.get("traceEvents", [])
    process, thread, phases = {}, {}, collections.Counter()
    per_row, flows, counters = collections.Counter(), 0, 0
    lo, hi = float("inf"), float("-inf")
    for e in events:
        kind = e.get("ph")
        if kind == "M":
            if e.get("name") == "process_name":
                process[e["pid"]] = e["args"]["name"]
            elif e.get("name") == "thread_name":
                thread[(e["pid"], e["tid"])] = e["args"]["name"]
            continue
        if kind is None:
            continue
        phases[kind] += 1
        if kind == "C":
            counters += len(e.get("entries", [1]))
        if kind == "X":
            per_row[(e["pid"], e.get("tid"))] += 1
            lo, hi = min(lo, e["ts"]), max(hi, e["ts"] + e.get("dur", 0))
        if "bind_id" in e or "flow" in e.get("args", {}):
            flows += 1
    if not phases:
        raise Empty("no event")
    out = {"events": sum(phases.values()), "by_phase": dict(phases), "flow_ends": flows, "counter_points": counters,
           "span_ms": num((hi - lo) / 1e3) if hi > lo else 0, "rows": {}}
    for (pid, tid), count in sorted(per_row.items(), key=lambda kv: (kv[0][0], str(kv[0][1]))):
        out["rows"].setdefault(process.get(pid, str(pid)), {})[thread.get((pid, tid), str(tid))] = count
    return out


SUMMARY = {
    "overview_page": overview_page, "input_pipeline_analyzer": input_pipeline_analyzer,
    "framework_op_stats": framework_op_stats, "kernel_stats": kernel_stats, "memory_profile": memory_profile,
    "op_profile": op_profile, "hlo_stats": hlo_stats, "roofline_model": roofline_model,
    "trace_viewer": trace_viewer, "trace_viewer@": trace_viewer,
}


# ----------------------------------------------------------------- running it

class Session:
    """The files of one run, copied aside, and XProf's converter on them."""

    def __init__(self, run_dir, work, convert):
        self.convert = convert
        self.dir = pathlib.Path(work)
        self.files = {}
        for src in sorted(run_dir.glob("*" + SUFFIX)):
            dst = self.dir / src.name
            shutil.copyfile(src, dst)
            self.files[src.name[:-len(SUFFIX)]] = str(dst)
        self.log = open(self.dir / "stderr.txt", "w+b")

    def call(self, function, *args):
        self.mark = os.fstat(self.log.fileno()).st_size
        with quiet_stderr(self.log):
            return function(*args)

    def tools(self):
        return self.call(self.convert.xspace_to_tool_names, list(self.files.values()))

    def raw(self, tool, hosts, **params):
        params.setdefault("use_saved_result", False)
        files = [self.files[h] for h in hosts]
        data, _ = self.call(self.convert.xspace_to_tool_data, files, tool, dict(params, hosts=list(hosts)))
        if data is None or len(data) == 0:
            raise NoAnswer("the converter returned nothing" + self.tail())
        return data.decode("utf-8", "replace") if isinstance(data, (bytes, bytearray)) else data

    def tail(self):
        """The last error the native code logged during the latest call, as ' [...]'."""
        new = (self.dir / "stderr.txt").read_bytes()[self.mark:].decode("utf-8", "replace")
        bad = [s.split("] ", 1)[-1] for s in new.splitlines() if s[:1] in ("E", "F") and s[1:5].isdigit()]
        bad = [s for s in bad if "UnifiedProfileProcessor" not in s]
        return " [" + bad[-1].replace(str(self.dir) + os.sep, "")[:300] + "]" if bad else ""

    def summary(self, tool, hosts):
        if tool == "graph_viewer":
            names = sorted(p.name[:-len(".hlo_proto.pb")] for p in self.dir.glob("*.hlo_proto.pb"))
            names = [n for n in names if n != "NO_MODULE"]
            if not names:
                raise Empty("no HLO module")
            text = self.raw(tool, hosts, graph_viewer_options={"module_name": names[0], "type": "short_txt"})
            return {"modules": names, "first_module_chars": len(text)}
        if tool == "memory_viewer":
            raise Empty("not checked: needs an XLA buffer assignment")
        if tool not in SUMMARY:
            return {"chars": len(self.raw(tool, hosts))}
        return SUMMARY[tool](json.loads(self.raw(tool, hosts)))

    def check(self, tool):
        hosts = list(self.files)
        groups = [[h] for h in hosts] if tool in PER_HOST and len(hosts) > 1 else [hosts]
        answers = []
        for group in groups:
            try:
                answers.append(dict(status="ok", **self.summary(tool, group)))
            except Empty as why:
                answers.append({"status": "empty", "why": str(why)})
            except NoAnswer as why:  # memory_profile says nothing where there is no /host:CPU plane
                answers.append({"status": "empty" if tool == "memory_profile" else "error", "why": str(why)})
            except Exception as why:  # any failure of the converter or an answer of another shape
                answers.append({"status": "error", "why": f"{type(why).__name__}: {why}"[:600]})
        if len(answers) == 1:
            return answers[0]
        worst = max((a["status"] for a in answers), key=["ok", "empty", "error"].index)
        why = "; ".join(f"{g[0]}: {a['why']}" for g, a in zip(groups, answers) if "why" in a)
        out = {"status": worst, "hosts": {g[0]: a for g, a in zip(groups, answers)}}
        return dict(out, why=why) if why else out


def find_runs(logdir):
    runs = {}
    for path in sorted(logdir.glob("**/plugins/profile/*/*" + SUFFIX)):
        runs[str(path.parent.relative_to(logdir))] = path.parent
    if not runs and list(logdir.glob("*" + SUFFIX)):
        runs["."] = logdir
    return runs


OPS = {
    ">=": lambda a, b: a >= b, "<=": lambda a, b: a <= b, "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b, ">": lambda a, b: a > b, "<": lambda a, b: a < b, "~": lambda a, b: str(b) in str(a),
}


def look_up(tools, path):
    """overview_page.step_count -> value; keys may themselves hold dots or slashes."""
    node, left = tools, path
    while left:
        if not isinstance(node, dict):
            raise KeyError(path)
        key = next((k for k in sorted(node, key=len, reverse=True) if left == k or left.startswith(k + ".")), None)
        if key is None:
            raise KeyError(path)
        node, left = node[key], left[len(key) + 1:]
    return node


def check_expectation(text, tools):
    for op in (">=", "<=", "==", "!=", ">", "<", "~"):
        if op in text:
            path, want = (s.strip() for s in text.split(op, 1))
            break
    else:
        die(f"--expect {text!r}: no operator")
    try:
        have = look_up(tools, path)
    except KeyError:
        return f"expected {text}, but there is no value {path}"
    try:
        want = json.loads(want)
    except ValueError:
        pass
    try:
        held = OPS[op](have, want)
    except TypeError:
        held = False
    return None if held else f"expected {text}, but {path} is {json.dumps(have)}"


def main():
    parser = argparse.ArgumentParser(description="Check an exported profile with XProf's own converter.")
    parser.add_argument("logdir", type=pathlib.Path)
    parser.add_argument("--run", help="only runs whose path ends with this name")
    parser.add_argument("--tools", help="only these tools, comma separated")
    parser.add_argument("--require", default="", help="more tools that must give content")
    parser.add_argument("--allow-empty", default="", help="tools that may be empty")
    parser.add_argument("--expect", action="append", default=[], metavar="'TOOL.KEY OP VALUE'")
    parser.add_argument("--compact", action="store_true", help="JSON on one line")
    args = parser.parse_args()

    if not args.logdir.is_dir():
        die(f"{args.logdir} is not a directory")
    runs = {n: d for n, d in find_runs(args.logdir).items() if not args.run or n.split("/")[-1] == args.run}
    if not runs:
        die(f"no plugins/profile/<run>/<host>{SUFFIX} below {args.logdir}" + (f" for run {args.run}" if args.run else ""))
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    try:
        from xprof.convert import raw_to_tool_data as convert
        from xprof import version
    except ImportError as why:
        die(f"cannot import xprof ({why}); pip install tensorboard tensorboard-plugin-profile")

    split = lambda s: [x for x in s.split(",") if x]
    report, problems = {"xprof": version.__version__, "runs": {}}, []
    for name, run_dir in runs.items():
        with tempfile.TemporaryDirectory(prefix="xprof_check_") as work:
            session = Session(run_dir, work, convert)
            offered = session.tools()
            if not offered:
                problems.append(f"{name}: XProf offers no tool (is the file a valid XSpace?)" + session.tail())
                report["runs"][name] = {"hosts": list(session.files), "tools": {}}
                continue
            required = set(REQUIRED) | set(split(args.require))
            if "kernel_stats" in offered:
                required.add("kernel_stats")
            required -= set(split(args.allow_empty))
            chosen = split(args.tools or "") or offered
            # HLO modules are extracted as a side effect of the first tools, so graph_viewer goes last.
            chosen = sorted(chosen, key=lambda t: t in ("graph_viewer", "memory_viewer"))
            tools = {tool: session.check(tool) for tool in chosen}
            report["runs"][name] = {"hosts": list(session.files), "offered": offered, "tools": tools}
            for tool, answer in tools.items():
                if answer["status"] == "error" or (answer["status"] == "empty" and tool in required):
                    problems.append(f"{name}: {tool}: {answer['status']}: {answer.get('why', '')}")
            if not args.tools:
                problems += [f"{name}: {t}: not offered by XProf" for t in sorted(required - set(offered))]
            problems += [f"{name}: {p}" for p in (check_expectation(e, tools) for e in args.expect) if p]
            session.log.close()
    report["problems"] = problems
    print(json.dumps(report, indent=None if args.compact else 1, ensure_ascii=False))
    for problem in problems:
        print("xprof_check: " + problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
