"""LibTorch programs, for `stepscope run -- ./train`: finds the LibTorch that a program links and the recorder for it."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess

from . import _native, _shim
from ._native import StepscopeError

PRELOAD = "libstepscope_preload.so"
_CORE_OF = "libtorch_cpu.so"


def library_of(program: str) -> pathlib.Path | None:
    """Returns the libtorch_cpu.so that the dynamic linker finds for `program`; None if it does not use LibTorch."""
    try:
        with open(program, "rb") as file:
            if file.read(4) != b"\x7fELF":
                return None
        listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
    except OSError:  # the file cannot be read, or there is no ldd
        return None
    found = re.search(rf"{re.escape(_CORE_OF)} => (/.*) \(0x", listed)
    return pathlib.Path(os.path.realpath(found[1])) if found else None


def version_of(library: pathlib.Path) -> tuple[str, str] | None:
    """Returns version and CUDA ("none" without CUDA) of the torch wheel or LibTorch archive that contains the library."""
    folder = library.parent.parent
    try:
        text = (folder / "version.py").read_text(encoding="utf-8")
        version = re.search(r"^__version__ = '([^']+)'", text, re.M)
        cuda = re.search(r"^cuda\b.*= '([^']+)'", text, re.M)
        return (version[1], cuda[1] if cuda else "none") if version else None
    except OSError:
        pass
    try:
        named = (folder / "build-version").read_text(encoding="utf-8").strip()
    except OSError:
        return None
    cuda = re.search(r"\+cu(\d+)(\d)$", named)
    return named, f"{cuda[1]}.{cuda[2]}" if cuda else "none"


def environment(library: pathlib.Path) -> dict[str, str]:
    """Returns variables that make a program of this LibTorch load the recorder. Raises StepscopeError if there is no recorder
    for it."""
    version = version_of(library)
    if version is None:
        raise StepscopeError(f"nothing will be recorded: no file beside {library} says which version of LibTorch it is")
    shim = _shim.find((_native.core().shim_id, *version))
    if shim is None:
        raise StepscopeError(f"nothing will be recorded: there is no recorder for LibTorch {version[0]} (CUDA {version[1]});"
                             " stepscope.profile builds one in an environment with that torch")
    preload = _native.library_dir() / PRELOAD
    if not preload.is_file():
        raise StepscopeError(f"nothing will be recorded: {preload} is missing")
    return {"LD_PRELOAD": " ".join(filter(None, [str(preload), os.environ.get("LD_PRELOAD")])),
            "STEPSCOPE_PRELOAD_LIBTORCH": str(library), "STEPSCOPE_PRELOAD_SHIM": str(shim)}
