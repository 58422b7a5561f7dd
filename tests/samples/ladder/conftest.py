"""Runs the ladder program with fakes of resnet and stepscope."""

import pathlib
import sys

import pytest

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[2]
for folder in (HERE, ROOT / "samples/ladder"):
    sys.path.insert(0, str(folder))

import fake_programs  # noqa: E402
from bench import Bench  # noqa: E402
from resnet_flags import Settings  # noqa: E402


@pytest.fixture
def make_bench(tmp_path):
    """Makes a Bench that runs the fakes in this process. bench.runs counts the starts of resnet."""
    def make(always="", limit_s=3600, **more):
        def run(command, limit_s=600):
            bench.runs += command[0].endswith("resnet")
            return fake_programs.run(command)

        bench = Bench("bin", str(tmp_path / "deep/work"), Settings.of(always.split("\t") if "\t" in always else always.split()),
                      limit_s, run=run, **more)
        bench.runs = 0
        return bench

    return make
