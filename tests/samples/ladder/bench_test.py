import json
import pathlib

import pytest
from bench import Bench, Failed, Journal, ProgramFailed, TimeOver, run_program
from resnet_flags import Settings
from timing import Length, RunTimes

of, SHORT = Settings.of, Length(8)


def shell(script, limit_s=60):
    return run_program(["/bin/sh", "-c", script], limit_s)


def test_what_a_program_prints_is_kept():
    assert shell("echo out; echo err >&2") == "out\n"


def test_a_failure_shows_its_code_and_its_last_lines():
    with pytest.raises(ProgramFailed) as failed:
        shell("for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14; do echo line $i; done; echo 'the reason' >&2; exit 7")
    text = str(failed.value)
    assert failed.value.returncode == 7
    assert "exit code 7:" in text and text.endswith("\n  line 14\n  the reason") and "\n  line 2\n" not in text


def test_a_failure_without_a_word_says_so():
    with pytest.raises(ProgramFailed, match="it printed nothing"):
        shell("exit 1")


def test_a_huge_output_shows_its_end_only():
    with pytest.raises(ProgramFailed) as failed:
        shell("head -c 100000 /dev/zero | tr '\\0' x; echo; echo end; exit 1")
    assert str(failed.value).endswith("\n  end")
    assert len(str(failed.value)) < 5000


def test_a_signal_is_named():
    with pytest.raises(ProgramFailed, match="signal 11"):
        shell("kill -SEGV $$")


def test_what_takes_too_long_is_killed():
    with pytest.raises(ProgramFailed, match="(?s)after 0.3 s.*begun"):
        shell("echo begun; exec sleep 100", 0.3)


def test_a_program_that_is_not_there_cannot_be_started():
    with pytest.raises(Failed, match="/nowhere/at/all") as failed:
        run_program(["/nowhere/at/all"])
    assert not isinstance(failed.value, ProgramFailed)


def test_the_input_of_a_program_is_empty():
    shell('test -z "$(cat)"')


def test_a_journal_remembers_runs_across_programs(tmp_path):
    path, key = str(tmp_path / "runs.jsonl"), 'odd "key"\\ with\nall × '
    journal = Journal(path)
    journal.add(key, RunTimes([1, 2.25], 1, 8))
    journal.add("b", RunTimes([3]))
    assert Journal(path).runs == {key: RunTimes([1, 2.25], 1, 8), "b": RunTimes([3])}


def test_a_half_written_last_line_is_taken_away(tmp_path):
    path = tmp_path / "runs.jsonl"
    Journal(str(path)).add("a", RunTimes([1]))
    with path.open("a") as file:
        file.write('{"key": "b", "run": {"ste')
    journal = Journal(str(path))
    assert list(journal.runs) == ["a"]
    journal.add("c", RunTimes([1]))
    assert list(Journal(str(path)).runs) == ["a", "c"]


def test_an_empty_journal_is_a_beginning(tmp_path):
    (tmp_path / "runs.jsonl").touch()
    assert Journal(str(tmp_path / "runs.jsonl")).runs == {}


def test_a_line_that_is_no_run_is_named(tmp_path):
    path = tmp_path / "runs.jsonl"
    path.write_text('{"key": "a", "run": 1}\nmore\n')
    with pytest.raises(Failed, match="runs.jsonl, line 1"):
        Journal(str(path))


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError, match="file/work"):
        Bench("bin", str(tmp_path / "file/work"))


def test_a_run_is_measured_once_for_each_purpose_number_and_length(make_bench):
    bench = make_bench()
    for _ in range(2):
        bench.time(Settings(), SHORT, "a", 0)
    assert bench.runs == 1
    bench.time(Settings(), SHORT, "a", 1)
    bench.time(Settings(), SHORT, "b", 0)
    bench.time(Settings(), Length(9), "a", 0)
    bench.time(of("--batch 8"), SHORT, "a", 0)
    assert bench.runs == 5


def test_another_program_goes_on_where_one_stopped(make_bench):
    make_bench().time(Settings(), SHORT, "a", 0)
    late = make_bench(limit_s=0)
    late.time(Settings(), SHORT, "a", 0)
    for start in (lambda: late.time(Settings(), SHORT, "a", 1), lambda: late.profile(Settings(), "p")):
        with pytest.raises(TimeOver, match="goes on from"):
            start()
    assert late.runs == 0


def test_what_every_run_gets_tells_runs_apart(make_bench):
    benches = [make_bench(always) for always in ("--side 32", "--side 64")]
    for bench in benches:
        bench.time(Settings(), SHORT, "a", 0)
    assert [bench.runs for bench in benches] == [1, 1]


def test_settings_win_over_what_every_run_gets(make_bench):
    run = make_bench("--batch 16 --workers 1").time(of("--batch 64"), Length(12, 2), "a", 0)
    assert (len(run.step_ms), run.warm_steps, run.batch) == (12, 2, 64)
    assert run.median_ms() == pytest.approx(148)  # 20 + 2 x 64


def test_a_profile_is_taken_again_for_other_settings_of_the_same_name_and_for_more_steps(make_bench):
    bench = make_bench()
    assert bench.profile(Settings(), "p").step_ms == bench.profile(Settings(), "p").step_ms == 116
    assert bench.runs == 1
    assert bench.profile(of("--threads 2"), "p").step_ms == 74
    assert bench.runs == 2
    for _ in range(2):
        bench.profile(of("--threads 2"), "p", 2)
    assert bench.runs == 3


def test_a_profile_leaves_nothing_older(make_bench):
    bench = make_bench()
    old = pathlib.Path(bench.folder, "p/old")
    old.parent.mkdir()
    old.touch()
    report = bench.profile(Settings(), "p")
    assert report.path == str(old.parent) and not old.exists()
    assert report.findings[0].id == "cores-idle"


def test_a_failed_run_shows_its_command_and_its_words(make_bench):
    with pytest.raises(ProgramFailed, match="(?s)--batch=7.*exit code 3.*no such weather"):
        make_bench().time(of("--fail --batch 7"), SHORT, "a", 0)


def test_a_report_that_cannot_be_read_is_named(make_bench, monkeypatch):
    monkeypatch.setattr("fake_programs.analyze", lambda flags: {"version": 3})
    with pytest.raises(Failed, match="work/p"):
        make_bench().profile(Settings(), "p")


def test_what_stepscope_fails_with_is_not_the_settings_fault(make_bench, monkeypatch):
    def fail(words):
        raise ProgramFailed("no such trace", 1)

    monkeypatch.setattr("fake_programs.stepscope", fail)
    with pytest.raises(Failed, match="analyze.*no such trace") as failed:
        make_bench().profile(Settings(), "p")
    assert not isinstance(failed.value, ProgramFailed)


def test_json_of_a_failing_command_is_read_all_the_same(make_bench, monkeypatch):
    def fail(words):
        raise ProgramFailed("no", 1, '{"why_not": "no steps"}')

    monkeypatch.setattr("fake_programs.stepscope", fail)
    assert make_bench().stepscope("what-if", "x") == {"why_not": "no steps"}


def test_compares_whole_periods(make_bench):
    runs = make_bench("--device cuda").compare(of("--workers 2"), Settings(), 2, "a", Length(12))
    assert runs.period == 10
    assert len(runs.before[0].step_ms) == 4 + 10


# Both sides of a pair run alternately, even if another comparison has already measured one of them.
def test_beside_another_partner_a_run_is_measured_again(make_bench):
    bench = make_bench()
    for partner, runs in (("1", 4), ("2", 8), ("2", 8)):
        bench.compare(Settings(), of(f"--workers {partner}"), 2, "a", SHORT)
        assert bench.runs == runs


def test_a_journal_line_is_json(make_bench):
    bench = make_bench()
    bench.time(Settings(), SHORT, "a", 0)
    line = pathlib.Path(bench.journal.path).read_text(encoding="utf-8")
    assert json.loads(line)["run"]["batch"] == 32
