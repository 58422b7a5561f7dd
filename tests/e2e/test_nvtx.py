"""Records unmodified Python programs through NVTX.

    pytest tests/e2e/test_nvtx.py

Needs tests/e2e/requirements.txt. Environment variables:
    STEPSCOPE_INJECT   libstepscope_inject.so; default: build/default/plugins/inject's.
                       libstepscope_inject_torch.so beside it is tested, too, if
                       it was built.
    STEPSCOPE_PYTHON   a Python with torch; default: .venv's
"""

import gzip
import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
INJECT = pathlib.Path(
    os.environ.get("STEPSCOPE_INJECT") or ROOT / "build/default/plugins/inject/libstepscope_inject.so")
TORCH_PYTHON = os.environ.get("STEPSCOPE_PYTHON") or ROOT / ".venv/bin/python"

NVTX_PROGRAM = """
import threading, nvtx

@nvtx.annotate("decorated", domain="my lib", category="io", payload=42)
def work():
    nvtx.mark("a mark", domain="my lib")

for step in range(6):
    with nvtx.annotate("step"):
        with nvtx.annotate("z\\u00fcrich"):
            work()
        crossing = nvtx.start_range("crossing")
        thread = threading.Thread(target=nvtx.end_range, args=(crossing,))
        thread.start()
        thread.join()
print("done")
"""

TORCH_PROGRAM = """
import torch
model = torch.nn.Linear(16, 16)
for step in range(6):
    torch.cuda.nvtx.range_push("step")
    with torch.cuda.nvtx.range("forward {}", "pass"):
        loss = model(torch.ones(4, 16)).sum()
    torch.cuda.nvtx.mark("between")
    loss.backward()
    torch.cuda.nvtx.range_pop()
print("done")
"""


def record(python, program, folder, library=None):
    """Runs `program` and records three of its six steps. Returns the events of its trace."""
    library = library or INJECT
    if not library.exists():
        pytest.skip(f"{library} is not built; set STEPSCOPE_INJECT")
    done = subprocess.run(
        [python, "-c", program], capture_output=True, text=True, timeout=300,
        env={**os.environ, "NVTX_INJECTION64_PATH": str(library), "STEPSCOPE_LOG_DIR": str(folder),
             "STEPSCOPE_STEP_RANGE": "step", "STEPSCOPE_SCHEDULE": "1,1,3", "STEPSCOPE_PRINT": "0"})
    assert done.returncode == 0, done.stderr
    assert done.stdout == "done\n"
    (path,) = folder.glob("stepscope/*/c0/trace/rank0.json.gz")
    with gzip.open(path) as file:
        return json.load(file)["traceEvents"]


def ranges(events, name):
    return [e for e in events if e.get("name") == name and e["args"].get("stepscope.range") == "nvtx"]


def test_the_nvtx_package_arrives(tmp_path):
    pytest.importorskip("nvtx")
    events = record(sys.executable, NVTX_PROGRAM, tmp_path)
    for name in ("step", "z\u00fcrich", "decorated", "a mark", "crossing"):
        assert len(ranges(events, name)) == 3, name
    assert all(
        e["args"]["stepscope.detail"] == "domain=my lib, category=io, payload=42"
        for e in ranges(events, "decorated"))
    assert all(e["args"]["stepscope.detail"] == "domain=my lib" and e["dur"] == 0 for e in ranges(events, "a mark"))
    step, inner = ranges(events, "step")[0], ranges(events, "z\u00fcrich")[0]
    assert step["tid"] == inner["tid"]
    assert step["ts"] <= inner["ts"] and inner["ts"] + inner["dur"] <= step["ts"] + step["dur"]
    # A range ended by another thread has its own row.
    assert all(e["tid"] != step["tid"] for e in ranges(events, "crossing"))


def has_torch():
    return subprocess.run([TORCH_PYTHON, "-c", "import torch"], capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("library", ["libstepscope_inject.so", "libstepscope_inject_torch.so"])
def test_torch_cuda_nvtx_arrives(tmp_path, library):
    if not os.path.exists(TORCH_PYTHON) or not has_torch():
        pytest.skip(f"{TORCH_PYTHON} has no torch; set STEPSCOPE_PYTHON")
    events = record(TORCH_PYTHON, TORCH_PROGRAM, tmp_path, INJECT.parent / library)
    for name in ("step", "forward pass", "between"):
        assert len(ranges(events, name)) == 3, name
    ops = [e for e in events if e.get("cat") == "cpu_op"]
    if library == "libstepscope_inject.so":
        assert not ops
        return
    # With LibTorch's operators, each forward pass contains its own addmm.
    forward = ranges(events, "forward pass")
    addmm = [e for e in ops if e["name"] == "aten::addmm"]
    assert len(addmm) == 3
    for outer, op in zip(forward, addmm):
        assert outer["tid"] == op["tid"]
        assert outer["ts"] <= op["ts"] and op["ts"] + op["dur"] <= outer["ts"] + outer["dur"]
