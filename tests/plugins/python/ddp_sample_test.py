"""Runs samples/ddp on two processes with gloo. The job's report must name the slow rank and the cause."""

import json

import pytest

import training_programs as programs
from training_programs import needs

pytestmark = needs("torch")

TRAIN = programs.ROOT / "samples/ddp/train.py"
# Small steps and one large cause, so that other programs on the machine do not change the order.
SMALL = ("--side", "32", "--batch", "4", "--active", "6")


def job_report(log_dir, *flags, attempts=3):
    """Runs the job, again if other programs took its cores: then any rank may seem slow."""
    for attempt in range(attempts):
        folder = log_dir / str(attempt)
        done = programs.run(["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", TRAIN, "--log-dir", folder,
                             *SMALL, *flags])
        assert done.returncode == 0, done.stderr
        report = json.loads(next(folder.glob("stepscope/*/c0/report.json")).read_text(encoding="utf-8"))
        if "contended-cores" not in [finding["id"] for finding in report["findings"]]:
            break
    return report


def test_the_good_one_has_no_slow_rank(tmp_path):
    report = job_report(tmp_path / "good")
    assert report["ranks"]["why_not"] == ""
    assert len(report["ranks"]["rows"]) == 2
    assert "straggler-rank" not in [finding["id"] for finding in report["findings"]]


@pytest.mark.parametrize("slow", [0, 1])
def test_the_rank_with_a_slow_loader_comes_first(tmp_path, slow):
    report = job_report(tmp_path / "slow", "--slow-loader", "150", "--slow-rank", slow)
    first = report["findings"][0]
    assert first["id"] == "straggler-rank", [finding["id"] for finding in report["findings"]]
    assert first["where"].startswith(f"rank {slow},")
    assert "more than the others on loading data" in first["evidence"]
