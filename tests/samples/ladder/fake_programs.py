"""Fakes of resnet and stepscope: they write at once what the real programs would write.

The time of a step follows from the flags (step_ms()), so tests know the right result. Flags that resnet does not have:
    --fail            ends with exit code 3              --fail-if FLAG   the same, if that flag is given, too
    --slow-start MS   really takes MS before it starts   --advise JSON    a list of findings instead of the usual ones
    --hold-back N     with fewer than N recorded steps, the findings are held back
    --gpu             a run with a GPU, none of whose settings replay can express
More than 4 workers are refused like a wrong flag of resnet: exit code 2.
"""

import json
import pathlib
import time

from bench import ProgramFailed


def number(flags, flag, absent):
    return int(flags.get(flag, absent))


def step_ms(flags):
    """Returns the step in ms. Computing takes 20 ms plus 2 ms per sample. Loading takes 1 ms per sample, which workers hide
    completely. Two threads halve the computing time unless there are workers, because there are 2 cores. channels_last adds a
    tenth of the computing time, printing 8 ms, and reading the loss 5 ms."""
    batch, workers = number(flags, "--batch", 32), number(flags, "--workers", 0)
    compute = 20 + 2 * batch
    if number(flags, "--threads", 1) > 1 and workers == 0:
        compute *= 0.5
    compute *= 1.1 if "--channels-last" in flags else 1
    compute += 8 * ("--print-tensor" in flags) + 5 * ("--item-every-step" in flags)
    return compute + (0 if workers else batch)


def resnet(words):
    flags = {word.partition("=")[0]: word.partition("=")[2] for word in words}
    time.sleep(number(flags, "--slow-start", 0) / 1000)
    if number(flags, "--workers", 0) > 4:
        raise ProgramFailed("resnet\nfailed with exit code 2:\n  resnet: --workers must be at most 4", 2)
    if "--fail" in flags or flags.get("--fail-if") in flags:
        raise ProgramFailed(f"resnet {' '.join(words)}\nfailed with exit code 3:\n  training stopped: no such weather", 3)
    if "--json" in flags:
        warm = number(flags, "--warm-steps", 3)
        # The first steps are slow; the others vary by up to 1 %.
        factors = [3 if i < warm else 1 + 0.005 * (i % 5 - 2) for i in range(number(flags, "--steps", 10))]
        pathlib.Path(flags["--json"]).write_text(json.dumps({
            "step_ms": [factor * step_ms(flags) for factor in factors], "warm_steps": warm,
            "batch": number(flags, "--batch", 32)}), encoding="utf-8")
    if "--no-profile" not in flags:
        folder = pathlib.Path(flags["--log-dir"])
        folder.mkdir(parents=True)
        (folder / "flags.json").write_text(json.dumps(flags), encoding="utf-8")
    return ""


def finding(id, gain, settings=None, **more):
    """Returns a finding in the form that stepscope prints."""
    return {"id": id, "severity": "high", "gain_kind": "predicted", "evidence": "", "where": "", "fix": {"cpp": ""},
            "gain_ms_per_step": {"expected": gain, "low": 0.9 * gain, "high": 1.1 * gain}, "baseline_ms": 0,
            "settings": settings or {}, **more}


def findings_of(flags):
    if "--advise" in flags:
        return json.loads(flags["--advise"])
    found = []

    def advise(id, settings, after, times=1, evidence=""):
        gain = step_ms(flags) - step_ms(after) / times
        if gain >= 0.02 * step_ms(flags):
            found.append(finding(id, gain, settings, evidence=evidence))

    advise("cores-idle", {"intra_op_threads": 2}, {**flags, "--threads": "2"})
    advise("sync-data-loading", {"workers": 1}, {**flags, "--workers": "1"})
    for habit in ("--print-tensor", "--item-every-step"):
        if habit in flags:
            advise("host-sync", {}, {key: value for key, value in flags.items() if key != habit}, evidence=f"saw {habit}")
    if number(flags, "--batch", 32) < 64:
        advise("small-batch", {"batch_factor": 2}, {**flags, "--batch": str(2 * number(flags, "--batch", 32))}, 2)
    return found


def analyze(flags):
    held = number(flags, "--active", 0) < number(flags, "--hold-back", 0)
    ms = step_ms(flags)
    return {"version": 2, "run": {"usable_cores": 2, "cpu_model": "Slow CPU", "torch_version": "2.11.0",
                                  "devices": ["H100"] if "--gpu" in flags else []},
            "steps": {"count": 10, "steady": 10, "mean_ms": ms, "all_mean_ms": ms}, "has_gpu": "--gpu" in flags,
            "time_split_ms": {"sync": 0.01 * ms, "data": 0.29 * ms, "compute": 0.7 * ms}, "replay": {"valid": True},
            "findings": [] if held else findings_of(flags), "held_back": ["cores-idle"] if held else []}


FLAGS = {"workers": "--workers", "intra_op_threads": "--threads", "batch_size": "--batch"}


def what_if(flags, words):
    """Predicts exactly what the flags do, except for channels_last, for which it predicts no change. A finding gains what it
    says."""
    finding_ids = words[words.index("--finding") + 1].split(",") if "--finding" in words else []
    settings = dict(word.split("=") for word in words if "=" in word)
    known = {"memory_format", *({} if "--gpu" in flags else FLAGS)}
    after = {**flags, **{FLAGS[key]: value for key, value in settings.items() if key in FLAGS}}
    ms = step_ms(after) * number(flags, "--batch", 32) / number(after, "--batch", 32)
    advised = {one["id"]: one for one in findings_of(flags) if one["gain_kind"] == "predicted"}
    bad = sorted(set(settings) - known) + [id for id in finding_ids if id not in advised]
    ms -= sum(advised[id]["gain_ms_per_step"]["expected"] for id in finding_ids if id in advised)
    record = {"version": 2, "baseline_ms": step_ms(flags), "predicted_ms": ms, "low_ms": 0.9 * ms, "high_ms": 1.1 * ms,
              "why_not": ""}
    if bad:
        record |= {"predicted_ms": None, "low_ms": None, "high_ms": None, "why_not": f"the replay cannot model {bad[0]}"}
    return record


def stepscope(words):
    words = words[:words.index("--format")]
    flags = json.loads((pathlib.Path(words[1]) / "flags.json").read_text(encoding="utf-8"))
    if words[0] == "analyze":
        return json.dumps(analyze(flags))
    record = what_if(flags, words[2:])
    if record["why_not"]:
        raise ProgramFailed("stepscope what-if\nfailed with exit code 1", 1, json.dumps(record))
    return json.dumps(record)


def run(command, limit_s=600):
    """Replaces bench.run_program."""
    return (resnet if command[0].endswith("resnet") else stepscope)(command[1:])
