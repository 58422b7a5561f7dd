"""Trains the sample with a fake CUPTI and opens its GPU views with the viewers.

    pytest tests/e2e/test_gpu_views.py

The fake (tests/README.md) makes GPU records from the operators that the sample runs on its CPU, so that the whole path runs:
Profile, CUPTI's buffers, decoder, Trace, report, files, viewers. Needs tests/e2e/requirements.txt. Environment variables:
    STEPSCOPE_BIN   folder of `resnet` and `stepscope`; default: build/default/bin. The fake is in ../lib beside it.
"""

import gzip
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
BIN = pathlib.Path(os.environ.get("STEPSCOPE_BIN") or ROOT / "build/default/bin")
FAKE = BIN.parent / "lib/libfakecupti_ops.so"
TOOLS = ROOT / "tests/tools"


def run_tool(name, *args):
    """Runs a tool of tests/tools and returns its JSON. Fails on the tool's errors."""
    done = subprocess.run([sys.executable, TOOLS / name, *map(str, args)], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, f"{name} {args}:\n{done.stderr}\n{done.stdout[-3000:]}"
    return json.loads(done.stdout)


def train(log_dir, fake, *flags):
    """Trains 12 small steps, of which 6 to 8 are recorded. Returns the program's output."""
    program = BIN / "resnet"
    for needed in (program, FAKE):
        if not needed.exists():
            pytest.skip(f"{needed} is not built; set STEPSCOPE_BIN")
    environment = dict(os.environ)
    if fake:
        environment.update(LD_PRELOAD=str(FAKE), STEPSCOPE_CUDA_LIBRARY=str(FAKE))
    done = subprocess.run(
        [program, "--data", "fakecifar", "--batch", "8", "--log-every", "1", "--log-dir", log_dir, *flags],
        capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="session")
def run(tmp_path_factory):
    """Returns the log directory of a run with the fake, its output, and the events of its Kineto file."""
    log_dir = tmp_path_factory.mktemp("gpu")
    printed = train(log_dir, fake=True)
    (file,) = log_dir.glob("stepscope/*/c0/trace/rank0.json.gz")
    return log_dir, printed, json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]


@pytest.fixture(scope="session")
def xprof(run):
    report = run_tool("xprof_check.py", run[0], "--require", "kernel_stats,memory_profile")
    (only,) = report["runs"].values()
    return only["tools"]


@pytest.fixture(scope="session")
def plugin(run):
    report = run_tool("tb_plugin_check.py", run[0], "--strict", "--expect", "Overview", "Operator", "Kernel", "Trace", "Memory")
    (only,) = report["runs"].values()
    ((worker,),) = only["workers"].values()
    return worker


def of(events, category):
    return [event for event in events if event.get("cat") == category]


def memory_peaks(events):
    """Returns the peak of allocated memory in each step by device type, counted again from the file's own events."""
    steps = [(e["ts"], e["ts"] + e["dur"]) for e in of(events, "user_annotation") if e["name"].startswith("ProfilerStep")]
    memory = [(e["ts"], e["args"]["Device Type"], e["args"]["Total Allocated"]) for e in events if e["name"] == "[memory]"]
    return {kind: [max(total for ts, k, total in memory if k == kind and begin <= ts < end) for begin, end in steps]
            for kind in {k for _, k, _ in memory}}


def test_the_job_computes_the_same_numbers(run, tmp_path):
    losses = re.findall(r"loss (\S+)", run[1])
    assert len(losses) == 12
    assert losses == re.findall(r"loss (\S+)", train(tmp_path, fake=False))
    assert losses == re.findall(r"loss (\S+)", train(tmp_path, False, "--no-profile"))


def test_the_report_speaks_of_the_device(run):
    assert "1 x Fake A100" in run[1]
    assert "GPU busy" in run[1]
    assert "CUPTI: cannot" not in run[1]


def test_the_file_has_work_of_every_kind_tied_to_the_host(run):
    events = run[2]
    kernels, copies = of(events, "kernel"), of(events, "gpu_memcpy")
    calls = {e["args"]["correlation"]: e for e in of(events, "cuda_runtime")}
    assert len(kernels) > 900
    assert {name.split(" (")[0] for name in (e["name"] for e in copies)} == {"Memcpy HtoD", "Memcpy DtoH"}
    assert len(of(events, "gpu_memset")) > 30
    assert {"Stream Sync", "Stream Wait Event"} <= {e["name"] for e in of(events, "cuda_sync")}
    for work in kernels + copies:
        call = calls[work["args"]["correlation"]]
        assert call["ts"] + call["dur"] <= work["ts"]
    assert all(0 < e["args"]["est. achieved occupancy %"] <= 100 for e in kernels if e["args"]["grid"][0] > 432)


def test_xprof_shows_kernels_copies_and_tensor_cores(run, xprof):
    kernels = of(run[2], "kernel")
    stats = xprof["kernel_stats"]
    assert stats["launches"] == len(kernels)
    assert stats["kernels"] == len({e["name"] for e in kernels})
    by_name = lambda part: sum(e["dur"] for e in kernels if part in e["name"])
    share = 100 * by_name("tensor16x8x8") / by_name("")
    assert share > 20
    assert stats["tensor_core_pct"] == pytest.approx(share, abs=0.1)
    assert stats["occupancy_pct_time_weighted"] > 0
    assert stats["named_op_pct"] > 99.5  # between the fake and the recorder, a thread may lose the CPU
    rows = xprof["trace_viewer@"]["rows"]
    (device,) = [lines for process, lines in rows.items() if "/device:GPU:0" in process]
    assert any("Kernel" in line and "MemcpyD2H" in line and "Memset" in line for line in device)
    assert any("MemcpyH2D" in line for line in device)
    assert xprof["trace_viewer@"]["flow_ends"] > 1000
    assert xprof["overview_page"]["step_count"] == 3
    assert xprof["overview_page"]["device_type"] == "Nvidia GPU (Ampere)"


def test_the_plugin_shows_the_same(run, xprof, plugin):
    kernels = of(run[2], "kernel")
    assert plugin["raw"]["kernels"] == len(kernels)
    assert plugin["tensor_core_pct"]["0"] == pytest.approx(xprof["kernel_stats"]["tensor_core_pct"], abs=0.1)
    assert plugin["breakdown"]["Memcpy"]["us"] > 0
    assert plugin["breakdown"]["Memset"]["us"] > 0
    (gpu,) = plugin["gpus"]
    assert gpu["Name"] == "Fake A100"
    assert float(gpu["Est. Achieved Occupancy"].split()[0]) > 0
    assert plugin["raw"]["cat_cuda_sync"] == len(of(run[2], "cuda_sync"))


def test_both_show_the_peak_of_memory_that_a_recount_gives(run, xprof, plugin):
    peaks = memory_peaks(run[2])
    assert set(peaks) == {0, 1}
    gpu = max(peaks[1])
    assert gpu > 1 << 20
    assert xprof["memory_profile"]["allocators"]["GPU0"]["peak_bytes"] == pytest.approx(gpu, rel=0.001)
    shown = float(re.search(r"([\d.]+)KB", plugin["memory"]["peaks"]["GPU0"]).group(1))
    assert shown == pytest.approx(gpu / 1024, rel=0.001)


def test_the_shell_says_the_same_as_the_live_report(run):
    done = subprocess.run([BIN / "stepscope", "analyze", "--format", "json", run[0]], capture_output=True, text=True, check=True)
    again = json.loads(done.stdout)
    (advice,) = run[0].glob("stepscope/*/c0/advice/rank0.json")
    live = json.loads(advice.read_text())
    assert [f["id"] for f in again["findings"]] == [f["id"] for f in live["findings"]]
    assert statistics.fsum(again["time_split_ms"].values()) == pytest.approx(
        statistics.fsum(live["time_split_ms"].values()), rel=1e-6)
