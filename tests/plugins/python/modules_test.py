"""Tests `with_modules`: it finds which modules ran, without hooks of torch.nn and without recompilation."""

import ctypes
import json

import pytest

import stepscope  # noqa: F401 - conftest.py says where it is
from stepscope import _modules

NET = """
import gc, json, sys, weakref
import torch
from torch import nn
from stepscope import profile, schedule

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 8)
    def forward(self, x):
        return torch.relu(self.fc(x))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block() for _ in range(32)])
    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x

model = Net()
optimizer = torch.optim.SGD(model.parameters(), 0.01)
x = torch.randn(4, 8)

def train(net=model):
    optimizer.zero_grad()
    net(x).sum().backward()
    optimizer.step()

window = dict(schedule=schedule(wait=1, warmup=2, active=2), print_report=False, with_modules=True)
def loop(net=model, **more):
    with profile(**window, **more) as prof:
        for _ in range(6):
            train(net)
            prof.step()
    return prof
"""


def modules(path):
    events = json.loads(path.read_text())["traceEvents"]
    return [event["name"] for event in events if event.get("args", {}).get("stepscope.range") == "module"]


def test_blocks_that_a_loop_calls_are_modules_of_their_own(run_program, tmp_path):
    done = run_program(NET + """
prof = loop()
prof.export_chrome_trace("trace.json")
rows = {row.name: row for row in prof.report.modules}
print(len(rows), rows["blocks.31.fc"].calls_per_step)
""")
    names = modules(tmp_path / "trace.json")
    for block in range(32):
        assert names.count(f"blocks.{block}") == names.count(f"blocks.{block}.fc") == 2
    assert done.stderr == ""


@pytest.mark.parametrize("when", ["None", "schedule(wait=0, warmup=0, active=99)"])
def test_a_window_that_is_open_when_the_loop_ends_has_its_modules(run_program, when):
    done = run_program(NET + f"""
window["schedule"] = {when}
prof = loop()
print(len(prof.report.modules))
of_model = weakref.ref(model.blocks[0])
train.__defaults__ = loop.__defaults__ = None
del model, optimizer
gc.collect()
print("forgotten:", of_model() is None)
""")
    assert done.stdout.endswith("forgotten: True\n")
    assert int(done.stdout.split()[0]) > 0


class Linear:
    pass


class Sequential:
    def __init__(self, *inner):
        self.inner = inner

    def named_modules(self):
        return [("", self), *((f"{place}", module) for place, module in enumerate(self.inner))]


def test_a_number_is_no_name_of_a_module():
    root = Sequential(Linear(), Linear())
    calls = _modules.ModuleCalls(None)
    text = ctypes.create_string_buffer(64)
    for module, name in ((root, b"\nSequential"), (root.inner[1], b"Sequential.1\nLinear")):
        calls._modules[1] = (root, module)
        length = calls.describe(0, 1, ctypes.addressof(text), len(text))
        assert text.raw[:length] == name


def test_calls_of_modules_stay_on_the_fast_path(run_program):
    """On the fast path, _call_impl calls forward() directly; its slow path makes a function `inner`."""
    done = run_program(NET + """
calls = {"_call_impl": 0, "inner": 0}
def count(frame, event, argument):
    if event == "call" and frame.f_code.co_filename == nn.modules.module.__file__ and frame.f_code.co_name in calls:
        calls[frame.f_code.co_name] += 1
plain = train
def train(net):
    sys.setprofile(count)
    plain(net)
    sys.setprofile(None)
loop()
print(calls)
""")
    assert done.stdout == "{'_call_impl': 390, 'inner': 0}\n"  # 6 steps of 65 modules


def test_a_compiled_model_is_not_compiled_again(run_program, tmp_path):
    """Graphs, frames and recompilations are the same as without modules. Graph breaks let Python run inside a compiled step."""
    done = run_program(NET + """
import torch._dynamo.utils as utils
class Breaking(Block):
    def forward(self, x):
        torch._dynamo.graph_break()
        return super().forward(x)
model.blocks[3] = Breaking()
compiled = torch.compile(model, backend="eager")
def count():
    return (utils.counters["stats"]["unique_graphs"], utils.counters["frames"]["total"],
            len(utils.compilation_time_metrics.get("_compile.compile_inner", [])))
for _ in range(3): train(compiled)
before = count()
assert before[0] > 0 and before[1] > 0 and before[2] > 0, before
prof = loop(compiled)
print("as before:", count() == before)
prof.export_chrome_trace("trace.json")
""")
    assert "as before: True" in done.stdout, done.stdout
    assert done.stderr == ""


def test_nothing_of_the_model_is_kept_after_the_window(run_program):
    done = run_program(NET + """
seen = []
class Passing(nn.Module):
    def forward(self, x):
        y = x * 2
        seen.append(weakref.ref(y))
        return y
model.blocks.append(Passing())
prof = loop()
of_model = weakref.ref(model.blocks[0])
train.__defaults__ = loop.__defaults__ = None
del model, optimizer
gc.collect()
print(of_model() is None, {each() is None for each in seen})
""")
    assert done.stdout == "True {True}\n"


def test_an_interrupt_while_modules_are_looked_up_ends_the_program(run_program):
    done = run_program(NET + """
import signal
from stepscope import _modules
asked = _modules.ModuleCalls._calls
def interrupted(self, frame, capacity):
    if not self._modules: signal.raise_signal(signal.SIGINT)
    return asked(self, frame, capacity)
_modules.ModuleCalls._calls = interrupted
try:
    loop()
except KeyboardInterrupt:
    print("interrupted")
""")
    assert done.stdout == "interrupted\n"
    assert "ctypes" not in done.stderr
