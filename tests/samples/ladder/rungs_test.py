import pathlib
import re
import subprocess

import pytest
from report import Finding, Report
from resnet_flags import Settings
from rungs import RUNGS, facts_of, go_up, reason_for, to_markdown
from timing import Length

ROOT = pathlib.Path(__file__).parents[3]
RESNET = ROOT / "build/default/bin/resnet"
of, LENGTH = Settings.of, Length(14)


@pytest.mark.parametrize("device", RUNGS)
def test_only_findings_and_flags_that_exist_lead_up(device):
    rules = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "analysis/rules").rglob("*.cc"))
    [table] = (ROOT / "samples/resnet").rglob("flag_table.cc")
    flags = table.read_text(encoding="utf-8")
    settings = Settings()
    for name, text, findings in RUNGS[device]:
        below, settings = settings, settings.plus(of(text))
        assert settings != below, f"{name} changes nothing"
        assert [id for id in findings.split() if f'"{id}"' not in rules] == []
        assert [flag for flag in of(text) if f'"{flag}"' not in flags] == []


@pytest.mark.skipif(not RESNET.exists(), reason=f"{RESNET} is not built")
@pytest.mark.parametrize("device", RUNGS)
def test_resnet_takes_the_flags_of_every_rung(device):
    settings = of(f"--device {device}")
    for name, text, _ in RUNGS[device]:
        settings = settings.plus(of(text))
        # Incompatible flags are refused with exit code 2, before the data is searched.
        done = subprocess.run([RESNET, *settings.arguments(), "--data=/nowhere"], capture_output=True, text=True)
        assert done.returncode == 1 and "/nowhere" in done.stderr, f"{name}: {done.stderr}"


def report(severity, advised):
    return Report(100, findings=[Finding("host-sync", gain_ms=50), Finding(
        "cores-idle", severity, gain_ms=20, low_ms=0, high_ms=50, settings={"intra_op_threads": advised})])


def reason(severity="low", advised="2", findings="cores-idle"):
    return reason_for(findings, report(severity, advised), Settings(), of("--threads 2"))


def test_the_finding_whose_fix_a_rung_is_leads_to_it():
    found = reason()
    assert (found["id"], found["of_change"]) == ("cores-idle", "")
    assert found["predicted_ratio"] == pytest.approx(0.8)
    assert found["predicted_ratio_interval"] == {"low": 0.5, "high": 1}


def test_a_note_asks_for_nothing():
    assert reason("note") == {}
    assert reason(findings="") == {}


def test_a_promise_of_another_change_is_said_to_be_one():
    assert reason(advised="4")["of_change"] == "--threads 4"


# The step: 20 + 2 * batch ms of computing, which two threads halve, and 1 ms of loading per sample, which a worker hides.
# channels-last adds a tenth of the computing time.
def climb_up(bench, *steps):
    return go_up(bench, [("baseline", "--batch 32", ""), *steps], 3, LENGTH)


THREADS = ("threads", "--threads 2", "cores-idle")


def test_each_rung_is_measured_against_the_one_below(make_bench):
    record = climb_up(make_bench(), THREADS, ("batch", "--batch 64", "small-batch"))
    base, threads, batch = record["rungs"]
    assert [one["kept"] for one in record["rungs"]] == [True] * 3
    assert base["samples_per_s"] == pytest.approx(32 / 0.116, rel=0.001)
    assert threads["samples_per_s"] == pytest.approx(32 / 0.074, rel=0.001)
    assert threads["measured_ratio"] == pytest.approx(74 / 116, rel=0.001)
    assert threads["id"] == "cores-idle"
    assert threads["predicted_ratio"] == pytest.approx(74 / 116, rel=0.001)
    assert batch["measured_ratio"] == pytest.approx(69 / 74, rel=0.001)
    assert (batch["before"], batch["after"]) == ("--batch 32 --threads 2", "--batch 64 --threads 2")
    assert base["samples_per_s_interval"]["low"] <= base["samples_per_s"] <= base["samples_per_s_interval"]["high"]
    assert record["top"]["flags"] == "--batch 64 --threads 2"
    assert record["top"]["factor"] == pytest.approx(116 / 69, rel=0.001)


def test_a_rung_at_which_the_program_fails_is_left_again(make_bench):
    record = climb_up(make_bench(), ("rain", "--fail", ""), THREADS)
    base, rain, threads = record["rungs"]
    assert not rain["kept"] and "no such weather" in rain["failed"]
    assert threads["kept"] and record["top"]["flags"] == "--batch 32 --threads 2"
    assert base["samples_per_s"] == pytest.approx(32 / 0.116, rel=0.001)
    text = to_markdown(record, "h")
    assert re.search(r"\| 1 +\| rain .*\| fails +\|\n", text)
    assert "\nRung 1 fails:\n\n```\n" in text and "no such weather\n```\n" in text


def test_a_slower_rung_is_taken_back(make_bench):
    record = climb_up(make_bench(), ("layout", "--channels-last", "layout-transpose"), THREADS)
    layout, threads = record["rungs"][1:]
    assert not layout["kept"] and "id" not in layout and layout["measured_ratio_interval"]["low"] > 1
    assert threads["kept"] and threads["after"] == "--batch 32 --threads 2"
    assert threads["id"] == "cores-idle"
    assert threads["measured_ratio"] == pytest.approx(74 / 116, rel=0.001)
    assert re.search(r"\| 1 +\| layout .*\| - +\| - +\| ×0.\d\d \(×0.\d\d to ×0.\d\d\), taken back +\|\n",
                     to_markdown(record, "h"))


def test_where_no_rung_is_faster_the_baseline_stays(make_bench):
    record = climb_up(make_bench(), ("layout", "--channels-last", ""))
    assert "top" not in record
    assert to_markdown(record, "h").endswith("\nNo rung was faster.")


def test_only_a_gpu_is_busy(make_bench):
    assert facts_of(make_bench().profile(Settings(), "p")).keys() == {"profiled_ms", "split_ms"}
    assert facts_of(make_bench("--gpu").profile(Settings(), "gpu"))["busy_frac"] == pytest.approx(0.7)


def example():
    interval = {"low": 0.8, "high": 0.8}
    base = {"name": "baseline", "flags": "--batch 10", "kept": True, "profiled_ms": 100,
            "split_ms": {"compute": 70, "data": 29, "sync": 1}, "samples_per_s": 100,
            "samples_per_s_interval": {"low": 90, "high": 110}}
    worker = {**base, "name": "a worker", "flags": "--workers 1", "samples_per_s": 125, "busy_frac": 0.25,
              "id": "sync-data-loading", "gain_kind": "predicted", "of_change": "",
              "predicted_ratio": 1 / 1.4, "predicted_ratio_interval": {"low": 1 / 1.5, "high": 1 / 1.2},
              "measured_ratio": 0.8, "measured_ratio_interval": interval}
    return {"machine": "Slow CPU", "rungs": [base, worker], "top": {
        "flags": "--batch 10 --workers 1", "baseline_samples_per_s": 100, "samples_per_s": 125, "factor": 1.25,
        "factor_interval": {"low": 1.25, "high": 1.25}}}


def row_of(record, number):
    lines = to_markdown(record, "h").splitlines()
    return re.sub(" +", " ", lines[4 + number])


def test_a_row_says_what_was_found_predicted_and_measured():
    assert row_of(example(), 0) == ("| 0 | baseline | `--batch 10` | 100.0 (90.0 to 110.0) | 100.0 | compute 70%, data 29%"
                                    " | - | - | - | - |")
    assert row_of(example(), 1).endswith("| 25.0% | sync-data-loading | ×1.40 (×1.20 to ×1.50) |"
                                         " ×1.25 (×1.25 to ×1.25) |")


def test_the_whole_way_up_is_told():
    text = to_markdown(example(), "2026-01-02, Slow CPU. `ladder.py rungs`")
    assert text.startswith("2026-01-02, Slow CPU. `ladder.py rungs`\n\n| rung | what ")
    assert text.endswith("The baseline and the top, interleaved: 100.0 and 125.0 samples/s, ×1.25 (×1.25 to ×1.25), at"
                         " the top with `--batch 10 --workers 1`.")


def test_a_prediction_of_another_change_names_it():
    record = example()
    record["rungs"][1]["of_change"] = "--workers 2"
    assert "(×1.20 to ×1.50), of `--workers 2` |" in row_of(record, 1)


def test_a_bound_is_no_prediction():
    record = example()
    record["rungs"][1]["gain_kind"] = "bound"
    assert "| at most ×1.40 |" in row_of(record, 1)
