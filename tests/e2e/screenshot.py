"""Takes pictures of TensorBoard showing a log directory.

    screenshot.py LOGDIR OUTDIR

Starts TensorBoard on the loopback address, opens the run in XProf (overview,
trace viewer, memory) and in the PyTorch plugin (overview, operators, trace,
modules), and writes one PNG per page. Needs tests/e2e/requirements.txt and a
chromium on the PATH. Nothing is fetched: the chart loader that both viewers
want from the network is replaced by charts_stand_in.js. Exits 1 if a page
could not be drawn.
"""

import json
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request

from playwright.sync_api import sync_playwright

HERE = pathlib.Path(__file__).parent
WAIT_MS = 8000


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def get_json(url):
    with urllib.request.urlopen(url, timeout=60) as answer:
        return json.loads(answer.read())


def wait_for(url, seconds=180):
    end = time.time() + seconds
    while True:
        try:
            return get_json(url)
        except (OSError, ValueError):
            if time.time() > end:
                raise
            time.sleep(1)


def local_only(route, base):
    url = route.request.url
    if url.startswith((base, "data:", "blob:")):
        return route.continue_()
    if "charts/loader.js" in url:
        return route.fulfill(path=HERE / "charts_stand_in.js", content_type="text/javascript")
    return route.abort()


def pages(base):
    """Name and address of every page to be drawn."""
    profile = base + "/data/plugin/profile/"
    runs = wait_for(profile + "runs")
    for run in runs[:1]:
        tools = get_json(profile + "run_tools?" + urllib.parse.urlencode({"run": run}))
        for tool in ("overview_page", "input_pipeline_analyzer", "trace_viewer@", "memory_profile", "framework_op_stats"):
            if tool not in tools:
                continue
            hosts = get_json(profile + "hosts?" + urllib.parse.urlencode({"run": run, "tag": tool}))
            host = hosts[0]["hostname"] if hosts else ""
            query = urllib.parse.urlencode({"run": run, "tag": tool, "host": host})
            yield "xprof_" + tool.strip("@"), f"{profile}index.html#/{tool}?{query}"
    yield "tensorboard_profile", base + "/#profile"
    yield "tensorboard_pytorch", base + "/#pytorch_profiler"


def main(log_dir, out_dir):
    out = pathlib.Path(out_dir)
    out.mkdir(parents=True, exist_ok=True)
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if not chromium:
        print("screenshot: no chromium on the PATH", file=sys.stderr)
        return 1
    port = free_port()
    base = f"http://127.0.0.1:{port}"
    failed = []
    with tempfile.TemporaryDirectory() as work:
        # XProf leaves caches in the log directory: give it a copy.
        copy = pathlib.Path(work) / "logs"
        shutil.copytree(log_dir, copy)
        server = subprocess.Popen(
            [sys.executable, "-m", "tensorboard.main", "--logdir", copy, "--host", "127.0.0.1", "--port", str(port)],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            wait_for(base + "/data/plugins_listing")
            end = time.time() + 120
            while time.time() < end and get_json(base + "/data/plugin/pytorch_profiler/runs")["loading"]:
                time.sleep(1)
            with sync_playwright() as p:
                browser = p.chromium.launch(executable_path=chromium, headless=True,
                                            args=["--no-sandbox", "--disable-dev-shm-usage"])
                page = browser.new_page(viewport={"width": 1500, "height": 1000})
                page.route("**/*", lambda route: local_only(route, base))
                for name, url in pages(base):
                    page.goto("about:blank")
                    page.goto(url)
                    page.wait_for_timeout(WAIT_MS)
                    text = " ".join(frame.evaluate("() => document.body ? document.body.innerText : ''")
                                    for frame in page.frames)
                    page.screenshot(path=out / f"{name}.png")
                    print(f"{name}: {len(text)} characters of text")
                    if len(text) < 40:
                        failed.append(name)
                browser.close()
        finally:
            server.terminate()
            server.wait(30)
    for name in failed:
        print(f"screenshot: {name} stayed empty", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.stderr.write(__doc__)
        sys.exit(2)
    sys.exit(main(*sys.argv[1:]))
