"""The functions of the native core (plugins/python/native/stepscope_c.h), called through ctypes."""

from __future__ import annotations

import ctypes
import json
import pathlib
from typing import Any

from ._native import StepscopeError

ABI_VERSION = 1


class Core:
    """The loaded core. Its methods raise StepscopeError with the core's own message."""

    def __init__(self, path: pathlib.Path) -> None:
        try:
            self._dll = ctypes.CDLL(str(path))  # releases the GIL during a call
            # Keeps the GIL, for calls so short that releasing it would take longer. They call nothing that needs the GIL.
            self._quick = ctypes.PyDLL(str(path))
            found = self._dll.stepscope_abi_version()
        except (OSError, AttributeError) as error:
            raise StepscopeError(f"cannot load {path}: {error}") from None
        if found != ABI_VERSION:
            raise StepscopeError(
                f"{path} has version {found} of the C interface, but this package needs {ABI_VERSION}: "
                "two installations are mixed; install stepscope again")
        self._declare()
        address = self._dll.stepscope_window()
        self.window = ctypes.c_uint64.from_address(address)  # .value is nonzero while a window is open

    def _declare(self) -> None:
        text, handle = ctypes.c_char_p, ctypes.c_uint64
        out_text, out_handle = ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_uint64)
        for name, arguments in {
            "call": [text, text, out_text],
            "profile_start": [text, ctypes.c_void_p, out_handle],
            "module_hook": [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p],
            "exchange": [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p],
            "profile_begin_step": [handle],
            "profile_step": [handle],
            "profile_finish": [handle],
            "profile_ending": [handle],
            "profile_windows": [handle],
            "profile_report": [handle, ctypes.c_int, text, out_text],
            "profile_close": [handle],
            "range_open": [ctypes.c_int, text, text, out_handle],
            "range_close": [handle],
            "loader_add": [text, out_handle],
            "loader_wait": [handle],
            "loader_remove": [handle],
        }.items():
            for dll in (self._dll, self._quick):
                function = getattr(dll, f"stepscope_{name}")
                function.argtypes = arguments
                function.restype = ctypes.c_int
        for name in ("version", "shim_id", "last_error"):
            getattr(self._dll, f"stepscope_{name}").restype = text
        self._dll.stepscope_window.restype = ctypes.c_void_p
        self._dll.stepscope_free.argtypes = [ctypes.c_void_p]
        self._dll.stepscope_free.restype = None
        self._step = self._dll.stepscope_profile_step
        self._range_open = self._quick.stepscope_range_open
        self.range_close = self._quick.stepscope_range_close

    def _checked(self, code: int) -> int:
        if code < 0:
            message = self._dll.stepscope_last_error() or b"out of memory"
            raise StepscopeError(message.decode("utf-8", "replace"))
        return code

    def _text(self, code: int, result: ctypes.c_void_p) -> str:
        self._checked(code)
        try:
            return ctypes.string_at(result.value or 0).decode("utf-8")
        finally:
            self._dll.stepscope_free(result)

    @property
    def version(self) -> str:
        return str(self._dll.stepscope_version().decode())

    @property
    def shim_id(self) -> str:
        """The ID of the sources from which a shim must have been built."""
        return str(self._dll.stepscope_shim_id().decode())

    def call(self, name: str, request: dict[str, Any]) -> str:
        result = ctypes.c_void_p()
        code = self._dll.stepscope_call(name.encode(), json.dumps(request).encode(), ctypes.byref(result))
        return self._text(code, result)

    def profile_start(self, options: dict[str, Any], shim: int | None) -> int:
        handle = ctypes.c_uint64()
        self._checked(self._dll.stepscope_profile_start(json.dumps(options).encode(), shim, ctypes.byref(handle)))
        return handle.value

    def module_hook(self, open_calls: Any, describe: Any) -> None:
        """Sets two ctypes functions, which must exist for the rest of the process."""
        self._checked(self._dll.stepscope_module_hook(
            ctypes.cast(open_calls, ctypes.c_void_p), ctypes.cast(describe, ctypes.c_void_p), None))

    def exchange(self, put: Any, get: Any) -> None:
        """Sets two ctypes functions, which must exist for the rest of the process."""
        self._checked(self._dll.stepscope_exchange(
            ctypes.cast(put, ctypes.c_void_p), ctypes.cast(get, ctypes.c_void_p), None))

    def profile_begin_step(self, handle: int) -> None:
        """Starts a step; raises nothing."""
        self._dll.stepscope_profile_begin_step(handle)

    def profile_step(self, handle: int) -> int:
        """Returns the bits STEP_*, or a negative number on failure; raises nothing."""
        return int(self._step(handle))

    def profile_finish(self, handle: int) -> None:
        self._checked(self._dll.stepscope_profile_finish(handle))

    def profile_ending(self, handle: int) -> bool:
        return bool(self._checked(self._dll.stepscope_profile_ending(handle)))

    def profile_windows(self, handle: int) -> int:
        return self._checked(self._dll.stepscope_profile_windows(handle))

    def profile_report(self, handle: int, window: int, what: str) -> str:
        result = ctypes.c_void_p()
        code = self._dll.stepscope_profile_report(handle, window, what.encode(), ctypes.byref(result))
        return self._text(code, result)

    def profile_close(self, handle: int) -> None:
        self._checked(self._dll.stepscope_profile_close(handle))

    def range_open(self, kind: int, name: bytes, detail: bytes | None = None) -> int:
        """Returns 0 if no window is open; raises nothing."""
        number = ctypes.c_uint64()
        self._range_open(kind, name, detail, ctypes.byref(number))
        return number.value

    def loader_add(self, facts: dict[str, Any]) -> int:
        handle = ctypes.c_uint64()
        self._checked(self._dll.stepscope_loader_add(json.dumps(facts).encode(), ctypes.byref(handle)))
        return handle.value

    def loader_wait(self, handle: int) -> None:
        self._dll.stepscope_loader_wait(handle)

    def loader_remove(self, handle: int) -> None:
        self._dll.stepscope_loader_remove(handle)
