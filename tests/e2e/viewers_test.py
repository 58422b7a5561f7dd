"""Opens log directories with the viewers for which they are made.

    pytest tests/e2e/viewers_test.py

Needs tests/e2e/requirements.txt. Environment variables:
    STEPSCOPE_MAKE_LOGDIR     the make_logdir binary; default: build/default/bin's
    STEPSCOPE_SAMPLE_LOGDIR   log directory of a real run of samples/resnet;
                              without it, that run is skipped
    STEPSCOPE_PYTHON          a Python with torch, which records a run with the
                              Python package; without it, that run is skipped
    STEPSCOPE_NATIVE_DIR      the package's libraries; default: build/default/lib
Each check is a tool in tests/tools that loads the files with the viewer's own
code. The tests assert what the tools must find.
"""

import collections
import gzip
import json
import os
import pathlib
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[1]
TOOLS = HERE.parent / "tools"
STEP_TIME_TOLERANCE = 0.01


def run_tool(name, *args):
    """Runs a tool of tests/tools and returns its JSON. Fails on the tool's errors."""
    done = subprocess.run(
        [sys.executable, TOOLS / name, *map(str, args)],
        capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, f"{name} {args}:\n{done.stderr}\n{done.stdout[-3000:]}"
    return json.loads(done.stdout)


def overview(log_dir):
    """Returns XProf's overview of the only run in `log_dir`, after its own checks."""
    report = run_tool("xprof_check.py", log_dir, "--expect", "overview_page.step_count >= 3")
    (run,) = report["runs"].values()
    return run["tools"]


def trace_dirs(log_dir):
    return sorted(pathlib.Path(log_dir).glob("stepscope/*/c*/trace"))


def kineto_files(log_dir):
    return sorted(pathlib.Path(log_dir).glob("stepscope/*/c*/trace/*.json.gz"))


@pytest.fixture(scope="session")
def simulated(tmp_path_factory):
    """Returns the folder of simulated runs, and what viewers must show."""
    binary = os.environ.get("STEPSCOPE_MAKE_LOGDIR") or ROOT / "build/default/bin/make_logdir"
    if not os.path.exists(binary):
        pytest.skip(f"{binary} is not built; set STEPSCOPE_MAKE_LOGDIR")
    folder = tmp_path_factory.mktemp("simulated")
    done = subprocess.run([binary, folder], capture_output=True, text=True, check=True)
    return folder, json.loads(done.stdout)


@pytest.fixture(scope="session")
def sample():
    """Returns the log directory of a real training run, and its advice."""
    folder = os.environ.get("STEPSCOPE_SAMPLE_LOGDIR")
    if not folder:
        pytest.skip("STEPSCOPE_SAMPLE_LOGDIR is not set")
    advice = sorted(pathlib.Path(folder).glob("stepscope/*/c*/advice/rank*.json"))
    assert advice, f"no advice below {folder}"
    return pathlib.Path(folder), json.loads(advice[-1].read_text())


@pytest.fixture(scope="session")
def of_python(tmp_path_factory):
    """Returns the log directory of a run that the Python package recorded with modules and source lines, and its advice."""
    python = os.environ.get("STEPSCOPE_PYTHON")
    native = os.environ.get("STEPSCOPE_NATIVE_DIR") or ROOT / "build/default/lib"
    if not python or not os.path.exists(native):
        pytest.skip("STEPSCOPE_PYTHON names no Python with torch, or the package's libraries are not built")
    folder = tmp_path_factory.mktemp("of_python")
    subprocess.run([python, HERE / "record_resnet.py", folder], check=True, timeout=300,
                   env={**os.environ, "PYTHONPATH": str(ROOT / "plugins/python"), "STEPSCOPE_NATIVE_DIR": str(native)})
    (advice,) = folder.glob("stepscope/*/c0/advice/rank0.json")
    return folder, json.loads(advice.read_text())


class TestXProf:
    def test_cpu_run_has_our_step_time_and_input_share(self, simulated):
        folder, expected = simulated
        page = overview(folder / "cpu")["overview_page"]
        assert page["step_count"] == expected["cpu"]["steps"]
        assert page["step_ms_avg"] == pytest.approx(expected["cpu"]["mean_ms"], rel=STEP_TIME_TOLERANCE)
        assert page["is_training"]
        assert 20 < page["input_pct"] < 40  # 8 of 28 ms

    def test_cpu_run_has_ops_and_memory(self, simulated):
        tools = overview(simulated[0] / "cpu")
        assert tools["framework_op_stats"]["host"]["ops"] > 10
        assert tools["memory_profile"]["allocators"]["CPU"]["timeline_points"] > 10
        (loader,) = tools["input_pipeline_analyzer"]["input_ops"]
        assert "DataLoader" in loader

    def test_gpu_run_has_kernels_tensor_cores_and_16_bit(self, simulated):
        tools = overview(simulated[0] / "gpu")
        assert tools["overview_page"]["device_type"] == "Nvidia GPU (Hopper)"
        assert tools["overview_page"]["compute_16bit_pct"] == 100
        assert tools["kernel_stats"]["tensor_core_pct"] > 50
        assert tools["kernel_stats"]["named_op_pct"] == 100
        assert tools["trace_viewer@"]["flow_ends"] > 100

    def test_advice_is_a_banner(self, simulated):
        page = overview(simulated[0] / "cpu")["overview_page"]
        assert any("sync-data-loading" in message for message in page["messages"])

    def test_rows_of_every_kind_load(self, simulated):
        run_tool("xprof_check.py", simulated[0] / "random")

    def test_sample_has_our_step_time(self, sample):
        log_dir, advice = sample
        tools = overview(log_dir)
        assert tools["overview_page"]["step_ms_avg"] == pytest.approx(
            advice["steps"]["all_mean_ms"], rel=STEP_TIME_TOLERANCE)
        assert tools["framework_op_stats"]["host"]["ops"] > 20
        assert tools["memory_profile"]["status"] == "ok"

    def test_python_run_has_our_step_time_and_its_modules(self, of_python):
        log_dir, advice = of_python
        tools = overview(log_dir)
        assert tools["overview_page"]["step_ms_avg"] == pytest.approx(
            advice["steps"]["all_mean_ms"], rel=STEP_TIME_TOLERANCE)
        assert tools["framework_op_stats"]["host"]["ops"] > 20
        assert tools["memory_profile"]["status"] == "ok"


class TestPyTorchPlugin:
    VIEWS = ["Overview", "Operator", "Trace", "Memory", "Module"]

    def only_worker(self, report):
        (run,) = report["runs"].values()
        ((entry,),) = run["workers"].values()
        return entry

    def test_cpu_run_shows_every_view_and_the_loader(self, simulated):
        report = run_tool("tb_plugin_check.py", simulated[0] / "cpu", "--strict", "--expect", *self.VIEWS)
        entry = self.only_worker(report)
        assert entry["steps"]["count"] == simulated[1]["cpu"]["steps"]
        assert entry["breakdown"]["DataLoader"]["pct"] == pytest.approx(28.2, abs=0.5)
        assert any("input data loading" in text for text in entry["recommendations"])

    def test_gpu_run_shows_kernels_and_tensor_cores(self, simulated):
        report = run_tool("tb_plugin_check.py", simulated[0] / "gpu", "--strict", "--expect", *self.VIEWS, "Kernel")
        entry = self.only_worker(report)
        assert entry["tensor_core_pct"]["0"] > 50
        assert entry["kernel"]["rows_without_operator"] == 0

    def test_two_ranks_show_the_distributed_view(self, simulated):
        report = run_tool("tb_plugin_check.py", simulated[0] / "ranks", "--strict", "--expect", "Distributed")
        (run,) = report["runs"].values()
        assert len(run["workers"]) == 2

    def test_rows_of_every_kind_load(self, simulated):
        run_tool("tb_plugin_check.py", simulated[0] / "random", "--expect", *self.VIEWS)

    def test_sample_shows_every_view(self, sample):
        report = run_tool("tb_plugin_check.py", sample[0], "--strict", "--expect", *self.VIEWS[:4])
        entry = self.only_worker(report)
        assert entry["steps"]["count"] == sample[1]["steps"]["count"]

    def test_python_run_shows_modules_and_source_lines(self, of_python):
        report = run_tool("tb_plugin_check.py", of_python[0], "--strict", "--expect", *self.VIEWS)
        entry = self.only_worker(report)
        assert entry["steps"]["count"] == of_python[1]["steps"]["count"]
        assert entry["operator"]["rows_with_call_stack"] > 20
        assert "SmallResNet_0" in entry["module"]["roots"]


class TestHolisticTraceAnalysis:
    def test_gpu_run_adds_up_in_both_flavours(self, simulated):
        (folder,) = trace_dirs(simulated[0] / "gpu")
        run_tool("hta_check.py", folder, "--strict", "--expect-ranks", 1)
        (folder,) = [path for path in (simulated[0] / "gpu").iterdir() if path.name.startswith("20")]
        run_tool("hta_check.py", folder, "--strict", "--expect-ranks", 1)

    def test_ranks_are_told_apart(self, simulated):
        (folder,) = trace_dirs(simulated[0] / "ranks")
        report = run_tool("hta_check.py", folder, "--strict", "--expect-ranks", 2)
        assert report["ranks"] == [0, 1]

    def test_cpu_run_loads(self, simulated):
        run_tool("hta_check.py", trace_dirs(simulated[0] / "cpu")[0], "--cpu-ok")

    def test_sample_loads(self, sample):
        run_tool("hta_check.py", trace_dirs(sample[0])[-1], "--cpu-ok")

    def test_python_run_loads(self, of_python):
        run_tool("hta_check.py", trace_dirs(of_python[0])[-1], "--cpu-ok")


class TestPerfetto:
    def test_all_runs_import_without_problems(self, simulated):
        files = [path for run in ("cpu", "gpu", "ranks", "random") for path in kineto_files(simulated[0] / run)]
        for report in run_tool("perfetto_check.py", *files):
            assert report["loaded"] and not report["problems"]
            assert report["flows"][0]["n"] != "0"

    def test_sample_imports_without_problems(self, sample):
        (report,) = run_tool("perfetto_check.py", kineto_files(sample[0])[-1])
        assert report["loaded"] and not report["problems"]

    def test_python_run_imports_without_problems(self, of_python):
        (report,) = run_tool("perfetto_check.py", *kineto_files(of_python[0]))
        assert report["loaded"] and not report["problems"]
        assert report["flows"][0]["n"] != "0"
        with gzip.open(kineto_files(of_python[0])[0], "rt") as file:
            events = [event for event in json.load(file)["traceEvents"] if event["ph"] in "Xi"]  # Perfetto's slices
        modules = [event for event in events if event.get("args", {}).get("stepscope.range") == "module"]
        assert {"SmallResNet", "blocks.2", "blocks.2.bn1"} <= {event["name"] for event in modules}
        shown = {row["category"]: int(row["n"]) for row in report["categories"]}
        assert shown == collections.Counter(event.get("cat") for event in events)
