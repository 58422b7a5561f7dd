"""stepscope: says what to change in a PyTorch training loop, and how much each change gains.

    from stepscope import profile, schedule   # instead of: from torch.profiler import profile, schedule

    with profile(log_dir="runs/x", schedule=schedule(wait=3, warmup=3, active=3)) as prof:
        for batch in loader:
            train(batch)
            prof.step()
    print(prof.report.findings[0].evidence)

Importing this package loads neither torch nor the native libraries, nor Python modules needed only for recording and analysis.
"""

from __future__ import annotations

from ._native import StepscopeError
from .profile import profile
from .range import range

TYPE_CHECKING = False  # typing is slow to import
if TYPE_CHECKING:
    from typing import Any

    from . import fleet
    from ._schedule import schedule
    from .analysis import analyze, compare, what_if
    from .comparison import Comparison, Prediction
    from .report import Report

__version__ = "0.1.0"

__all__ = ["Comparison", "Prediction", "Report", "StepscopeError", "__version__", "analyze", "compare", "fleet", "profile",
           "range", "schedule", "what_if"]

_ON_FIRST_USE = {"Comparison": "comparison", "Prediction": "comparison", "Report": "report", "analyze": "analysis",
                 "compare": "analysis", "schedule": "_schedule", "what_if": "analysis"}


def __getattr__(name: str) -> Any:
    import importlib

    if name == "fleet":
        return importlib.import_module(".fleet", __name__)
    if name not in _ON_FIRST_USE:
        raise AttributeError(f"module 'stepscope' has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_ON_FIRST_USE[name]}", __name__), name)
