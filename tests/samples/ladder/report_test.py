import json
import os
import pathlib
import subprocess

import pytest
from report import Failed, Finding, Report, read_report

FINDING = {"severity": "high", "gain_kind": "predicted", "gain_ms_per_step": {"expected": 20, "low": 15, "high": 25},
           "baseline_ms": 0, "evidence": "e", "where": "w", "fix": {"cpp": "f", "python": "p"}, "settings": {}}


def record(**more):
    return {"version": 2, "has_gpu": False, "steps": {"mean_ms": 50, "all_mean_ms": 60}, "held_back": [],
            "run": {"cpu_model": "Slow CPU", "usable_cores": 2, "torch_version": "2.11.0", "devices": []},
            "replay": {"valid": True, "why_not": ""}, "findings": [],
            "time_split_ms": {"data": 10, "compute": 30, "communication": 5, "sync": 5}, **more}


def test_reads_what_a_program_can_follow():
    settings = {"intra_op_threads": 2, "set_to_none": True, "conv_bias": False, "batch_factor": 1.5, "workers": 3,
                "optimizer_step": "fused"}
    report = read_report(record(findings=[{**FINDING, "id": "cores-idle", "settings": settings, "baseline_ms": 130}]), "dir")
    assert (report.path, report.step_ms, report.all_mean_ms, report.usable_cores) == ("dir", 50, 60, 2)
    assert report.findings == [Finding("cores-idle", "high", "predicted", 20, 15, 25, 130, "e\nw\nf", {
        "intra_op_threads": "2", "set_to_none": "true", "conv_bias": "false", "batch_factor": "1.5", "workers": "3",
        "optimizer_step": "fused"})]


def test_a_note_has_no_step_that_a_gain_refers_to():
    note = {**FINDING, "id": "cores-idle", "severity": "note", "gain_kind": "none", "baseline_ms": None}
    assert read_report(record(findings=[note]), "").findings[0].baseline_ms == 0


def test_reads_reports_of_the_real_program():
    root = pathlib.Path(__file__).parents[3]
    program = pathlib.Path(os.environ.get("STEPSCOPE_BIN") or root / "build/default/bin") / "stepscope"
    if not program.exists():
        pytest.skip(f"{program} is not built; set STEPSCOPE_BIN")
    trace = root / "tests/data/programs/checkpoint_every_third.json.zst"
    text = subprocess.run([program, "analyze", "--format", "json", trace], check=True, capture_output=True).stdout
    findings = read_report(json.loads(text), trace).findings
    assert findings[0].id == "logging-checkpoint-stall" and findings[0].baseline_ms > 0


def test_the_split_comes_longest_first():
    assert list(read_report(record(), "").split.items()) == [
        ("compute", 30), ("data", 10), ("communication", 5), ("sync", 5)]


def test_the_machine_is_named():
    assert read_report(record(), "").machine == "Slow CPU, 2 cores; LibTorch 2.11.0"
    run = {"cpu_model": "Slow CPU", "usable_cores": 1, "torch_version": "2.11.0", "devices": ["H100"]}
    assert read_report(record(run=run), "").machine == "Slow CPU, 1 core; H100; LibTorch 2.11.0"


def test_only_what_is_more_than_a_note_and_gains_time_is_worth_doing():
    assert Finding("a", gain_ms=1).worth_doing()
    assert Finding("a", gain_kind="bound", gain_ms=1).worth_doing()
    rest = [Finding("a", "note", gain_ms=3), Finding("a", gain_kind="none", gain_ms=3), Finding("a", gain_ms=0)]
    assert not any(one.worth_doing() for one in rest)
    assert Report(1, findings=rest).healthy()
    assert not Report(1, findings=[*rest, Finding("a", gain_ms=1)]).healthy()


def test_what_is_held_back_is_not_healthy():
    report = read_report(record(held_back=["zero-grad-kernels"]), "")
    assert report.held_back == ["zero-grad-kernels"]
    assert not report.healthy()


def test_a_prediction_is_of_the_step_that_is_measured():
    report = Report(100, all_mean_ms=120)
    change = Finding("a", gain_ms=20, low_ms=10, high_ms=40)
    assert report.predicted(change) == (100, 80, 60, 90)
    assert report.predicted(change, period=4) == (120, 100, 80, 110)
    change.baseline_ms = 130
    assert report.predicted(change) == (130, 110, 90, 120)


def test_a_gain_of_the_whole_step_is_no_prediction():
    assert Report(100).predicted(Finding("a", gain_ms=100, low_ms=50, high_ms=200)) == (100, 100, 100, 100)
    assert Report(100).predicted(Finding("a", gain_ms=80, low_ms=50, high_ms=200)) == (100, 20, 20, 50)


@pytest.mark.parametrize("bad", [
    {}, [], None, record(version=1), record(steps={"mean_ms": 0}), record(steps={}), record(findings=3),
    record(findings=[{"id": "a"}])])
def test_other_objects_are_refused(bad):
    with pytest.raises(Failed, match="rank0.json"):
        read_report(bad, "rank0.json")
