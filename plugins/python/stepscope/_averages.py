"""The operators of a window by time, in the form of torch.profiler's key_averages()."""

from __future__ import annotations

import dataclasses
import json

from . import _native

_BY_OUR_NAME = {"self_us": "self_cpu_time_total", "total_us": "cpu_time_total", "calls": "count",
                "device_self_us": "self_device_time_total", "device_total_us": "device_time_total"}
_ORDERS = {"self_cpu_time_total": "self", "cpu_time_total": "total", "count": "calls", "self_device_time_total": "gpu",
           "device_time_total": "gpu", "self_cuda_time_total": "gpu", "cuda_time_total": "gpu"}


@dataclasses.dataclass(frozen=True)
class KeyAverage:
    """All calls of one operator. Times are in us and sums over all calls."""

    key: str
    input_shapes: str
    count: int
    cpu_time_total: float
    self_cpu_time_total: float
    device_time_total: float = 0.0
    self_device_time_total: float = 0.0

    @property
    def cpu_time(self) -> float:
        """The mean per call."""
        return self.cpu_time_total / max(self.count, 1)


class KeyAverages(list[KeyAverage]):
    """A list of operators that can be printed as a table."""

    def __init__(self, trace: str, by_shape: bool) -> None:
        self._request = {"path": trace, "by_shape": by_shape}
        tables = json.loads(_native.call("top", self._request))
        for row in tables.get("ops", {}).get("rows", []):
            values = {_BY_OUR_NAME[key]: value for key, value in row.items() if key in _BY_OUR_NAME}
            self.append(KeyAverage(key=row["name"], input_shapes=row.get("shape", ""), **values))

    def table(self, sort_by: str | None = None, row_limit: int = 100) -> str:
        """Returns the table for a terminal. `sort_by` is one of torch.profiler's columns."""
        if sort_by is not None and sort_by not in _ORDERS:
            raise ValueError(f"sort_by is {sort_by!r}, but must be one of {', '.join(_ORDERS)}")
        order = _ORDERS[sort_by or "self_cpu_time_total"]
        text = _native.call("top", {**self._request, "by": order, "limit": max(row_limit, 0), "format": "text"})
        return text.replace(" more; --limit 0 shows all)", " more; row_limit=0 shows all)")  # the words are the command's
