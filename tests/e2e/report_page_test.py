"""Opens pages of `stepscope report` in headless Chromium without network access, and reads their text.

    pytest tests/e2e/report_page_test.py

Needs tests/e2e/requirements.txt and chromium on the PATH. Environment variables:
    STEPSCOPE_BIN           folder of `stepscope` and `make_logdir`; default: build/default/bin
    STEPSCOPE_TRACES        folder of the recorded traces; default: ../shared/traces. Those in tests/data are always opened
    STEPSCOPE_REPORT_PAGES  a folder for the pages and screenshots; default: a temporary folder
"""

import gzip
import itertools
import json
import math
import os
import pathlib
import re
import shutil
import subprocess

import pytest

playwright = pytest.importorskip("playwright.sync_api")

ROOT = pathlib.Path(__file__).parents[2]
BIN = pathlib.Path(os.environ.get("STEPSCOPE_BIN") or ROOT / "build/default/bin")
TRACES = pathlib.Path(os.environ.get("STEPSCOPE_TRACES") or ROOT.parent / "shared/traces")
OWN = ROOT / "tests/data/traces"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

# axe-core's rules must find nothing. Only rules for a whole page are used.
AXE_TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]


def stepscope(*words):
    done = subprocess.run([BIN / "stepscope", *map(str, words)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def recorded():
    """Returns every available trace and folder of ranks by name."""
    found = {}
    for folder in (OWN, TRACES):
        for path in sorted(folder.glob("*")) + sorted(folder.glob("edges/*")) + sorted(folder.glob("xplane/*")):
            is_ranks = path.is_dir() and any(path.glob("rank*.json.gz"))
            if is_ranks or path.name.endswith((".json.gz", ".xplane.pb")):
                found.setdefault(path.name.split(".")[0], path)
    return found


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    for needed in ("stepscope", "make_logdir"):
        if not (BIN / needed).exists():
            pytest.skip(f"{BIN / needed} is not built; set STEPSCOPE_BIN")
    if not CHROMIUM:
        pytest.skip("no chromium on the PATH")
    out = pathlib.Path(os.environ.get("STEPSCOPE_REPORT_PAGES") or tmp_path_factory.mktemp("pages"))
    out.mkdir(parents=True, exist_ok=True)
    return out


@pytest.fixture(scope="session")
def simulated(folder):
    """Returns log directories of simulated runs: cpu, gpu, ranks, random."""
    logs = folder / "logs"
    if not logs.exists():
        subprocess.run([BIN / "make_logdir", logs], check=True, stdout=subprocess.DEVNULL)
    return logs


@pytest.fixture(scope="module")  # a process can run Playwright only once, and other files start it, too
def chromium(folder):
    with playwright.sync_playwright() as p:
        browser = p.chromium.launch(executable_path=CHROMIUM, headless=True, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield browser
        browser.close()


class Opened:
    """A page in the browser, with all of its requests and console errors."""

    def __init__(self, browser, file, width=1280, **options):
        self.requests, self.complaints = [], []
        self.context = browser.new_context(viewport={"width": width, "height": 900}, offline=True, **options)
        self.page = self.context.new_page()
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("requestfailed", lambda request: self.complaints.append(f"failed: {request.url}"))
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: self.complaints.append("a dialog: " + dialog.message))
        self.page.goto(file.as_uri())
        self.page.wait_for_selector("html[data-drawn]", timeout=30000)

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.context.close()

    def check(self, file):
        assert self.complaints == []
        outside = [url for url in self.requests if url != file.as_uri() and not url.startswith("data:")]
        assert outside == []


def make(folder, name, *paths, words=()):
    file = folder / f"{name}.html"
    stepscope("report", *paths, "-o", file, *words)
    return file


def figures(page):
    """Returns the page's text for each key of the report's JSON, or the attribute data-value if the text is a difference."""
    return page.evaluate("""() => [...document.querySelectorAll('[data-figure]')].map(
        (one) => [one.dataset.figure, one.dataset.value || one.textContent])""")


def value_at(report, key):
    for part in key.split("."):
        report = report[int(part)] if isinstance(report, list) else report[part]
    return report


def number(text):
    return float(re.sub(r"[^0-9.eE+-]", "", text.replace("\u2212", "-")))


def check_figures(found, report):
    assert found
    for key, text in found:
        exact, shown = value_at(report, key), number(text)
        # The page shows three digits and at most two decimals.
        assert shown == pytest.approx(exact, rel=6e-3, abs=6e-3), (key, text, exact)


@pytest.mark.parametrize("name", sorted(recorded()))
def test_a_recorded_trace_opens_offline_with_the_figures_of_the_json(folder, chromium, name):
    path = recorded()[name]
    file = make(folder, name, path)
    report = json.loads(stepscope("analyze", "--format", "json", path))
    ranks = len(report["ranks"]["rows"]) if "ranks" in report else 1
    assert file.stat().st_size <= 600_000 + 4_400 * (ranks - 1)
    with Opened(chromium, file) as opened:
        if report["steps"]["count"]:
            check_figures(figures(opened.page), report)
        cards = opened.page.eval_on_selector_all("[data-finding]", "all => all.map((one) => one.dataset.finding)")
        assert sorted(cards) == sorted(finding["id"] for finding in report["findings"])
        text = opened.page.inner_text("main")
        for finding in report["findings"]:
            if finding["severity"] != "note" and len(finding["evidence"]) < 1500:
                assert " ".join(finding["evidence"].split()) in " ".join(text.split())
        opened.page.screenshot(path=folder / f"{name}.png", full_page=True)
        opened.check(file)


@pytest.mark.parametrize("kind", ["cpu", "gpu", "ranks", "random"])
def test_a_simulated_run_opens_offline(folder, chromium, simulated, kind):
    file = make(folder, f"simulated_{kind}", simulated / kind)
    with Opened(chromium, file) as opened:
        ids = opened.page.eval_on_selector_all("section", "all => all.map((one) => one.id)")
        wanted = {"verdict", "step", "tables", "limits", "method"} | ({"ranks"} if kind == "ranks" else set())
        assert wanted <= set(ids)
        for theme, width in (("light", 1280), ("dark", 1280), ("light", 360)):
            opened.page.emulate_media(color_scheme=theme)
            opened.page.set_viewport_size({"width": width, "height": 900})
            opened.page.screenshot(path=folder / f"simulated_{kind}_{theme}_{width}.png", full_page=True)
            if width == 360:  # only tables may scroll sideways
                assert opened.page.evaluate("document.documentElement.scrollWidth") <= 360
        opened.check(file)


def test_two_runs_are_compared(folder, chromium):
    before, after = OWN / "h2d_a100_pageable.json.gz", OWN / "h2d_a100_pinned.json.gz"
    file = make(folder, "comparison", before, after)
    comparison = json.loads(stepscope("compare", "--format", "json", before, after))
    with Opened(chromium, file) as opened:
        check_figures(figures(opened.page), comparison)
        text = opened.page.inner_text("main")
        # The downloads are pinned as well, but their gain is only a bound.
        assert comparison["predicted_kind"] == "bound"
        assert "after, measured" in text and "after, at best" in text
        assert comparison["kernels"][0]["name"] in opened.page.evaluate("document.body.textContent")
        opened.page.screenshot(path=folder / "comparison.png", full_page=True)
        opened.check(file)


HOSTILE = [
    "<script>alert(1)</script>", "</script><script>alert(2)</script>", "<!--<script>", "\"><img src=x onerror=alert(3)>",
    "javascript:alert(4)", "'`${alert(5)}`\\", "\u2028\u2029\u0000\ufffe", "&lt;b&gt;", "__proto__", "constructor", "L" * 10_000_000,
]


def hostile_trace(path):
    """Returns four steps of ops, kernels and copies with such names."""
    events = [{"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "args": {"name": HOSTILE[0]}}]
    for step in range(4):
        base = 1000 + step * 100_000
        events.append({"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{step}", "pid": 1, "tid": 1, "ts": base, "dur": 100_000})
        for place, name in enumerate(HOSTILE):
            begin = base + 8000 * place
            correlation = step * 100 + place
            events.append({"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": begin, "dur": 7000,
                           "args": {"External id": correlation}})
            events.append({"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": begin + 10, "dur": 5,
                           "args": {"correlation": correlation}})
            events.append({"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": begin + 20, "dur": 500,
                           "args": {"correlation": correlation, "device": 0, "stream": 7}})
    trace = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": HOSTILE[3]}], "traceEvents": events,
             "distributedInfo": {"rank": 0, "world_size": 1, "backend": HOSTILE[1]}}
    path.write_bytes(gzip.compress(json.dumps(trace).encode("utf-8", "surrogatepass"), 1))


def test_hostile_names_harm_nobody(folder, chromium, tmp_path):
    trace = tmp_path / "<img src=x onerror=alert(6)>.json.gz"
    hostile_trace(trace)
    file = make(folder, "hostile", trace)
    assert file.stat().st_size <= 600_000
    with Opened(chromium, file) as opened:
        # Only base.js and the writer make elements; none comes from a name.
        assert opened.page.locator("script").count() == 4
        assert opened.page.locator("img").count() == 0
        text = opened.page.evaluate("document.body.textContent")
        for name in HOSTILE[:6]:
            assert name in text
        # The table sorts and filters such names like any others.
        opened.page.locator("#tables input[type=search]").first.fill("onerror")
        assert opened.page.locator("#tables tbody").first.locator("tr").count() == 1
        opened.page.screenshot(path=folder / "hostile.png", full_page=True)
        opened.check(file)


def test_the_policy_stops_what_the_writer_would_miss(folder, chromium):
    """A foreign script in the file, as if escaping had failed, does not run and sends nothing."""
    file = make(folder, "policy", OWN / "toy_mi250.json.gz")
    text = file.read_text().replace("</body>", "<script>document.title = 'run'</script><img src='http://127.0.0.1:9/x' "
                                    "onerror=\"document.title = 'run'\"><a id=x onclick=\"document.title = 'run'\">a</a></body>")
    injected = folder / "policy_injected.html"
    injected.write_text(text)
    with Opened(chromium, injected) as opened:
        opened.page.eval_on_selector("#x", "one => one.click()")
        assert opened.page.title() != "run"
        assert not any("127.0.0.1" in url for url in opened.requests if "x" == url[-1]) or opened.complaints
        assert len([text for text in opened.complaints if "Content Security Policy" in text]) >= 3


def test_tables_sort_and_filter_by_keyboard(folder, chromium):
    file = make(folder, "keyboard", OWN / "resnet50_v100_workers0.pt.trace.json.gz")
    with Opened(chromium, file) as opened:
        page = opened.page
        table = page.locator("#tables [role=tabpanel]").first
        def names():
            return table.locator("tbody th").all_inner_texts()
        by_time = names()
        page.locator("#tables thead button").first.focus()
        page.keyboard.press("Enter")
        assert names() != by_time
        assert page.evaluate("names => names.every((name, i) => !i || names[i - 1].localeCompare(name) <= 0)", names())
        assert table.locator("th[aria-sort=ascending]").count() == 1
        table.locator("input[type=search]").fill("conv")
        assert names() and all("conv" in name.lower() for name in names())
        tabs = page.locator("#tables [role=tablist]").first.locator("[role=tab]")
        tabs.first.focus()
        page.keyboard.press("ArrowRight")
        assert tabs.nth(1).get_attribute("aria-selected") == "true"
        # The arrow keys move through a drawing.
        page.locator("#step .lane-box:visible").first.focus()
        page.keyboard.press("ArrowRight")
        assert page.locator("#step .readout:visible").first.inner_text().startswith("critical path: ")
        opened.check(file)


def test_the_theme_is_switched_and_all_is_printed(folder, chromium):
    file = make(folder, "theme", OWN / "resnet50_v100_workers0.pt.trace.json.gz")
    with Opened(chromium, file, color_scheme="light") as opened:
        page = opened.page
        def ground():
            return page.evaluate("getComputedStyle(document.body).backgroundColor")
        light = ground()
        page.get_by_role("button", name="theme").click()
        assert ground() == light
        page.get_by_role("button", name="theme").click()
        assert ground() != light
        page.emulate_media(media="print")
        assert page.locator("#tables [role=tabpanel]").last.is_visible()
        assert not page.locator("nav").is_visible()
        (folder / "theme.pdf").write_bytes(page.pdf())
        opened.check(file)


@pytest.mark.parametrize("language, first", [("", "Python"), ("python", "Python"), ("c++", "C++")])
def test_a_fix_opens_in_the_language_of_the_program(folder, chromium, simulated, tmp_path, language, first):
    trace = tmp_path / "rank0.json"
    stepscope("convert", simulated / "cpu", trace)
    text = trace.read_text()
    assert '"run": {' in text and '"language"' not in text
    trace.write_text(text.replace('"run": {', f'"run": {{"language": "{language}", ', 1))
    file = make(folder, f"language_{first}", trace)
    with Opened(chromium, file) as opened:
        chosen = opened.page.locator(".fix-box [role=tab][aria-selected=true]")
        assert chosen.count() > 0
        assert set(chosen.all_inner_texts()) == {first}
        assert set(opened.page.locator(".fix-box [role=tab]").all_inner_texts()) == {"Python", "C++"}
        opened.check(file)


# Words up to this length fit into a narrow column.
NORMAL_WORD = 14
BROKEN_WORDS = """(longest) => {
  const broken = [];
  const walk = document.createTreeWalker(document.getElementById('page'), NodeFilter.SHOW_TEXT);
  for (let node = walk.nextNode(); node; node = walk.nextNode()) {
    for (const word of node.data.matchAll(/[A-Za-z]+/g)) {
      const range = document.createRange();
      range.setStart(node, word.index);
      range.setEnd(node, word.index + word[0].length);
      const lines = new Set([...range.getClientRects()].filter((one) => one.width > 0).map((one) => Math.round(one.top)));
      if (word[0].length <= longest && lines.size > 1) broken.push(word[0]);
    }
  }
  return broken;
}"""


@pytest.mark.parametrize("name", ["resnet50_v100_workers0", "dlrm_v100_8ranks", "compiled_mi300x_triton", "gloo_cpu_rank34of300"])
def test_a_narrow_screen_breaks_no_word(folder, chromium, name):
    file = make(folder, f"narrow_{name}", recorded()[name])
    with Opened(chromium, file, width=400) as opened:
        opened.page.evaluate("() => document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        assert opened.page.evaluate(BROKEN_WORDS, NORMAL_WORD) == []
        assert opened.page.evaluate("document.documentElement.scrollWidth") <= 400
        opened.page.screenshot(path=folder / f"narrow_{name}.png", full_page=True)


def test_the_memory_curve_says_what_it_counts(folder, chromium):
    """This trace has the size of each allocation, but no totals of the allocator."""
    file = make(folder, "memory", OWN / "resnet50_v100_workers0.pt.trace.json.gz")
    with Opened(chromium, file) as opened:
        text = opened.page.inner_text("#memory")
        assert "Tensors in host memory" in text
        assert "The totals of the allocator (allocated, reserved) were not recorded." in text


def cone_types():
    """Returns how a reader with all types of cones, or without one of them, sees linear RGB (Machado et al. 2009)."""
    return {"all": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
            "no red": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
            "no green": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
            "no blue": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900))}


def lab_of(colour, seen):
    """Returns L*, a*, b* of "#rrggbb" as that reader sees it."""
    bytes_ = [int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in bytes_]
    linear = [min(max(sum(a * b for a, b in zip(row, linear)), 0), 1) for row in seen]
    to_xyz = ((0.43395, 0.37622, 0.18983), (0.21267, 0.71515, 0.07218), (0.01775, 0.10947, 0.87277))  # over D65's white
    x, y, z = (sum(a * b for a, b in zip(row, linear)) for row in to_xyz)
    x, y, z = (t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in (x, y, z))
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def test_everybody_can_tell_the_colours_of_causes_apart():
    style = (ROOT / "analysis/report/page/page.css").read_text()
    themes = re.findall(r'^ *:root(?:\[data-theme="dark"\]|:not\(\[data-theme="light"\]\))? \{(.*?)\}', style, re.S | re.M)[:3]
    causes = re.findall(r"'(\w+)'", re.search(r"const CAUSES = \[(.*?)\]", (ROOT / "analysis/report/page/base.js").read_text(), re.S)[1])
    assert len(themes) == 3 and len(causes) == 16
    assert re.findall(r"--\w+: #\w+", themes[1]) == re.findall(r"--\w+: #\w+", themes[2])  # dark by choice, and by the system
    for theme in themes:
        colours = dict(re.findall(r"--(\w+): (#\w{6})", theme))
        for seen in cone_types().values():
            labs = {cause: lab_of(colours[cause], seen) for cause in causes}
            for a, b in itertools.combinations(causes, 2):
                assert math.dist(labs[a], labs[b]) > 7, (a, b)
            # The causes that most steps have.
            for a, b in itertools.combinations(["compute", "communication", "copy", "data", "dispatch", "host_code"], 2):
                assert math.dist(labs[a], labs[b]) > 12, (a, b)


def axe_source():
    """Returns axe-core's script from a package that contains it; None if there is no such package."""
    for package, path in (("axe_playwright_python", "axe.min.js"), ("axe_core_python", "axe.min.js"), ("axe_selenium_python", "node_modules/axe-core/axe.min.js")):
        try:
            module = __import__(package)
        except ImportError:
            continue
        found = sorted(pathlib.Path(module.__file__).parent.rglob(pathlib.Path(path).name))
        if found:
            return found[0].read_text()
    return None


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name", ["resnet50_v100_workers0", "dlrm_v100_8ranks", "simulated_gpu", "comparison"])
def test_axe_finds_no_violation(folder, chromium, simulated, name, theme):
    source = axe_source()
    if not source:
        pytest.skip("no package with axe-core; install axe-playwright-python")
    paths = {"simulated_gpu": [simulated / "gpu"],
             "comparison": [OWN / "h2d_a100_pageable.json.gz", OWN / "h2d_a100_pinned.json.gz"]}.get(name) or [recorded()[name]]
    file = make(folder, f"axe_{name}", *paths)
    # The page's policy forbids other scripts and styles, including axe-core.
    with Opened(chromium, file, color_scheme=theme, bypass_csp=True) as opened:
        opened.page.evaluate("() => document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        opened.page.evaluate(source)
        result = opened.page.evaluate("tags => axe.run(document, {runOnly: {type: 'tag', values: tags}})", AXE_TAGS)
        said = [f"{one['id']}: {one['help']}: {[node['html'][:160] for node in one['nodes'][:3]]}" for one in result["violations"]]
        assert said == []
