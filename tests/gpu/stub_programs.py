"""Programs that look to slot.sh like the real ones but take no time: stub_programs.py NAME ARGUMENT...

STUB_FAIL lists failures: "gpu_program:threads" (a stage crashes), "gpu_test:FullBuffers" (a test fails if its filter contains
this word), "gpu_buffers_test:skip" (it is skipped).
"""

import gzip
import json
import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
LADDER_STUBS = ROOT / "tests/samples/ladder/bin"
FAILS = os.environ.get("STUB_FAIL", "").split()
DOCTOR = """ok   driver        CUDA 13.0, 1 device (NVIDIA H200)
ok   CUPTI         libcupti.so.13 (CUDA 13.0)
ok   subscription  free
ok   permissions   GPU records can be collected
fix  TensorBoard   not installed in python3 -> pip install tensorboard xprof
"""
TESTS = {"gpu_compare_test": ["CompareWorkTest.Same"], "gpu_buffers_test": ["RecordedBuffersTest.OfRealGpusAreDecodedWhole"]}
COST = {"cost-ours": (100.0, 101.0), "cost-kineto": (100.0, 110.0), "cost-subscribed": (100.0, 100.0), "cost-kernels": (100.0, 103.0),
        "cost-launches": (100.0, 104.0), "cost-calls": (100.0, 108.0)}

COUNTED = {"stepscope": {"losses": [], "device_samples": [
    {"time_ns": 10 ** 6 * number, "counted_ns": 10 ** 6, "sm_active_frac": 0.5, "tensor_active_frac": 0.25} for number in range(100)]}}


def pack(path, text="{}"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


def gpu_program(words):
    folder = pathlib.Path(words[0])
    folder.mkdir(parents=True, exist_ok=True)
    for number, stage in enumerate(words[1:], len(list(folder.iterdir()))):
        if f"gpu_program:{stage}" in FAILS:
            print(f"gpu_program: {stage}: failed: the device is on fire")
            return 1
        if stage in COST:
            off, on = COST[stage]
            (folder / f"{number}_{stage}.json").write_text(json.dumps({"off_us": [off] * 9, "on_us": [on] * 9}))
        elif stage == "kineto":
            (folder / f"{number}_{stage}.json").write_text("{}")
        elif stage == "buffers":
            (folder / f"{number}_{stage}.cupti").write_bytes(b"records")
        elif stage == "windows":
            pack(folder / f"{number}_{stage}_c0.json.gz")
            pack(folder / f"{number}_{stage}_c1.json.gz")
        else:
            pack(folder / f"{number}_{stage}.json.gz")
    return 0


def gtest(name, words):
    only = words[0].removeprefix("--gtest_filter=")
    recorded = pathlib.Path(os.environ["STEPSCOPE_GPU_RECORDED"])
    if name == "gpu_buffers_test" and len(list((recorded / "buffers").glob("*.cupti"))) != 1:
        return 1
    skips = f"{name}:skip" in FAILS
    failed = any(one.startswith(f"{name}:") and one.split(":")[1] in only for one in FAILS)
    word = "  SKIPPED " if skips else "  FAILED  " if failed else "       OK "
    for test in TESTS.get(name, ["GpuTest.One"]):
        print(f"[ RUN      ] {test}\nlaunch to kernel, ours: least 900 ns\n[{word}] {test} (1 ms)\n")
    return int(failed)


def resnet(words):
    if "--log-dir" not in words:  # ladder.py writes --log-dir=FOLDER
        return subprocess.run([sys.executable, LADDER_STUBS / "resnet", *words], check=False).returncode
    run = pathlib.Path(words[words.index("--log-dir") + 1]) / "stepscope/resnet_1"
    for cycle in range(int(words[words.index("--repeat") + 1]) if "--repeat" in words else 1):
        pack(run / f"c{cycle}/trace/rank0.json.gz", json.dumps(COUNTED) if "STEPSCOPE_GPU_COUNTERS" in os.environ else "{}")
    return 0


def stepscope(words):
    if words[0] == "doctor":
        print(DOCTOR)
        return 1
    if words[0] == "info":
        print(json.dumps({"gpu": {"0": {"kernels": 40}}}))
        return 0
    if words[:2] == ["analyze", "--format"]:
        print(json.dumps({"steps": {"mean_ms": 80.0}, "time_split_ms": {"compute": 25.6}, "has_gpu": True,
                          "findings": [{"id": "sync-data-loading"}]}))
        return 0
    return subprocess.run([sys.executable, LADDER_STUBS / "stepscope", *words], check=False).returncode


def gallery(words):
    if words[0] == "--list":
        print("host-sync                 reads the loss back at once (GPU)")
        return 0
    pack(pathlib.Path(words[words.index("--log-dir") + 1]) / "stepscope/run_1/c0/trace/rank0.json.gz")
    pathlib.Path(words[words.index("--json") + 1]).write_text(json.dumps({"steps": {"cov": 0.01}}))
    return 0


def install(folder):
    """Writes the programs to `folder`."""
    folder.mkdir(parents=True)
    for name in ("gpu_program", "gpu_test", "gpu_compare_test", "gpu_buffers_test", "stepscope", "resnet", "gallery", "gallery_test"):
        (folder / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" "{__file__}" {name} "$@"\n')
        (folder / name).chmod(0o755)
    shutil.copyfile(__file__, folder / "libresnet_cuda_graph.so")


PROGRAMS = {"gpu_program": gpu_program, "resnet": resnet, "stepscope": stepscope, "gallery": gallery}

if __name__ == "__main__":
    name, *rest = sys.argv[1:]
    sys.exit(PROGRAMS[name](rest) if name in PROGRAMS else gtest(name, rest))
