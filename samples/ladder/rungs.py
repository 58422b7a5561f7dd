"""rungs: takes resnet up the rungs of the published case study, and compares each rung with the one below."""

from climb import attempt, promise
from resnet_flags import Settings, difference, follow, spelled
from tables import figure, ranged, table
from timing import Interval

# (name, flags added to those of the rungs below, findings that ask for this fix). On a GPU: the published case study, then what
# guides add. On a CPU: the rungs that apply to a CPU.
RUNGS = {"cpu": [
    ("baseline", "--batch 32 --workers 0 --threads 1 --set-to-none 0", ""),
    ("a loader worker", "--workers 1", "sync-data-loading"),
    ("all cores for operators", "--threads 2", "cores-idle"),
    ("a larger batch", "--batch 64", "small-batch"),
    ("gradients to None", "--set-to-none 1", "zero-grad-kernels"),
    ("a fused optimizer", "--sgd fused", "unfused-optimizer"),
    ("channels last", "--channels-last", "layout-transpose"),
    ("autocast to bfloat16", "--bf16", "tensor-cores-idle"),
], "cuda": [
    ("baseline", "--batch 32 --workers 0 --set-to-none 0", ""),
    ("8 loader workers", "--workers 8", "sync-data-loading loader-bound"),
    ("pinned memory", "--pinned", "h2d-pageable h2d-blocking"),
    ("batch 512", "--batch 512", "small-batch memory-headroom"),
    ("bytes to the device, batch 1024", "--uint8 --batch 1024", "h2d-fp32-input h2d-blocking"),
    ("gradients to None", "--set-to-none 1", "zero-grad-kernels"),
    ("TF32", "--tf32", "tf32-off tensor-cores-idle"),
    ("autocast to float16", "--fp16", "tensor-cores-idle"),
    ("channels last", "--channels-last", "layout-transpose"),
    ("a fused optimizer", "--sgd fused", "unfused-optimizer grad-clip-sync"),
    ("cuDNN's benchmark", "--cudnn-benchmark", "cudnn-benchmark-off"),
    ("a CUDA graph", "--cuda-graph", "launch-bound unfused-pointwise"),
]}


def reason_for(findings, report, below, settings, period=1):
    """Returns the prediction of the first of `findings` in `report`, which is on the rung `below`; {} if there is none. If the
    finding asks for more or less than `settings`, "of_change" names the change that was predicted."""
    for finding in report.findings:
        if finding.id in findings.split() and finding.worth_doing():
            asked = follow(finding, report, below)
            return {**promise(finding, report, below, asked, period),
                    "of_change": "" if spelled(asked) == spelled(settings) else difference(below, asked)}
    return {}


def facts_of(report):
    """Returns the table's text about a profile."""
    busy = sum(report.split.get(cause, 0) for cause in ("compute", "communication")) / report.step_ms
    return {"profiled_ms": report.step_ms, "split_ms": report.split, **({"busy_frac": busy} if report.has_gpu else {})}


def go_up(bench, rungs, pairs, length):
    """Returns the record for --json (README.md). A rung that is not faster, or fails, is dropped: the next rung starts below
    it."""
    name, flags, _ = rungs[0]
    start = below = Settings.of(flags)
    report = bench.profile(below, "profiles/0")
    record = {"version": 2, "machine": report.machine, "rungs": [
        {"name": name, "flags": flags, "kept": True, **facts_of(report)}]}
    for number, (name, flags, findings) in enumerate(rungs[1:], 1):
        settings = below.plus(Settings.of(flags))
        reason = reason_for(findings, report, below, settings, bench.period(below, settings))
        taken = attempt(bench, reason, below, settings, pairs, f"rung {number}", length)
        if "failed" not in taken:
            profile = bench.profile(settings, f"profiles/{number}")
            taken |= facts_of(profile)
            record["rungs"][0] |= {key.removeprefix("before_"): taken[key] for key in taken
                                   if key.startswith("before_samples") and "samples_per_s" not in record["rungs"][0]}
        below, report = (settings, profile) if taken["kept"] else (below, report)
        record["rungs"].append({"name": name, "flags": flags, **taken})
    if below != start:
        runs = bench.compare(start, below, pairs, "the whole ladder", length)
        record["top"] = {"flags": below.text(), "baseline_samples_per_s": runs.before_rate,
                         "samples_per_s": runs.after_rate, **figure("factor", 1 / runs.ratio, runs.interval.inverse())}
    return record


def cells(number, rung):
    def factor(key):
        return ranged(figure("factor", 1 / rung[key], Interval(*rung[f"{key}_interval"].values()).inverse()), "factor")

    predicted, measured, step = "-", "fails" if "failed" in rung else "-", rung.get("profiled_ms", 0)
    if "id" in rung:
        bound = f"at most ×{1 / rung['predicted_ratio']:.2f}"
        predicted = bound if rung["gain_kind"] == "bound" else factor("predicted_ratio")
        predicted += f", of `{rung['of_change']}`" * bool(rung["of_change"])
    if "measured_ratio" in rung:
        measured = factor("measured_ratio") + ", taken back" * (not rung["kept"])
    split = [f"{cause} {ms / step:.0%}" for cause, ms in rung.get("split_ms", {}).items() if ms >= 0.02 * step]
    return (number, rung["name"], f"`{rung['flags']}`", ranged(rung, "samples_per_s", "{:.1f}"),
            f"{step:.1f}" if step else "-", ", ".join(split) or "-",
            f"{rung['busy_frac']:.1%}" if "busy_frac" in rung else "-", rung.get("id", "-"), predicted, measured)


def to_markdown(record, heading):
    """Returns the machine, a table with one line per rung, the programs' errors, and the speed-up of the whole way."""
    head = ("rung", "what", "flags", "samples/s (least to most)", "step recorded, ms", "where it goes", "device busy",
            "finding that led here", "predicted", "measured (95 %)")
    text = f"{heading}\n\n{table(head, [cells(*rung) for rung in enumerate(record['rungs'])])}\n"
    for number, rung in enumerate(record["rungs"]):
        text += f"\nRung {number} fails:\n\n```\n{rung['failed']}\n```\n" if "failed" in rung else ""
    if "top" not in record:
        return f"{text}\nNo rung was faster."
    return (f"{text}\nThe baseline and the top, interleaved: {record['top']['baseline_samples_per_s']:.1f} and"
            f" {record['top']['samples_per_s']:.1f} samples/s, {ranged(record['top'], 'factor')}, at the top with"
            f" `{record['top']['flags']}`.")
