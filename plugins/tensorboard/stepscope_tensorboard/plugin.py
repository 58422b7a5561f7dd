"""AdvicePlugin: the class that TensorBoard loads."""

from __future__ import annotations

import base64
import hashlib
import pathlib
import re
from typing import Any, Callable

from tensorboard.backend import http_util
from tensorboard.plugins import base_plugin
from werkzeug import wrappers

from stepscope._native import StepscopeError

from .runs import Runs

SCRIPT = pathlib.Path(__file__).with_name("index.js")
# A browser hashes the text between an inline script's tags.
INLINE = re.compile(r"<script\b(?P<attributes>[^>]*)>(?P<text>.*?)</script\s*>", re.S | re.I)


def script_hashes(page: str) -> list[str]:
    """Returns the hashes of the page's own scripts, for the header that forbids all others."""
    return [base64.b64encode(hashlib.sha256(found["text"].encode()).digest()).decode()
            for found in INLINE.finditer(page) if "src=" not in found["attributes"]]


class AdvicePlugin(base_plugin.TBPlugin):
    """The tab "Advice". Serves only files in the log directory."""

    plugin_name = "stepscope"

    def __init__(self, context: Any) -> None:
        self._runs = Runs(context.logdir or "")

    def is_active(self) -> bool:
        try:
            return bool(self._runs.windows())
        except StepscopeError:
            return False

    def frontend_metadata(self) -> Any:
        return base_plugin.FrontendMetadata(es_module_path="/index.js", tab_name="Advice", disable_reload=True)

    def get_plugin_apps(self) -> dict[str, Callable[..., Any]]:
        answers = {"/index.js": self._script, "/runs": self._list, "/page": self._page, "/compare": self._compare}
        return {route: wrappers.Request.application(answer) for route, answer in answers.items()}

    def _script(self, request: Any) -> Any:
        return http_util.Respond(request, SCRIPT.read_text(encoding="utf-8"), "application/javascript")

    def _list(self, request: Any) -> Any:
        try:
            windows = self._runs.windows()
        except StepscopeError as error:
            return http_util.Respond(request, {"error": str(error)}, "application/json", code=500)
        # Does not reveal paths of this machine, except below the log directory.
        shown = [{**{key: one[key] for key in ("id", "name", "start", "cycle", "steps", "step_ms", "first_finding",
                                               "first_gain_ms_per_step", "gain_kind")},
                  "traces": [pathlib.Path(path).name for path in one["traces"]]} for one in windows]
        return http_util.Respond(request, {"windows": shown}, "application/json")

    def _page(self, request: Any) -> Any:
        return self._html(request, lambda: self._runs.page(request.args.get("window", ""), request.args.get("trace", "")))

    def _compare(self, request: Any) -> Any:
        return self._html(request, lambda: self._runs.comparison(request.args.get("before", ""),
                                                                 request.args.get("after", "")))

    def _html(self, request: Any, make: Callable[[], str]) -> Any:
        try:
            page = make()
        except (StepscopeError, OSError) as error:
            return http_util.Respond(request, str(error), "text/plain", code=404)
        return http_util.Respond(request, page, "text/html", csp_scripts_sha256s=script_hashes(page))
