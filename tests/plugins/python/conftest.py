"""Tests use the Python package with the libraries of build/default, and run programs on the torch of STEPSCOPE_PYTHON."""

import os
import pathlib
import signal
import subprocess
import sys
import textwrap

import pytest

from training_programs import without_progress

ROOT = pathlib.Path(__file__).resolve().parents[3]
PACKAGE = ROOT / "plugins/python"
LIBRARIES = pathlib.Path(os.environ.get("STEPSCOPE_NATIVE_DIR", ROOT / "build/default/lib"))
TRACES = ROOT / "tests/data/traces"

# A process started in the background by a shell ignores SIGINT, and so do its children, so no test program could be
# interrupted.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

sys.path.insert(0, str(PACKAGE))
os.environ["STEPSCOPE_NATIVE_DIR"] = str(LIBRARIES)


def _environment(more):
    return {**os.environ, "PYTHONPATH": str(PACKAGE), "STEPSCOPE_NATIVE_DIR": str(LIBRARIES),
            "PYTHONWARNINGS": "ignore::UserWarning", **more}  # torch warns if NumPy is missing


@pytest.fixture
def run_program(tmp_path):
    """Runs a program on the Python with torch. Returns its output or, with `status`, its exit status and both outputs."""
    torch_python = os.environ.get("STEPSCOPE_PYTHON")
    if not torch_python:
        pytest.skip("STEPSCOPE_PYTHON names no Python with torch")

    def run(program, status=0, python=torch_python, **environment):
        path = tmp_path / "program.py"
        path.write_text(textwrap.dedent(program), encoding="utf-8")
        done = subprocess.run([python, str(path)], capture_output=True, text=True, cwd=tmp_path, timeout=300, check=False,
                              env=_environment(environment))
        assert done.returncode == status, done.stderr + done.stdout
        done.stderr = without_progress(done.stderr)
        return done

    return run


@pytest.fixture
def installed(tmp_path):
    """Returns the folder of the native libraries as `pip install` makes it."""
    subprocess.run(["cmake", "--install", LIBRARIES.parent, "--component", "python", "--prefix", tmp_path / "site"],
                   check=True, capture_output=True)
    return tmp_path / "site/stepscope/_lib"


@pytest.fixture
def trace():
    """A recording of torch.profiler."""
    return str(TRACES / "resnet50_v100_workers0.pt.trace.json.gz")
