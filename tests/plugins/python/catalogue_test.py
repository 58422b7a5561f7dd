"""Tests stepscope.fleet.Catalogue and `stepscope catalogue`, which collect the reports of many runs and answer questions."""

import concurrent.futures
import datetime
import io
import json
import os
import pathlib
import shutil
import sqlite3
import subprocess
import sys

import pytest

import stepscope
from fleet_test import TRACES, write_job
from stepscope import _native, _program, fleet
from stepscope.fleet import catalogue_command

RESNET = TRACES / "resnet50_v100_workers0.pt.trace.json.gz"  # waits for data for 32 % of its step
PINNED = TRACES / "h2d_a100_pinned.json.gz"
PACKAGE = pathlib.Path(__file__).parents[3] / "plugins/python"


def write_run(log_dir, name, trace, days_ago=0, cycle=0):
    """Writes a run of one rank as a profile does: the trace and its report."""
    start = datetime.datetime.now() - datetime.timedelta(days=days_ago)
    window = log_dir / f"stepscope/{name}_{start:%Y_%m_%d_%H_%M_%S}/c{cycle}"
    (window / "trace").mkdir(parents=True)
    (window / "advice").mkdir()
    shutil.copy(trace, window / "trace/rank0.json.gz")
    (window / "advice/rank0.json").write_text(_native.call("analyze", {"paths": [str(trace)], "format": "json"}))
    return window


@pytest.fixture
def runs(tmp_path):
    folder = tmp_path / "runs"
    write_run(folder, "waits", RESNET, days_ago=1)
    write_run(folder, "older", RESNET, days_ago=9)
    write_run(folder, "fine", PINNED, days_ago=2)
    return folder


@pytest.fixture
def catalogue(tmp_path):
    with fleet.Catalogue(tmp_path / "runs.sqlite") as opened:
        yield opened


def names(found):
    return [one.name for one in found]


def test_which_jobs_of_last_week_wait_for_data(runs, catalogue):
    assert catalogue.add(runs) == 3
    assert names(catalogue.waiting_for("data", since="7d")) == ["waits"]
    assert sorted(names(catalogue.waiting_for("data"))) == ["older", "waits"]
    assert names(catalogue.waiting_for("data", at_least=0.4)) == []
    (found,) = catalogue.find(finding="sync-data-loading", since="1w")
    report = stepscope.analyze(RESNET)
    assert found.step_ms == report.steps.mean_ms
    assert found.share == pytest.approx(report.findings[0].gain_ms / report.steps.mean_ms)
    assert (found.first_finding, found.first_gain_ms, found.ranks) == ("sync-data-loading", report.findings[0].gain_ms, 1)
    (waiting,) = catalogue.waiting_for("data", since="48h")
    assert waiting.share == pytest.approx(report.time_split_ms["data"] / report.steps.mean_ms)
    assert names(catalogue.find()) == ["waits", "fine", "older"]  # newest first
    assert names(catalogue.find(finding="sync-data-loading", waits_for="copy")) == []
    assert catalogue.count() == 3 and catalogue.count(since="7d") == 2
    # analyze() accepts the folder that it names.
    assert stepscope.analyze(found.folder).steps == report.steps


def test_a_time_is_a_duration_or_a_date(runs, catalogue):
    catalogue.add(runs)
    today = datetime.date.today()
    assert names(catalogue.find(since=(today - datetime.timedelta(days=5)).isoformat())) == ["waits", "fine"]
    for wrong in ("yesterday", "7", "7m", "2026-13-01"):
        with pytest.raises(stepscope.StepscopeError, match="since must be hours, days or weeks"):
            catalogue.find(since=wrong)


def test_a_run_added_again_is_updated_and_not_doubled(runs, catalogue):
    catalogue.add(runs)
    assert catalogue.add(runs) == 0
    window = next(runs.glob("stepscope/waits_*/c0"))
    (window / "advice/rank0.json").write_text(_native.call("analyze", {"paths": [str(PINNED)], "format": "json"}))
    assert catalogue.add(runs) == 1
    assert catalogue.count() == 3
    assert names(catalogue.waiting_for("data")) == ["older"]
    shutil.copytree(window, window.parent / "c1")
    assert catalogue.add(runs) == 1
    assert catalogue.count() == 4


def test_ranks_findings_and_figures_are_rows(tmp_path, catalogue):
    job = write_job(tmp_path / "job")
    assert catalogue.add(job) == 1
    report = fleet.analyze(job)
    db = sqlite3.connect(catalogue.path)
    assert db.execute("select rank, step_ms, waiting_ms from ranks order by rank").fetchall() == [
        (row.rank, row.step_ms, row.waiting_ms) for row in report.ranks.rows]
    assert db.execute("select rule, gain_ms from findings order by place").fetchall() == [
        (one.id, one.gain_ms) for one in report.findings]
    assert dict(db.execute("select key, value from figures where key glob 'time_split_ms.*'")) == {
        f"time_split_ms.{cause}": ms for cause, ms in report.time_split_ms.items()}
    assert db.execute("select world_size from runs").fetchall() == [(2,)]


def test_the_report_of_the_job_is_read_where_there_is_one(tmp_path, catalogue, monkeypatch):
    window = tmp_path / "runs/stepscope/net_2026_01_31_14_05_09/c0"
    write_job(window / "trace")
    (window / "report.json").write_text(_native.call("analyze", {"paths": [str(window)], "format": "json"}))
    monkeypatch.setattr(fleet, "analyze", None)  # a call would fail
    assert catalogue.add(tmp_path / "runs") == 1
    (found,) = catalogue.find()
    assert (found.name, found.started, found.ranks) == ("net", "2026-01-31 14:05:09", 2)


def test_what_cannot_be_read_is_named_and_the_rest_added(runs, catalogue, capfd):
    windows = {name: next(runs.glob(f"stepscope/{name}_*/c0")) for name in ("fine", "older")}
    (windows["fine"] / "advice/rank0.json").write_text("{}")
    (windows["older"] / "advice/rank0.json").write_text('{"version": 2, "steps": 5}')
    assert catalogue.add(runs) == 1
    assert names(catalogue.find()) == ["waits"]
    errors = capfd.readouterr().err
    assert all(f"skipped {window}: " in errors for window in windows.values())
    with pytest.raises(stepscope.StepscopeError, match="no/such"):
        catalogue.add("/no/such")


def test_a_cause_that_nobody_waits_for_is_said(runs, catalogue):
    assert catalogue.waiting_for("data") == []  # the catalogue is empty
    catalogue.add(runs)
    with pytest.raises(stepscope.StepscopeError, match="waits for 'dta'; what takes time in them: .*data"):
        catalogue.waiting_for("dta")


def test_files_that_are_no_catalogue_are_refused_and_left_alone(tmp_path):
    text = tmp_path / "notes.txt"
    text.write_text("no database " * 100)
    with pytest.raises(stepscope.StepscopeError, match="cannot open .*notes.txt: file is not a database"):
        fleet.Catalogue(text)
    assert text.read_text() == "no database " * 100
    newer = tmp_path / "newer.sqlite"
    with sqlite3.connect(newer) as db:
        db.execute("pragma user_version = 9")
    with pytest.raises(stepscope.StepscopeError, match="version 9; this stepscope reads version 1"):
        fleet.Catalogue(newer)
    with pytest.raises(stepscope.StepscopeError, match="is missing"):
        fleet.Catalogue(tmp_path / "none.sqlite", create=False)
    assert not (tmp_path / "none.sqlite").exists()


ADDING = "import sys; from stepscope import fleet; fleet.Catalogue(sys.argv[1]).add(sys.argv[2])"


def test_several_processes_add_at_once(tmp_path):
    jobs = []
    for writer in range(4):
        for number in range(5):
            write_run(tmp_path / f"runs{writer}", f"job{writer}x{number}", PINNED, days_ago=number)
        jobs += [f"job{writer}x{number}" for number in range(5)]
    path = tmp_path / "runs.sqlite"

    def add(writer):
        return subprocess.run([sys.executable, "-c", ADDING, str(path), str(tmp_path / f"runs{writer % 4}")], capture_output=True, text=True,
                              env={**os.environ, "PYTHONPATH": str(PACKAGE)})

    with concurrent.futures.ThreadPoolExecutor(8) as pool:  # each folder is added twice
        done = list(pool.map(add, range(8)))
    assert [one.stderr for one in done] == [""] * 8
    with fleet.Catalogue(path) as catalogue:
        assert sorted(names(catalogue.find())) == sorted(jobs)
        assert catalogue._db.execute("pragma integrity_check").fetchone() == ("ok",)
        assert catalogue._db.execute("pragma foreign_key_check").fetchall() == []
        assert catalogue._db.execute("select count(*) from ranks").fetchone() == (20,)


def test_the_command_answers_the_question(runs, tmp_path, capsys):
    path = str(tmp_path / "runs.sqlite")
    assert catalogue_command.catalogue(["add", path, str(runs)]) == 0
    assert "3 windows added or updated, 3 in all" in capsys.readouterr().out
    assert catalogue_command.catalogue(["find", path, "--waits-for", "data", "--since=7d"]) == 0
    first, line = capsys.readouterr().out.splitlines()
    assert first == "1 of 2 windows"
    assert line.split()[:2] == ["32%", "waits"] and "first: sync-data-loading, 53.6 ms" in line
    assert catalogue_command.catalogue(["find", path, "--finding", "sync-data-loading", "--format", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["windows"] == 3 and {one["name"] for one in answer["found"]} == {"waits", "older"}
    assert catalogue_command.catalogue(["find", path, "--at-least", "50%", "--waits-for", "data"]) == 0
    assert capsys.readouterr().out == "0 of 3 windows\n"


def test_an_answer_that_cannot_be_printed_is_status_one(runs, tmp_path, capsys, monkeypatch):
    path = str(tmp_path / "runs.sqlite")
    assert catalogue_command.catalogue(["add", path, str(runs)]) == 0
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    sys.stdout.close()
    assert catalogue_command.catalogue(["find", path]) == 1
    assert "cannot print to stdout" in capsys.readouterr().err


def test_names_do_not_reach_the_terminal_as_they_are(tmp_path, capsys):
    path = str(tmp_path / "runs.sqlite")
    write_run(tmp_path / "runs", "a\x1b[31mb", PINNED)
    assert catalogue_command.catalogue(["add", path, str(tmp_path / "runs")]) == 0
    assert catalogue_command.catalogue(["find", path]) == 0
    printed = capsys.readouterr().out
    assert "\x1b" not in printed and "a\\x1b[31mb" in printed


@pytest.mark.parametrize("words, says", [
    ([], "catalogue needs"), (["find"], "catalogue needs"), (["add", "x"], "catalogue needs"), (["find", "x", "y"], "catalogue needs"),
    (["drop", "x"], "catalogue needs"), (["find", "x", "--sicne", "7d"], "unknown option '--sicne'"),
    (["find", "x", "--since"], "--since needs a value"), (["find", "x", "--at-least", "0.05"], "such as 5%"),
    (["add", "x", "y", "--since", "7d"], "--since is no option of catalogue add"), (["add", "x", "y", "--workers", "0"], "--workers must"),
    (["find", "x", "--format", "csv"], "text or json, not 'csv'"),
])
def test_wrong_words_are_an_error(words, says, capsys):
    assert catalogue_command.catalogue(words) == 2
    assert says in capsys.readouterr().err


def test_what_cannot_be_done_is_status_one(tmp_path, capsys):
    assert catalogue_command.catalogue(["find", str(tmp_path / "none.sqlite")]) == 1
    assert "is missing" in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    assert catalogue_command.catalogue(["add", str(tmp_path / "runs.sqlite"), str(tmp_path / "empty")]) == 1


def test_the_options_are_those_of_the_usage_text():
    usage = _program.output(["help", "catalogue"])
    assert all(option in usage for option in catalogue_command.WITH_VALUE)
