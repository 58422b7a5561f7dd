"""The torch shim: a small library with the collectors that need LibTorch, one for each version of torch.

`pip install .` builds the shim for the torch that it finds. This module compiles a shim for any other torch once, and keeps it
in the user's cache. The file of a shim contains what it was built for, and it is loaded only if that matches this process's
torch.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import ctypes
import fcntl
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import types
from collections.abc import Iterator

from . import _native

OLDEST_TORCH = (2, 7)  # 2.5 and 2.6 mix C++ ABIs
_MARK = re.compile(rb"STEPSCOPE-SHIM (\S+) torch=(\S+) cuda=(\S+) ;")
_FOLDERS = ("torch", "settings", "allocator")  # folders of collectors/; torch compiles longest, so it is first
_NOT_OF_A_SHIM = ("not_built.cc", "torch_decode.cc", "torch_input_decode.cc", "torch_stack_decode.cc")  # the decoders are in the core


class NoShim(Exception):
    """Says in a clause why this torch's operators cannot be recorded natively."""


_loaded: dict[str, int] = {}


def shim_for(torch: types.ModuleType) -> int:
    """Returns the address of the functions of the shim for `torch`, and builds the shim if needed. Raises NoShim."""
    version = str(torch.__version__)
    if version not in _loaded:
        _check_torch(torch)
        wanted = (_native.core().shim_id, version, str(torch.version.cuda or "none"))
        path = find(wanted)
        if path is None:
            path = _build(wanted, pathlib.Path(str(torch.__file__)).parent)
        _loaded[version] = _load(path)
    return _loaded[version]


def _check_torch(torch: types.ModuleType) -> None:
    version = str(torch.__version__)
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers is None or tuple(map(int, numbers.groups())) < OLDEST_TORCH:
        raise NoShim(f"torch {version} is older than {OLDEST_TORCH[0]}.{OLDEST_TORCH[1]}")
    if not getattr(torch._C, "_GLIBCXX_USE_CXX11_ABI", False):
        raise NoShim(f"torch {version} was built with the old C++ ABI")


def _series(version: str) -> str:
    """Names versions with the same headers: 2.11.0+cu130 and 2.11.1 are "2.11". A nightly build only matches itself."""
    released = re.fullmatch(r"(\d+\.\d+)\.\d+(\+.*)?", version)
    return released.group(1) if released else version


def fits(path: pathlib.Path, wanted: tuple[str, str, str]) -> bool:
    """Returns True if the file says that it was built from our sources for this torch and CUDA."""
    try:
        found = _MARK.search(path.read_bytes())
    except OSError:
        return False
    if found is None:
        return False
    shim_id, version, cuda = (part.decode() for part in found.groups())
    return (shim_id, _series(version), cuda) == (wanted[0], _series(wanted[1]), wanted[2])


def cache_dir(shim_id: str) -> pathlib.Path:
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return pathlib.Path(home) / "stepscope" / shim_id


def _name(wanted: tuple[str, str, str]) -> str:
    return f"shim-torch{_series(wanted[1])}-cuda{wanted[2]}.so"


def find(wanted: tuple[str, str, str]) -> pathlib.Path | None:
    """Returns an existing shim for (ID of our sources, version of torch, its CUDA or "none"); None if there is none."""
    cached = cache_dir(wanted[0]) / _name(wanted)
    candidates = [*sorted(_native.library_dir().glob("shim-torch*.so")), cached]
    return next((path for path in candidates if fits(path, wanted)), None)


def _load(path: pathlib.Path) -> int:
    try:
        shim = ctypes.CDLL(str(path))
        shim.stepscope_torch_shim.restype = ctypes.c_void_p
        address = shim.stepscope_torch_shim()
    except (OSError, AttributeError) as error:
        raise NoShim(f"{path} cannot be loaded: {error}") from None
    return int(address)


def _sources() -> tuple[pathlib.Path, list[pathlib.Path], pathlib.Path]:
    """Returns the folder of the collectors, the include folders, and the folder of torch_shim.cc, of the wheel or else of the
    clone."""
    wheel = _native.library_dir() / "src"
    if wheel.is_dir():
        return wheel / "collectors", [wheel / "include"], wheel / "native"
    clone = pathlib.Path(__file__).resolve().parents[3]
    includes = [clone / "collectors/include", clone / "profiler/session/include", clone / "profiler/trace/include",
                _native.library_dir().parent / "profiler/trace/include"]
    return clone / "collectors", includes, clone / "plugins/python/native"


def compiler() -> str | None:
    told = os.environ.get("CXX")
    return shutil.which(told) if told else next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)


def _build(wanted: tuple[str, str, str], torch_dir: pathlib.Path) -> pathlib.Path:
    _, version, _ = wanted
    if os.environ.get("STEPSCOPE_BUILD_SHIM") == "0":
        raise NoShim(f"there is no recorder for torch {version}, and STEPSCOPE_BUILD_SHIM=0 forbids to build it")
    found = compiler()
    if found is None:
        raise NoShim(f"the recorder for torch {version} has to be compiled once, and there is no C++ compiler"
                     " (install g++ 12 or newer)")
    folder = cache_dir(wanted[0])
    target = folder / _name(wanted)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder / (target.name + ".lock")):
            if not fits(target, wanted):  # another process may have built it in the meantime
                with _progress(f"building the recorder for torch {version}, once (about a minute)"):
                    _compile(found, wanted, torch_dir, target)
    except OSError as error:
        raise NoShim(f"the recorder for torch {version} cannot be built: {error}") from None
    if not fits(target, wanted):
        raise NoShim(f"{target} is not the recorder for torch {version}; delete it")
    return target


@contextlib.contextmanager
def _locked(path: pathlib.Path) -> Iterator[None]:
    """Lets one process of this machine in at a time. The others wait, as the ranks of a job do."""
    with open(path, "w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def _progress(what: str) -> Iterator[None]:
    start, done = time.monotonic(), threading.Event()
    _native.write(sys.stderr, f"stepscope: {what}")

    def dots() -> None:
        while not done.wait(2):
            _native.write(sys.stderr, ".")

    thread = threading.Thread(target=dots, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        _native.write(sys.stderr, f" {time.monotonic() - start:.0f} s\n")


def _run(command: list[str]) -> None:
    # torch's preloads and profilers must not affect the compiler.
    environment = {key: value for key, value in os.environ.items() if key not in ("LD_PRELOAD", "PYTHONPATH")}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode != 0:
        errors = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines()[-3:]
        raise NoShim(f"the recorder for this torch does not compile: {'; '.join(errors[:3])}")


def _compile(compiler: str, wanted: tuple[str, str, str], torch_dir: pathlib.Path, target: pathlib.Path) -> None:
    shim_id, version, cuda = wanted
    collectors, includes, native = _sources()
    flags = ["-std=c++20", "-O2", "-fPIC", "-DNDEBUG", "-D_GLIBCXX_USE_CXX11_ABI=1", f'-DSTEPSCOPE_SHIM_ID="{shim_id}"',
             f'-DSTEPSCOPE_SHIM_TORCH="{version}"', f'-DSTEPSCOPE_SHIM_CUDA="{cuda}"']
    for folder in [*includes, native, torch_dir / "include", torch_dir / "include/torch/csrc/api/include"]:
        flags += ["-I", str(folder)]
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        units = [(pathlib.Path(scratch, f"{folder}.cc"), collectors / folder) for folder in _FOLDERS]
        for unit, folder in units:
            sources = sorted(path for path in folder.glob("*.cc") if path.name not in _NOT_OF_A_SHIM)
            unit.write_text("".join(f'#include "{path}"\n' for path in sources), encoding="utf-8")
        units.append((native / "torch_shim.cc", native))
        objects = [str(pathlib.Path(scratch, unit.stem + ".o")) for unit, _ in units]
        with concurrent.futures.ThreadPoolExecutor(max_workers=min(4, os.cpu_count() or 1)) as pool:
            jobs = [pool.submit(_run, [compiler, *flags, "-I", str(folder), "-c", str(unit), "-o", output])
                    for (unit, folder), output in zip(units, objects)]
            for job in jobs:
                job.result()
        built = pathlib.Path(scratch, target.name)
        _run([compiler, "-shared", "-o", str(built), *objects, str(_native.library_dir() / _native.CORE),
              f"-L{torch_dir / 'lib'}", "-ltorch_cpu", "-lc10", "-Wl,--allow-shlib-undefined"])
        os.replace(built, target)
