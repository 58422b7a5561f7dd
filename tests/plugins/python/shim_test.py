"""Tests which shim is loaded for which torch, and what happens without a shim."""

import shutil

import pytest

from profile_test import LOOP, reports
from stepscope import _shim

WINDOW = LOOP + """
batch = data[:32]
with profile(schedule=schedule(wait=0, warmup=1, active=2), log_dir="runs") as prof:
    for _ in "x" * 4:
        train(batch)
        prof.step()
"""


def mark(path, shim_id="0.1.0-abc", torch="2.11.0+cu130", cuda="13.0"):
    path.write_bytes(b"\x7fELF..." + f"STEPSCOPE-SHIM {shim_id} torch={torch} cuda={cuda} ;".encode() + b"...")
    return path


@pytest.mark.parametrize("built, wanted, expected", [
    ({}, ("0.1.0-abc", "2.11.0+cu130", "13.0"), True),
    ({}, ("0.1.0-abc", "2.11.1+cu130", "13.0"), True),
    ({}, ("0.1.0-abc", "2.12.0+cu130", "13.0"), False),
    ({}, ("0.1.0-abc", "2.11.0+cu126", "12.6"), False),
    ({}, ("0.1.0-abc", "2.11.0+cpu", "none"), False),
    ({}, ("0.1.0-def", "2.11.0+cu130", "13.0"), False),
    ({}, ("0.1.0-abc", "2.11.0a0+git1234", "13.0"), False),
    ({"torch": "2.12.0.dev20260101+cu130"}, ("0.1.0-abc", "2.12.0.dev20260102+cu130", "13.0"), False),
    ({"torch": "2.12.0.dev20260101+cu130"}, ("0.1.0-abc", "2.12.0.dev20260101+cu130", "13.0"), True),
])
def test_a_shim_fits_the_torch_it_was_built_for(tmp_path, built, wanted, expected):
    assert _shim.fits(mark(tmp_path / "shim.so", **built), wanted) is expected


def test_a_file_without_the_mark_fits_nothing(tmp_path):
    (tmp_path / "shim.so").write_bytes(b"\x7fELF")
    assert not _shim.fits(tmp_path / "shim.so", ("", "", ""))
    assert not _shim.fits(tmp_path / "missing.so", ("", "", ""))


@pytest.fixture
def without_shim(installed):
    for shim in installed.glob("shim-torch*.so"):
        shim.unlink()
    return installed


def test_without_a_shim_torch_profiler_records_and_the_report_says_so(run_program, tmp_path, without_shim):
    done = run_program(WINDOW, STEPSCOPE_NATIVE_DIR=str(without_shim), STEPSCOPE_BUILD_SHIM="0",
                       XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert "recording with torch.profiler, because there is no recorder for torch" in done.stderr
    assert "Note: recorded with torch.profiler" in done.stdout
    (report,) = reports(tmp_path / "runs")
    assert report["steps"]["count"] == 2
    assert report["losses"][0]["name"] == "recorded-by-torch-profiler"
    assert "analysed it" in report["losses"][0]["detail"]
    (page,) = (tmp_path / "runs").glob("stepscope/*/c0/advice/rank0.html")
    assert "recorded-by-torch-profiler" in page.read_text(encoding="utf-8")


def test_what_torch_profiler_recorded_is_reported_although_nothing_can_be_written(run_program, tmp_path, without_shim):
    done = run_program(WINDOW.replace('"runs"', '"/proc/no"'), STEPSCOPE_NATIVE_DIR=str(without_shim), STEPSCOPE_BUILD_SHIM="0",
                       XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert "cannot write to log_dir: /proc/no" in done.stderr
    assert "Note: recorded with torch.profiler" in done.stdout
    assert "2 steps" in done.stdout


def test_torch_profiler_gives_steps_the_numbers_of_the_loop(run_program, tmp_path, without_shim):
    done = run_program(LOOP + """
batch = data[:32]
prof = profile(schedule=schedule(wait=1, warmup=1, active=2), print_report=False)
prof.step_num = 1000
with prof:
    for _ in "x" * 5: train(batch); prof.step()
print([step.step for step in prof.report.step_times])
""", STEPSCOPE_NATIVE_DIR=str(without_shim), STEPSCOPE_BUILD_SHIM="0", XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert done.stdout == "[1002, 1003]\n"


def test_torch_profiler_records_a_window_at_each_request(run_program, tmp_path, without_shim):
    done = run_program(LOOP + """
import os, signal
batch = data[:32]
with profile(on_signal=signal.SIGUSR2, print_report=False, log_dir="runs") as prof:
    for _ in "x" * 40:
        if prof.step_num in (5, 20): os.kill(os.getpid(), signal.SIGUSR2)
        train(batch); prof.step()
print([[step.step for step in report.step_times] for report in prof.reports])
""", STEPSCOPE_NATIVE_DIR=str(without_shim), STEPSCOPE_BUILD_SHIM="0", XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert done.stdout == "[[9, 10, 11], [24, 25, 26]]\n"
    assert len(reports(tmp_path / "runs")) == 2


def test_torch_profiler_records_a_rank_that_cannot_be_as_rank_0(run_program, tmp_path, without_shim):
    done = run_program(WINDOW, STEPSCOPE_NATIVE_DIR=str(without_shim), STEPSCOPE_BUILD_SHIM="0", RANK="3", WORLD_SIZE="2",
                       XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert done.stderr.count("RANK=3 and WORLD_SIZE=2 name no rank of a job") == 1
    assert "2 steps" in done.stdout
    assert len(list((tmp_path / "runs").glob("stepscope/*/c0/trace/rank0.json.gz"))) == 1


@pytest.mark.parametrize("compiler, message", [("/no/such/compiler", "there is no C++ compiler"), ("false", "does not compile")])
def test_where_nothing_compiles_torch_profiler_records(run_program, tmp_path, without_shim, compiler, message):
    done = run_program(WINDOW, STEPSCOPE_NATIVE_DIR=str(without_shim), XDG_CACHE_HOME=str(tmp_path / "cache"), CXX=compiler)
    assert message in done.stderr
    assert reports(tmp_path / "runs")[0]["steps"]["count"] == 2


def test_a_shim_is_built_once_into_the_cache_and_used(run_program, tmp_path, without_shim):
    if shutil.which("c++") is None:
        pytest.skip("needs a C++ compiler")
    where = {"STEPSCOPE_NATIVE_DIR": str(without_shim), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    first = run_program(WINDOW, **where)
    assert "building the recorder for torch" in first.stderr
    (built,) = (tmp_path / "cache").glob("stepscope/*/shim-torch*.so")
    again = run_program(WINDOW, **where)
    assert "building" not in again.stderr
    assert all(report["run"]["producer"].startswith("stepscope ") for report in reports(tmp_path / "runs"))
    # A damaged shim does not match and would be built again, which is forbidden here.
    built.write_bytes(built.read_bytes().replace(b"STEPSCOPE-SHIM", b"STEPSCOPE-XXXX"))
    refused = run_program(WINDOW, STEPSCOPE_BUILD_SHIM="0", **where)
    assert "there is no recorder" in refused.stderr
