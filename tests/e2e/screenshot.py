"""Takes screenshots of TensorBoard showing a log directory.

    screenshot.py LOGDIR OUTDIR

Starts TensorBoard on the loopback address and opens every page that XProf and
the PyTorch plugin offer for the run. Writes a PNG of each page, and its text to
a .txt. Needs tests/e2e/requirements.txt and chromium on the PATH. Nothing is
downloaded: charts_stand_in.js replaces the chart loader that both viewers want
from the network, and XProf's own copy replaces a polyfill. Exits with 1 if a
page could not be drawn.
"""

import gzip
import importlib.util
import json
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

from playwright.sync_api import Error, sync_playwright

HERE = pathlib.Path(__file__).parent
LONGEST_WAIT_S = 30
STILL_S = 1.2  # a page is drawn when its text has not changed for this long
CANVAS_S = 3  # additional time for timelines to draw


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def get_json(url):
    with urllib.request.urlopen(url, timeout=60) as answer:
        body = answer.read()
    # XProf compresses even without being asked.
    return json.loads(gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body)


def wait_for(url, seconds=180):
    end = time.time() + seconds
    while True:
        try:
            return get_json(url)
        except OSError:
            if time.time() > end:
                raise
            time.sleep(1)


def web_components():
    """Returns the polyfill that the plugin's Trace view loads from a CDN; XProf contains the same release."""
    spec = importlib.util.find_spec("xprof")
    text = (pathlib.Path(spec.origin).parent / "static/trace_viewer_index.js").read_text()
    begin = text.index("// @version 0.7.24")
    ready = text.index('new CustomEvent("WebComponentsReady"')
    last = "})(window.WebComponents);"
    return text[begin:text.index(last, ready) + len(last)]


def local_only(route, base):
    url = route.request.url
    if url.startswith((base, "data:", "blob:")):
        return route.continue_()
    if "charts/loader.js" in url:
        return route.fulfill(path=HERE / "charts_stand_in.js", content_type="text/javascript")
    if "webcomponentsjs" in url:
        return route.fulfill(body=web_components(), content_type="text/javascript")
    return route.abort()


SHORTEST = 40  # characters; an empty page has fewer
# Screenshot name to the entry in the viewer's list. Entries that a run does not offer are skipped.
XPROF_TOOLS = {"overview": "Overview", "input": "Input", "trace_viewer": "Trace Viewer", "memory": "Memory Profile",
               "op_stats": "Framework Op Stats", "kernel_stats": "Kernel Stats", "op_profile": "HLO Op Profile",
               "hlo_stats": "HLO Op Stats", "roofline": "Roofline"}
PLUGIN_VIEWS = {"overview": "Overview", "operator": "Operator", "kernel": "Kernel", "trace": "Trace",
                "distributed": "Distributed", "memory": "Memory", "module": "Module"}


def text_of(page):
    texts = []
    for frame in page.frames:
        try:
            texts.append(frame.evaluate("() => document.body ? document.body.innerText : ''"))
        except Error:  # the frame was removed in the meantime
            pass
    return " ".join(texts)


def settled(page):
    """Returns the page's text once there is some and it no longer changes."""
    end = time.time() + LONGEST_WAIT_S
    text, since = "", time.time()
    while time.time() < end:
        now = text_of(page)
        if now != text:
            text, since = now, time.time()
        elif len(text) >= SHORTEST and time.time() - since > STILL_S:
            break
        page.wait_for_timeout(250)
    return text


def choose(page, selects, index, wanted):
    """Selects the option that contains `wanted` in the page's index-th list."""
    page.locator(selects).nth(index).click()
    page.get_by_role("option").first.wait_for(timeout=10000)
    page.wait_for_timeout(300)
    options = page.get_by_role("option").all()
    texts = [option.inner_text().strip() for option in options]
    found = [option for option, text in zip(options, texts) if wanted in text]
    # Selecting any option closes the list; Escape would also close the side bar.
    (found or options)[0].click()
    if not found:
        print(f"screenshot: no '{wanted}' among {texts}", file=sys.stderr)
    return bool(found)


def visits(page, base):
    """Opens one page after the other; yields a name for each."""
    page.goto(base + "/#profile")
    yield "tensorboard_xprof"
    page.goto("about:blank")
    page.goto(base + "/#pytorch_profiler")
    yield "tensorboard_pytorch"
    # XProf hides its side bar on some pages, so each page starts from the beginning.
    lists = [(XPROF_TOOLS, "xprof_", "/data/plugin/profile/index.html", "mat-select"),
             (PLUGIN_VIEWS, "pytorch_", "/data/plugin/pytorch_profiler/index.html", "[aria-haspopup=listbox]")]
    for wanted, prefix, address, selects in lists:
        for name, option in wanted.items():
            page.goto("about:blank")
            page.goto(base + address)
            page.locator(selects).nth(1).wait_for(timeout=30000)
            page.wait_for_timeout(700)
            if choose(page, selects, 1, option):
                yield prefix + name


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
        # XProf writes caches into the log directory, so it gets a copy.
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
                for name in visits(page, base):
                    text = settled(page)
                    if "trace" in name:
                        page.wait_for_timeout(CANVAS_S * 1000)
                        text = text_of(page)
                    page.screenshot(path=out / f"{name}.png")
                    (out / f"{name}.txt").write_text(text)
                    print(f"{name}: {len(text)} characters of text")
                    if len(text) < SHORTEST:
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
