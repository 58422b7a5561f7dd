"""Tests reports, comparisons and predictions as Python objects."""

import dataclasses
import json
import math
import pathlib
import pickle
import re

import pytest

import stepscope
from stepscope import comparison, report

ROOT = pathlib.Path(__file__).parents[3]
TRACES = ROOT / "tests/data/traces"
RESNET = TRACES / "resnet50_v100_workers0.pt.trace.json.gz"
PAGEABLE, PINNED = TRACES / "h2d_a100_pageable.json.gz", TRACES / "h2d_a100_pinned.json.gz"


@pytest.fixture(scope="module")
def resnet():
    return stepscope.analyze(RESNET)


def test_a_report_has_the_numbers_of_the_json(resnet):
    assert resnet.steps.count == 6
    assert resnet.has_gpu
    first = resnet.findings[0]
    assert first.id == "sync-data-loading"
    assert first.gain_ms == first.gain_ms_per_step.expected == pytest.approx(53.586, abs=0.001)
    assert first.settings == {"workers": 1}
    assert "num_workers=1" in first.fix.python
    assert resnet.plan.ids[0] == "sync-data-loading"
    assert resnet.time_split_spread_ms["compute"] == (98.50399999999999, 98.64099999999999)
    assert resnet.ranks is None


def test_a_report_cannot_be_changed_and_can_be_pickled(resnet):
    with pytest.raises(dataclasses.FrozenInstanceError):
        resnet.findings = ()
    assert pickle.loads(pickle.dumps(resnet)) == resnet


def test_to_dict_is_the_json_object_and_a_copy(resnet):
    values = resnet.to_dict()
    again = report.Report.from_json(json.dumps(values))
    assert again == resnet and again.to_dict() == values
    values["findings"].clear()
    assert resnet.to_dict()["findings"]


def test_keys_of_a_newer_stepscope_are_ignored_and_kept():
    text = '{"version": 2, "steps": {"count": 3, "colour": "blue"}, "new": [1]}'
    parsed = report.Report.from_json(text)
    assert parsed.steps.count == 3
    assert parsed.to_dict()["new"] == [1]


def test_another_version_or_no_json_is_an_error_with_a_sentence():
    with pytest.raises(stepscope.StepscopeError, match="has version 3; this stepscope reads version 2"):
        report.Report.from_json('{"version": 3}')
    with pytest.raises(stepscope.StepscopeError, match="the report is not JSON"):
        report.Report.from_json("{")


def test_numbers_that_cannot_be_computed_are_nan_or_none():
    parsed = report.Report.from_json('{"version": 2, "steps": {"cov": null}, "findings": [{"id": "x", "baseline_ms": null}]}')
    assert math.isnan(parsed.steps.cov)
    assert parsed.findings[0].baseline_ms is None


def test_advice_leaves_out_notes_and_what_is_less_severe(resnet):
    assert [finding.id for finding in resnet.advice("medium")] == ["sync-data-loading", "unfused-optimizer", "zero-grad-kernels"]
    assert all(not finding.is_note for finding in resnet.advice("note"))
    assert any(finding.is_note for finding in resnet.findings)


def test_wrong_arguments_are_named(resnet):
    with pytest.raises(ValueError, match="a severity is note, low, medium, high, critical, not 'hi'"):
        resnet.advice("hi")
    for wrong in (lambda: stepscope.analyze(5), lambda: stepscope.analyze([5]), lambda: stepscope.compare(RESNET, 5),
                  lambda: stepscope.what_if(5, workers=2)):
        with pytest.raises(TypeError, match="a trace is given by its path, a str or a pathlib.Path, not by 5"):
            wrong()


def test_markdown_and_html_name_the_gain_and_the_fix(resnet):
    text = resnet.to_markdown()
    assert "1. **sync-data-loading** (critical, proven) **predicted gain 53.6 ms per step (likely 32.2 to 56.9): 175 to 122 ms**" in text
    assert "| data | 56.6 | 32 % |" in text
    assert "Do first: sync-data-loading, unfused-optimizer, zero-grad-kernels, tensor-cores-idle (predicted 175 to 84.9 ms per step)." in text
    page = resnet._repr_html_()
    assert "<b>sync-data-loading</b>" in page and "num_workers=1" in page
    assert "sync-data-loading" in repr(resnet)


def test_html_shows_names_as_text():
    parsed = report.Report.from_json('{"version": 2, "run": {"name": "<script>"}, "findings": [{"id": "a", "severity": "high", '
                                     '"status": "warning", "evidence": "1 < 2"}]}')
    assert "<script>" not in parsed._repr_html_()
    assert "1 &lt; 2" in parsed._repr_html_()
    assert "\\<script\\>" in parsed.to_markdown()


def test_ranks_are_one_report():  # the test data has two of its traces
    report_of_ranks = stepscope.analyze(TRACES / "dlrm_v100_8ranks")
    assert report_of_ranks.ranks is not None
    assert sorted(row.rank for row in report_of_ranks.ranks.rows) == [0, 1]


def test_traces_that_belong_to_no_run_are_an_error():
    with pytest.raises(stepscope.StepscopeError, match="2 traces that are not the ranks of one run"):
        stepscope.analyze([PAGEABLE, RESNET])
    with pytest.raises(stepscope.StepscopeError, match="at least one path"):
        stepscope.analyze([])


def test_a_missing_trace_is_an_error_that_names_it(tmp_path):
    with pytest.raises(stepscope.StepscopeError, match="nothing.json"):
        stepscope.analyze(tmp_path / "nothing.json")
    with pytest.raises(stepscope.StepscopeError, match="nothing.json"):
        stepscope.compare(tmp_path / "nothing.json", PINNED)


def test_compare_measures_the_difference():
    compared = stepscope.compare(PAGEABLE, PINNED)
    assert compared.significant and compared.measured_ms.low > 0
    assert "h2d-pageable" in compared.resolved_findings
    assert compared.causes[0].before_ms > compared.causes[0].after_ms
    assert not compared.is_slower()
    assert stepscope.compare(PINNED, PAGEABLE).is_slower(0.05, min_ms=1)
    assert "ms per step: gained" in str(compared)


def comparison_of(low, high, steps=10, median=100.0, **more):
    values = {"version": 2, "before": {"steps": steps, "step_ms": median}, "after": {"steps": steps, "step_ms": median},
              "measured_ms": {"expected": (low + high) / 2, "low": low, "high": high}, **more}
    return comparison.Comparison.from_json(json.dumps(values))


def test_only_a_whole_interval_beyond_both_limits_is_slower():
    assert comparison_of(-9, -6).is_slower(0.05, min_ms=1)
    assert not comparison_of(-9, -4).is_slower(0.05, min_ms=1)  # perhaps 4 %
    assert not comparison_of(-9, -6).is_slower(0.05, min_ms=7)
    assert not comparison_of(6, 9).is_slower(0.05)
    assert not comparison_of(-30, 1).is_slower(0)


def test_time_without_a_core_is_not_the_programs_own():
    busy = [{"name": "contended", "before_ms": 5, "after_ms": 21}]
    assert not comparison_of(-40, -20, causes=busy).is_slower(0.05)
    assert comparison_of(-40, -20, causes=[{**busy[0], "after_ms": 19}]).is_slower(0.05)


def test_too_few_steps_allow_no_verdict():
    with pytest.raises(stepscope.StepscopeError, match="needs 6 steady steps in each trace, and one has 5"):
        comparison_of(-9, -6, steps=5).is_slower()
    with pytest.raises(stepscope.StepscopeError, match="cannot be compared: no steps"):
        comparison_of(-9, -6, why_not="no steps").is_slower()


def test_what_if_predicts_or_says_why_not():
    predicted = stepscope.what_if(RESNET, workers=2)
    assert predicted.predicted_ms == pytest.approx(121.845, abs=0.001)
    assert predicted.speedup == pytest.approx(175.432 / 121.845, abs=0.001)
    refused = stepscope.what_if(RESNET, intra_op_threads=2)
    assert refused.predicted_ms is None and refused.why_not
    with pytest.raises(stepscope.StepscopeError, match="unknown setting 'worker'; did you mean 'workers'"):
        stepscope.what_if(RESNET, worker=2)
    with pytest.raises(stepscope.StepscopeError, match="at least one change"):
        stepscope.what_if(RESNET)


# The dataclass for each table in docs/json.md, by the text before the table.
TABLES = {
    "## analyze": report.Report, "### run": report.Run, "### steps": report.Steps, "### replay": report.Replay,
    "### findings": report.Finding, "### plan": report.Plan, "### coverage": report.Coverage, "### top_ops": report.TopOp,
    "### modules": report.PlaceTime, "### step_times": report.StepTime, "### memory_peaks": report.MemoryPeak, "### ranks": report.Ranks,
    "key of `rows`": report.RankRow, "key of `groups`": report.RankGroup, "key of `pipelines`": report.Pipeline,
    "key of `machines`": report.Machine,
    "key of `mended`": report.Mended, "### whole_run": report.WholeRun, "key of `stalls`": report.Stall,
    "## compare": comparison.Comparison, "key of `before` and `after`": comparison.ComparedTrace,
    "key of `causes`, `ops`, `kernels` and `modules`": comparison.ComparedTime,
}


def documented_keys():
    """Returns heading -> keys of the table below it."""
    keys, heading = {}, ""
    for line in (ROOT / "docs/json.md").read_text().splitlines():
        if line == "## top":
            break
        if line.startswith("#"):
            heading = line
        elif line.startswith("| key of "):
            heading = line.split("|")[1].strip()
        elif line.startswith("| `"):
            keys.setdefault(heading, set()).update(re.findall(r"`(\w+)`", line.split("|")[1]))
    return keys


@pytest.mark.parametrize("heading", TABLES)
def test_attributes_are_the_documented_keys(heading):
    found = documented_keys()[heading]
    fields = {field.name.removesuffix("_") for field in dataclasses.fields(TABLES[heading]) if not field.name.startswith("_")}
    assert fields == found
