"""Tests the modules and operators of a Python program in a captured CUDA graph, through a library of the build.

python python_capture_test.py LIBRARY
"""

import ctypes
import faulthandler
import os
import sys
import unittest

import torch
from torch import nn

sys.path.insert(0, os.path.dirname(__file__))
from python_modules import DESCRIBE, OPEN_CALLS, ModuleCalls  # noqa: E402

LIBRARY = sys.argv.pop() if len(sys.argv) > 1 else ""
MODULES = ModuleCalls()
BLOCKS = 8


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 8)

    def forward(self, x):
        return torch.relu(self.fc(x))


class PythonCaptureTest(unittest.TestCase):
    def setUp(self):
        faulthandler.dump_traceback_later(120, exit=True)
        self.net = nn.Sequential(*[Block() for _ in range(BLOCKS)])
        self.x = torch.randn(4, 8)
        self.lib = ctypes.CDLL(LIBRARY)
        self.lib.probe_capture.argtypes = [ctypes.c_char_p, OPEN_CALLS, DESCRIBE]
        self.lib.probe_end_capture.argtypes = [ctypes.c_char_p, ctypes.c_int64]

    def tearDown(self):
        faulthandler.cancel_dump_traceback_later()

    def captured(self, op, run, modules=True):
        """Returns, for the operator of this name, its module and the open operators, innermost first."""
        hook = (MODULES.open_calls, MODULES.describe) if modules else (OPEN_CALLS(), DESCRIBE())
        self.lib.probe_capture(op.encode(), *hook)
        run()
        text = ctypes.create_string_buffer(1 << 16)
        self.lib.probe_end_capture(text, len(text))
        places = [line.split(" ", 1) for line in text.value.decode().splitlines()]
        return [module for module, _ in places], [ops.split(" ") for _, ops in places]

    def test_forward(self):
        modules, ops = self.captured("aten::addmm", lambda: self.net(self.x))
        self.assertEqual(modules, [f"{i}.fc" for i in range(BLOCKS)])
        self.assertEqual(ops, [["aten::addmm", "aten::linear"]] * BLOCKS)

    def test_the_backward_pass_has_the_modules_of_the_forward_pass(self):
        modules, ops = self.captured("aten::threshold_backward", lambda: self.net(self.x).sum().backward())
        self.assertEqual(modules, [str(i) for i in reversed(range(BLOCKS))])
        for around in ops:
            self.assertIn("ReluBackward0", around)

    def test_forward_and_backward_captured_apart(self):
        outputs = []
        self.captured("aten::addmm", lambda: outputs.append(self.net(self.x).sum()))
        modules, _ = self.captured("aten::threshold_backward", outputs[0].backward)
        self.assertEqual(modules, [str(i) for i in reversed(range(BLOCKS))])

    def test_without_the_hook_there_are_operators_and_no_modules(self):
        modules, ops = self.captured("aten::addmm", lambda: self.net(self.x), modules=False)
        self.assertEqual(modules, [""] * BLOCKS)
        self.assertEqual(ops, [["aten::addmm", "aten::linear"]] * BLOCKS)


if __name__ == "__main__":
    unittest.main()
