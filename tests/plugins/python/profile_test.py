"""Tests `profile` around plain loops, on the torch of STEPSCOPE_PYTHON."""

import json
import pathlib
import re

import pytest

LOOP = """
import sys, torch
from stepscope import profile, schedule, range
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
data = torch.utils.data.TensorDataset(torch.randn(800, 64), torch.randn(800, 8))

def train(batch):
    inputs, wanted = batch
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(inputs), wanted).backward()
    optimizer.step()
"""


def reports(log_dir):
    return [json.loads(path.read_text()) for path in sorted(pathlib.Path(log_dir).glob("stepscope/*/c*/advice/*.json"))]


def test_a_run_is_called_by_its_folder_or_its_script(run_program):
    from stepscope.profile import default_name

    assert default_name("runs/lr3") == default_name("runs/lr3/") == "lr3"
    assert run_program("from stepscope.profile import default_name; print(default_name(''))").stdout == "program\n"


def test_a_plain_loop_is_recorded_reported_and_kept(run_program, tmp_path):
    done = run_program(LOOP + """
loader = torch.utils.data.DataLoader(data, batch_size=32)
with profile(log_dir="runs", name="linear", schedule=schedule(wait=2, warmup=2, active=3), record_shapes=True) as prof:
    for batch in loader:
        train(batch)
        prof.step()
prof.export_chrome_trace("last.json")
prof.export_chrome_trace("last.json.gz")
print("steps", prof.step_num)
(linear,) = [each for each in prof.key_averages() if each.key == "aten::addmm"]
assert linear.count == 6 and linear.cpu_time_total >= linear.self_cpu_time_total > 0
assert "more; row_limit=0 shows all)" in prof.key_averages().table(row_limit=1)
assert "aten::addmm" in prof.key_averages(group_by_input_shape=True).table(sort_by="cpu_time_total", row_limit=10)
""")
    assert 'stepscope: "linear": steps 0-1 wait' in done.stderr
    assert "steps 25" in done.stdout and "3 steps" in done.stdout
    (report,) = reports(tmp_path / "runs")
    assert report["run"]["producer"].startswith("stepscope ")
    assert report["run"]["language"] == "python"
    assert report["steps"]["count"] == 3
    assert not [loss for loss in report["losses"] if loss["severity"] == "error"]
    events = json.loads((tmp_path / "last.json").read_text())["traceEvents"]
    assert sum(event.get("name") == "aten::addmm" for event in events) == 6
    assert any("_SingleProcessDataLoaderIter.__next__" in event.get("name", "") for event in events)
    assert (tmp_path / "last.json.gz").stat().st_size > 1000


def test_habits_of_torch_profiler(run_program):
    """Tests torch.profiler's usage: no schedule, on_trace_ready, torch's own schedule, and a block without a step."""
    done = run_program(LOOP + """
from torch.profiler import ProfilerActivity, schedule as torch_schedule
seen = []
def ready(prof):
    prof.export_chrome_trace(f"w{len(seen)}.json")
    seen.append(prof.step_num)
batch = data[:32]
with profile(activities=[ProfilerActivity.CPU], schedule=torch_schedule(wait=1, warmup=1, active=2, repeat=2),
             on_trace_ready=ready, with_flops=True, print_report=False) as prof:
    for _ in "x" * 40:
        train(batch)
        prof.step()
        if prof.step_num == 8:
            import time; time.sleep(2)  # the windows are analysed meanwhile
assert len(seen) == 2, seen
with profile(print_report=False, on_trace_ready=lambda prof: prof.export_chrome_trace("block.json")):
    train(batch)
prof = profile(print_report=False)
prof.start()
train(batch); prof.step(); train(batch); prof.step()
prof.stop()
prof.export_chrome_trace("loop.json")
import json
steps = lambda path: sum(e.get("name", "").startswith("ProfilerStep#") for e in json.load(open(path))["traceEvents"])
print("steps:", steps("w0.json"), steps("w1.json"), steps("block.json"), steps("loop.json"))
""")
    assert "steps: 2 2 1 2" in done.stdout
    assert done.stderr == ""


def test_misuse_is_refused_before_training(run_program):
    done = run_program(LOOP + """
import signal
for wrong in ({"schedule": 3}, {"schedule": lambda step: None}, {"every": 2}, {"on_signal": 999}, {"lgo_dir": "x"}):
    try:
        profile(**wrong)
        print("taken", wrong)
    except (ValueError, TypeError) as error:
        print(type(error).__name__, error)
""")
    assert "taken" not in done.stdout
    assert "every is 2, but must be a whole number of at least 6" in done.stdout
    assert "unexpected keyword argument 'lgo_dir'" in done.stdout


def test_nothing_raises_out_of_a_loop(run_program):
    done = run_program(LOOP + """
batch = data[:32]
def broken(prof): raise KeyError("mine")
short = schedule(wait=0, warmup=1, active=1)
with profile(schedule=short, on_trace_ready=broken, log_dir="/proc/no", print_report=False) as first:
    with profile(schedule=short, print_report=False) as second:  # one profile records at a time
        for _ in "x" * 4:
            train(batch); first.step(); second.step()
print("trained", first.step_num, second.step_num)
""")
    assert "trained 4 4" in done.stdout
    assert "on_trace_ready failed: 'mine'; training goes on" in done.stderr
    assert "cannot write to log_dir" in done.stderr
    assert "training goes on unprofiled" in done.stderr


def test_a_report_does_not_wait_for_files_that_cannot_be_written(run_program):
    done = run_program(LOOP + """
import time
batch = data[:32]
deadline = time.monotonic() + 60
with profile(schedule=schedule(wait=0, warmup=1, active=1), log_dir="/proc/no") as prof:
    while not prof.reports and time.monotonic() < deadline:
        train(batch); prof.step()
    print("in the loop:", len(prof.reports))
""")
    assert "in the loop: 1" in done.stdout
    assert "1 step" in done.stdout
    assert done.stderr.count("cannot write to log_dir") == 1


@pytest.mark.parametrize("ending, status", [("raise ValueError('mine')", 1), ("sys.exit(3)", 3),
                                            ("import os, signal; os.kill(os.getpid(), signal.SIGINT)", -2)])
def test_a_loop_that_ends_early_keeps_its_window(run_program, tmp_path, ending, status):
    done = run_program(LOOP + f"""
batch = data[:32]
with profile(schedule=schedule(wait=0, warmup=1, active=9), log_dir="runs") as prof:
    for step in "x" * 10:
        train(batch)
        prof.step()
        if prof.step_num == 5:
            {ending}
""", status=status)
    assert reports(tmp_path / "runs")[0]["steps"]["count"] == 4
    assert "mine" in done.stderr or status != 1


@pytest.mark.parametrize("grace, kept", [(60, True), (0, False)])
def test_sigterm_keeps_the_window_where_a_grace_is_given(run_program, tmp_path, grace, kept):
    done = run_program(LOOP + f"""
import atexit, os, signal
batch = data[:32]
atexit.register(print, "atexit")  # SIGTERM runs no such function
with profile(schedule=schedule(wait=0, warmup=1, active=9), log_dir="runs", signal_grace={grace}) as prof:
    for step in "x" * 10:
        train(batch)
        if prof.step_num == 5: os.kill(os.getpid(), signal.SIGTERM)
        prof.step()
print("after the loop")
""", status=-15)
    assert [report["steps"]["count"] for report in reports(tmp_path / "runs")] == [5] * kept
    assert done.stdout.count("5 steps") == kept  # the report
    assert "atexit" not in done.stdout and "after the loop" not in done.stdout
    assert ("SIGTERM: the profile ends first" in done.stderr) == kept


def test_sigterm_in_the_last_step_ends_the_program_behind_the_loop_and_leaves_nothing(run_program, tmp_path):
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    done = run_program(LOOP + """
import os, signal
batch = data[:32]
with profile(schedule=schedule(wait=0, warmup=1, active=1), signal_grace=60) as prof:
    for step in "xx":
        train(batch)
        prof.step()
    os.kill(os.getpid(), signal.SIGTERM)
print("after the loop")
""", status=-15, TMPDIR=str(temporary))
    assert "after the loop" not in done.stdout
    assert "1 step" in done.stdout
    assert not list(temporary.glob("stepscope-*"))


@pytest.mark.parametrize("stdout, said", [
    ("sys.stdout", ""), ("None", ""), ("Gone()", "cannot print to stdout: gone"),
    ("sys.stdout.close() or sys.stdout", "cannot print to stdout: I/O operation on closed file.")])
def test_a_stdout_that_cannot_take_the_report_loses_nothing_else(run_program, stdout, said):
    done = run_program(LOOP + f"""
import os, signal
class Gone:
    def write(self, text): raise BrokenPipeError("gone")
sys.stdout = {stdout}
batch = data[:32]
def ready(prof):
    sys.stderr.write(f"ready: {{prof.report.steps.count}} steps\\n")
with profile(schedule=schedule(wait=0, warmup=1, active=9), on_trace_ready=ready, signal_grace=60) as prof:
    for _ in "x" * 10:
        train(batch)
        if prof.step_num == 5: os.kill(os.getpid(), signal.SIGTERM)
        prof.step()
sys.stderr.write("after the loop")
""", status=-15, PYTHONIOENCODING="latin-1")
    assert "ready: 5 steps" in done.stderr
    assert done.stderr.count("cannot print") == bool(said) and said in done.stderr
    assert "Traceback" not in done.stderr and "after the loop" not in done.stderr
    assert ("5 steps" in done.stdout and "#." in done.stdout) == (stdout == "sys.stdout")


def test_a_profile_that_nobody_stops_is_stopped_at_exit(run_program, tmp_path):
    run_program(LOOP + """
batch = data[:32]
prof = profile(schedule=schedule(wait=0, warmup=1, active=9), log_dir="runs", print_report=False)
prof.start()
for _ in "x" * 5:
    train(batch)
    prof.step()
""")
    assert reports(tmp_path / "runs")[0]["steps"]["count"] == 4


def test_windows_on_demand(run_program, tmp_path):
    done = run_program(LOOP + """
import os, signal, time, pathlib
batch = data[:32]
def loop(prof, steps, at=None, ask=None):
    for step in "x" * steps:
        train(batch)
        prof.step()
        if at == prof.step_num: ask()
short = dict(print_report=False, on_trace_ready=lambda prof: print(prof.step_num, flush=True))
with profile(every=10, **short) as prof: loop(prof, 25)
print("every", len(prof._texts))
heard = []
signal.signal(signal.SIGUSR2, lambda *_: heard.append(1))
with profile(on_signal=signal.SIGUSR2, **short) as prof:
    loop(prof, 10)
    for _ in "xx": loop(prof, 20, prof.step_num + 5, lambda: os.kill(os.getpid(), signal.SIGUSR2))
print("signal", len(prof._texts), len(heard))
print("steps", [[step.step for step in report.step_times] for report in prof.reports])
os.kill(os.getpid(), signal.SIGUSR2)
with profile(on_file="now", **short) as prof:
    loop(prof, 10, 5, lambda: (pathlib.Path("now").touch(), time.sleep(0.6)))
    loop(prof, 10)
print("file", len(prof._texts), os.path.exists("now"), len(heard))
""")
    assert re.search(r"^every 2$", done.stdout, re.M)
    assert re.search(r"^signal 2 2$", done.stdout, re.M)
    assert "steps [[19, 20, 21], [39, 40, 41]]" in done.stdout  # requested in steps 15 and 35; three steps warm up
    assert re.search(r"^file 1 False 3$", done.stdout, re.M)


def test_a_loop_that_is_resumed_keeps_its_numbers(run_program):
    done = run_program(LOOP + """
batch = data[:32]
prof = profile(schedule=schedule(wait=1, warmup=1, active=2))
prof.step_num = 1000
with prof:
    for _ in "x" * 5: train(batch); prof.step()
print(prof.step_num, [step.step for step in prof.report.step_times])
""")
    assert "1002-1003 recorded" in done.stderr
    assert done.stdout.endswith("1005 [1002, 1003]\n")


def test_ranges_loaders_and_collections_are_in_the_trace(run_program, tmp_path):
    run_program(LOOP + """
import gc
loader = torch.utils.data.DataLoader(data, batch_size=16, num_workers=2, prefetch_factor=3, persistent_workers=True)
with profile(schedule=schedule(wait=1, warmup=2, active=3), print_report=False) as prof:
    for step, batch in enumerate(loader):
        with range("augment"): batch = [each * 1 for each in batch]
        with range("forward", kind="phase"): train(batch)
        if step == 4: gc.collect()
        prof.step()
prof.export_chrome_trace("trace.json")
assert not [each for each in gc.callbacks if "stepscope" in str(each)]
""")
    trace = json.loads((tmp_path / "trace.json").read_text())
    names = [event.get("name", "") for event in trace["traceEvents"]]
    assert names.count("augment") == 3
    assert any(name.startswith("Python garbage collection, generation 2") for name in names)
    (loader,) = trace["stepscope"]["loaders"]
    assert loader == {"kind": "processes", "workers": 2, "batch_size": 16, "pin_memory": 0, "persistent_workers": 1,
                      "prefetch_factor": 3, "name": "TensorDataset"}


def test_a_loader_that_lives_as_long_as_the_program_says_nothing_at_its_end(run_program):
    done = run_program(LOOP + """
def forever():
    while True: yield from torch.utils.data.DataLoader(data, batch_size=32)
batches = forever()
with profile(schedule=schedule(wait=0, warmup=1, active=1), print_report=False) as prof:
    for _ in "xx": train(next(batches)); prof.step()
""")
    assert done.stderr == ""


def test_source_lines_are_the_programs_own(run_program, tmp_path):
    """Two calls of one operator on two lines have two lines."""
    done = run_program("""
import torch
from stepscope import profile, schedule
x = torch.ones(4)
def train():
    a = x.sum().item()
    return a + x.sum().item()
with profile(schedule=schedule(wait=1, warmup=2, active=3), with_stack=True, print_report=False) as prof:
    for _ in "x" * 6:
        train()
        prof.step()
for row in prof.report.lines:
    print(row.name)
""")
    assert {"program.py:6 in train", "program.py:7 in train"} <= set(done.stdout.splitlines())
    assert done.stderr == ""


def test_shapes_are_recorded_unless_turned_off(run_program, tmp_path):
    run_program(LOOP + """
batch = data[:32]
for name, more in (("on", {}), ("off", {"record_shapes": False})):
    with profile(schedule=schedule(wait=0, warmup=1, active=1), print_report=False, **more) as prof:
        for _ in "xx": train(batch); prof.step()
    prof.export_chrome_trace(name)
""")
    assert ["Input Dims" in (tmp_path / name).read_text() for name in ("on", "off")] == [True, False]


def test_only_what_runs_inside_a_range_is_recorded(run_program, tmp_path):
    done = run_program(LOOP + """
import threading, time
batch = data[:32]
@range("update")
def update():
    train(batch)
    with range("update"): train(batch)  # part of the same step
def elsewhere():
    with range("update"): torch.ones(3).neg()
with profile(only_inside="update", schedule=schedule(wait=1, warmup=1, active=2), print_report=False) as prof:
    for _ in "xxxxx":
        torch.ones(3).neg()
        time.sleep(0.05)
        thread = threading.Thread(target=elsewhere); thread.start(); thread.join()
        prof.step()
        update()
prof.export_chrome_trace("trace.json")
print(prof.step_num, [step.step for step in prof.report.step_times])
calls = {row.key: row.count for row in prof.key_averages()}
print(calls["aten::addmm"], calls.get("aten::neg"))
with range("update"): train(batch)  # of no profile
print(prof.step_num)
""")
    assert done.stdout == "5 [2, 3]\n8 None\n5\n"
    assert done.stderr == ""
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    first, second = sorted((each["ts"], each["dur"]) for each in events if each["name"].startswith("ProfilerStep#"))
    assert second[0] - sum(first) >= 50_000  # the time between the steps belongs to neither


@pytest.mark.parametrize("rank, world_size", [("3", "2"), ("x", "2"), ("1", "")])
def test_a_rank_that_cannot_be_is_named_and_ignored(run_program, tmp_path, rank, world_size):
    done = run_program(LOOP + """
batch = data[:32]
with profile(schedule=schedule(wait=0, warmup=1, active=1), log_dir="runs") as prof:
    for _ in "xx": train(batch); prof.step()
print("of", prof.report.run.rank)
""", RANK=rank, WORLD_SIZE=world_size)
    assert done.stderr.count("name no rank of a job, so this process is recorded as rank 0 of 1") == 1
    assert "1 step" in done.stdout and "of 0" in done.stdout
    assert len(list((tmp_path / "runs").glob("stepscope/*/c0/trace/rank0.json.gz"))) == 1


def test_fork_in_mid_window_and_many_windows(run_program):
    done = run_program(LOOP + """
import os, resource
torch.set_num_threads(1)  # OpenMP's threads do not survive a fork
batch = data[:32]
with profile(schedule=schedule(wait=0, warmup=1, active=1, repeat=0), print_report=False) as prof:
    # A busy machine drops windows while it analyses earlier ones.
    while prof.step_num < 400 or len(prof._texts) < 16 and prof.step_num < 20_000:
        train(batch)
        if prof.step_num == 3:
            child = os.fork()
            if child == 0:
                for _ in "xxx": train(batch); prof.step()
                os._exit(7)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        prof.step()
        if prof.step_num == 200: before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
assert grown < 40_000, grown  # KB
print("reports", len(prof._texts))
""")
    assert "reports 16" in done.stdout


def test_compiled_steps_are_not_compiled_again(run_program):
    """The number of compilations is the same with and without a profile."""
    done = run_program(LOOP + """
import torch._dynamo.utils as utils
batch = data[:32]
compiled = torch.compile(model, backend="eager")
def loop(prof=None):
    for _ in "x" * 12:
        compiled(batch[0]).sum().backward()
        if prof: prof.step()
loop()
count = lambda: utils.counters["stats"]["unique_graphs"]
before = count()
with profile(print_report=False) as prof: loop(prof)
print("new graphs:", count() - before)
""")
    assert "new graphs: 0" in done.stdout
