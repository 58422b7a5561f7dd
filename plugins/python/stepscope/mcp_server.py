"""`stepscope mcp`: answers an agent's questions about traces over the Model Context Protocol on stdio.

An answer is JSON of at most LIMIT characters. Keys contain their units, as in docs/json.md. The server reads only paths inside
those given on the command line.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import os
from collections.abc import Sequence
from typing import Any, Callable

from . import _native
from ._native import StepscopeError, say

LIMIT = 20_000  # characters of an answer
LONGEST_TEXT = 1_000  # characters of one text in an answer
FINDINGS = 8
ROWS = 25

INSTRUCTIONS = """\
What slows a PyTorch training loop down, and what a fix would gain. Ask analyze first: plan.order says what to change,
findings[].gain_ms_per_step what it gains per step, in milliseconds, with the range of 90 % of outcomes. what_if
predicts settings, compare measures a change, explain describes a rule. Keys end in their units: _ms, _us, _bytes,
_frac (0 to 1). A gain of gain_kind "bound" is an upper bound."""

# The keys of a report that an answer contains; the others are long, or for drawing.
REPORT_KEYS = ("run", "has_gpu", "steps", "recording_ms", "time_split_ms", "path_split_ms", "phases_ms", "plan", "coverage",
               "replay", "losses", "held_back", "top_ops", "modules", "lines")
FINDING_KEYS = ("id", "severity", "confidence", "gain_kind", "gain_ms_per_step", "speedup", "evidence", "where", "fix",
                "settings", "assumption", "wrong_if")


class Places:
    """The paths that may be read."""

    def __init__(self, roots: Sequence[str]) -> None:
        self._roots = [os.path.realpath(root) for root in roots]

    def checked(self, path: str) -> str:
        """Returns `path`. Raises StepscopeError if it, or a trace in it, is outside the roots."""
        inside = self._inside(path)
        if inside and os.path.isdir(path):
            runs = json.loads(_native.call("list", {"dir": path}))["runs"]
            inside = all(self._inside(trace) for run in runs for window in run["windows"] for trace in window["traces"])
        if not inside:
            raise StepscopeError(f"{path} is not in the paths that this server was started with")
        return path

    def _inside(self, path: str) -> bool:
        real = os.path.realpath(path)
        return any(os.path.commonpath([real, root]) == root for root in self._roots)

    @property
    def roots(self) -> list[str]:
        return self._roots


def shortened(value: Any, rows: int, text: int) -> Any:
    """Returns `value` with at most `rows` entries per list and `text` characters per text, and notes what was cut."""
    if isinstance(value, str):
        return value if len(value) <= text else value[:text] + f"... ({len(value) - text} characters left out)"
    if isinstance(value, dict):
        return {key: shortened(one, rows, text) for key, one in value.items()}
    if isinstance(value, list):
        kept = [shortened(one, rows, text) for one in value[:rows]]
        return kept if len(value) <= rows else [*kept, f"... ({len(value) - rows} of {len(value)} left out)"]
    return value


def bounded(value: Any) -> str:
    """Returns the value as JSON of at most LIMIT characters. Ends of long lists and texts are cut."""
    rows, text = 1_000, LONGEST_TEXT
    while True:
        answer = json.dumps(shortened(value, rows, text), ensure_ascii=False)
        if len(answer) <= LIMIT or rows <= 1:
            break
        rows, text = max(rows * 2 // 3, 1), max(text * 4 // 5, 80)
    return answer if len(answer) <= LIMIT else json.dumps({"error": "the answer is too long", "characters": len(answer)})


def summary(report: dict[str, Any]) -> dict[str, Any]:
    """Returns the parts of a report for an answer."""
    short = {key: report[key] for key in REPORT_KEYS if report.get(key) not in (None, [], {}, "")}
    for key in ("top_ops", "modules", "lines"):
        if key in short:
            short[key] = short[key][:5]
    advice = [finding for finding in report["findings"] if finding["severity"] != "note" or finding["status"] != "ok"]
    short["findings"] = [{key: finding[key] for key in FINDING_KEYS if finding.get(key) not in (None, {}, "")}
                         for finding in advice[:FINDINGS]]
    short["findings_left_out"] = [finding["id"] for finding in advice[FINDINGS:]]
    if "ranks" in report:
        short["ranks"] = report["ranks"]
    return short


def tools(places: Places) -> list[Callable[..., str]]:
    """Returns the functions that an agent may call. Their names, docstrings and types are the interface."""

    def call(job: str, **request: Any) -> Any:
        return json.loads(_native.call(job, request))

    def list_runs(path: str = "") -> str:
        """Lists the runs in a folder: name, start, folders of the recorded windows, step time in ms, first finding. Without a
        path: all paths that this server may read."""
        listed = [call("list", dir=places.checked(one)) if os.path.isdir(one) else {"trace": one}
                  for one in ([path] if path else places.roots)]
        return bounded({"paths": listed})

    def analyze(path: str, rank: int = -1, run: str = "") -> str:
        """Says what to change first in the recorded training loop, with the predicted gain per step in ms. `path`: a trace, a
        folder with one trace per rank, or a log directory (its newest run, or `run`)."""
        report = call("analyze", paths=[places.checked(path)], rank=rank, run=run)
        reports = report if isinstance(report, list) else [report]
        answers = [summary(one) for one in reports]
        return bounded(answers[0] if len(answers) == 1 else {"reports": answers})

    def compare(before: str, after: str, rank: int = -1) -> str:
        """Compares two traces of one program, before and after a change: the predicted and the measured gain per step in ms,
        with its 95 % interval, and what changed by cause, operator and kernel."""
        return bounded(call("compare", a=places.checked(before), b=places.checked(after), rank=rank))

    def what_if(path: str, changes: dict[str, int | float | bool | str] | None = None,
                findings: list[str] | None = None) -> str:
        """Predicts the step time in ms under other settings (keys as in `settings` of a finding: workers, intra_op_threads,
        batch_size, ...), or if the advice of findings is followed."""
        if not changes and not findings:
            raise StepscopeError("what_if needs at least one change, such as changes={\"workers\": 2}, or a finding")
        return bounded(call("what_if", path=places.checked(path), changes=changes or {}, findings=findings or []))

    def top(path: str, by: str = "self", table: str = "", limit: int = ROWS) -> str:
        """Lists operators, ranges, calls, kernels and copies by time in us. `by`: self, total, calls or gpu; `table`: one of
        ops, ranges, calls, kernels, copies; empty: all of them."""
        found = call("top", path=places.checked(path), by=by, limit=max(1, min(limit, 200)))
        if table:
            if table not in found:
                raise StepscopeError(f"the trace has no table '{table}'; it has: {', '.join(list(found)[1:])}")
            found = {table: found[table]}
        return bounded(found)

    def rules() -> str:
        """Lists the rules: the ID of each and the question that it answers."""
        return bounded({rule["id"]: rule["question"] for rule in call("rules")["rules"]})

    def explain(id: str) -> str:
        """Explains one rule: when it reports a finding and when not, and the fix."""
        known = {rule["id"]: rule for rule in call("rules")["rules"]}
        if id not in known:
            raise StepscopeError(f"no rule has the id '{id}'; the tool rules lists them")
        return bounded(known[id])

    return [list_runs, analyze, compare, what_if, top, rules, explain]


def make(roots: Sequence[str]) -> Any:
    """Returns the server for these paths, an mcp.server.mcpserver.MCPServer."""
    from mcp.server.mcpserver import MCPServer
    from mcp.server.mcpserver.exceptions import ToolError

    from . import __version__

    def refusing(function: Callable[..., str]) -> Callable[..., str]:
        @functools.wraps(function)
        def answer(*arguments: Any, **named: Any) -> str:
            try:
                return function(*arguments, **named)
            except StepscopeError as error:
                raise ToolError(str(error)) from None

        return answer

    serving = MCPServer("stepscope", instructions=INSTRUCTIONS, version=__version__, log_level="ERROR")
    for function in tools(Places(roots)):
        serving.add_tool(refusing(function), structured_output=False)
    return serving


def mcp(words: Sequence[str]) -> int:
    """Runs `stepscope mcp`; returns the exit status."""
    if not words or any(word.startswith("-") for word in words):
        say("mcp needs the paths that it may read: stepscope mcp PATH...")
        return 2
    missing = [word for word in words if not os.path.exists(word)]
    if missing:
        say(f"cannot read {missing[0]}: No such file or directory")
        return 1
    if importlib.util.find_spec("mcp") is None:
        say("this command needs the package mcp: pip install 'stepscope[mcp]'")
        return 1
    make(words).run("stdio")
    return 0
