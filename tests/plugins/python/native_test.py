"""Tests the core through ctypes, without torch."""

import io
import json
import os
import subprocess
import sys

import pytest

import stepscope
from stepscope import _abi, _native, _rank, _shim


def test_jobs_give_what_the_command_prints(trace):
    program = _native.library_dir().parent / "bin/stepscope"
    printed = subprocess.run([program, "analyze", "--format", "json", trace], capture_output=True, text=True, check=True)
    assert json.loads(_native.call("analyze", {"paths": [trace]})) == json.loads(printed.stdout)


def test_a_note_about_the_recording_comes_before_the_losses_of_the_file(trace):
    plain, noted = (json.loads(_native.call("analyze", {"paths": [trace], **more}))
                    for more in ({}, {"loss": {"name": "by-hand", "detail": "written by hand"}}))
    assert noted["losses"][0] == {"name": "by-hand", "detail": "written by hand", "count": 1, "severity": "note"}
    assert noted["losses"][1:] == plain["losses"]


def test_text_that_an_encoding_lacks_stays_readable(monkeypatch):
    stdout = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", stdout)
    assert _native.show("▇▁ · é")
    assert stdout.buffer.getvalue() == b"#. | ?"


def test_a_failing_stdout_is_one_line_on_stderr_for_all_texts(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdout", None)
    assert _native.show("nowhere")
    for _ in range(2):
        monkeypatch.setattr(sys, "stdout", io.StringIO())
        sys.stdout.close()
        assert [_native.show("one"), _native.show("two")] == [False, False]
        monkeypatch.setattr(sys, "stdout", io.StringIO())
        assert _native.show("works again")
    assert capsys.readouterr().err.splitlines() == ["stepscope: cannot print to stdout: I/O operation on closed file"] * 2


def test_a_failing_stderr_raises_nothing(monkeypatch, capsys):
    closed = io.StringIO()
    closed.close()
    for stderr in (None, closed):
        monkeypatch.setattr(sys, "stderr", stderr)
        _native.say("nothing")
        with _shim._progress("nothing"):
            pass
    assert capsys.readouterr().out == ""


def test_version_is_the_packages():
    assert _native.call("version", {}) == stepscope.__version__


def test_compare_and_what_if(trace):
    compared = json.loads(_native.call("compare", {"a": trace, "b": trace}))
    assert compared["version"] == 2
    predicted = json.loads(_native.call("what_if", {"path": trace, "changes": {"workers": 2}}))
    assert predicted["settings"] == {"workers": 2}


@pytest.mark.parametrize(("rank", "world_size", "expected"), [
    ("", "", (0, 1, "")), ("1", "2", (1, 2, "")), ("0", "1", (0, 1, "")),
    ("2", "2", (0, 1, "RANK=2 and WORLD_SIZE=2 name no rank of a job, so this process is recorded as rank 0 of 1")),
    ("one\"", "2", (0, 1, "RANK=one\" and WORLD_SIZE=2 name no rank of a job, so this process is recorded as rank 0 of 1"))])
def test_the_rank_is_read_by_the_rule_of_the_recorder(monkeypatch, rank, world_size, expected):
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("WORLD_SIZE", world_size)
    own = _rank.own()
    assert (own.rank, own.world_size, own.problem) == expected


def test_errors_are_the_cores_own_words():
    with pytest.raises(stepscope.StepscopeError, match="/no/such.json"):
        _native.call("analyze", {"paths": ["/no/such.json"]})
    with pytest.raises(stepscope.StepscopeError, match="unknown key 'pahts'"):
        _native.call("analyze", {"pahts": []})
    with pytest.raises(stepscope.StepscopeError, match="unknown key 'loss.nme'"):
        _native.call("analyze", {"paths": ["x.json"], "loss": {"nme": "by-hand"}})


@pytest.mark.parametrize("found, message", [(None, "is missing"), ("nonsense", "cannot load"), ("old", "are mixed")])
def test_a_broken_installation_says_what_to_do(tmp_path, monkeypatch, found, message):
    core = tmp_path / _native.CORE
    if found == "nonsense":
        core.write_text("no library")
    if found == "old":
        core.symlink_to(_native.library_dir() / _native.CORE)
        monkeypatch.setattr(_abi, "ABI_VERSION", _abi.ABI_VERSION + 1)
    monkeypatch.setattr(_native, "_core", None)
    monkeypatch.setenv("STEPSCOPE_NATIVE_DIR", str(tmp_path))
    with pytest.raises(stepscope.StepscopeError, match=message):
        _native.call("version", {})


def test_no_library_knows_python():
    libraries = sorted(_native.library_dir().glob("*.so"))
    assert libraries
    for library in libraries:
        symbols = subprocess.run(["nm", "-D", "--undefined-only", library], capture_output=True, text=True, check=True).stdout
        assert " Py" not in symbols and " _Py" not in symbols, library


# These modules together would take most of the import time of stepscope. Programs that never record also import it.
SLOW_TO_IMPORT = {"concurrent.futures", "ctypes", "dataclasses", "gzip", "importlib.metadata", "inspect", "json", "logging", "pathlib",
                  "re", "shutil", "socket", "sqlite3", "subprocess", "tempfile", "torch", "traceback", "typing"}


def test_importing_loads_neither_the_core_nor_what_is_slow_to_import():
    program = ("import sys, stepscope\n"
               "print('stepscope_core' in open('/proc/self/maps').read(), *sys.modules)")
    environment = {**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(stepscope.__file__))}
    # -S, because modules that an environment imports at its start do not count.
    done = subprocess.run([sys.executable, "-S", "-c", program], capture_output=True, text=True, check=True, env=environment)
    core, *modules = done.stdout.split()
    assert core == "False"
    assert "stepscope.profile" in modules
    assert not SLOW_TO_IMPORT & set(modules)


def test_every_name_of_the_package_can_be_imported():
    program = "from stepscope import *\nprint(schedule.__name__, analyze.__name__, Report.__name__, profile.__name__, range.__name__)"
    environment = {**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(stepscope.__file__))}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout == "schedule analyze Report profile range\n"


def test_ranges_cost_nothing_and_need_no_core():
    with stepscope.range("augment"):
        pass

    @stepscope.range("forward", kind="phase")
    def forward(value):
        """Doubles."""
        return 2 * value

    assert forward(4) == 8
    assert forward.__doc__ == "Doubles."
    with pytest.raises(ValueError, match="user, phase, module, not 'step'"):
        stepscope.range("x", kind="step")
