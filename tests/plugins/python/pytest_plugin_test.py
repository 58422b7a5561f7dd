"""Tests the pytest fixture in a separate pytest."""

import training_programs as programs

pytestmark = programs.needs("torch", "pytest")

TESTS = """
import time
import torch

def test_step(record_steps):
    def step():
        torch.ones(10, 10).mm(torch.ones(10, 10))
        time.sleep({seconds})
    report = record_steps(step)
    assert report.steps.count == 10
"""


def run(folder, seconds, *options):
    (folder / "test_it.py").write_text(TESTS.format(seconds=seconds))
    return programs.run(["-m", "pytest", "-q", "-p", "stepscope.pytest_plugin", "-p", "no:cacheprovider", *options], cwd=folder)


def test_a_slower_step_fails_and_noise_does_not(tmp_path):
    keep = ("--stepscope-dir", "before")
    against = ("--stepscope-dir", "now", "--stepscope-baseline", "before", "--stepscope-min-ms", "5")
    first = run(tmp_path, 0.01, *keep)
    assert first.returncode == 0, first.stdout
    same = run(tmp_path, 0.01, *against)
    assert same.returncode == 0, same.stdout
    slower = run(tmp_path, 0.05, *against)
    assert slower.returncode == 1
    assert "slower than before" in slower.stdout and "ms per step: gained -" in slower.stdout


def test_a_baseline_that_does_not_exist_is_said(tmp_path):
    done = run(tmp_path, 0, "--stepscope-baseline", "none")
    assert done.returncode == 4
    assert "there is no folder 'none'" in done.stderr
    (tmp_path / "empty").mkdir()
    done = run(tmp_path, 0.001, "--stepscope-baseline", "empty")
    assert done.returncode == 0, done.stdout
    assert "does not exist, so this test is compared with nothing" in done.stdout


def test_a_wrong_percentage_is_wrong_usage(tmp_path):
    done = run(tmp_path, 0, "--stepscope-fail-over", "5")
    assert done.returncode == 4
    assert "must be a percentage such as 5%, not '5'" in done.stderr
