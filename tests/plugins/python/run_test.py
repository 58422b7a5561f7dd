"""Tests `stepscope run` on unmodified programs: it finds their steps, and does not change what they print or how they end."""

import gzip
import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest

import stepscope
import training_programs as programs
from stepscope import _libtorch, _native, run
from training_programs import PYTHON, calls, needs, numbers

needs_torch = needs("torch")
LIBTORCH_PROGRAM = _native.library_dir().parent / "bin/libtorch_train"


class Ran:
    """A program that was run with --steps 4, and the reports on its ranks."""

    def __init__(self, folder, words, options=()):
        self.out = folder / "out"
        done = programs.run(["-m", "stepscope", "run", "--steps", "4", "--out", self.out, *options, *words])
        self.status, self.stdout, self.stderr = done.returncode, done.stdout, done.stderr

    def said(self):
        """Returns our lines on stderr."""
        return [line.removeprefix("stepscope: ") for line in self.stderr.splitlines() if line.startswith("stepscope: ")]

    def reports(self):
        traces = sorted(self.out.glob("stepscope/*/c0/trace/rank*.json.gz"))
        return [stepscope.analyze(trace) for trace in traces]

    def report(self):
        reports = self.reports()
        assert len(reports) == 1, self.stderr
        return reports[0]


@pytest.fixture
def ran(tmp_path):
    return lambda *words, options=(): Ran(tmp_path, words, options)


@needs_torch
def test_a_plain_loop_is_recorded_from_step_10(ran):
    run = ran("plain.py", "20")
    assert run.status == 0
    assert run.stdout == "argv ['20'] __main__ plain.py path programs\n"
    report = run.report()
    assert numbers(report) == [10, 11, 12, 13]
    assert calls(report, "aten::addmm") == 1
    assert run.said()[0].startswith("recorded 4 steps of ")
    assert run.said()[1] == f"the report: stepscope analyze {run.out}"
    assert len(run.stderr.splitlines()) == 2


@needs_torch
def test_micro_batches_stay_inside_a_step(ran):
    run = ran("plain.py", "20", "--accumulate", "4")
    assert (run.status, run.stdout) == (0, "argv ['20', '--accumulate', '4'] __main__ plain.py path programs\n")
    report = run.report()
    assert numbers(report) == [10, 11, 12, 13]
    assert calls(report, "aten::addmm") == 4


@needs_torch
def test_two_optimizers_of_an_iteration_make_one_step(ran):
    run = ran("gan.py")
    assert (run.status, run.stdout) == (0, "done\n")
    report = run.report()
    assert numbers(report) == [10, 11, 12, 13]
    assert calls(report, "aten::addmm") == 4


@needs_torch
def test_the_folds_of_a_cross_validation_are_counted_together(ran):
    run = ran("folds.py", options=("--skip", "30"))
    assert (run.status, run.stdout) == (0, "done\n")
    report = run.report()
    assert numbers(report) == [30, 31, 32, 33], run.stderr
    assert calls(report, "aten::mse_loss") == 1


@needs_torch
def test_where_nothing_can_be_written_the_report_is_printed(tmp_path):
    (tmp_path / "file").write_text("")
    done = programs.run(["-m", "stepscope", "run", "--steps", "4", "--out", tmp_path / "file/out", "plain.py", "20"])
    said = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (0, "argv ['20'] __main__ plain.py path programs\n")
    assert said[0].startswith(f"stepscope: cannot write to log_dir: {tmp_path}/file/out/stepscope: Not a directory"), said
    assert said[1].startswith("stepscope: recorded 4 steps of "), said
    assert said[2] == (f"stepscope: no trace could be kept in {tmp_path}/file/out; choose another folder with stepscope run --out. The"
                       " report:")
    assert said[3].startswith("stepscope  out  4 steps"), said
    assert any(line.startswith("mean step ") for line in said)
    assert f"stepscope analyze {tmp_path}" not in done.stderr


@needs_torch
def test_without_an_optimizer_a_step_is_a_batch(ran):
    run = ran("inference.py")
    assert (run.status, run.stdout) == (0, "done\n")
    report = run.report()
    assert numbers(report) == [10, 11, 12, 13]
    assert calls(report, "aten::addmm") == 1


@needs_torch
def test_a_compiled_step_is_counted_and_not_compiled_again(ran):
    run = ran("plain.py", "20", "--compile")
    assert numbers(run.report()) == [10, 11, 12, 13]
    assert re.search(r"graphs \d recompiled 0\n", run.stdout), run.stdout


@needs_torch
@pytest.mark.parametrize(("end", "status", "last"), [("raise", 1, "RuntimeError: the loss is not finite"), ("exit3", 3, ""),
                                                     ("sigint", -signal.SIGINT, "KeyboardInterrupt")])
def test_a_partial_window_is_kept_however_the_program_ends(ran, end, status, last):
    run = ran("plain.py", "13", "--end", end)
    assert run.status == status
    own = [line for line in run.stderr.splitlines() if not line.startswith("stepscope: ")]
    assert (own[-1] if own else "") == last
    assert numbers(run.report()) == [10, 11, 12]


@needs_torch
@pytest.mark.parametrize(("words", "status", "printed", "steps"), [
    (["--signal", "SIGTERM"], -signal.SIGTERM, "", [10, 11, 12]),
    (["--signal", "SIGTERM", "--handler", "exit"], 7, "SIGTERM is ours\n", [10, 11]),
    (["--signal", "SIGTERM", "--handler", "note"], 0, "SIGTERM is ours\nargv ", [10, 11, 12, 13]),
    (["--signal", "SIGINT"], -signal.SIGINT, "", [10, 11])])
def test_a_partial_window_is_kept_when_a_signal_comes_and_the_program_ends_as_without_us(ran, words, status, printed, steps):
    run, bare = ran("plain.py", "20", *words), programs.run(["plain.py", "20", *words])
    assert (run.status, run.stdout) == (bare.returncode, bare.stdout)
    assert run.status == status
    assert run.stdout.startswith(printed)
    traces = [[line for line in text.splitlines() if not line.startswith("stepscope: ")] for text in (run.stderr, bare.stderr)]
    assert traces[0] == traces[1]
    assert numbers(run.report()) == steps
    assert run.said()[-1] == f"the report: stepscope analyze {run.out}"


@needs_torch
def test_a_child_that_is_forked_while_steps_are_recorded_records_nothing(ran):
    run = ran("plain.py", "20", "--fork")
    assert run.status == 0
    assert numbers(run.report()) == [10, 11, 12, 13]
    assert len(run.said()) == 2


@needs_torch
def test_a_program_with_too_few_steps_is_told_so(ran):
    run = ran("plain.py", "5")
    assert run.status == 0
    assert run.said()[-1:] == ["nothing was recorded: the program made only 5 steps, but recording starts after step 10 "
                                "(change it with stepscope run --skip)"]


@needs_torch
def test_shapes_lines_and_modules_are_recorded_unless_turned_off(ran, tmp_path):
    report = ran("plain.py", "20").report()
    assert any(row.name.endswith(" in train") and row.name.startswith("plain.py:") for row in report.lines)
    assert [(row.name, row.class_) for row in report.modules] == [("Linear", "Linear")]
    report = Ran(tmp_path / "ops", ("plain.py", "20"), ("--ops-only",)).report()
    assert (report.lines, report.modules) == ((), ())


@needs_torch
def test_steps_can_be_chosen(ran):
    run = ran("plain.py", "8", options=("--skip", "2"))
    assert numbers(run.report()) == [2, 3, 4, 5]


@needs_torch
def test_torchrun_records_the_same_steps_on_all_ranks(ran):
    run = ran("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "ranks.py")
    assert (run.status, run.stdout) == (0, "done\ndone\n"), run.stderr
    assert [numbers(report) for report in run.reports()] == [[10, 11, 12, 13]] * 2
    assert [report.run.rank for report in run.reports()] == [0, 1]
    assert len(run.said()) == 2  # only from rank 0


TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "ranks.py"]


@needs_torch
def test_ranks_keep_their_partial_window_where_one_raises(ran):
    run = ran(*TORCHRUN, "raise")
    assert run.status == programs.run([*TORCHRUN, "raise"]).returncode == 1
    assert "RuntimeError: the loss is not finite" in run.stderr
    assert [(report.run.rank, numbers(report)) for report in run.reports()] == [(0, [10, 11]), (1, [10, 11])]


@needs_torch
def test_ranks_that_torchrun_ends_keep_their_partial_window(tmp_path):
    mark, out = tmp_path / "mark", tmp_path / "out"
    words = ["-m", "stepscope", "run", "--steps", "9000", "--out", out, *TORCHRUN, mark]
    with subprocess.Popen([PYTHON, *map(str, words)], env=programs.environment(), cwd=programs.HERE / "programs", stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 120
        while len(list(tmp_path.glob("mark.*"))) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        process.terminate()
        errors = process.communicate(timeout=100)[1]
    assert process.returncode == 1  # torchrun's own status, with a SignalException
    assert "SignalException" in errors
    reports = [stepscope.analyze(trace) for trace in sorted(out.glob("stepscope/*/c0/trace/rank*.json.gz"))]
    assert [report.run.rank for report in reports] == [0, 1], errors
    for report in reports:
        assert numbers(report)[0] == 10
        assert numbers(report) == list(range(10, 10 + report.steps.count))


@needs_torch
def test_spawned_processes_are_recorded(ran):
    run = ran("ranks.py", "spawn")
    assert (run.status, run.stdout) == (0, "done\n"), run.stderr
    assert [numbers(report) for report in run.reports()] == [[10, 11, 12, 13]] * 2
    assert len(run.said()) == 2


@needs("lightning")
def test_lightning(ran):
    run = ran("lightning_fit.py")
    assert run.status == 0
    assert run.stdout.endswith("done 20\n")
    assert numbers(run.report()) == [10, 11, 12, 13]
    assert calls(run.report(), "aten::addmm") == 2


@needs("transformers")
def test_hugging_face_trainer(ran):
    run = ran("hf_trainer.py")
    assert run.status == 0
    assert run.stdout.endswith("done 20\n"), run.stderr
    assert numbers(run.report()) == [10, 11, 12, 13]
    assert calls(run.report(), "aten::addmm") == 2


@needs_torch
@pytest.mark.skipif(not LIBTORCH_PROGRAM.exists(), reason="built without torch")
def test_a_program_of_libtorch_is_recorded_for_a_while_from_its_first_operator(ran, monkeypatch):
    monkeypatch.setenv("STEPSCOPE_START_MS", "200")
    monkeypatch.setenv("STEPSCOPE_DURATION_MS", "200")
    run = ran("--", LIBTORCH_PROGRAM, "1500", "3")
    assert (run.status, run.stdout) == (3, "done\n"), run.stderr
    assert run.said()[-1] == f"the report: stepscope analyze {run.out}"
    assert calls(run.report(), "aten::mm") > 0
    (trace,) = run.out.glob("stepscope/*/c0/trace/rank0.json.gz")
    assert "Input Dims" in gzip.open(trace, "rt").read()


@needs_torch
@pytest.mark.skipif(not LIBTORCH_PROGRAM.exists(), reason="built without torch")
def test_a_program_of_libtorch_that_ends_soon_is_told_so(ran):
    run = ran("--", LIBTORCH_PROGRAM, "1", "0")
    assert (run.status, run.stdout) == (0, "done\n")
    assert run.said() == ["the program ended before the 1000 ms of STEPSCOPE_START_MS, so nothing was recorded"]


def test_a_program_of_another_kind_loads_no_recorder(ran):
    run = ran("--", "sh", "-c", "echo ${LD_PRELOAD-none}")
    assert (run.status, run.stdout, run.stderr) == (0, "none\n", "")


@pytest.mark.parametrize(("files", "expected"), [
    ({"version.py": "__version__ = '2.9.1+cu130'\ncuda: Optional[str] = '13.0'\n"}, ("2.9.1+cu130", "13.0")),
    ({"version.py": "__version__ = '2.9.1+cpu'\ncuda: Optional[str] = None\n"}, ("2.9.1+cpu", "none")),
    ({"build-version": "2.11.0+cu126\n"}, ("2.11.0+cu126", "12.6")), ({"build-version": "2.11.0+cpu\n"}, ("2.11.0+cpu", "none")),
    ({}, None), ({"version.py": "nonsense"}, None)])
def test_the_version_of_libtorch_is_read_beside_it(tmp_path, files, expected):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert _libtorch.version_of(tmp_path / "lib/libtorch_cpu.so") == expected


def test_without_a_recorder_for_its_libtorch_nothing_is_loaded(tmp_path):
    with pytest.raises(stepscope.StepscopeError, match="no file beside .* says which version"):
        _libtorch.environment(tmp_path / "lib/libtorch_cpu.so")
    (tmp_path / "build-version").write_text("1.13.0+cpu")
    with pytest.raises(stepscope.StepscopeError, match=r"no recorder for LibTorch 1.13.0\+cpu \(CUDA none\)"):
        _libtorch.environment(tmp_path / "lib/libtorch_cpu.so")


def test_a_program_without_torch_runs_as_it_is(ran, tmp_path):
    (tmp_path / "site").mkdir()
    script = tmp_path / "script.py"
    script.write_text("import sys; print(sys.argv[1:], sys.flags.isolated); sys.exit(5)")
    run = ran(str(script), "--skip", "a b")
    assert (run.status, run.stdout, run.stderr) == (5, "['--skip', 'a b'] 0\n", "")


def test_a_program_whose_reader_leaves_ends_by_sigpipe_as_without_us(tmp_path):
    words = ["--", "sh", "-c", "kill -PIPE $$; echo SIGPIPE is ignored"]
    done = programs.run(["-m", "stepscope", "run", "--out", tmp_path, *words])
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGPIPE, "", "")


def test_a_program_runs_with_a_closed_stdout(tmp_path):
    words = [PYTHON, "-m", "stepscope", "run", "--out", tmp_path, "--", "sh", "-c", "exit 5"]
    done = subprocess.run(["sh", "-c", 'exec "$@" >&-', "sh", *words], env=programs.environment(), stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (5, "")


def test_another_sitecustomize_is_loaded_as_well(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.stdout.write('theirs ')")
    environment = programs.environment(PYTHONPATH=f"{programs.PACKAGE}{os.pathsep}{tmp_path}")
    command = [PYTHON, "-m", "stepscope", "run", "-c", "import sys, sitecustomize; print(sitecustomize.__file__)"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout == f"theirs theirs {tmp_path / 'sitecustomize.py'}\n"  # the first is of `python -m stepscope` itself
    assert done.stderr == ""


def test_counters_are_asked_for_in_the_programs_environment(monkeypatch):
    monkeypatch.delenv("STEPSCOPE_GPU_COUNTERS", raising=False)
    assert run.environment({"--gpu-counters": "500"}, ["a.py"])["STEPSCOPE_GPU_COUNTERS"] == "500"
    assert "STEPSCOPE_GPU_COUNTERS" not in run.environment({}, ["a.py"])


def parsed(*words):
    return run.parse(words)


def test_options_end_where_the_program_begins():
    assert parsed("--skip", "3", "train.py", "--skip", "4") == ({"--skip": "3"}, ["train.py", "--skip", "4"])
    assert parsed("--out=x", "--", "--odd") == ({"--out": "x"}, ["--odd"])
    assert parsed("--gpu-counters", "1000", "a.py") == ({"--gpu-counters": "1000"}, ["a.py"])
    assert parsed("--ops-only", "a.py") == ({"--ops-only": ""}, ["a.py"])
    assert parsed("-m", "pkg.train", "-x") == ({}, ["-m", "pkg.train", "-x"])


@pytest.mark.parametrize(("words", "says"), [
    ([], "run needs a program"), (["--skip"], "--skip needs a value"), (["--skip", "x", "a.py"], "whole number of at least 0, not 'x'"),
    (["--steps", "0", "a.py"], "at least 1"), (["--gpu-counters", "9", "a.py"], "from 10 to 10000, not '9'"),
    (["--gpu-counters", "x", "a.py"], "from 10 to 10000"), (["--ops-only=1", "a.py"], "unknown option '--ops-only'"), (["--skp", "3", "a.py"], "unknown option '--skp'")])
def test_wrong_usage_is_one_line_and_status_two(words, says, capsys):
    assert run.run(words) == 2
    error = capsys.readouterr().err
    assert says in error and error.count("\n") == 1


def test_a_program_that_is_not_there_is_status_127(capsys):
    assert run.run(["no-such-program"]) == 127
    assert capsys.readouterr().err == "stepscope: no program 'no-such-program'\n"


def test_a_python_file_runs_in_this_python():
    assert run.command_of(["train.py", "-x"]) == [sys.executable, "train.py", "-x"]
    assert run.command_of(["-m", "train"]) == [sys.executable, "-m", "train"]
    assert os.path.isabs(run.command_of(["sh"])[0])


def test_flags_that_ignore_the_path_are_named():
    assert run.ignored_by(["/usr/bin/python3", "-u", "-Im", "train"]) == "-Im"
    assert run.ignored_by(["/usr/bin/python3", "-W", "Ignore", "train.py", "-S"]) == ""
    assert run.ignored_by(["/usr/bin/python3", "-c", "-I"]) == ""
    assert run.ignored_by(["/usr/bin/torchrun", "-I"]) == ""


def test_a_run_is_called_by_its_script():
    assert run.name_of(["train.py", "x"]) == "train"
    assert run.name_of(["torchrun", "--nproc-per-node", "2", "src/train_gpt.py", "other.py"]) == "train_gpt"
    assert run.name_of(["-m", "package.train"]) == "train"
    assert run.name_of(["accelerate", "launch", "-m", "package.main"]) == "main"
    assert run.name_of(["./train"]) == "train"


def test_the_environment_keeps_what_was_there(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/mine")
    found = run.environment({"--skip": "3"}, ["train.py"])
    assert found["PYTHONPATH"] == f"{run.SITE}{os.pathsep}/mine"
    wanted = json.loads(found["STEPSCOPE_RUN"])
    assert (wanted["skip"], wanted["steps"], wanted["name"], wanted["out"]) == (3, 10, "train", os.path.abspath("runs/train"))
    wanted = json.loads(run.environment({"--out": "runs/lr3/"}, ["train.py"])["STEPSCOPE_RUN"])
    assert (wanted["name"], wanted["out"]) == ("lr3", os.path.abspath("runs/lr3"))
