"""Tests stepscope.fleet: many processes give the same report on many ranks as one process, even if some of them fail."""

import gzip
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest

import stepscope
from stepscope import _native, fleet
from stepscope.fleet import engines, storage, worker
from stepscope.fleet.worker import Answer, Task
from training_programs import ROOT

TRACES = ROOT / "tests/data/traces"
DLRM = TRACES / "dlrm_v100_8ranks"

needs_fsspec = pytest.mark.skipif(importlib.util.find_spec("fsspec") is None, reason="fsspec is not installed")
needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is not installed: pip install ray")


def write_job(folder, ranks=2, world_size=2):
    """Writes a job of the two recorded ranks; the other ranks are copies of them."""
    folder.mkdir(parents=True)
    for rank in range(ranks):
        text = gzip.decompress((DLRM / f"rank{rank % 2}.json.gz").read_bytes()).decode()
        text, count = re.subn(r'("rank": ?)\d+(,\s*"world_size": ?)\d+', rf"\g<1>{rank}\g<2>{world_size}", text, count=1)
        assert count == 1
        (folder / f"rank{rank}.json.gz").write_bytes(gzip.compress(text.encode(), 1))
    return folder


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    return write_job(tmp_path_factory.mktemp("fleet") / "job")


def whole(folder):
    """Returns what `stepscope analyze FOLDER --format json` prints."""
    return json.loads(_native.call("analyze", {"paths": [str(folder)], "format": "json"}))


def missing(report):
    return [loss.detail for loss in report.losses if loss.name == "missing-rank"]


def test_the_report_is_that_of_stepscope_analyze(job):
    report = fleet.analyze(job)
    assert report.to_dict() == whole(job)
    assert [row.rank for row in report.ranks.rows] == [0, 1]
    assert stepscope.fleet is fleet


def test_more_ranks_than_workers_keep_their_order(tmp_path):
    folder = write_job(tmp_path / "job", ranks=12, world_size=12)  # rank10 precedes rank2 by name
    assert fleet.analyze(folder, workers=2).to_dict() == whole(folder)


def test_a_log_directory_and_its_runs(tmp_path):
    for run in ("net_2026_01_30_14_05_09", "net_2026_01_31_14_05_09"):
        write_job(tmp_path / "stepscope" / run / "c0/trace")
    assert fleet.analyze(tmp_path).to_dict() == whole(tmp_path)
    older = fleet.analyze(tmp_path, run="net_2026_01_30_14_05_09")
    assert "2026_01_30" in older.ranks.rows[0].source
    with pytest.raises(stepscope.StepscopeError, match="no cycle 3"):
        fleet.analyze(tmp_path, cycle=3)


def test_a_rank_without_a_trace_is_named():
    report = fleet.analyze(DLRM)
    assert missing(report) == [f"ranks 2, 3, 4, 5, 6 and 7 have no trace in {DLRM}"]
    assert report.to_dict() == whole(DLRM)
    assert missing(fleet.analyze(DLRM / "rank0.json.gz")) == []  # the user did not ask for the others


def test_a_damaged_trace_is_named_and_the_others_are_analysed(tmp_path, capfd):
    folder = write_job(tmp_path / "job", ranks=4, world_size=4)
    bad = folder / "rank2.json.gz"
    bad.write_bytes(b"no gzip, no JSON")
    report = fleet.analyze(folder)
    assert [row.rank for row in report.ranks.rows] == [0, 1, 3]
    (detail,) = missing(report)
    assert detail.startswith("rank 2 has no trace that can be read: ") and str(bad) in detail
    assert str(bad) in capfd.readouterr().err
    assert report.to_dict() == whole(folder)


def test_where_nothing_can_be_read_it_says_why(tmp_path):
    (tmp_path / "rank0.json.gz").write_bytes(b"nothing")
    with pytest.raises(stepscope.StepscopeError, match="rank0.json.gz"):
        fleet.analyze(tmp_path)
    with pytest.raises(stepscope.StepscopeError, match="no/such"):
        fleet.analyze("/no/such")
    with pytest.raises(stepscope.StepscopeError, match="engine must be local or ray, not 'dask'"):
        fleet.analyze(tmp_path, engine="dask")


def test_traces_of_several_jobs_are_no_run(tmp_path):
    folder = write_job(tmp_path / "job")
    (folder / "again.json.gz").write_bytes((folder / "rank1.json.gz").read_bytes())
    with pytest.raises(stepscope.StepscopeError, match="not the ranks of one run: two traces belong to rank 1"):
        fleet.analyze(folder)


def test_one_rank_is_a_report_of_its_own(tmp_path):
    report = fleet.analyze(write_job(tmp_path / "job", ranks=1, world_size=2))
    assert report.run.rank == 0 and report.ranks is None
    assert missing(report) == [f"rank 1 has no trace in {tmp_path / 'job'}"]


@pytest.fixture
def stuck(tmp_path, monkeypatch):
    """While the returned file exists, workers stop at rank 1. Each makes a file beside it that ends in its process ID."""
    gate = tmp_path / "stuck"
    (tmp_path / "sitecustomize.py").write_text(textwrap.dedent(f"""
        import os, sys, time
        if "stepscope.fleet.worker" in " ".join(sys.orig_argv):
            from stepscope import _native
            call = _native.call
            def slow(name, request):
                while name == "digest" and "rank1" in request["path"] and os.path.exists({str(gate)!r}):
                    open({str(gate)!r} + f".{{os.getpid()}}", "w").close()
                    time.sleep(0.01)
                return call(name, request)
            _native.call = slow
        """))
    monkeypatch.setattr(engines, "PACKAGES", os.pathsep.join([str(tmp_path), engines.PACKAGES]))
    gate.touch()
    return gate


def stuck_workers(gate):
    """Returns the stopped workers' process IDs as soon as one of them lives."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        pids = [int(path.suffix[1:]) for path in gate.parent.glob("stuck.*")]
        if found := [pid for pid in pids if os.path.exists(f"/proc/{pid}")]:
            return found
        time.sleep(0.02)
    raise AssertionError("no worker came to rank 1")


@pytest.fixture
def killer(stuck):
    """Kills two workers during rank 1, one after the other, and lets the next one continue."""
    killed = []

    def kill():
        for _ in range(2):
            (pid,) = stuck_workers(stuck)
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)
            while os.path.exists(f"/proc/{pid}"):
                time.sleep(0.02)
        stuck.unlink()

    thread = threading.Thread(target=kill)
    thread.start()
    yield killed
    thread.join()
    assert len(set(killed)) == 2


def test_the_task_of_a_killed_worker_is_tried_again(job, killer, capfd):
    assert fleet.analyze(job, workers=1).to_dict() == whole(job)
    assert capfd.readouterr().err == ""


def test_a_task_that_always_kills_its_worker_is_named(job, killer):
    report = fleet.analyze(job, workers=1, attempts=2)
    assert report.run.rank == 0
    assert missing(report) == [f"rank 1 has no trace that can be read: {job}/rank1.json.gz was given up after 2 attempts: the process "
                               "that read it was killed (SIGKILL), as the system does where memory runs out"]


def test_who_stops_early_leaves_no_process(job, stuck):
    answers = engines.local([Task(str(job / f"rank{rank}.json.gz")) for rank in (0, 1)], 2, 1)
    assert next(answers)[0] == 0
    (pid,) = stuck_workers(stuck)
    answers.close()
    assert not os.path.exists(f"/proc/{pid}")


def test_the_callers_program_is_not_imported_again(job, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(f"from stepscope import fleet\nprint('once', len(fleet.analyze({str(job)!r}).ranks.rows))\n")
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, check=True,
                          env={**os.environ, "PYTHONPATH": str(TRACES.parents[2] / "plugins/python")})
    assert done.stdout == "once 2\n"
    without = subprocess.run([sys.executable, "-c", "import sys; from stepscope import fleet; print('fsspec' in sys.modules, 'ray' in "
                              "sys.modules)"], capture_output=True, text=True, check=True,
                             env={**os.environ, "PYTHONPATH": str(TRACES.parents[2] / "plugins/python")})
    assert without.stdout == "False False\n"


@needs_fsspec
def test_a_url_of_fsspec_gives_the_same_report(job):
    report = fleet.analyze(f"file://{job}")
    expected = whole(job)
    for row in expected["ranks"]["rows"]:
        row["source"] = "file://" + row["source"]
    expected["run"]["source"] = "file://" + expected["run"]["source"]
    assert report.to_dict() == expected


@needs_fsspec
def test_a_log_directory_at_a_url(tmp_path):
    for run in ("net_2026_01_30_14_05_09", "net_2026_01_31_14_05_09"):
        write_job(tmp_path / "stepscope" / run / "c0/trace")
    (tmp_path / "net_2026_01_31_14_05_09").mkdir()
    (tmp_path / "net_2026_01_31_14_05_09/host_00000.000000.pt.trace.json.gz").write_bytes(b"a copy for another viewer")
    report = fleet.analyze(f"file://{tmp_path}/")
    assert [row.source for row in report.ranks.rows] == [
        f"file://{tmp_path}/stepscope/net_2026_01_31_14_05_09/c0/trace/rank{rank}.json.gz" for rank in (0, 1)]


@needs_fsspec
def test_storage_in_memory_is_listed_and_fetched(job):
    import fsspec

    system = fsspec.filesystem("memory")
    for path in sorted(job.iterdir()):
        system.pipe_file(f"/bucket/job/{path.name}", path.read_bytes())
    system.pipe_file("/bucket/job/notes.json", b'{"a": 1}')
    system.pipe_file("/bucket/job/rank7.json.gz", b"nothing")
    found = storage.traces("memory://bucket/job", "", -1, {})
    assert found.paths == ["memory://bucket/job/rank0.json.gz", "memory://bucket/job/rank1.json.gz"]
    assert len(found.passed_over) == 2 and all("memory://bucket/job/" in note for note in found.passed_over), found.passed_over
    answer = worker.digest(Task(found.paths[1]))  # in this process: no other one shares its memory
    assert answer.digest and answer.error == ""
    gone = worker.digest(Task("memory://bucket/job/rank9.json.gz"))
    assert gone.error.startswith("cannot read memory://bucket/job/rank9.json.gz: ")
    assert storage.traces("memory://bucket/job/rank0.json.gz", "", -1, {}).paths == ["memory://bucket/job/rank0.json.gz"]


@needs_fsspec
def test_keys_that_lead_out_of_the_bucket_are_not_written(tmp_path, monkeypatch):
    class Bucket:
        def isfile(self, path):
            return False

        def find(self, root):
            return ["bucket/../../../../../../../../../" + str(tmp_path)[1:] + "/rank0.json"]

        def cat_ranges(self, names, starts, ends, on_error):
            return [b"{}" for _ in names]

    monkeypatch.setattr(storage, "_open", lambda url, options: (Bucket(), "bucket"))
    with pytest.raises(stepscope.StepscopeError, match="no trace in s3://bucket"):
        storage.traces("s3://bucket", "", -1, {})
    assert list(tmp_path.iterdir()) == []


@needs_fsspec
def test_a_storage_that_is_not_there_says_what_is_missing():
    with pytest.raises(stepscope.StepscopeError, match="cannot open nosuch://x: .*nosuch"):
        fleet.analyze("nosuch://x")


def test_without_fsspec_and_ray_it_says_what_to_install(job, monkeypatch):
    monkeypatch.setitem(sys.modules, "fsspec", None)
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(stepscope.StepscopeError, match=r"pip install 'stepscope\[fleet\]'"):
        fleet.analyze("s3://bucket/x")
    with pytest.raises(stepscope.StepscopeError, match=r"pip install 'stepscope\[ray\]'"):
        fleet.analyze(job, engine="ray")


def test_answers_of_an_engine_may_come_in_any_order(job, monkeypatch):
    def backwards(tasks, workers, attempts):
        for index in reversed(range(len(tasks))):
            yield index, worker.digest(tasks[index])

    monkeypatch.setitem(engines.ENGINES, "local", backwards)
    assert fleet.analyze(job).to_dict() == whole(job)
    assert worker.digest(Task("/no/such.json")) == Answer(error="cannot read /no/such.json: No such file or directory; check the path")


@needs_ray
def test_ray_gives_the_same_report_and_retries_a_killed_worker(tmp_path):
    folder = write_job(tmp_path / "job", ranks=6, world_size=6)
    (folder / "rank4.json.gz").write_bytes(b"nothing")
    program = tmp_path / "program.py"
    program.write_text(
        "import json, os, sys\nfrom stepscope import fleet\nfrom stepscope.fleet import worker\n"
        "import ray\nray.init(num_cpus=2, include_dashboard=False)\n"
        "digest, once = worker.digest, sys.argv[2]\n"
        "def dies_once(task):\n"  # in the worker, like a machine that is taken away
        "    if 'rank2' in task.path and not os.path.exists(once):\n"
        "        open(once, 'w').close()\n"
        "        os.kill(os.getpid(), 9)\n"
        "    return digest(task)\n"
        "worker.digest = dies_once\n"
        "print(json.dumps(fleet.analyze(sys.argv[1], engine='ray').to_dict()))\n")
    done = subprocess.run([sys.executable, str(program), str(folder), str(tmp_path / "died")], capture_output=True, text=True, timeout=170,
                          env={**os.environ, "PYTHONPATH": str(TRACES.parents[2] / "plugins/python")})
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "died").exists()
    assert json.loads(done.stdout.splitlines()[-1]) == fleet.analyze(folder).to_dict()
