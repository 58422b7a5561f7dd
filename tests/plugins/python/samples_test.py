"""Tests samples/resnet/train.py with every rung of the case study, and the notebook."""

import json
import re

import pytest

import stepscope
import training_programs as programs

ROOT = programs.ROOT


def train(folder, *flags):
    """Returns what it wrote to --json and what it printed."""
    done = programs.run([ROOT / "samples/resnet/train.py", "--device", "cpu", "--side", "32", "--batch", "4",
                         "--json", "times.json", *flags], cwd=folder)
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "times.json").read_text()), done.stdout


@programs.needs("torch")
@pytest.mark.parametrize("flags", [
    ("--workers", "2", "--pinned"), ("--uint8", "--set-to-none", "1", "--bf16", "--channels-last", "--sgd", "fused"), ("--fp16",)])
def test_train_goes_up_the_rungs(flags, tmp_path):
    times, out = train(tmp_path, "--steps", "5", "--log-every", "1", *flags)
    assert len(times["step_ms"]) == 5
    assert times["samples_per_s"] == pytest.approx(4000 / times["median_ms"])
    losses = [float(loss) for loss in re.findall(r"^step \d+  loss (\S+)$", out, re.MULTILINE)]
    assert 1.5 < losses[0] < 4  # ln 10 = 2.3 for ten classes; later losses of four images depend on the processor
    assert len(set(losses)) == 5
    assert times["loss"] == pytest.approx(losses[-1], abs=1e-4)
    assert "samples/s" in out


@programs.needs("torch")
def test_train_records_itself(tmp_path):
    train(tmp_path, "--log-dir", str(tmp_path / "runs"), "--active", "3")
    report = stepscope.analyze(tmp_path / "runs")
    assert report.steps.count == 3
    assert report.run.name == "resnet18"
    assert report.time_split_ms["data"] > 0


CHECKS = """
import sys
sys.path.insert(0, sys.argv[1])
from train import FakeCIFAR, resnet18
print(sum(parameter.numel() for parameter in resnet18(classes=1000).parameters()))
picture, label = FakeCIFAR(side=224, as_bytes=True, seed=1)[7]
print(tuple(picture.shape), picture.dtype, 0 <= label < 10)
"""


@programs.needs("torch")
def test_the_network_is_resnet18():
    done = programs.run(["-c", CHECKS, ROOT / "samples/resnet"])
    assert done.stdout == "11689512\n(3, 224, 224) torch.uint8 tensor(True)\n", done.stderr  # as in torchvision


NOTEBOOK = """
import sys
import nbclient
import nbformat
notebook = nbformat.read(sys.argv[1], as_version=4)
nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": "."}}).execute()
nbformat.write(notebook, "out.ipynb")
"""


@programs.needs("torch", "nbclient", "nbformat", "ipykernel")
def test_the_notebook_runs(tmp_path):
    done = programs.run(["-c", NOTEBOOK, ROOT / "samples/notebook.ipynb"], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    cells = json.loads((tmp_path / "out.ipynb").read_text())["cells"]
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    pages = ["".join(output["data"]["text/html"]) for output in outputs if "text/html" in output.get("data", {})]
    assert len(pages) == 1 and "sync-data-loading" in pages[0]
    texts = "".join("".join(output.get("text", "")) for output in outputs)
    assert "one worker: " in texts and "ms per step: gained" in texts
