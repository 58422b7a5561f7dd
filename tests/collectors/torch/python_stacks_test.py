"""Tests the source lines and modules of a Python program that the C++ side records, through a library of the build.

python python_stacks_test.py LIBRARY
"""

import ctypes
import faulthandler
import glob
import gzip
import json
import os
import sys
import tempfile
import threading
import time
import unittest

import torch
from torch import nn

sys.path.insert(0, os.path.dirname(__file__))
from python_modules import DESCRIBE, OPEN_CALLS, ModuleCalls  # noqa: E402

LIBRARY = sys.argv.pop() if len(sys.argv) > 1 else ""
MODULES = ModuleCalls()
ACTIVE = 3


def load(kind):
    lib = kind(LIBRARY)
    lib.probe_open.restype = ctypes.c_void_p
    lib.probe_open.argtypes = [ctypes.c_char_p] + [ctypes.c_int64] * 3 + [ctypes.c_int, OPEN_CALLS, DESCRIBE]
    lib.probe_step.argtypes = lib.probe_close.argtypes = [ctypes.c_void_p]
    lib.probe_op_on_own_thread.argtypes = [ctypes.c_int64]
    return lib


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


def line_after(marker):
    with open(__file__) as lines:
        return next(number for number, line in enumerate(lines, 1) if line.rstrip().endswith("# " + marker))


class Recording:
    """A window of ACTIVE steps of `step`, read from its files."""

    def __init__(self, lib, step, warmup=1, with_stack=True, modules=True, during=None):
        with tempfile.TemporaryDirectory() as folder:
            hook = (MODULES.open_calls, MODULES.describe) if modules else (OPEN_CALLS(), DESCRIBE())
            profile = lib.probe_open(folder.encode(), 0, warmup, ACTIVE, with_stack, *hook)
            for number in range(warmup + ACTIVE):
                step(number)
                lib.probe_step(profile)
            self.status = lib.probe_close(profile)
            (trace,) = glob.glob(folder + "/stepscope/*/*/trace/rank0.json.gz")
            (advice,) = glob.glob(folder + "/stepscope/*/*/advice/rank0.json")
            with gzip.open(trace) as file:
                self.trace = json.load(file)
            with open(advice) as file:
                self.report = json.load(file)

    def ops(self, name):
        return [e for e in self.trace["traceEvents"] if e.get("cat") == "cpu_op" and e["name"] == name]

    def lines(self, name):
        """Returns, for each call of the operator, the line of this file that made it; None without a stack."""
        found = []
        for op in self.ops(name):
            frames = op["args"].get("Call stack", "").split(";")
            own = [frame for frame in frames if "python_stacks_test.py(" in frame]
            found.append(int(own[0].split("(")[1].split(")")[0]) if own else None)
        return found

    def modules(self):
        return [e for e in self.trace["traceEvents"] if e.get("args", {}).get("stepscope.range") == "module"]


class PythonStacksTest(unittest.TestCase):
    def setUp(self):
        faulthandler.dump_traceback_later(120, exit=True)
        torch.manual_seed(0)
        self.net = Net()
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.01)
        self.x = torch.randn(4, 8)
        self.lib = load(ctypes.CDLL)
        self.holding = load(ctypes.PyDLL)  # calls while holding the interpreter's lock

    def tearDown(self):
        faulthandler.cancel_dump_traceback_later()

    def train(self, _number):
        self.optimizer.zero_grad()
        y = self.net(self.x)
        loss = y.sum()
        first = loss.item()  # first
        loss.backward()
        self.optimizer.step()
        return first + loss.item()  # second

    def test_two_items_on_two_lines_are_two_lines(self):
        for warmup in (1, 3, 0):
            with self.subTest(warmup=warmup):
                recording = Recording(self.lib, self.train, warmup)
                self.assertEqual(recording.status, 0)
                expected = [line_after("first"), line_after("second")] * ACTIVE
                self.assertEqual(recording.lines("aten::item"), expected)

    def test_nearly_every_outermost_operator_has_a_line_and_the_report_names_it(self):
        recording = Recording(self.lib, self.train)
        linear = recording.lines("aten::linear")
        self.assertEqual(len(linear), 32 * ACTIVE)
        self.assertNotIn(None, linear)
        names = [row["name"] for row in recording.report["lines"]]
        self.assertIn(f"python_stacks_test.py:{line_after('first')} in train", names)
        self.assertNotIn("stacks-differ", [loss["name"] for loss in recording.report["losses"]])

    def test_blocks_called_in_a_loop_are_modules_of_their_own(self):
        recording = Recording(self.lib, self.train)
        names = [event["name"] for event in recording.modules()]
        for block in range(32):
            self.assertEqual(names.count(f"blocks.{block}"), ACTIVE)
            self.assertEqual(names.count(f"blocks.{block}.fc"), ACTIVE)
        rows = {row["name"]: row for row in recording.report["modules"]}
        self.assertEqual(rows["blocks.31.fc"]["class"], "Linear")
        self.assertEqual(rows["blocks.31.fc"]["calls_per_step"], 1)

    def test_without_a_hook_there_are_lines_and_no_modules(self):
        recording = Recording(self.lib, self.train, modules=False)
        self.assertEqual(recording.modules(), [])
        self.assertNotIn(None, recording.lines("aten::item"))

    def test_modules_without_stacks(self):
        recording = Recording(self.lib, self.train, with_stack=False)
        self.assertEqual(set(recording.lines("aten::item")), {None})
        self.assertEqual([e["name"] for e in recording.modules()].count("blocks.0"), ACTIVE)

    def test_steps_that_run_differently_are_said_to(self):
        def step(number):
            y = self.x.neg()
            for _ in range(number):
                y = y.neg()
            y.neg()

        recording = Recording(self.lib, step)
        losses = {loss["name"]: loss for loss in recording.report["losses"]}
        # The sampled step calls `neg` twice, on two lines; the other steps call it 3, 4 and 5 times.
        self.assertEqual(losses["stacks-unmatched"]["count"], 3 + 4 + 5)

    def test_a_thread_of_cpp_is_waited_for_with_the_lock_held(self):
        def step(_number):
            self.train(0)
            self.assertEqual(self.holding.probe_op_on_own_thread(20000), 1)

        self.assertEqual(Recording(self.lib, step).status, 0)

    def test_the_window_opens_and_closes_with_the_lock_held_while_others_want_it(self):
        stop = threading.Event()

        def work():
            while not stop.is_set():
                self.x.sum().item()

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(10):
                # Waiting for the files also holds the lock.
                self.assertEqual(Recording(self.holding, self.train).status, 0)
        finally:
            stop.set()
            for thread in threads:
                thread.join()

    def test_a_thread_that_holds_the_lock_for_long_only_delays_the_sampled_step(self):
        stop = threading.Event()

        def hold():
            while not stop.is_set():
                sum(range(100000))  # releases the lock on request after 5 ms
                time.sleep(0)

        thread = threading.Thread(target=hold)
        thread.start()
        try:
            recording = Recording(self.lib, lambda _number: self.x.sum().item())
        finally:
            stop.set()
            thread.join()
        self.assertEqual(len(recording.lines("aten::item")), ACTIVE)
        self.assertNotIn(None, recording.lines("aten::item"))


if __name__ == "__main__":
    unittest.main()
