import pathlib
import sys
import types

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "samples/ddp"))

import variants  # noqa: E402
from timing import RunTimes  # noqa: E402


def finding(id, severity="high", kind="none", gain=(0, 0, 0), where="", step=100):
    return {"id": id, "severity": severity, "gain_kind": kind, "where": where, "evidence": "", "baseline_ms": step,
            "gain_ms_per_step": dict(zip(("expected", "low", "high"), gain))}


class StubRuns(variants.Runs):
    """Returns the same report for every variant; steps take 100 ms, and 70 ms with the fix."""
    def __init__(self, folder, findings):
        super().__init__(types.SimpleNamespace(work=folder, pairs=5, bin="none"))
        self.findings, self.trained = findings, 0

    def train(self, flags, *more):
        self.trained += 1
        name, path = more[-2:]
        assert name == "--json"
        step = 100 if flags else 70
        pathlib.Path(path).write_text(f'{{"step_ms": {[500.0] * 4 + [float(step)] * 8}}}', encoding="utf-8")

    def report(self, one):
        return {"findings": self.findings}


def row(folder, findings, **more):
    return variants.row(variants.Variant("one", "--slow-loader 40", expect=("straggler-rank",), **more), StubRuns(folder, findings))


def test_a_prediction_stands_beside_what_was_measured(tmp_path):
    cells = row(tmp_path, [finding("contended-cores"), finding("straggler-rank", kind="predicted", gain=(20, 10, 40))])
    assert cells[2:] == ["straggler-rank (high)", "yes", "0.80 (0.60 to 0.90)", "0.70 (0.70 to 0.70)", "+14 %"]


@pytest.mark.parametrize(("gain", "outcome"), ((40, "kept"), (20, "exceeded")))
def test_a_bound_is_kept_or_exceeded(tmp_path, gain, outcome):
    cells = row(tmp_path, [finding("straggler-rank", kind="bound", gain=(gain, 0, gain))])
    assert cells[4:] == [f"at least {1 - gain / 100:.2f}", "0.70 (0.70 to 0.70)", outcome]


def test_the_rank_must_be_named(tmp_path):
    assert row(tmp_path / "a", [finding("straggler-rank", where="rank 0, x.json")], rank=1)[3] == "no"
    assert row(tmp_path / "b", [finding("straggler-rank", where="rank 1, x.json")], rank=1)[3] == "yes"


@pytest.mark.parametrize(("findings", "right"), (([], "yes"), ([finding("host-sync", "low")], "yes"), ([finding("host-sync", "medium")], "no"),
                                                 ([finding("host-sync", "note")], "yes")))
def test_of_a_good_program_nothing_above_low_is_said(tmp_path, findings, right):
    assert variants.row(variants.Variant("good", ""), StubRuns(tmp_path, findings))[3:] == [right, "", "", ""]


def test_what_was_timed_is_not_timed_again(tmp_path):
    one = variants.Variant("one", "--by-hand")
    runs = StubRuns(tmp_path, [])
    assert runs.compare(one).ratio == pytest.approx(0.7)
    assert runs.trained == 10
    again = StubRuns(tmp_path, [])
    assert again.compare(one).ratio == pytest.approx(0.7)
    assert again.trained == 0
    assert isinstance(again.time("", "one 0 after"), RunTimes)


def test_an_unknown_variant_is_named_and_the_known_ones_listed(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["variants.py", "--only", "good,fast"])
    with pytest.raises(SystemExit):
        variants.main()
    assert "no variant fast; there are good, one-bucket" in capsys.readouterr().err
