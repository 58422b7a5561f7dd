"""A ModuleHook (stepscope/module_hook.h) in Python: finds the open module calls in the interpreter's frames."""

import ctypes
import sys
import threading

from torch import nn

OPEN_CALLS = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.POINTER(ctypes.c_uint64), ctypes.c_int32)
DESCRIBE = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_int32)

_CALL = nn.Module._call_impl.__code__


class ModuleCalls:
    """Keep the object: its functions must outlive the process's last recording."""

    def __init__(self):
        self.open_calls = OPEN_CALLS(self._open_calls)
        self.describe = DESCRIBE(self._describe)
        self._modules = {}  # by call: the outermost module on its stack, and its own module
        self._paths = {}  # by outermost module: id of a module -> its path
        self._thread = threading.local()

    def _open_calls(self, _user, out, capacity):
        frames = []
        frame = sys._getframe().f_back
        while frame is not None:
            if frame.f_code is _CALL:
                frames.append(frame)
            frame = frame.f_back
        frames.reverse()
        known = getattr(self._thread, "calls", [])
        calls = []
        for depth, frame in enumerate(frames[:capacity]):
            # A frame that still exists is the same call.
            if depth < len(known) and len(calls) == depth and known[depth][0] is frame:
                calls.append(known[depth])
                continue
            number = len(self._modules) + 1
            self._modules[number] = (frames[0].f_locals["self"], frame.f_locals["self"])
            calls.append((frame, number))
        self._thread.calls = calls
        for depth, (_, number) in enumerate(calls):
            out[depth] = number
        return len(calls)

    def _describe(self, _user, call, text, capacity):
        root, module = self._modules.get(call, (None, None))
        if root is None:
            return 0
        if id(root) not in self._paths:
            self._paths[id(root)] = {id(inner): path for path, inner in root.named_modules()}
        path = self._paths[id(root)].get(id(module), type(module).__name__)
        words = f"{path}\n{type(module).__name__}".encode()[:capacity]
        ctypes.memmove(text, words, len(words))
        return len(words)
