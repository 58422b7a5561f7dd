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


@pytest.mark.parametrize("framework, begin, step, end", [
    ("transformers", "on_train_begin(0, 0, 0)", "on_step_end(0, 0, 0)", "on_train_end(0, 0, 0)"),
    ("lightning", "on_train_start(trainer, 0)", "on_train_batch_end(trainer, 0, 0, 0, 0)", "on_train_end(trainer, 0)")])
def test_a_training_that_was_interrupted_does_not_keep_the_next_one_from_being_recorded(run_program, tmp_path, framework, begin, step, end):
    """Makes the Trainer's calls, with a stand-in for the package. Callbacks of transformers do not hear of an exception, and
    those of lightning only if none before them raises another one."""
    (tmp_path / "transformers.py").write_text("TrainerCallback = type('Base', (), {})\nTrainerControl = TrainerState = TrainingArguments = 0")
    (tmp_path / "lightning").mkdir()
    (tmp_path / "lightning/__init__.py").touch()
    (tmp_path / "lightning/pytorch.py").write_text("Callback = type('Base', (), {})\nLightningModule = Trainer = 0")
    done = run_program(f"""
import types, torch
from stepscope import schedule
from stepscope.{framework} import StepscopeCallback
def train(callback, ends=True):
    trainer = types.SimpleNamespace(global_step=0)
    callback.{begin}
    assert callback.report is None
    for trainer.global_step in range(1, 7):
        torch.ones(4, 4).sum()
        callback.{step}
    if ends: callback.{end}
first, second = (StepscopeCallback(print_report=False, schedule=schedule(wait=0, warmup=1, active=9)) for _ in "xx")
assert first.report is None
train(first, ends=False)
train(first, ends=False)
train(second)
print(first.report.steps.count, second.report.steps.count)
""")
    assert done.stdout == "5 5\n"
    assert "unprofiled" not in done.stderr
