"""Tests the report on all ranks that rank 0 makes inside a job of real processes."""

import json
import os
import re
import socket
import subprocess

import pytest

import training_programs as programs
from stepscope import _native
from training_programs import PYTHON, needs

pytestmark = needs("torch")

PROGRAM = programs.HERE / "programs/job.py"
RANKS_SECTION = "\nranks, ms per step"  # not that of the groups


def torchrun(ranks, *words):
    done = programs.run(["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", ranks, PROGRAM, *words])
    assert done.returncode == 0, done.stderr
    return done


def own_processes(*words):
    """Starts two ranks without torchrun, which would end the other rank when one dies."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    ranks = [subprocess.Popen([PYTHON, str(PROGRAM), *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              env=programs.environment(RANK=str(rank), WORLD_SIZE="2", LOCAL_WORLD_SIZE="2", MASTER_PORT=port,
                                                       MASTER_ADDR="127.0.0.1")) for rank in range(2)]
    outputs = [rank.communicate(timeout=170) for rank in ranks]
    return [(rank.returncode, *output) for rank, output in zip(ranks, outputs)]


def cycle_of(log_dir):
    return next(log_dir.glob("stepscope/*/c0"))


@pytest.mark.parametrize("ranks", [2, 4])
def test_the_report_of_the_job_is_that_of_its_folder(tmp_path, ranks):
    done = torchrun(ranks, tmp_path / "out")
    assert done.stdout.count(RANKS_SECTION) == 1, done.stdout
    assert f"rank 0: job report of {ranks}" in done.stderr
    assert done.stderr.count("job report none") == ranks - 1
    cycle = cycle_of(tmp_path / "out")
    inside = (cycle / "report.json").read_text(encoding="utf-8")
    assert inside == _native.call("analyze", {"paths": [str(tmp_path / "out")], "format": "json"})
    report = json.loads(inside)
    assert report["ranks"]["why_not"] == ""
    assert [row["rank"] for row in report["ranks"]["rows"]] == list(range(ranks))
    assert "missing-rank" not in [loss["name"] for loss in report["losses"]]
    assert sorted(path.name for path in (cycle / "digest").iterdir()) == [f"rank{rank}.pb" for rank in range(ranks)]
    assert RANKS_SECTION in (cycle / "report.txt").read_text(encoding="utf-8")


def test_without_a_log_directory_the_store_of_the_process_group_does(tmp_path):
    done = torchrun(2, "-")
    assert done.stdout.count(RANKS_SECTION) == 1, done.stdout
    assert "missing: rank" not in done.stdout


def test_the_process_group_may_be_destroyed_before_the_profile_ends(tmp_path):
    done = torchrun(2, "-", "--destroy-first")
    assert done.stdout.count(RANKS_SECTION) == 1, done.stdout + done.stderr


def test_a_program_that_profiles_rank_0_alone_gets_its_report(tmp_path):
    done = torchrun(2, tmp_path / "out", "--only-rank-0")
    assert "stepscope  job" in done.stdout
    assert RANKS_SECTION not in done.stdout
    assert "rank 1" not in done.stdout
    assert "rank 0: job report none" in done.stderr


def test_each_rank_reports_alone_where_rank_0_does_not_wait(tmp_path):
    done = torchrun(2, tmp_path / "out", "--rank-timeout", "0")
    assert RANKS_SECTION not in done.stdout
    assert not (cycle_of(tmp_path / "out") / "report.json").exists()


def test_a_rank_that_is_killed_in_mid_window_is_named(tmp_path):
    (status, printed, errors), (killed, _, _) = own_processes(tmp_path / "out", "--die", "4", "--rank-timeout", "5")
    assert killed == -9
    assert status == 1
    assert "RuntimeError" in errors.rstrip().splitlines()[-1], errors  # gloo's error, as without stepscope
    assert re.search(r"missing: rank 1 (sent nothing within 5 s|ended before its window was analysed)", printed), printed
    assert len(re.findall("^stepscope  job", printed, re.M)) == 1
    assert os.listdir(cycle_of(tmp_path / "out") / "digest") == ["rank0.pb"]
