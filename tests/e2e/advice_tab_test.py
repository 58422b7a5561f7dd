"""Tests TensorBoard's tab "Advice" in headless Chromium, without network access.

    pytest tests/e2e/advice_tab_test.py

Needs tests/e2e/requirements.txt and chromium on the PATH. Environment variables:
    STEPSCOPE_MAKE_LOGDIR   the make_logdir binary; default: build/default/bin's
    STEPSCOPE_NATIVE_DIR    the folder of libstepscope_core.so; default: build/default/lib
    STEPSCOPE_PAGES         a folder for screenshots; default: none are taken
"""

import contextlib
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

import pytest

import local_browser

ROOT = pathlib.Path(__file__).resolve().parents[2]
MAKE_LOGDIR = pathlib.Path(os.environ.get("STEPSCOPE_MAKE_LOGDIR") or ROOT / "build/default/bin/make_logdir")
NATIVE = pathlib.Path(os.environ.get("STEPSCOPE_NATIVE_DIR") or ROOT / "build/default/lib")
PACKAGES = [ROOT / "plugins/python", ROOT / "plugins/tensorboard"]
HOSTILE = "x<img src=nowhere onerror=document.title='hit'>"
WRITTEN = """<!doctype html><title>report</title><p id="says">page of the profile</p>
<script>document.getElementById("says").textContent += ", drawn";</script>"""


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    """Runs in the form that a profile writes: one process with a GPU, and two ranks."""
    for needed in (MAKE_LOGDIR, NATIVE / "libstepscope_core.so"):
        if not needed.exists():
            pytest.skip(f"{needed} is not built")
    folder = tmp_path_factory.mktemp("simulated")
    subprocess.run([MAKE_LOGDIR, folder], check=True, stdout=subprocess.DEVNULL)
    return folder


@pytest.fixture(scope="module")
def server(simulated, tmp_path_factory):
    """TensorBoard on a log directory with two experiments. Returns its address and the directory."""
    pytest.importorskip("tensorboard")
    folder = tmp_path_factory.mktemp("advice")
    logs = folder / "logs"
    shutil.copytree(simulated / "gpu", logs / "one")
    shutil.copytree(simulated / "ranks", logs / "ranks")
    # A folder may have any name, such as stepscope's or the PyTorch plugin's.
    (run,) = (logs / "ranks/stepscope").iterdir()
    for folder_of_run in (run, logs / "ranks" / run.name):
        folder_of_run.rename(folder_of_run.with_name(f"{HOSTILE}_2026_01_31_14_05_09"))
    advice = next(logs.glob("one/stepscope/*/c0")) / "advice"
    advice.mkdir()
    (advice / "rank0.json").write_text('{"steps": {"count": 6, "mean_ms": 12.3}, "findings": []}')
    (advice / "rank0.html").write_text(WRITTEN)
    (folder / "outside").mkdir()
    (folder / "outside/secret.json.gz").write_bytes(next(logs.glob("one/stepscope/*/c0/trace/*")).read_bytes())
    (logs / "linked").mkdir()
    (logs / "linked/secret.json.gz").symlink_to(folder / "outside/secret.json.gz")
    # The package's files that pip writes and TensorBoard looks for.
    about = folder / "site/stepscope-0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: stepscope\nVersion: 0\n")
    (about / "entry_points.txt").write_text(
        "[tensorboard_plugins]\nstepscope = stepscope_tensorboard.plugin:AdvicePlugin\n")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started = subprocess.Popen(
        [sys.executable, "-m", "tensorboard.main", "--logdir", logs, "--host", "127.0.0.1", "--port", str(port)],
        stdout=subprocess.DEVNULL, stderr=(folder / "log").open("w"),
        env={**os.environ, "STEPSCOPE_NATIVE_DIR": str(NATIVE),
             "PYTHONPATH": os.pathsep.join(map(str, [folder / "site", *PACKAGES]))})
    base = f"http://127.0.0.1:{port}"
    end = time.time() + 120
    while True:
        with contextlib.suppress(OSError):
            urllib.request.urlopen(base + "/data/plugins_listing", timeout=30).read()
            break
        assert time.time() < end and started.poll() is None, (folder / "log").read_text()
        time.sleep(0.5)
    yield base, logs
    started.terminate()
    started.wait(30)


def get(server, what, **parameters):
    with urllib.request.urlopen(f"{server[0]}/data/plugin/stepscope/{what}?{urllib.parse.urlencode(parameters)}", timeout=60) as answer:
        return answer.read().decode(), dict(answer.headers)


def windows(server):
    return json.loads(get(server, "runs")[0])["windows"]


def picture(page, name):
    if os.environ.get("STEPSCOPE_PAGES"):
        page.screenshot(path=pathlib.Path(os.environ["STEPSCOPE_PAGES"]) / f"{name}.png")


def loaded(page):
    """Waits for the requested report; until then the frame is empty."""
    page.wait_for_function("() => document.querySelector('#status').hidden", timeout=120_000)


@contextlib.contextmanager
def tab(server):
    """Opens the tab's own frame in a browser. Returns also the errors that it logged."""
    errors = []
    with local_browser.page() as (page, refused):
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(server[0] + "/data/plugin_entry.html?name=stepscope")
        page.wait_for_selector("nav button[aria-current]", timeout=30_000)
        loaded(page)
        yield page, errors
        assert refused == []


def test_runs_are_listed_by_name_rank_and_window(server):
    listed = windows(server)
    names = {one["name"] for one in listed}
    assert HOSTILE in names and len(listed) == 2
    ranks = next(one for one in listed if one["name"] == HOSTILE)
    assert ranks["traces"] == ["rank0.json.gz", "rank1.json.gz"]
    assert not any(os.path.isabs(one["id"]) for one in listed)


def test_the_tab_is_offered(server):
    with urllib.request.urlopen(server[0] + "/data/plugins_listing", timeout=30) as answer:
        plugin = json.load(answer)["stepscope"]
    assert plugin["enabled"] and plugin["tab_name"] == "Advice"


def test_a_page_is_shown_and_another_chosen(server):
    with tab(server) as (page, errors):
        frame = page.frame_locator("iframe")
        assert "ms" in frame.locator("body").inner_text(timeout=30_000)
        picture(page, "advice_tab")
        page.get_by_role("button", name="rank 1").click()
        loaded(page)
        assert "rank 1 of 2" in frame.locator("body").inner_text(timeout=30_000)
        assert page.title() != "hit"
        assert HOSTILE in page.locator("nav").inner_text()
        assert errors == []


def test_a_page_that_the_profile_wrote_is_shown_with_its_scripts(server):
    with tab(server) as (page, errors):
        assert "12.3 ms, nothing to change" in page.locator("nav").inner_text()
        page.locator("li.window button").last.click()
        page.frame_locator("iframe").get_by_text("page of the profile, drawn").wait_for(timeout=30_000)
        assert errors == []


def test_two_windows_are_compared(server):
    with tab(server) as (page, errors):
        assert page.locator("#compare").is_disabled()
        for box in page.locator("input[type=checkbox]").all():
            box.check()
        page.locator("#compare").click()
        loaded(page)
        text = page.frame_locator("iframe").locator("body").inner_text(timeout=30_000)
        assert "before" in text and "after" in text
        picture(page, "advice_compare")
        assert errors == []


def test_a_run_that_is_written_meanwhile_appears(server, simulated):
    _, logs = server
    with tab(server) as (page, _):
        before = page.locator("input[type=checkbox]").count()
        shutil.copytree(simulated / "cpu", logs / "later")
        page.wait_for_function("(count) => document.querySelectorAll('input[type=checkbox]').length > count", arg=before,
                               timeout=30_000)
    shutil.rmtree(logs / "later")


@pytest.mark.parametrize("window, trace", [
    ("../outside", ""), ("/etc", ""), ("linked", ""), ("linked", "secret.json.gz"), ("", ""), ("one", "../../outside/secret.json.gz")])
def test_only_what_is_below_the_log_directory_is_served(server, window, trace):
    with pytest.raises(urllib.error.HTTPError) as refused:
        get(server, "page", window=window, trace=trace)
    assert refused.value.code == 404
    assert "outside/" not in refused.value.read().decode().replace(window, "").replace(trace, "")


def test_a_page_may_only_run_scripts_of_its_own(server):
    _, headers = get(server, "page", window=windows(server)[0]["id"])
    policy = headers["Content-Security-Policy"]
    assert "default-src 'self'" in policy and "'unsafe-inline'" not in policy.partition("script-src")[2].partition(";")[0]
