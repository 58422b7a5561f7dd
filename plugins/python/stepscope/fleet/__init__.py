"""Many ranks and many runs: each trace is analysed where it is stored, in a separate process.

    from stepscope import fleet

    report = fleet.analyze("/runs/x")                          # as many processes as cores
    report = fleet.analyze("s3://bucket/runs/x", engine="ray")   # on the workers of a Ray cluster

    catalogue = fleet.Catalogue("runs.sqlite")                 # what the reports of many runs say
    catalogue.add("/runs")
    for found in catalogue.waiting_for("data", since="7d"): ...
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import tempfile
from typing import Any

from .. import _json, _native
from .._native import StepscopeError, say
from ..report import Report
from . import engines, storage
from .catalogue import Catalogue
from .worker import Task

__all__ = ["Catalogue", "analyze"]


def analyze(where: str | os.PathLike[str], *, engine: str = "local", workers: int | None = None, attempts: int = 3, run: str = "",
            cycle: int = -1, storage_options: dict[str, Any] | None = None) -> Report:
    """Returns the report on all ranks of one run, as `stepscope analyze` makes it, from any number of traces.

    `where` is a folder with one trace per rank, a log directory (its newest run, or `run`; its last cycle, or `cycle`), or a
    URL of either for fsspec ("s3://...", "gs://..."), with fsspec's `storage_options`. Each trace is one task of a worker,
    which returns a digest of about 10 to 60 KB. The digests are merged here.

    `engine` is "local" (`workers` processes on this machine, by default one per core) or "ray" (the workers of the connected
    Ray cluster, or of a cluster started here). Ray's workers need this package and access to the paths.

    A task whose worker dies is tried `attempts` times in total. The report names ranks whose trace is missing or unreadable.
    Raises StepscopeError if no trace could be read, or the traces are not the ranks of one run.
    """
    if engine not in engines.ENGINES:
        raise StepscopeError(f"engine must be {' or '.join(engines.ENGINES)}, not '{engine}'")
    options = storage_options or {}
    found = storage.traces(os.fspath(where), run, cycle, options)
    for note in found.passed_over:
        say(f"skipped {note}")
    tasks = [Task(path, options) for path in found.paths]
    with tempfile.TemporaryDirectory(prefix="stepscope-fleet-") as folder:
        digests: dict[int, str] = {}  # by task, so that ranks keep the order of the paths
        unreadable = dict(found.unreadable)
        with contextlib.closing(engines.ENGINES[engine](tasks, workers, attempts)) as answers:  # Ctrl-C also ends the workers
            for index, answer in answers:
                if answer.error:
                    say(answer.error)
                    unreadable[tasks[index].path] = answer.error
                    continue
                path = pathlib.Path(folder, f"{index}.pb")
                path.write_bytes(answer.digest)
                digests[index] = str(path)
        if not digests:
            raise StepscopeError(f"no trace in {where} could be read: {'; '.join([*unreadable.values(), *found.passed_over][:3])}")
        place = os.fspath(where)
        request = {"digests": [digests[index] for index in sorted(digests)], "unreadable": unreadable,
                   "where": "" if found.paths == [place] else place}
        return Report.from_dict(_json.parse(_native.call("merge", request), "the report"))
