"""Collects the reports of many runs in one SQLite file, to answer questions such as: which of last week's jobs wait for data?

Tables: runs, windows (of a run), and for each window its ranks, findings and figures (docs/python.md). Several processes may
add to one file at once; each window is added in its own transaction.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import re
import sqlite3
import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .. import _json, _native
from .._native import StepscopeError, say
from ..report import Report
from . import storage

VERSION = 1  # of the tables; stored as the file's user_version
TIME = "%Y-%m-%d %H:%M:%S"  # local time, as in the names of runs
TIMEOUT_S = 60.0  # how long a writer waits for another one
UNITS = {"h": datetime.timedelta(hours=1), "d": datetime.timedelta(days=1), "w": datetime.timedelta(weeks=1)}

TABLES = """
create table runs (
    id integer primary key, folder text not null unique, name text not null, started text not null, run_id text not null,
    world_size integer not null, host text not null, device text not null, torch_version text not null);
create index runs_by_start on runs (started);
create table windows (
    id integer primary key, run integer not null references runs on delete cascade, cycle integer not null, folder text not null,
    source text not null, has_gpu integer not null, steps integer not null, step_ms real, unique (run, cycle));
create table ranks (
    window integer not null references windows on delete cascade, rank integer not null, source text not null,
    step_ms real, waiting_ms real, loading_ms real, host_ms real, primary key (window, rank));
create table findings (
    window integer not null references windows on delete cascade, place integer not null, rule text not null,
    severity text not null, status text not null, gain_kind text not null, gain_ms real, low_ms real, high_ms real,
    evidence text not null, line text not null, fix text not null, primary key (window, place));
create index findings_by_rule on findings (rule);
create table figures (
    window integer not null references windows on delete cascade, key text not null, value real,
    primary key (window, key));
create index figures_by_key on figures (key, value);
"""
# Objects of a report whose numbers become figures such as "time_split_ms.data".
FIGURES = ("time_split_ms", "path_split_ms", "phases_ms")


@dataclass(frozen=True)
class Found:
    """A window that answers a question. Times are in ms per step."""

    name: str
    started: str  # "2026-01-31 14:05:09", local time
    folder: str  # an argument for `stepscope analyze`
    ranks: int
    step_ms: float
    share: float  # share of the step (0 to 1) that waits for the cause or that the finding gains
    first_finding: str  # "" if nothing is worth a change
    first_gain_ms: float


class Catalogue:
    """Also a context manager. Use it on one thread; a forked process must open its own."""

    def __init__(self, path: str | os.PathLike[str], *, create: bool = True) -> None:
        """Opens the file. Creates a missing file unless `create` is False."""
        self.path = os.fspath(path)
        if not create and not os.path.isfile(self.path):
            raise StepscopeError(f"{self.path} is missing: stepscope catalogue add {self.path} DIR makes it")
        with self._saying("open"):
            self._db = sqlite3.connect(self.path, timeout=TIMEOUT_S, isolation_level=None)
            self._db.execute("pragma foreign_keys = on")
            self._make_tables()

    def __enter__(self) -> Catalogue:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._db.close()

    def add(self, where: str | os.PathLike[str], *, workers: int | None = None) -> int:
        """Adds the runs in a folder and its subfolders. Returns the number of windows that were new or had changed.

        Reads the reports that the runs wrote. If a window has none, `workers` processes analyse its traces. A window that
        cannot be read is named on stderr, and the others are added. A URL is one run, as for analyze().
        """
        place = os.fspath(where)
        if storage.is_url(place):
            self._write({"folder": place, "name": "", "start": ""}, {"cycle": -1, "folder": place}, _Source("", []), _report_of(place, workers))
            return 1
        added = 0
        for run in json.loads(_native.call("list", {"dir": os.path.abspath(place)}))["runs"]:
            for window in run["windows"]:
                source = _source_of(window)
                try:
                    if not self._has(run, window, source):
                        self._write(run, window, source, _report_of(source.path, workers))
                        added += 1
                except Exception as error:  # one damaged report must not prevent the others
                    say(f"skipped {window['folder']}: {error}")
        return added

    def find(self, *, finding: str = "", waits_for: str = "", since: str = "", at_least: float = 0.05) -> list[Found]:
        """Returns windows with a finding that gains at least this share of a step, or whose step waits for a cause
        (docs/json.md, causes) for at least this share, largest share first. With both arguments, windows must satisfy both and
        are ordered by the cause; with neither, all windows are returned, newest first. `since` is a number of hours, days or
        weeks ("36h", "7d", "2w") or a date ("2026-01-31")."""
        shares = {"by_cause": "0.0", "by_finding": "0.0"}
        values: dict[str, Any] = {"least": at_least, "since": _beginning(since), "rule": finding, "cause": f"time_split_ms.{waits_for}"}
        conditions = ["runs.started >= :since"]
        if waits_for:
            self._check_cause(waits_for)
            shares["by_cause"] = """coalesce((select value from figures where figures.window = windows.id and key = :cause), 0)
                / max(windows.step_ms, 1e-9)"""
            conditions.append("by_cause >= :least")
        if finding:
            shares["by_finding"] = """coalesce((select max(gain_ms) from findings where findings.window = windows.id and rule = :rule
                and severity != 'note'), -1) / max(windows.step_ms, 1e-9)"""
            conditions.append("by_finding >= :least")
        order = "by_cause desc, by_finding desc, started desc" if waits_for or finding else "started desc"
        with self._saying("read"):
            rows = self._db.execute(f"""
                select runs.name, started, windows.folder, (select count(*) from ranks where ranks.window = windows.id), coalesce(step_ms, 0),
                    {shares["by_cause"]} as by_cause, {shares["by_finding"]} as by_finding, coalesce(first.rule, ''),
                    coalesce(first.gain_ms, 0)
                from runs join windows on windows.run = runs.id left join findings as first on first.window = windows.id
                    and first.place = (select min(place) from findings where findings.window = windows.id and severity != 'note'
                        and gain_kind != 'none')
                where {" and ".join(conditions)} order by {order}, windows.folder""", values).fetchall()
        return [Found(name, started, folder, ranks, step_ms, by_cause if waits_for else by_finding, rule, gain_ms)
                for name, started, folder, ranks, step_ms, by_cause, by_finding, rule, gain_ms in rows]

    def waiting_for(self, cause: str, *, since: str = "", at_least: float = 0.05) -> list[Found]:
        """Returns the windows whose step waits for a cause: waiting_for("data", since="7d")."""
        return self.find(waits_for=cause, since=since, at_least=at_least)

    def count(self, since: str = "") -> int:
        """Returns the windows of runs that started since then."""
        with self._saying("read"):
            return int(self._db.execute("select count(*) from windows join runs on runs.id = windows.run where started >= ?",
                                        [_beginning(since)]).fetchone()[0])

    @contextlib.contextmanager
    def _saying(self, verb: str) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise StepscopeError(f"cannot {verb} {self.path}: {error}") from None

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """A transaction. It starts as a writer; otherwise two transactions that have both read could wait for each other."""
        with self._saying("write"):
            self._db.execute("begin immediate")
            try:
                yield
                self._db.execute("commit")
            except BaseException:
                self._db.execute("rollback")
                raise

    def _version(self) -> int:
        return int(self._db.execute("pragma user_version").fetchone()[0])

    def _make_tables(self) -> None:
        if self._version() == 0:
            with self._writing():
                if self._version() == 0:  # otherwise another process has just made the tables
                    for statement in TABLES.split(";")[:-1]:
                        self._db.execute(statement)
                    self._db.execute(f"pragma user_version = {VERSION}")
        if (found := self._version()) != VERSION:
            raise StepscopeError(f"{self.path} is a catalogue of version {found}; this stepscope reads version {VERSION}. "
                                 "Make a new one from the runs: stepscope catalogue add NEW DIR")

    def _check_cause(self, cause: str) -> None:
        with self._saying("read"):
            rows = self._db.execute("select distinct substr(key, 15) from figures where key glob 'time_split_ms.*' order by 1").fetchall()
        known = [row[0] for row in rows]
        if known and cause not in known:
            raise StepscopeError(f"no run in {self.path} waits for '{cause}'; what takes time in them: {', '.join(known)}")

    def _has(self, run: dict[str, Any], window: dict[str, Any], source: _Source) -> bool:
        with self._saying("read"):
            rows = self._db.execute("select 1 from windows join runs on runs.id = windows.run where runs.folder = ? and cycle = ? "
                                    "and source = ?", [run["folder"], window["cycle"], source.state()])
            return rows.fetchone() is not None

    def _write(self, run: dict[str, Any], window: dict[str, Any], source: _Source, report: Report) -> None:
        about = report.run
        facts = [run["name"] or about.name or os.path.basename(run["folder"]), _start_of(run, source, report), about.run_id,
                 about.world_size, about.host, about.devices[0] if about.devices else "", about.torch_version]
        ranks = [(one.rank, one.source, one.step_ms, one.waiting_ms, one.loading_ms, one.host_ms) for one in report.ranks.rows
                 ] if report.ranks else [(about.rank, about.source, report.steps.mean_ms, None, None, None)]
        with self._writing():
            row = self._db.execute("""insert into runs (folder, name, started, run_id, world_size, host, device, torch_version)
                values (?, ?, ?, ?, ?, ?, ?, ?) on conflict (folder) do update set name = excluded.name, started = excluded.started,
                run_id = excluded.run_id, world_size = excluded.world_size, host = excluded.host, device = excluded.device,
                torch_version = excluded.torch_version returning id""", [run["folder"], *facts]).fetchone()[0]
            # Deletes the window together with its rows in other tables.
            self._db.execute("delete from windows where run = ? and cycle = ?", [row, window["cycle"]])
            number = self._db.execute(
                "insert into windows (run, cycle, folder, source, has_gpu, steps, step_ms) values (?, ?, ?, ?, ?, ?, ?)",
                [row, window["cycle"], window["folder"], source.state(), report.has_gpu, report.steps.count, report.steps.mean_ms]).lastrowid
            self._db.executemany("insert into ranks values (?, ?, ?, ?, ?, ?, ?)", [(number, *values) for values in ranks])
            self._db.executemany("insert into findings values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", [
                (number, place, one.id, one.severity, one.status, one.gain_kind, one.gain_ms_per_step.expected, one.gain_ms_per_step.low,
                 one.gain_ms_per_step.high, one.evidence, one.where, one.fix.python) for place, one in enumerate(report.findings)])
            self._db.executemany("insert into figures values (?, ?, ?)", [
                (number, f"{group}.{key}", value) for group in FIGURES for key, value in getattr(report, group).items()])


@dataclass(frozen=True)
class _Source:
    """The source of a window's report on all ranks: a report file, or the folder of its traces."""

    path: str
    files: list[str]

    def state(self) -> str:
        """A text that changes when the files change."""
        return "\n".join([self.path, *(f"{about.st_mtime_ns} {about.st_size}" for about in map(os.stat, self.files))])


def _source_of(window: dict[str, Any]) -> _Source:
    of_job = os.path.join(window["folder"], "report.json")
    if os.path.isfile(of_job):
        return _Source(of_job, [of_job])
    if len(window["traces"]) == 1 and window["advice"][0]:
        return _Source(window["advice"][0], window["advice"])
    return _Source(window["folder"], window["traces"])


def _report_of(source: str, workers: int | None) -> Report:
    if storage.is_url(source) or os.path.isdir(source):
        from . import analyze

        return analyze(source, workers=workers)
    try:
        with open(source, encoding="utf-8") as file:
            return Report.from_dict(_json.parse(file.read(), source))
    except OSError as error:
        raise StepscopeError(f"cannot read {source}: {error.strerror}") from None


def _start_of(run: dict[str, Any], source: _Source, report: Report) -> str:
    """Returns the start time in the run's name, or else the time at which its file was written."""
    if named := re.search(r"(\d{4})_(\d\d)_(\d\d)_(\d\d)_(\d\d)_(\d\d)", f"{run['start']} {report.run.run_id}"):
        return "{}-{}-{} {}:{}:{}".format(*named.groups())
    when = datetime.datetime.fromtimestamp(os.stat(source.files[0]).st_mtime) if source.files else datetime.datetime.now()
    return when.strftime(TIME)


def _beginning(since: str) -> str:
    """Returns the time that "7d" or "2026-01-31" means, in the form of `started`."""
    if not since:
        return ""
    if found := re.fullmatch(r"(\d{1,6})([hdw])", since):
        return (datetime.datetime.now() - int(found[1]) * UNITS[found[2]]).strftime(TIME)
    try:
        return datetime.date.fromisoformat(since).isoformat()
    except ValueError:
        raise StepscopeError(f"since must be hours, days or weeks such as 36h, 7d or 2w, or a date such as 2026-01-31, not '{since}'"
                             ) from None
