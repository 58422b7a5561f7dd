"""Runs the program as a user does, with programs that only pretend to train."""

import json
import pathlib
import subprocess
import sys

import fake_programs
import ladder
import pytest

HERE = pathlib.Path(__file__).parent
PROGRAM = HERE.parents[2] / "samples/ladder/ladder.py"


@pytest.fixture
def call(tmp_path, monkeypatch, capsys):
    """Runs the program in an empty folder; returns (its output, what --json wrote)."""
    monkeypatch.chdir(tmp_path)

    def start(*words, expected=0):
        try:
            status = ladder.main([*words, "--json", "found.json"], fake_programs.run)
        except SystemExit as stop:  # argparse exits this way
            status = stop.code
        out, err = capsys.readouterr()
        assert status == expected, out + err
        return out + err, json.loads(pathlib.Path("found.json").read_text()) if status == 0 else None

    return start


SHORT = ("--steps", "14", "--pairs", "2")


def test_runs_as_a_program_of_its_own_on_programs_of_their_own(tmp_path):
    words = ["sweep", "--threads", "1,2", "--rounds", "2", "--steps", "13", "--bin", HERE / "bin", "--json", "found.json"]
    done = subprocess.run([sys.executable, PROGRAM, *words], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    [effect] = json.loads((tmp_path / "found.json").read_text())["effects"]
    assert effect["at_baseline"] == pytest.approx(116 / 74, rel=0.01)
    assert effect["predicted"] == pytest.approx(116 / 74)
    assert "| --threads 2 " in done.stdout


def test_another_program_may_train(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    commands = []

    def start(command, limit_s=600):
        commands.append(command[:2])
        return fake_programs.resnet(command[2:]) if command[:2] == ["python", "my train.py"] else fake_programs.run(command)

    words = ["sweep", "--threads", "1,2", "--rounds", "2", "--steps", "13", "--train", "python 'my train.py'"]
    assert ladder.main(words, start) == 0, capsys.readouterr().err
    assert ["python", "my train.py"] in commands and not any(command[0].endswith("resnet") for command in commands)
    assert (tmp_path / "runs/sweep_train/runs.jsonl").exists()


def test_climb_prints_and_writes_what_it_found(call, tmp_path):
    text, record = call("climb", "--no-sweep", "--profiles", "1", *SHORT, "--side", "64")
    assert [step["id"] for step in record["steps"]] == ["cores-idle", "small-batch"]
    assert record["samples_per_s"] == pytest.approx(64 / 0.138, rel=0.01)
    assert "1  cores-idle: --threads 2: faster, kept\n" in text
    assert "to   --batch 64 --threads 2\n" in text
    # Flags of every run are not part of a run's settings. All measurements are kept in --work.
    keys = [json.loads(line)["key"] for line in (tmp_path / "runs/climb/runs.jsonl").read_text().splitlines()]
    assert len(keys) == 3 * 2 * 2 and all("--side 64" in key for key in keys)


def test_climb_stops_when_its_time_is_over_and_goes_on_from_there(call):
    words = ("climb", "--no-sweep", "--profiles", "1", *SHORT, "--start", "--slow-start 120")
    text, _ = call(*words, "--limit", "1", expected=3)
    assert "the time is over; the same command goes on from runs/climb" in text
    assert len(call(*words)[1]["steps"]) == 2


def test_rungs_prints_its_table_and_writes_it_only_where_it_is_told(call, tmp_path):
    text, record = call("rungs", *SHORT)
    assert [rung["name"] for rung in record["rungs"]][:2] == ["baseline", "a loader worker"]
    assert "| sync-data-loading " in text and "Slow CPU, 2 cores; LibTorch 2.11.0. `ladder.py rungs --device cpu --pairs 2 --steps 14 --active 6`" in text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["found.json", "runs"]
    call("rungs", *SHORT, "--results", "r.md")
    assert "| sync-data-loading " in (tmp_path / "r.md").read_text()
    assert "`ladder.py rungs --device cpu --pairs 2 --steps 14 --active 6`" in (tmp_path / "r.md").read_text()


def test_sweep_takes_flags_of_resnet(call):
    text, record = call("sweep", "--threads", "1,2", "--channels-last", "off,on", "--rounds", "2", "--steps", "13", "--lr", "0.1")
    assert record["baseline"] == "--lr 0.1 --threads 1"
    assert len(record["points"]) == 4 and all(len(point["runs"]) == 2 for point in record["points"])
    assert "4 settings, 2 interleaved rounds" in text


@pytest.mark.parametrize("words, said", [
    (["climb", "--pair", "3"], "--pair"), (["climb", "--start", "workers"], "neither a flag nor"),
    (["climb", "--pairs", "1"], "at least 2"), (["climb", "--steps", "x"], "whole_number"), (["sweep"], "several values"),
    (["sweep", "--workers", "0,7", "--rounds", "2", "--steps", "13"], "at most 4"), (["sweep", "workers"], "'workers'"),
    (["rungs", "--device", "tpu"], "tpu"), (["fly"], "fly"), ([], "command")])
def test_words_that_make_no_sense_end_with_status_two(call, words, said):
    assert said in call(*words, expected=2)[0]


def test_a_program_that_is_not_there_is_said_with_what_to_do(tmp_path, capsys):
    assert ladder.main(["rungs", "--bin", str(tmp_path), "--work", str(tmp_path / "work")]) == 1
    said = capsys.readouterr().err
    assert str(tmp_path / "resnet") in said and "--bin" in said


def test_a_program_that_fails_is_shown_with_what_it_said(call):
    text, _ = call("sweep", "--threads", "1,2", "--fail", "off,on", "--rounds", "2", expected=1)
    assert "exit code 3" in text and "no such weather" in text


def test_a_gpu_has_rungs_and_a_folder_of_its_own(call, tmp_path):
    text, _ = call("rungs", *SHORT, "--device", "cuda", expected=0)
    assert "`--uint8 --batch 1024`" in text
    assert "--device cuda" in (tmp_path / "runs/rungs_gpu/runs.jsonl").read_text()


def test_a_climb_may_train_on_a_gpu_too(call, tmp_path):
    call("climb", *SHORT, "--device", "cuda", "--no-sweep", "--max-changes", "1")
    runs = (tmp_path / "runs/climb_gpu/runs.jsonl").read_text().splitlines()
    assert runs and all("--device cuda" in run for run in runs)
