"""Runs the programs in programs/ on the Python with torch: STEPSCOPE_PYTHON, else this Python."""

import functools
import os
import pathlib
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[2]
PACKAGE = ROOT / "plugins/python"
PYTHON = os.environ.get("STEPSCOPE_PYTHON") or sys.executable


def environment(**more):
    """Returns the environment for a process that uses this tree's package. One thread per operator, because tests run in
    parallel. Hides torch's warning about a missing NumPy."""
    return {**os.environ, "PYTHONPATH": str(PACKAGE), "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore::UserWarning", **more}


def run(words, cwd=HERE / "programs", **more):
    done = subprocess.run([PYTHON, *map(str, words)], env=environment(**more), cwd=cwd, capture_output=True, text=True, timeout=170)
    done.stderr = without_progress(done.stderr)
    return done


def without_progress(said):
    """Removes the lines about writing, which a slow machine prints where a fast one has already finished."""
    return "".join(line for line in said.splitlines(keepends=True) if "writing the recorded window (" not in line)


@functools.cache
def has(package):
    asked = f"import importlib.util, sys; sys.exit(importlib.util.find_spec('{package}') is None)"
    return subprocess.run([PYTHON, "-c", asked], check=False).returncode == 0


def needs(*packages):
    """Skips a test if the Python that trains lacks one of the packages."""
    missing = [package for package in packages if not has(package)]
    return pytest.mark.skipif(bool(missing), reason=f"{PYTHON} has no {', '.join(missing)}")


def numbers(report):
    return [step.step for step in report.step_times]


def calls(report, op):
    return sum(row.calls_per_step for row in report.top_ops if row.name == op)
