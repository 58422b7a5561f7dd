"""The parts of a slot on a GPU: what each part records, and how the recording is judged."""

from __future__ import annotations

import gzip
import json
import pathlib
import re
import shutil
import statistics
from collections.abc import Callable

from slot_engine import ROOT, Part, PartFailed, Place, TimeOver, last_line

DOCTOR_TOPICS = ("driver", "CUPTI", "subscription", "permissions")  # needed for recording; the others are about viewers
COST_ROUNDS = 5
COST_BOUND = 0.35  # maximum ratio of what we and Kineto add to a step
# The first step of the published case study, and what stepscope says about it.
BASELINE = ("--batch", "32", "--workers", "0", "--set-to-none", "0")
# Numbers of steps, pairs and profiles that fit into the time of a borrowed GPU.
RUNGS = ("rungs", "--device", "cuda", "--side", "224", "--pairs", "2", "--steps", "12", "--active", "4")
CLIMB = ("climb", "--device", "cuda", "--side", "224", "--pairs", "3", "--steps", "16", "--active", "6", "--profiles", "1", "--no-sweep",
         "--max-changes", "10", f"--start={' '.join(BASELINE)}")
COUNTERS_HZ = 1000
COUNTERS = {"sm_active_frac": "SMs active", "tensor_active_frac": "Tensor Cores active", "dram_frac": "memory bandwidth"}
# Tried with a fake, on two cores.
FAKE_RUNGS = ("rungs", "--side", "16", "--pairs", "2", "--steps", "8", "--active", "2")
FAKE_CLIMB = ("climb", "--side", "16", "--pairs", "2", "--steps", "8", "--active", "4", "--profiles", "1", "--no-sweep", "--max-changes", "1")
FAKE_PROGRAMS = ("rgcn_boolean_masks", "gpt_manual_attention")
FAKE_GALLERY = ("validation-mode", "debug-api-on")


def record_stages(*stages: str, **env: str) -> Callable[[Place], None]:
    """Returns a part's `record` that runs these stages in one process."""
    def record(place: Place) -> None:
        gpu_program(place, place.folder, *stages, env=env)
    return record


def gpu_program(place: Place, folder: pathlib.Path, *stages: str, env: dict[str, str] | None = None, check: bool = True) -> int:
    done = place.run(place.program("gpu_program"), folder, *stages, env=env or {}, check=check, preload=True)
    for trace in folder.glob("*_kineto.json"):  # megabytes, which gzip shrinks to a tenth
        with open(trace, "rb") as plain, gzip.open(f"{trace}.gz", "wb", compresslevel=6) as packed:
            shutil.copyfileobj(plain, packed)
        trace.unlink()
    return done.returncode


def record_tests(place: Place) -> None:
    """Uses one process per stage, so that no recorder is affected by another one."""
    for stage in ("ours", "kineto", "kineto"):
        gpu_program(place, place.folder, stage)


def judged_by(*programs: tuple[str, str]) -> Callable[[Place], str]:
    """Returns a part's `judge` that runs these test programs with their filters."""
    def judge(place: Place) -> str:
        return "\n".join(run_tests(place, *one) for one in programs)
    return judge


def run_tests(place: Place, program: str, only: str) -> str:
    """Returns how many tests passed, and the measurements they printed. On a GPU, a skipped test counts as failed."""
    done = place.run(place.program(program), f"--gtest_filter={only}", check=False)
    names = {word: re.findall(rf"^\[ +{word} +\] (\w[^\s,]*)(?:,.*)? \(\d+ ms", done.out, re.M) for word in ("OK", "FAILED", "SKIPPED")}
    measured = [line for line in done.out.splitlines() if line.startswith("launch to kernel")]
    text = "\n".join([f"{program}: {len(names['OK'])} passed, {len(names['SKIPPED'])} skipped", *measured])
    failed = names["FAILED"] + ([] if place.fake else [f"{name} (skipped)" for name in names["SKIPPED"]])
    if failed:
        raise PartFailed("\n".join([f"{program}: {', '.join(failed)}", *measured]))
    if done.returncode != 0 or not (names["OK"] or names["SKIPPED"]):
        raise PartFailed(f"{program} ended with {done.returncode} and ran no test to its end: {last_line(done.out)}")
    return text


def record_doctor(place: Place) -> None:
    done = place.run(place.program("stepscope"), "doctor", "--python", place.python, check=False, preload=True)
    (place.folder / "doctor.txt").write_text(done.out)


def judge_doctor(place: Place) -> str:
    """Ignores what the doctor says about viewers, which are not needed here."""
    text = (place.folder / "doctor.txt").read_text()
    lines = {topic: line for line in text.splitlines() for topic in DOCTOR_TOPICS if line.split()[1:2] == [topic]}
    wrong = [lines.get(topic, f"no line about {topic}") for topic in DOCTOR_TOPICS if not lines.get(topic, "").startswith("ok")]
    if wrong:
        raise PartFailed("\n".join(wrong))
    return "\n".join(lines.values())


def record_overhead(place: Place) -> None:
    """Alternates recorders, because a machine drifts. Each process also measures its own steps without a recorder."""
    for number in range(2 if place.fake else COST_ROUNDS):
        for stage in ("cost-ours", "cost-kineto")[::1 if number % 2 else -1]:
            gpu_program(place, place.folder, stage)


def judge_overhead(place: Place) -> str:
    added: dict[str, list[float]] = {"ours": [], "kineto": []}
    off = []
    for name, values in added.items():
        for file in sorted(place.folder.glob(f"*_cost-{name}.json")):
            run = json.loads(file.read_text())
            without = statistics.median(run["off_us"])
            off.append(without)
            values.append(statistics.median(run["on_us"]) - without)
    ours, kineto = (statistics.median(values) for values in added.values())
    step = statistics.median(off)
    found = {"step_us": step, "ours_us": added["ours"], "kineto_us": added["kineto"], "ratio": ours / kineto if kineto > 0 else None}
    (place.folder / "overhead.json").write_text(json.dumps(found, indent=1) + "\n")
    spans = [f"{statistics.median(values):.1f} us ({min(values):.1f} to {max(values):.1f})" for values in added.values()]
    text = f"a step of {step:.1f} us: stepscope adds {spans[0]}, Kineto {spans[1]}"
    if kineto <= 0:
        raise PartFailed(f"{text}: no ratio, as Kineto adds nothing that can be measured")
    text += f"; ratio {ours / kineto:.2f}"
    if place.fake:
        return text + ", not judged: a fake GPU"
    if ours > COST_BOUND * kineto:
        raise PartFailed(f"{text}, must be at most {COST_BOUND}")
    return text


CUPTI_COSTS = ("cost-subscribed", "cost-kernels", "cost-launches", "cost-calls")


def record_causes(place: Place) -> None:
    for stage in CUPTI_COSTS * (1 if place.fake else 2):
        gpu_program(place, place.folder, stage)


def judge_causes(place: Place) -> str:
    """Measures what each part of CUPTI adds to a step; each measurement includes the parts before it."""
    lines = []
    for stage in CUPTI_COSTS:
        added = []
        for file in sorted(place.folder.glob(f"*_{stage}.json")):
            run = json.loads(file.read_text())
            added.append(statistics.median(run["on_us"]) - statistics.median(run["off_us"]))
        lines.append(f"{stage}: {statistics.mean(added):.0f} us ({min(added):.0f} to {max(added):.0f})")
    return "\n".join(lines)


def record_orders(place: Place) -> None:
    """Runs recorders one after the other in one process, with every value of TEARDOWN_CUPTI. A failure is a finding, not the
    end."""
    for teardown in ("unset", "0", "1"):
        env = {} if teardown == "unset" else {"TEARDOWN_CUPTI": teardown}
        for stages in ("ours kineto ours", "kineto ours kineto ours"):
            folder = place.folder / f"teardown_{teardown}" / stages.replace(" ", "_")
            status = gpu_program(place, folder, *stages.split(), env=env, check=False)
            (folder / "status.json").write_text(json.dumps({"teardown": teardown, "stages": stages.split(), "status": status}) + "\n")


def kernels_in(place: Place, trace: pathlib.Path) -> int:
    done = place.run(place.program("stepscope"), "info", "--format", "json", trace, check=False)
    if done.returncode != 0:
        return -1
    info = json.loads(done.out)
    return sum(gpu["kernels"] for gpu in info["gpu"].values())


def judge_orders(place: Place) -> str:
    lines, wrong = [], []
    for file in sorted(place.folder.rglob("status.json")):
        run, found = json.loads(file.read_text()), []
        traces = {int(trace.name.split("_")[0]): trace for trace in file.parent.glob("*_*.json.gz")}
        for number, stage in enumerate(run["stages"]):
            count = kernels_in(place, traces[number]) if number in traces else -1
            found.append(f"{stage} {count if count >= 0 else 'no file'}")
            if number == 0 and stage == "ours" and count <= 0:
                wrong.append(f"TEARDOWN_CUPTI {run['teardown']}: our first recording has no kernels")
        ended = "" if run["status"] == 0 else f"; ended with {run['status']}"
        lines.append(f"TEARDOWN_CUPTI {run['teardown']}, kernels seen: {', '.join(found)}{ended}")
        if run["status"] < 0:
            wrong.append(f"TEARDOWN_CUPTI {run['teardown']}, {' '.join(run['stages'])}: the process crashed ({run['status']})")
    (place.folder / "orders.txt").write_text("\n".join(lines) + "\n")
    if wrong or not lines:
        raise PartFailed("\n".join(wrong + lines) or "nothing was recorded")
    return "\n".join(lines)


def resnet(place: Place, *flags: str, env: dict[str, str] | None = None) -> None:
    device = () if place.fake else ("--device", "cuda")
    side = "32" if place.fake else "224"
    place.run(place.program("resnet"), "--data", "fakecifar", "--side", side, *device, "--log-dir", place.folder / "log", *flags,
              env=env or {}, preload=True)


def record_graphs(place: Place) -> None:
    resnet(place, "--batch", "32" if not place.fake else "4", *(() if place.fake else ("--cuda-graph",)),
           "--wait", "4", "--warmup", "2", "--active", "3", "--repeat", "2")
    for trace in place.folder.glob("log/stepscope/*/c?/trace/rank0.json.gz"):
        shutil.copyfile(trace, place.folder / f"graphs_{trace.parents[1].name}.json.gz")


def record_counters(place: Place) -> None:
    resnet(place, *(("--batch", "4") if place.fake else (*BASELINE, "--bf16")), "--wait", "3", "--warmup", "3", "--active", "6",
           env={"STEPSCOPE_GPU_COUNTERS": str(COUNTERS_HZ)})


def judge_counters(place: Place) -> str:
    """Returns what the window's hardware counters show, and checks that they are plausible."""
    trace = next(iter(sorted(place.folder.glob("log/stepscope/*/c0/trace/rank0.json.gz"))), None)
    if trace is None:
        raise PartFailed("nothing was recorded")
    with gzip.open(trace, "rt", encoding="utf-8") as file:
        ours = json.load(file)["stepscope"]
    samples = [sample for sample in ours.get("device_samples", []) if sample.get("counted_ns", 0) > 0]
    if not samples:
        why = [loss["detail"] for loss in ours.get("losses", []) if loss["name"].startswith("cupti-counters")]
        raise PartFailed(f"no samples: {'; '.join(why) or 'and no loss says why'}")
    counted_s = sum(sample["counted_ns"] for sample in samples) / 1e9
    lines = [f"{len(samples)} samples in {counted_s:.2f} s, {len(samples) / counted_s:.0f} a second"]
    wrong = []
    for key, what in COUNTERS.items():
        values = [sample[key] for sample in samples if key in sample]
        if not values:
            lines.append(f"{what}: not counted")
            continue
        lines.append(f"{what}: mean {statistics.mean(values):.1%}, at most {max(values):.1%}")
        if not all(0 <= value <= 1 for value in values):
            wrong.append(f"{what}: not a share")
        if max(values) == 0 and not place.fake:  # 16-bit products use all three
            wrong.append(f"{what}: always 0")
    if counted_s * COUNTERS_HZ > 1.5 * len(samples) or counted_s * COUNTERS_HZ < len(samples) / 1.5:
        wrong.append(f"{COUNTERS_HZ} a second were asked for")
    lines += [loss["detail"] for loss in ours.get("losses", []) if loss["name"].startswith("cupti-counters")]
    (place.folder / "counters.txt").write_text("\n".join(lines) + "\n")
    if wrong:
        raise PartFailed("\n".join(wrong + lines))
    return "\n".join(lines)


def record_baseline(place: Place) -> None:
    flags = ("--batch", "4") if place.fake else BASELINE
    resnet(place, *flags, "--wait", "3", "--warmup", "3", "--active", "6")
    analyze(place)


def analyze(place: Place) -> None:
    """Writes report.txt and report.json for the contents of log/."""
    for form in ("text", "json"):
        done = place.run(place.program("stepscope"), "analyze", "--format", form, place.folder / "log")
        (place.folder / f"report.{'txt' if form == 'text' else form}").write_text(done.out)


def judge_baseline(place: Place) -> str:
    report = json.loads((place.folder / "report.json").read_text())
    step = report["steps"]["mean_ms"]
    busy = sum(report["time_split_ms"].get(cause, 0) for cause in ("compute", "communication"))
    first = report["findings"][0]["id"] if report["findings"] else "none"
    if not report["has_gpu"]:
        raise PartFailed("the report knows of no GPU")
    return f"step {step:.1f} ms, device busy {busy / step:.1%} (published: 80 ms, 31.65 %); first finding: {first}"


def package_env(place: Place) -> dict[str, str]:
    """The environment of a Python that imports stepscope from this tree, with the libraries of the pack or the build."""
    native = place.bin if (place.bin / "libstepscope_core.so").exists() else place.bin.parent / "lib"
    return {"PYTHONPATH": str(ROOT / "plugins/python"), "STEPSCOPE_NATIVE_DIR": str(native)}


def record_python(place: Place) -> None:
    flags = ("--device", "cpu", "--side", "16", "--batch", "4") if place.fake else ("--batch", "32")
    done = place.run(place.python, ROOT / "samples/resnet/train.py", *flags, "--log-dir", place.folder / "log", env=package_env(place))
    (place.folder / "printed.txt").write_text(done.out)
    analyze(place)


def judge_python(place: Place) -> str:
    report = json.loads((place.folder / "report.json").read_text())
    first = report["findings"][0]["id"] if report["findings"] else "none"
    if not place.fake and not report["has_gpu"]:
        raise PartFailed("the report knows of no GPU")
    if "stepscope" not in (place.folder / "printed.txt").read_text():
        raise PartFailed("the program printed no report")
    return f"step {report['steps']['mean_ms']:.1f} ms; first finding: {first}"


def record_programs(place: Place) -> None:
    words = ("--rounds", "1", "--seconds", "0.05", "--only", *FAKE_PROGRAMS) if place.fake else ("--own",)
    place.run(place.python, ROOT / "tests/gpu/programs/harness.py", "--out", place.folder, *words, check=False,
              env=package_env(place) | {"TEARDOWN_CUPTI": "1"})


def judge_programs(place: Place) -> str:
    """Compares the first findings and predictions of the reports on torch.profiler's recordings with the measurements. Only
    checks that there is something to judge: the share of correct first findings is a result, not a condition."""
    journal = place.folder / "journal.jsonl"
    runs = [json.loads(line) for line in journal.read_text().splitlines()] if journal.exists() else []
    if not runs:
        raise PartFailed("no program ran")
    right, lines = 0, []
    for run in runs:
        report = json.loads(place.run(place.program("stepscope"), "analyze", "--format", "json",
                                      place.folder / f"{run['name']}.json.gz").out)
        named = [one for one in report["findings"] if one["severity"] != "note" and one["id"] != "observer-effect"]
        first = named[0] if named else {"id": "none", "gain_kind": "none"}
        right += first["id"] in run["expect"]
        before, after = (statistics.median(run[key]) for key in ("bad_ms", "better_ms"))
        promised = ""
        if first["gain_kind"] in ("predicted", "bound"):
            step = first["baseline_ms"]
            promised = f", {'at least ' * (first['gain_kind'] == 'bound')}{1 - first['gain_ms_per_step']['expected'] / step:.2f} of the step"
        lines.append(f"{run['name']}: {first['id']}{promised}; measured {before:.1f} to {after:.1f} ms ({after / before:.2f}), "
                     f"under torch.profiler {run['kineto_ms']:.1f}" + (f", under stepscope {run['own_ms']:.1f}" if "own_ms" in run else ""))
    return "\n".join([f"{right} of {len(runs)} first findings right", *lines])


def record_ladder(words: tuple[str, ...], fake_words: tuple[str, ...]) -> Callable[[Place], None]:
    """ladder.py itself continues from its earlier measurements."""
    def record(place: Place) -> None:
        done = place.run(place.python, ROOT / "samples/ladder/ladder.py", *(fake_words if place.fake else words), "--bin", place.bin,
                         "--work", place.folder / "runs", "--limit", max(0, int(place.seconds_left()) - 60),
                         "--json", place.folder / "found.json", "--results", place.folder / "found.md", check=False)
        if done.returncode == 3:
            raise TimeOver
        if done.returncode != 0:
            raise PartFailed(f"ladder.py ended with {done.returncode}: {last_line(done.out)}")
    return record


def judge_rungs(place: Place) -> str:
    top = json.loads((place.folder / "found.json").read_text()).get("top")
    if top is None:
        raise PartFailed("no rung was faster than the baseline")
    return f"{top['baseline_samples_per_s']:.1f} to {top['samples_per_s']:.1f} samples/s, x{top['factor']:.2f}, with {top['flags']}"


def judge_climb(place: Place) -> str:
    found = json.loads((place.folder / "found.json").read_text())
    steps = [step for step in found["steps"] if step.get("gain_kind") == "predicted" and "error" in step]
    near = sum(abs(step["error"]) <= 0.15 for step in steps)
    slower = [step["change"] for step in found["steps"] if step["outcome"] in ("slower", "failed")]
    text = (f"{found['start_samples_per_s']:.1f} to {found['samples_per_s']:.1f} samples/s, x{found['speedup']:.2f}, in {len(found['steps'])}"
            f" changes; {near} of {len(steps)} predictions within 15 %")
    if slower:
        raise PartFailed(f"{text}; advice that made it slower or failed: {'; '.join(slower)}")
    return text


def kept_of_ladder(path: pathlib.PurePath) -> bool:
    """Keeps only reports and traces of the profiles, because the viewers' files are large."""
    if "profiles" not in path.parts:
        return "timed" not in path.parts
    return path.parent.name == "profiles" or path.parts[-2:] == ("trace", "rank0.json.gz")


def kept_of_log(path: pathlib.PurePath) -> bool:
    return path.parts[0] != "log" or path.parts[-2:] == ("trace", "rank0.json.gz")


def record_gallery(place: Place) -> None:
    words = FAKE_GALLERY if place.fake else ("--device", "cuda")
    done = place.run("bash", ROOT / "tests/samples/gallery/record.sh", "--missing", "--out", place.folder, *words, check=False,
                     env={"GALLERY": place.program("gallery"), "RUNS": "1" if place.fake else "2"})
    if done.returncode != 0 and not list(place.folder.glob("*.json.*")):
        raise PartFailed(last_line(done.out))


def judge_gallery(place: Place) -> str:
    if place.fake:
        only = ":".join(f"*RecordedProgramTest*/{rule.replace('-', '_')}" for rule in FAKE_GALLERY)
    else:
        only = "OnAGpu/RecordedProgramTest*"
    return run_tests(place, "gallery_test", only)


PARTS = [
    Part("doctor", "stepscope doctor on this machine", record_doctor, judge_doctor, seconds=60, alone=False),
    Part("tests", "our recording beside LibTorch's own of the same work", record_tests,
         judged_by(("gpu_compare_test", "*"), ("gpu_test", "GpuTest.*-*BuffersCanBeKept")), seconds=60),
    Part("buffers", "CUPTI's own buffers, decoded", record_stages("buffers"), judged_by(("gpu_buffers_test", "*")), alone=False),
    Part("same", "Kineto, stepscope, Kineto: the same steps of one process", record_stages(
        "kineto", "ours", "kineto", TEARDOWN_CUPTI="1"), judged_by(("gpu_test", "*SameStepsInOneProcess*"))),
    Part("overhead", "what recording adds to a step, beside Kineto", record_overhead, judge_overhead, seconds=120),
    Part("causes", "what each part of CUPTI adds to that step", record_causes, judge_causes, seconds=90),
    Part("windows", "two windows of one Profile, then two Profiles: detach and use again", record_stages("windows", "ours", "ours"),
         judged_by(("gpu_test", "*TwoWindows*:*TwoProfiles*")), alone=False),
    Part("orders", "stepscope and Kineto after each other, with and without TEARDOWN_CUPTI", record_orders, judge_orders, seconds=90,
         alone=False),
    Part("threads", "many threads launch at once", record_stages("threads"), judged_by(("gpu_test", "*EachThreads*")), alone=False),
    Part("overflow", "more records than the buffers hold", record_stages("overflow"), judged_by(("gpu_test", "*FullBuffers*")), alone=False),
    Part("graphs", "CUDA graphs in two windows", record_graphs, judged_by(("gpu_test", "*KernelsOfGraphs*")), keeps=kept_of_log, alone=False),
    Part("counters", "hardware counters beside kernels, in 16 bits", record_counters, judge_counters, keeps=kept_of_log),
    Part("baseline", "the report of ResNet-18 at the case study's first step", record_baseline, judge_baseline, keeps=kept_of_log),
    Part("python", "the Python package: ResNet-18 in plain PyTorch", record_python, judge_python, keeps=kept_of_log),
    Part("programs", "24 programs with a fault each, and without it", record_programs, judge_programs, seconds=240),
    Part("ladder", "the rungs of the case study on 224x224 batches", record_ladder(RUNGS, FAKE_RUNGS), judge_rungs, seconds=120,
         goes_on=True, keeps=kept_of_ladder),
    Part("climb", "following the advice from that baseline to the top", record_ladder(CLIMB, FAKE_CLIMB), judge_climb, seconds=120,
         goes_on=True, keeps=kept_of_ladder),
    Part("gallery", "the gallery's programs that show on a GPU", record_gallery, judge_gallery, seconds=40, goes_on=True),
]
