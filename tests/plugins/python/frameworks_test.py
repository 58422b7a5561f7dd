"""Tests the callbacks for Lightning, Hugging Face's Trainer and Accelerate with the real packages on a CPU."""

import pytest

import stepscope
import training_programs as programs


@pytest.mark.parametrize("program", [
    pytest.param("lightning_fit.py", marks=programs.needs("lightning")),
    pytest.param("hf_trainer.py", marks=programs.needs("transformers"))])
def test_a_callback_records_whole_steps(program, tmp_path):
    done = programs.run([program, "callback", tmp_path])
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("done 20\n")
    report = stepscope.analyze(tmp_path)
    assert programs.numbers(report) == [10, 11, 12, 13]
    assert programs.calls(report, "aten::addmm") == 2  # two batches per step


@programs.needs("accelerate")
def test_accelerate_records_with_its_own_profile_method(tmp_path):
    done = programs.run(["accelerated.py", tmp_path])
    assert done.stdout.endswith("[3, 4, 5, 6]\n"), done.stderr
