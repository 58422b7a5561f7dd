"""Makes HTML pages of reports and comparisons."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

from . import _native
from ._native import StepscopeError

PLAIN = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="color-scheme" content="light dark"><title>stepscope</title></head>
<body style="margin: 1em"><pre style="white-space: pre-wrap; font: 13px monospace">{text}</pre></body></html>
"""


def report(paths: Sequence[str]) -> str:
    """Returns the report on these traces as HTML. Raises StepscopeError."""
    return _made("analyze", {"paths": list(paths)})


def comparison(before: str, after: str) -> str:
    """Returns the comparison of two traces or runs as HTML. Raises StepscopeError."""
    return _made("compare", {"a": before, "b": after})


def _made(job: str, request: dict[str, Any]) -> str:
    try:
        return _native.call(job, {**request, "format": "html"})
    except StepscopeError as error:
        # Traces of several jobs have no common page, so each report is shown as text.
        if job == "compare" or "one page cannot show" not in str(error):
            raise
    return PLAIN.format(text=html.escape(_native.call(job, {**request, "format": "text"})))
