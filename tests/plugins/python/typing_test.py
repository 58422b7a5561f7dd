"""Runs mypy's strict mode on the package, with the settings in pyproject.toml."""

import importlib.util
import subprocess
import sys

import pytest

import training_programs as programs


@pytest.mark.skipif(importlib.util.find_spec("mypy") is None, reason="mypy is not installed")
def test_the_package_is_typed():
    done = subprocess.run([sys.executable, "-m", "mypy", "--cache-dir", "build/mypy"], cwd=programs.ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
