"""Runs one round of those parts of the soak that take only seconds."""

import json
import pathlib
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "plugins/python"))
import training_programs as programs  # noqa: E402

HERE = pathlib.Path(__file__).parent
pytestmark = programs.needs("torch")


@pytest.mark.parametrize("part", ["clock", "memory", "vanishing", "shared"])
def test_a_round(part, tmp_path):
    words = [programs.PYTHON, HERE / "soak.py", "--minutes", "0", "--seed", "1", "--only", part, "--out", tmp_path]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    state = json.loads((tmp_path / "state.json").read_text(encoding="utf-8"))
    assert state[part]["rounds"] == 1
    assert not state[part]["untried"]
