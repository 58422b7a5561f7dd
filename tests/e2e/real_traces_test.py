"""Opens recorded GPU traces, which we read and wrote again, with the viewers.

    pytest tests/e2e/real_traces_test.py

The viewers must show the same numbers as make_logdir prints and as a script that shares no code with us counted in the files
(stats.json). Needs tests/e2e/requirements.txt. Environment variables:
    STEPSCOPE_MAKE_LOGDIR   the make_logdir binary; default: build/default/bin's
    STEPSCOPE_TRACES        folder of the recorded traces; default: ../shared/traces. The traces in tests/data are always
                            tested; the others are skipped without this folder
    STEPSCOPE_TORCH_PYTHON  a Python with torch, for torch's own reader of traces; default: .venv's
"""

import functools
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
TRACES = pathlib.Path(os.environ.get("STEPSCOPE_TRACES") or ROOT.parent / "shared/traces")
COMMITTED = ROOT / "tests/data/traces"
MAKE_LOGDIR = pathlib.Path(os.environ.get("STEPSCOPE_MAKE_LOGDIR") or ROOT / "build/default/bin/make_logdir")
FILES = {
    "resnet50_v100_workers0": "resnet50_v100_workers0.pt.trace.json.gz",
    "ddp_resnet_a100_rank0of2": "ddp_resnet_a100_rank0of2.json.gz",
    "recsys_a100_rank3of8": "recsys_a100_rank3of8.json.gz",
    "owlv2_h100": "owlv2_h100.json.gz",
}


def path_of(name):
    return next((folder / FILES[name] for folder in (TRACES, COMMITTED) if (folder / FILES[name]).exists()), None)


ROUNDED_MS = 0.051  # XProf's overview shows tenths of a ms
ROUNDED_PCT = 0.011


def run_tool(name, *args, may_complain=False):
    """Runs a tool of tests/tools and returns its JSON. Fails on the tool's errors."""
    done = subprocess.run([sys.executable, TOOLS / name, *map(str, args)], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0 or (may_complain and done.returncode == 1), f"{name} {args}:\n{done.stderr}"
    return json.loads(done.stdout)


class Run:
    """One trace: its log directory, our numbers, those of stats.json, and each viewer's answers (requested once)."""

    def __init__(self, folder, ours, theirs):
        self.folder = folder
        self.steps = ours
        (self.device,) = [key for key in ours if key.startswith("gpu")]
        self.ours = ours[self.device]
        self.tiled_ms = ours["tiled_ms_" + self.device[3:]]
        self.theirs = theirs["gpu"][self.device[3:]] if theirs else None
        self.file = theirs

    @functools.cached_property
    def xprof(self):
        (run,) = run_tool("xprof_check.py", self.folder)["runs"].values()
        return run["tools"]

    @functools.cached_property
    def plugin(self):
        (run,) = run_tool("tb_plugin_check.py", self.folder)["runs"].values()
        ((entry,),) = run["workers"].values()
        return entry

    @functools.cached_property
    def hta(self):
        (folder,) = self.folder.glob("stepscope/*/c*/trace")
        return run_tool("hta_check.py", folder)["analyses"]


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    if not MAKE_LOGDIR.exists():
        pytest.skip(f"{MAKE_LOGDIR} is not built; set STEPSCOPE_MAKE_LOGDIR")
    folder = tmp_path_factory.mktemp("real")
    there = [name for name in FILES if path_of(name)]
    done = subprocess.run([MAKE_LOGDIR, folder, *[path_of(name) for name in there]],
                          capture_output=True, text=True, check=True)
    figures = json.loads(done.stdout)
    stats = json.loads((TRACES / "stats.json").read_text()) if (TRACES / "stats.json").exists() else {}
    return {name: Run(folder / name, figures[name], stats.get(FILES.get(name))) for name in ["gpu", *there]}


@pytest.fixture(params=["gpu", *FILES])
def run(request, runs):
    if request.param not in runs:
        pytest.skip(f"{TRACES / FILES[request.param]} is not there; set STEPSCOPE_TRACES")
    return runs[request.param]


def test_our_figures_are_those_of_the_file(run):
    if not run.file:
        pytest.skip("no figures of others")
    for ours, theirs in [("kernels", "kernels"), ("kernel_sum_us", "kernel_sum_us"),
                         ("kernel_busy_us", "kernel_busy_us"), ("gpu_busy_us", "gpu_busy_us"),
                         ("collective_busy_us", "comm_busy_us"), ("collective_exposed_us", "exposed_comm_us")]:
        assert run.ours[ours] == pytest.approx(run.theirs[theirs], abs=0.01), ours
    h2d = run.file["memcpy_h2d"].values()
    assert run.ours.get("HtoD", 0) == sum(kind["count"] for kind in h2d if isinstance(kind, dict))
    assert run.ours.get("HtoD_bytes", 0) == sum(kind["bytes"] for kind in h2d if isinstance(kind, dict))
    assert run.steps["steps"] == run.file["steps"]["count"]


class TestXProf:
    def test_kernel_stats_has_every_kernel_and_its_time(self, run):
        stats = run.xprof["kernel_stats"]
        assert stats["launches"] == run.ours["kernels"]
        # XProf shows a kernel of length 0 as 1 ns.
        assert stats["total_ms"] * 1000 == pytest.approx(run.ours["kernel_sum_us"], abs=2)
        assert stats["occupancy_pct_time_weighted"] == pytest.approx(run.ours["occupancy_pct"], abs=0.01)

    def test_kernel_stats_has_our_tensor_core_share(self, run):
        assert run.xprof["kernel_stats"]["tensor_core_pct"] == pytest.approx(run.ours["tensor_core_pct"],
                                                                              abs=ROUNDED_PCT)

    def test_trace_viewer_draws_all_work_of_the_gpu(self, run):
        (rows,) = [rows for name, rows in run.xprof["trace_viewer@"]["rows"].items() if "/device:GPU" in name]
        assert sum(n for row, n in rows.items() if row.startswith("Stream")) == run.ours["work"]
        assert rows["Steps"] == run.steps["steps"]

    def test_op_tables_have_all_device_time(self, run):
        device = run.xprof["framework_op_stats"]["device"]
        assert device["self_ms"] * 1000 == pytest.approx(run.ours["work_sum_us"], rel=0.02)
        assert device["with_flops"] > 0 or run.ours["flops"] == 0

    def test_roofline_and_op_profile_have_our_flops(self, run):
        assert run.xprof["op_profile"]["flops"] == pytest.approx(run.ours["flops"], rel=1e-3)
        assert run.xprof["hlo_stats"]["with_flops"] > 0 or run.ours["flops"] == 0
        if run.ours["flops"] > 0:
            assert run.xprof["roofline_model"]["ops_with_flops"] > 0

    def test_steps_tile_the_time(self, run):
        page = run.xprof["overview_page"]
        if page["step_count"] != run.steps["steps"]:
            assert run.steps["steps"] > 5 and page["step_count"] == run.steps["steps"] - 2
            pytest.skip("of more than 5 steps XProf's charts drop the first and the last")
        assert page["step_ms_avg"] == pytest.approx(run.tiled_ms, abs=ROUNDED_MS)
        computing = run.ours["kernel_busy_us"] - run.ours["collective_exposed_us"]
        assert page["device_compute_ms_avg"] == pytest.approx(computing / 1000 / run.steps["steps"], abs=ROUNDED_MS)

    def test_exposed_collectives_are_ours(self, run):
        page = run.xprof["overview_page"]
        exposed_ms = run.ours["collective_exposed_us"] / 1000 / run.steps["steps"]
        if page["step_count"] != run.steps["steps"]:
            pytest.skip("of more than 5 steps XProf's charts drop the first and the last")
        # XProf counts copies and memsets during a collective towards it; we do not.
        assert page["collectives_ms_avg"] == pytest.approx(exposed_ms, rel=0.01, abs=ROUNDED_MS)

    def test_waits_for_data_are_input(self, run):
        if run.steps["loader_ms"] < 0.05 * run.tiled_ms:
            pytest.skip("its steps do not wait for data")
        page = run.xprof["overview_page"]
        assert "HIGHLY input-bound" in page["conclusion"]
        # GPU work at the same time hides the wait.
        assert 0.3 * run.steps["loader_ms"] < page["input_ms_avg"] < 1.05 * run.steps["loader_ms"]

    def test_memory_page_has_our_peak(self, run):
        peak = run.steps.get("peak_GPU" + run.device[3:], 0)
        if peak <= 0:
            pytest.skip("the file has no totals")
        allocator = run.xprof["memory_profile"]["allocators"]["GPU" + run.device[3:]]
        assert allocator["peak_bytes"] == peak

    def test_counters_show_memory(self, run):
        if not run.steps["allocations"]:
            pytest.skip("no memory was recorded")
        assert run.xprof["trace_viewer@"]["counter_points"] > 10


class TestPyTorchPlugin:
    def test_gpu_utilisation_is_ours(self, run):
        share = 100 * run.ours["kernel_busy_us"] / 1000 / (run.tiled_ms * run.steps["steps"])
        number = run.device[3:]
        assert run.plugin["gpu_utilization_pct"][number] == pytest.approx(share, abs=0.05)

    def test_occupancy_and_sm_efficiency_are_shown(self, run):
        (gpu,) = [gpu for gpu in run.plugin["gpus"] if str(gpu["gpu"]) == run.device[3:]]
        shown = float(gpu["Est. Achieved Occupancy"].split()[0])
        # The plugin reads whole percents.
        assert shown == pytest.approx(run.ours["occupancy_pct"], abs=0.6)
        assert 0 < float(gpu["Est. SM Efficiency"].split()[0]) <= run.plugin["gpu_utilization_pct"][run.device[3:]]

    def test_step_breakdown_has_the_tiled_steps(self, run):
        steps = run.plugin["steps"]
        assert steps["count"] == run.steps["steps"]
        assert steps["average_us"] / 1000 == pytest.approx(run.tiled_ms, rel=5e-4)

    def test_operators_have_all_device_time(self, run):
        assert run.plugin["operator"]["device_self_us"] == pytest.approx(run.ours["work_sum_us"], rel=0.02)

    def test_kernel_view_has_our_tensor_core_share(self, run):
        shown = run.plugin["kernel"]["tensor_core_pct_of_kernel_time"]
        assert shown == pytest.approx(run.ours["tensor_core_pct"], abs=0.05)

    def test_trace_view_gets_gpu_counters(self, run):
        assert run.plugin["trace"]["gpu_counters_added"] > 0

    def test_memory_view_has_curve_events_and_operators(self, run):
        if not run.steps["allocations"]:
            assert run.plugin["memory"] is None
            return
        memory = run.plugin["memory"]
        device = "GPU" + run.device[3:]
        for part in ("curve_points", "events", "operators"):
            assert memory[part][device] > 0, part

    def test_module_view_has_the_modules(self, run, request):
        if request.node.callspec.params["run"] not in ("gpu", "owlv2_h100"):
            pytest.skip("the file has no modules")
        assert run.plugin["module"]["roots"]


class TestHolisticTraceAnalysis:
    def breakdown(self, run):
        (row,) = run.hta["temporal_breakdown"]
        return row

    def test_temporal_breakdown_is_ours(self, run):
        row = self.breakdown(run)
        computing = run.ours["kernel_busy_us"] - run.ours["collective_exposed_us"]
        assert row["compute_time(us)"] == pytest.approx(computing, abs=0.1)
        assert row["compute_time(us)"] + row["non_compute_time(us)"] == pytest.approx(run.ours["gpu_busy_us"], abs=0.1)

    def test_kernel_breakdown_has_our_sums(self, run):
        # The top kernels of each type and the others add up to the GPU's time.
        rows = run.hta["kernel_breakdown"]["kernels"]
        kernels = sum(row["sum (us)"] for row in rows if row["kernel_type"] != "MEMORY")
        assert kernels == pytest.approx(run.ours["kernel_sum_us"], abs=1)

    def test_overlap_is_ours(self, run):
        if not run.ours["collectives"]:
            pytest.skip("no collectives")
        (row,) = run.hta["comm_comp_overlap"]
        share = 100 - 100 * run.ours["collective_exposed_us"] / run.ours["collective_busy_us"]
        (shown,) = [value for key, value in row.items() if "pct" in key]
        assert shown == pytest.approx(share, abs=0.01)


class TestTorch:
    def test_its_own_reader_lists_the_kernels(self, runs, tmp_path):
        """torch._inductor.analysis.profile_analysis needs unique IDs, an op for each kernel, and the kernel's name."""
        python = pathlib.Path(os.environ.get("STEPSCOPE_TORCH_PYTHON") or ROOT / ".venv/bin/python")
        if not python.exists():
            pytest.skip("no Python with torch; set STEPSCOPE_TORCH_PYTHON")
        if "ddp_resnet_a100_rank0of2" not in runs:
            pytest.skip("no recorded traces")
        (file,) = runs["ddp_resnet_a100_rank0of2"].folder.glob("stepscope/*/c*/trace/*.json.gz")
        plain = tmp_path / "trace.json"
        plain.write_bytes(gzip.decompress(file.read_bytes()))
        done = subprocess.run(
            [python, "-m", "torch._inductor.analysis.profile_analysis", "--analysis", plain, "float32"],
            capture_output=True, text=True, timeout=300, cwd=tmp_path)
        assert done.returncode == 0, done.stderr[-2000:]
        counts = {row.split("|")[0].strip(): int(row.split("|")[1]) for row in done.stdout.splitlines()
                  if row.count("|") == 6 and row.split("|")[1].strip().isdigit()}
        assert counts["ncclKernel_Broadcast_RING_LL_Sum_int8_t("] == 6
        assert sum(counts.values()) > 100
