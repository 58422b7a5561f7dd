"""Tests slot.sh and unpack.sh with programs that only pretend to use a GPU."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import threading
import time

import pytest

import slot_engine as engine
import slot_parts
import stub_programs
import unpack

HERE = pathlib.Path(__file__).parent
PACKED = "zst" if shutil.which("zstd") else "gz"  # as unpack.py and record.sh compress traces
ROOT = HERE.parents[1]


def part(name, record=lambda place: None, judge=lambda place: "fine", seconds=0, **more):
    return engine.Part(name, f"what {name} shows", record, judge, seconds=seconds, **more)


@pytest.fixture
def run(tmp_path):
    """Runs parts as one call would; returns (exit status, State)."""
    def start(*parts, names=(), again=False, limit=60.0, fake=""):
        slot = engine.Slot(parts, tmp_path / "bin", tmp_path / "work", tmp_path / "results", limit, sys.executable, fake)
        return slot.run(names, again), {one.name: slot.state.of(one) for one in parts}
    return start


def write(name, text):
    """Returns a `record` that writes a file."""
    return lambda place: (place.folder / name).write_text(text) and None


def fail(place):
    raise engine.PartFailed("no kernels")


def test_a_part_that_fails_or_breaks_stops_no_other_one_and_its_recording_is_kept(run, tmp_path):
    def broken(place):
        return str(1 // 0)

    status, state = run(part("a", write("a.txt", "A"), fail), part("b", fail), part("c", judge=broken), part("d"))
    assert status == 1
    assert [state[name].state for name in "abcd"] == ["failed", "failed", "failed", "passed"]
    assert state["a"].said == "no kernels"
    assert "ZeroDivisionError" in state["c"].said
    with tarfile.open(tmp_path / "results/slot-0.tar") as tar:
        assert "a/a.txt" in tar.getnames()


def test_what_is_recorded_is_in_the_results_before_it_is_judged(run, tmp_path):
    def judge(place):
        with tarfile.open(tmp_path / "results/slot-0.tar") as tar:
            return ",".join(tar.getnames())

    _, state = run(part("a", write("trace", "T"), judge))
    assert state["a"].said == "a/trace"
    assert json.loads((tmp_path / "results/state.json").read_text())["a"]["state"] == "passed"


def test_the_same_command_goes_on_where_it_stopped(run, tmp_path):
    ran = []

    def record(place):
        ran.append(place.folder.name)
        if len(ran) == 2:
            raise engine.TimeOver

    parts = [part("a", record), part("b", record, goes_on=True), part("c", record)]
    status, state = run(*parts)
    assert (status, state["b"].state) == (3, "unfinished")
    assert run(*parts)[0] == 0
    assert ran == ["a", "b", "c", "b"]
    assert run(*parts)[0] == 0 and len(ran) == 4
    run(*parts, names=["c"], again=True)
    assert ran[4:] == ["c"]


def test_a_part_that_goes_on_finds_its_files_and_another_one_an_empty_folder(run, tmp_path):
    for name in "ab":
        (tmp_path / "work" / name).mkdir(parents=True)
        (tmp_path / "work" / name / "old").write_text("")
    listing = lambda place: ",".join(sorted(one.name for one in place.folder.iterdir()))  # noqa: E731
    _, state = run(part("a", judge=listing, goes_on=True), part("b", judge=listing))
    assert (state["a"].said, state["b"].said) == ("old", "")


def test_a_part_that_hangs_is_stopped_and_the_next_one_runs(run):
    status, state = run(part("a", lambda place: place.run("sleep", "60") and None, seconds=1), part("b"))
    assert status == 1
    assert state["a"].said == "sleep did not end and was stopped: (no output)"
    assert state["b"].state == "passed"


def test_parts_that_measure_no_time_run_at_once_and_before_the_others(run, tmp_path):
    ends, inside = [], threading.Barrier(2, timeout=20)

    def together(place):
        inside.wait()  # fails unless both parts are here
        ends.append(place.folder.name)

    def by_itself(place):
        ends.append(place.folder.name)

    status, state = run(part("a", by_itself), part("b", together, alone=False), part("c", together, alone=False))
    assert status == 0
    assert sorted(ends[:2]) == ["b", "c"] and ends[2:] == ["a"]


def test_files_of_a_part_that_still_records_are_left_alone(run, tmp_path):
    first_is_kept = threading.Event()

    def slow(place):
        (place.folder / "half").write_text("")
        assert first_is_kept.wait(20)

    def judge_quick(place):
        with tarfile.open(tmp_path / "results/slot-0.tar") as tar:
            found = ",".join(tar.getnames())
        first_is_kept.set()
        return found

    _, state = run(part("slow", slow, alone=False), part("quick", write("whole", "x"), judge_quick, alone=False))
    assert state["quick"].said == "quick/whole"
    with tarfile.open(tmp_path / "results/slot-0.tar") as tar:
        assert "slow/half" in tar.getnames()


def test_a_part_for_which_the_time_is_too_short_is_not_begun_and_a_shorter_one_is(run):
    status, state = run(part("long", seconds=90), part("short"), limit=60)
    assert status == 3
    assert (state["long"].state, state["short"].state) == ("not begun", "passed")


def test_a_part_that_took_the_machine_away_twice_is_failed_and_not_begun_again(run, tmp_path):
    class Gone(BaseException):
        pass

    def take_away(place):
        raise Gone

    for _ in range(2):
        with pytest.raises(Gone):
            run(part("a", take_away), part("b"))
    status, state = run(part("a", take_away), part("b"))
    assert status == 1
    assert (state["a"].state, state["b"].state) == ("failed", "passed")
    assert "2 tries" in state["a"].said


def test_what_the_product_lacks_is_said_and_is_no_failure(run):
    status, state = run(part("power", fail, missing="the product records no power"))
    assert status == 0
    assert state["power"] == engine.Outcome("not built", "the product records no power")


def place(tmp_path, seconds, goes_on=False, fake=""):
    return engine.Place(tmp_path, tmp_path, sys.executable, fake, time.monotonic() + seconds, goes_on)


def test_a_command_at_its_limit_is_ended_with_its_children_and_its_output_is_kept(tmp_path):
    script = "echo half done; sleep 60 & sleep 60; echo never"
    begin = time.monotonic()
    with pytest.raises(engine.PartFailed, match="did not end and was stopped: half done"):
        place(tmp_path, 0.5).run("bash", "-c", script)
    with pytest.raises(engine.TimeOver):
        place(tmp_path, 0.5, goes_on=True).run("bash", "-c", script)
    assert time.monotonic() - begin < 20
    assert (tmp_path / "log.txt").read_text().count("half done\n[exit status -9]") == 2


def test_a_command_that_fails_or_cannot_be_started_fails_the_part(tmp_path):
    with pytest.raises(engine.PartFailed, match="bash ended with 3: oh"):
        place(tmp_path, 10).run("bash", "-c", "echo oh; exit 3")
    assert place(tmp_path, 10).run("bash", "-c", "exit 3", check=False).returncode == 3
    with pytest.raises(engine.PartFailed, match="cannot start .*nothing"):
        place(tmp_path, 10).run(tmp_path / "nothing")


def test_only_what_records_is_run_beside_the_fake(tmp_path):
    fake = place(tmp_path, 10, fake="/nowhere/libfake.so")
    assert fake.environment({}, preload=True)["LD_PRELOAD"] == "/nowhere/libfake.so"
    assert "/nowhere" not in fake.environment({}, preload=False).get("LD_PRELOAD", "")
    assert "/nowhere" not in place(tmp_path, 10).environment({}, preload=True).get("LD_PRELOAD", "")


def test_results_are_few_files_of_limited_size_and_what_finds_no_room_is_named(run, tmp_path, monkeypatch):
    monkeypatch.setattr(engine, "MOST_BYTES", 300_000)
    monkeypatch.setattr(engine, "MOST_FILES", 2)

    def record(place):
        for number in range(4):
            (place.folder / f"{number}").write_bytes(b"x" * (100_000 + number))
        (place.folder / "huge").write_bytes(b"x" * 400_000)
        (place.folder / "thrown-away").write_bytes(b"x")

    run(part("a", record, keeps=lambda path: path.name != "thrown-away"))
    results = tmp_path / "results"
    assert sorted(one.name for one in results.iterdir()) == ["slot-0.tar", "slot-1.tar", "state.json", "summary.txt"]
    names = []
    for piece in results.glob("*.tar"):
        assert piece.stat().st_size <= 300_000
        with tarfile.open(piece) as tar:
            names += tar.getnames()
    assert sorted(names) == ["a/0", "a/1", "a/2", "a/3"]
    assert "left out for its size: a/huge, 390 KiB" in (results / "summary.txt").read_text()
    run(part("a", write("little", "x")), again=True)
    assert not (results / "slot-1.tar").exists()


def test_the_limits_are_those_of_the_lent_machine():
    assert engine.MOST_BYTES <= 16 << 20
    assert engine.MOST_FILES + 3 <= 8  # plus summary.txt, state.json and a file that is being written
    assert all(0 < one.seconds <= 540 - engine.RESERVE_S for one in slot_parts.PARTS)


@pytest.fixture
def tests_of(tmp_path, monkeypatch):
    """Returns what run_tests() makes of a test program that prints `out`."""
    def judge(out, status=0, fake=""):
        where = place(tmp_path, 10, fake=fake)
        monkeypatch.setattr(engine.Place, "run", lambda self, *command, **more: engine.Done(status, out))
        return slot_parts.run_tests(where, "gpu_test", "*")
    return judge


def test_a_skipped_test_is_a_failed_one_on_a_gpu(tests_of):
    out = "[       OK ] A.B (1 ms)\n[  SKIPPED ] A.C (0 ms)\nlaunch to kernel, ours: least 9 ns\n"
    assert tests_of(out, fake="x.so") == "gpu_test: 1 passed, 1 skipped\nlaunch to kernel, ours: least 9 ns"
    with pytest.raises(engine.PartFailed, match=r"A.C \(skipped\)\nlaunch to kernel"):
        tests_of(out)


def test_a_test_program_that_fails_crashes_or_runs_nothing_fails_the_part(tests_of):
    with pytest.raises(engine.PartFailed, match="gpu_test: OnAGpu/A.B/host_sync$"):
        tests_of("[       OK ] A.A (1 ms)\n[  FAILED  ] OnAGpu/A.B/host_sync, where GetParam() = 8-byte object <D0-12> (12 ms)\n", 1)
    with pytest.raises(engine.PartFailed, match="gpu_test: A.B"):
        tests_of("[  FAILED  ] A.B (1 ms)\n", 1)
    with pytest.raises(engine.PartFailed, match="ended with -11"):
        tests_of("[       OK ] A.B (1 ms)\n[ RUN      ] A.C\n", -11)
    with pytest.raises(engine.PartFailed, match="ran no test"):
        tests_of("0 tests ran\n")


def test_overhead_is_judged_by_the_ratio_of_medians_of_what_is_added(tmp_path):
    def runs(name, added):
        for number, value in enumerate(added):
            (tmp_path / f"{number}_cost-{name}.json").write_text(json.dumps({"off_us": [100, 100, 900], "on_us": [100 + value] * 3}))

    where = place(tmp_path, 10)
    runs("ours", [3, 2, 50])
    runs("kineto", [10, 11, 9])
    assert "stepscope adds 3.0 us (2.0 to 50.0), Kineto 10.0 us" in slot_parts.judge_overhead(where)
    assert json.loads((tmp_path / "overhead.json").read_text())["ratio"] == pytest.approx(0.3)
    runs("ours", [4, 4, 4])
    with pytest.raises(engine.PartFailed, match="ratio 0.40, must be at most 0.35"):
        slot_parts.judge_overhead(where)
    runs("kineto", [0, 0, 0])
    with pytest.raises(engine.PartFailed, match="no ratio"):
        slot_parts.judge_overhead(where)


def test_counters_must_be_plausible(tmp_path):
    where = place(tmp_path, 10)
    trace = tmp_path / "log/stepscope/run/c0/trace/rank0.json.gz"

    def judged(samples, losses=()):
        stub_programs.pack(trace, json.dumps({"stepscope": {"device_samples": samples, "losses": list(losses)}}))
        return slot_parts.judge_counters(where)

    def sample(share=0.5, counted_ns=10 ** 6):
        return {"counted_ns": counted_ns, "sm_active_frac": share, "tensor_active_frac": share, "dram_frac": share}
    with pytest.raises(engine.PartFailed, match="nothing was recorded"):
        slot_parts.judge_counters(where)
    assert "1000 a second" in judged([sample()] * 50)
    with pytest.raises(engine.PartFailed, match="no samples: not allowed"):
        judged([{"sm_clock_mhz": 1}], [{"name": "cupti-counters-unavailable", "detail": "not allowed"}])
    with pytest.raises(engine.PartFailed, match="Tensor Cores active: always 0"):
        judged([sample(0)] * 50)
    with pytest.raises(engine.PartFailed, match="not a share"):
        judged([sample(1.5)] * 50)
    with pytest.raises(engine.PartFailed, match="1000 a second were asked for"):
        judged([sample(counted_ns=10 ** 7)] * 50)


def test_doctor_is_asked_about_recording_and_not_about_viewers(tmp_path):
    file, where = tmp_path / "doctor.txt", place(tmp_path, 10)
    file.write_text(stub_programs.DOCTOR)
    assert slot_parts.judge_doctor(where).count("\n") == 3
    file.write_text(stub_programs.DOCTOR.replace("ok   permissions", "fix  permissions"))
    with pytest.raises(engine.PartFailed, match="fix  permissions"):
        slot_parts.judge_doctor(where)
    file.write_text("")
    with pytest.raises(engine.PartFailed, match="no line about driver"):
        slot_parts.judge_doctor(where)


def test_viewers_files_of_profiles_are_not_kept():
    kept = [path for path in (
        "found.json", "log.txt", "runs/runs.jsonl", "runs/profiles/0.json", "runs/profiles/0/stepscope/x/c0/trace/rank0.json.gz",
        "runs/profiles/0/plugins/profile/x/host.xplane.pb", "runs/profiles/0/x/rank0.json.gz", "runs/timed/x")
            if slot_parts.kept_of_ladder(pathlib.PurePosixPath(path))]
    assert kept == ["found.json", "log.txt", "runs/runs.jsonl", "runs/profiles/0.json",
                    "runs/profiles/0/stepscope/x/c0/trace/rank0.json.gz"]


@pytest.fixture
def shell(tmp_path):
    """Starts slot.sh in a copy of the transferred files, with stub programs and a fake torch."""
    tree = tmp_path / "tree"
    for folder in ("tests/gpu", "tests/samples/gallery", "tests/samples/ladder", "samples/ladder"):
        shutil.copytree(ROOT / folder, tree / folder, ignore=shutil.ignore_patterns("__pycache__"))
    stub_programs.install(tmp_path / "bin")
    (tmp_path / "site/torch").mkdir(parents=True)
    (tmp_path / "site/torch/__init__.py").write_text('__version__ = "2.11.0"\n')

    def start(*words, **env):
        environment = {key: value for key, value in os.environ.items() if not key.startswith("STEPSCOPE_")}
        environment |= {"STEPSCOPE_PYTHON": sys.executable, "PYTHONPATH": str(tmp_path / "site"), "STEPSCOPE_BIN": str(tmp_path / "bin"),
                        "STEPSCOPE_GPU_FAKE": "libc.so.6", "STEPSCOPE_GPU_RESULTS": str(tmp_path / "out"), **env}
        done = subprocess.run(["bash", tree / "tests/gpu/slot.sh", *words], capture_output=True, text=True, env=environment, timeout=300)
        return done.returncode, done.stdout + done.stderr

    return start


QUICK = ("doctor", "tests", "buffers", "same", "overhead", "causes", "windows", "orders", "threads", "overflow", "graphs", "counters", "baseline")


def test_the_whole_script_with_a_part_that_fails_and_back_into_the_tree(shell, tmp_path):
    status, out = shell(*QUICK, STUB_FAIL="gpu_program:threads gpu_test:FullBuffers")
    assert status == 1, out
    state = json.loads((tmp_path / "out/state.json").read_text())
    assert {name: one["state"] for name, one in state.items() if one["state"] != "passed"} == {
        "threads": "failed", "overflow": "failed"}
    assert "the device is on fire" in state["threads"]["said"]
    assert "step 80.0 ms, device busy 32.0%" in out
    assert "Tensor Cores active: mean 25.0%, at most 25.0%" in out and "memory bandwidth: not counted" in out
    assert "TEARDOWN_CUPTI 1, kernels seen: ours 40, kineto 40, ours 40" in out

    status, out = shell("threads", "gallery")  # the ones left, and the fault is mended: an outcome stays until --again
    assert status == 1, out
    assert shell("threads", "--again")[0] == 0

    tree = tmp_path / "into"
    done = subprocess.run(["bash", HERE / "unpack.sh", tmp_path / "out", "--root", tree], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "overflow: failed\n"
    data = tree / "tests/data/gpu"
    assert {"README.md", "doctor.txt", "buffers_0_buffers.cupti", f"same_1_ours.json.{PACKED}", f"threads_0_threads.json.{PACKED}",
            f"graphs_graphs_c1.json.{PACKED}", f"baseline_rank0.json.{PACKED}"} <= {one.name for one in data.iterdir()}
    assert sorted(one.name for one in (data / "gallery").iterdir()) == [
        f"{name}.json.{PACKED}" for name in ("debug_api_on", "debug_api_on_fixed", "validation_mode", "validation_mode_fixed")]
    page = (tree / "samples/resnet/RESULTS.md").read_text()
    assert "| overflow | more records than the buffers hold | **failed**" in page
    with tarfile.open(tree / "build/gpu-state.tar.gz") as tar:
        assert "state.json" in tar.getnames() and f"gallery/debug_api_on.json.{PACKED}" in tar.getnames()


def test_where_there_is_no_gpu_it_says_so_and_is_no_failure(shell, tmp_path):
    (tmp_path / "path").mkdir()
    (tmp_path / "path/nvidia-smi").write_text("#!/bin/sh\nexit 9\n")
    (tmp_path / "path/nvidia-smi").chmod(0o755)
    status, out = shell(STEPSCOPE_GPU_FAKE="", PATH=f"{tmp_path / 'path'}:{os.environ['PATH']}")
    assert (status, out) == (0, "== skipped: nvidia-smi finds no GPU on this machine\n")


def test_words_that_make_no_sense_are_refused(shell, tmp_path):
    status, out = shell("fly")
    assert status == 2 and "no such part: fly" in out
    status, out = shell(STEPSCOPE_BIN=str(tmp_path / "nowhere"))
    assert status == 2 and "made elsewhere with --pack" in out
    status, out = shell("--list")
    assert status == 0 and [line.split()[0] for line in out.splitlines()] == [one.name for one in slot_parts.PARTS]


def results_of(folder, machine, said="fine\nsecond line | with a bar"):
    """Makes a folder of results with one passed part."""
    folder.mkdir(parents=True)
    (folder / "state.json").write_text(json.dumps({"doctor": vars(engine.Outcome("passed", said, 3, 1))}))
    for name, text in (("machine.json", json.dumps(machine)), ("doctor/doctor.txt", "ok"), (
            "climb/found.md", "| a |\n| - |\n| b |\nleft: x\nfrom y")):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    with tarfile.open(folder / "slot-0.tar", "w") as tar:
        for name in ("machine.json", "doctor/doctor.txt", "climb/found.md"):
            tar.add(folder / name, arcname=name)
    return folder


H200 = {"date": "2026-12-01", "fake": False, "gpu": "NVIDIA H200, 580.159.04, 143771 MiB", "cores": 16, "kernel": "6.18", "python": "3.12.3",
        "torch": "2.11.0+cu130", "build": "commit abc\npacked today"}


def test_results_become_a_dated_section_that_a_second_time_replaces(tmp_path, capsys):
    page = tmp_path / "samples/resnet/RESULTS.md"
    page.parent.mkdir(parents=True)
    page.write_text("# Measured\n\n## Rungs\n\nText.\n\nNot yet run on a GPU (`rungs --device cuda`).\n\n## Sweep\n\nMore.\n")
    for number, said in enumerate(("old words", "fine\nsecond line | with a bar")):
        assert unpack.main([str(results_of(tmp_path / f"r{number}", H200, said)), "--root", str(tmp_path)]) == 0
    text = page.read_text()
    assert re.findall("(?m)^##? .*", text) == ["# Measured", "## Rungs", "## Sweep", "## On a GPU: NVIDIA H200, 2026-12-01"]
    assert "old words" not in text and "Not yet run" not in text
    assert "| doctor | stepscope doctor on this machine | passed, 3 s | fine<br>second line \\| with a bar |" in text
    assert "| b |\n\nleft: x\n\nfrom y\n" in text
    assert "| driver | 580.159.04 |" in (tmp_path / "tests/data/gpu/README.md").read_text()


def test_results_of_a_fake_never_get_into_the_tree(tmp_path, capsys):
    kept = ROOT / "tests/data/gpu/README.md"
    before = kept.read_text() if kept.exists() else ""
    assert unpack.main([str(results_of(tmp_path / "r", {**H200, "fake": True, "gpu": "Pretended, 1, 2"}))]) == 1
    assert "--root FOLDER writes them elsewhere" in capsys.readouterr().err
    assert (kept.read_text() if kept.exists() else "") == before


def test_a_folder_that_is_no_result_is_refused(tmp_path, capsys):
    assert unpack.main([str(tmp_path), "--root", str(tmp_path)]) == 1
    assert "it is not what slot.sh leaves" in capsys.readouterr().err


def test_a_fresh_machine_goes_on_from_the_state_that_was_carried_there(shell, tmp_path):
    assert shell("doctor", "buffers")[0] == 0
    assert unpack.main([str(tmp_path / "out"), "--root", str(tmp_path / "tree")]) == 0
    shutil.rmtree(tmp_path / "tree/build/gpu-slot")
    status, out = shell("doctor", "threads", STEPSCOPE_GPU_RESULTS=str(tmp_path / "out2"))
    assert status == 0 and "== doctor" not in out and "== threads" in out
    assert unpack.main([str(tmp_path / "out"), str(tmp_path / "out2"), "--root", str(tmp_path / "into")]) == 0
    data = tmp_path / "into/tests/data/gpu"
    assert (data / "doctor.txt").exists() and (data / f"threads_0_threads.json.{PACKED}").exists()
