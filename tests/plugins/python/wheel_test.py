"""Tests that `pip install` installs everything it needs, except libraries that every Linux with Python has."""

import json
import re
import subprocess

import pytest

SYSTEM = {"ld-linux-x86-64.so.2", "libc.so.6", "libdl.so.2", "libgcc_s.so.1", "libm.so.6", "libpthread.so.0", "librt.so.1", "libstdc++.so.6"}
TORCH = {"libc10.so", "libc10_cuda.so", "libtorch.so", "libtorch_cpu.so", "libtorch_cuda.so"}  # of the process that loads a shim


def needed(path):
    listed = subprocess.run(["readelf", "-d", path], capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"\(NEEDED\).*\[(.*)\]", listed))


def libraries(folder):
    found = [path for path in folder.iterdir() if path.is_file() and path.read_bytes()[:4] == b"\x7fELF"]
    assert {"stepscope", "libstepscope_core.so", "libstepscope_preload.so"} <= {path.name for path in found}
    return found


def test_nothing_needs_a_library_that_a_machine_may_lack(installed):
    for path in libraries(installed):
        beside = {file.name for file in installed.iterdir()}
        assert needed(path) <= SYSTEM | beside | (TORCH if path.name.startswith("shim-") else set()), path


@pytest.mark.parametrize("name", ["libstepscope_core.so", "stepscope"])
def test_the_libraries_that_come_along_are_the_ones_that_are_loaded(installed, name):
    loaded = subprocess.run(["ldd", installed / name], capture_output=True, text=True, check=True).stdout
    found = dict(re.findall(r"^\s*(\S+) => (\S+)", loaded, re.M))
    assert any(library.startswith("libabsl_") for library in found)
    for library, path in found.items():
        assert library in SYSTEM or path == str(installed / library), loaded


def test_each_library_comes_once(installed):
    assert not [path for path in installed.iterdir() if path.is_symlink()]
    names = [path.name.partition(".so")[0] for path in libraries(installed) if path.name.startswith("lib")]
    assert len(names) == len(set(names))


def test_the_installed_program_analyses(installed, trace):
    done = subprocess.run([installed / "stepscope", "analyze", "--format", "json", trace], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["version"] == 2
