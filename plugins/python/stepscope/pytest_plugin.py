"""pytest: a fixture that records a step and fails the test if the step became slower than in a baseline.

    def test_step(record_steps):
        report = record_steps(lambda: train(batch))
        assert not list(report.advice("high"))

    pytest --stepscope-dir runs/now --stepscope-baseline runs/main
"""

from __future__ import annotations

import pathlib
import re
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .report import Report


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("stepscope")
    group.addoption("--stepscope-dir", metavar="DIR", help="keep what record_steps records, a folder per test")
    group.addoption("--stepscope-baseline", metavar="DIR",
                    help="fail a test whose step is slower than in this --stepscope-dir of an earlier run")
    group.addoption("--stepscope-fail-over", metavar="N%", default="5%",
                    help="of the step: slower by less passes (default: 5%%). Noise alone never fails a test")
    group.addoption("--stepscope-min-ms", metavar="N", type=float, default=0.0, help="the same in milliseconds (default: 0)")


def pytest_configure(config: pytest.Config) -> None:
    _percentage(config.getoption("--stepscope-fail-over"))
    baseline = config.getoption("--stepscope-baseline")
    if baseline and not pathlib.Path(baseline).is_dir():
        raise pytest.UsageError(f"--stepscope-baseline: there is no folder '{baseline}'; record it first with --stepscope-dir")


def _percentage(text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)%", text)
    if found is None:
        raise pytest.UsageError(f"--stepscope-fail-over must be a percentage such as 5%, not '{text}'")
    return float(found[1]) / 100


@pytest.fixture
def record_steps(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Callable[..., Report]:
    """record_steps(step, steps=10, warmup=3, **options): calls step(), records `steps` of the calls, and returns the Report.

    `options` go to stepscope.profile. A test may call it once, or several times with different values of `name`.
    """
    from stepscope import StepscopeError, compare, profile, schedule

    def option(name: str) -> Any:
        return request.config.getoption(f"--stepscope-{name}")

    def record(step: Callable[[], object], *, steps: int = 10, warmup: int = 3, name: str = "", **options: Any) -> Report:
        folder = re.sub(r"[^\w.-]+", "-", f"{request.node.nodeid}-{name}").strip("-")
        log_dir = pathlib.Path(option("dir") or tmp_path) / folder
        # Three steps run before the recording, so that work of only the first steps (lazy initialisation) is left out.
        when = schedule(wait=3, warmup=warmup, active=steps)
        with profile(log_dir=str(log_dir), name="pytest", schedule=when, print_report=False, **options) as recorder:
            for _ in range(3 + warmup + steps):
                step()
                recorder.step()
        baseline = option("baseline") and pathlib.Path(option("baseline")) / folder
        if baseline and not baseline.exists():
            warnings.warn(f"{baseline} does not exist, so this test is compared with nothing", stacklevel=2)
        elif baseline:
            compared = compare(baseline, log_dir)
            if compared.is_slower(_percentage(option("fail-over")), option("min-ms")):
                pytest.fail(f"slower than {baseline}: {compared}", pytrace=False)
        found = recorder.report
        if found is None:
            raise StepscopeError("no step was recorded")
        return found

    return record
