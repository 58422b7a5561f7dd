"""Renders a report as Markdown and as HTML for notebooks: headline, where a step's time goes, advice, and what to do first.

`stepscope analyze` prints more: skipped rules, ranks and slow steps.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .report import Finding, Report


def number(value: float) -> str:
    """Returns the number with three digits, as in command-line reports."""
    size = abs(value)
    return f"{value:.0f}" if size >= 99.95 else f"{value:.1f}" if size >= 9.995 else f"{value:.2f}"


def gain_text(finding: Finding) -> str:
    """Returns the gain and what it refers to; "" if no gain is claimed."""
    if finding.gain_kind == "none":
        return ""
    gain = finding.gain_ms_per_step
    if finding.gain_kind == "bound":
        least = f", likely at least {number(gain.low)}" if gain.pairs else ""
        return f"gains at most {number(finding.gain_ms)} ms per step{least}"
    words = "likely" if gain.pairs else "roughly"
    text = f"predicted gain {number(gain.expected)} ms per step ({words} {number(gain.low)} to {number(gain.high)})"
    if finding.baseline_ms:
        text += f": {number(finding.baseline_ms)} to {number(finding.baseline_ms - gain.expected)} ms"
    return text


def steps_text(report: Report) -> str:
    steps = report.steps
    if not steps.count:
        return f"no steps, {number(report.recording_ms)} ms recorded"
    return f"{steps.count} {'step' if steps.count == 1 else 'steps'} of {number(steps.mean_ms)} ms"


def _title(report: Report) -> str:
    return report.run.name or report.run.source or "training"


def _head(report: Report) -> str:
    if report.has_gpu:
        devices = ", ".join(report.run.devices) or "GPU"
    else:
        devices = "no GPU work recorded" if report.run.devices else "CPU only"
    return f"{steps_text(report)}; {devices}; recorded by {report.run.producer or 'an unknown program'}"


def _causes(report: Report) -> list[tuple[str, str, str]]:
    """Returns name, ms and share of each cause, largest first."""
    split = report.time_split_ms or report.recording_split_ms
    total = sum(split.values()) or 1
    order = sorted(split.items(), key=lambda row: -row[1])
    return [(cause.replace("_", " "), number(ms), f"{100 * ms / total:.0f} %") for cause, ms in order]


def _plan(report: Report) -> str:
    plan = report.plan
    if not plan.order:
        return ""
    text = "Do first: " + ", ".join(plan.order)
    if plan.ids and plan.step_after_ms > 0:
        text += f" (predicted {number(plan.step_before_ms)} to {number(plan.step_after_ms)} ms per step)"
    return text + (f"; assumes that {plan.assumption}." if plan.assumption else ".")


def _escaped(text: str) -> str:
    """Escapes the text so that Markdown shows it unchanged."""
    return re.sub(r"([\\`*_\[\]<>|#])", r"\\\1", text)


def markdown(report: Report) -> str:
    lines = [f"### stepscope: {_escaped(_title(report))}", "", _escaped(_head(report)), ""]
    lines += ["| step time by cause | ms | share |", "| --- | ---: | ---: |"]
    lines += [f"| {_escaped(name)} | {ms} | {share} |" for name, ms, share in _causes(report)] + [""]
    for place, finding in enumerate(report.advice(), 1):
        gain = gain_text(finding)
        lines.append(f"{place}. **{finding.id}** ({finding.severity}, {finding.confidence})" + (f" **{gain}**" if gain else ""))
        lines.append("   " + _escaped(finding.evidence))
        lines += [f"   at `{finding.where}`"] if finding.where else []
        lines += [f"   - `{finding.fix.python}`"] if finding.fix.python else []
    if next(report.advice(), None) is None:
        lines.append("Nothing to change was found.")
    if _plan(report):
        lines += ["", _escaped(_plan(report))]
    lines += [f"\nNot recorded: {_escaped(loss.detail)}" for loss in report.losses]
    return "\n".join(lines) + "\n"


def _cells(tag: str, cells: Iterable[str]) -> str:
    return "<tr>" + "".join(f"<{tag} style='text-align:left'>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"


def html_page(report: Report) -> str:
    parts = [f"<h4>stepscope: {html.escape(_title(report))}</h4><p>{html.escape(_head(report))}</p>"]
    rows = [_cells("td", row) for row in _causes(report)]
    parts.append("<table>" + _cells("th", ("step time by cause", "ms", "share")) + "".join(rows) + "</table><ol>")
    for finding in report.advice():
        where = f"<br>at <code>{html.escape(finding.where)}</code>" if finding.where else ""
        fix = f"<br><code>{html.escape(finding.fix.python)}</code>" if finding.fix.python else ""
        parts.append(f"<li><b>{html.escape(finding.id)}</b> ({finding.severity}) {html.escape(gain_text(finding))}"
                     f"<br>{html.escape(finding.evidence)}{where}{fix}</li>")
    parts.append(f"</ol><p>{html.escape(_plan(report))}</p>")
    return "".join(parts)
