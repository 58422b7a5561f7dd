"""A headless Chromium without network access."""

import contextlib
import shutil

import pytest


@contextlib.contextmanager
def page(**options):
    """Opens a page. Returns also the requested addresses outside this machine, all of which were refused."""
    sync_api = pytest.importorskip("playwright.sync_api")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if not chromium:
        pytest.skip("no chromium on the PATH")
    refused = []

    def local_only(route):
        url = route.request.url
        if url.startswith(("http://127.0.0.1:", "data:", "blob:")):
            return route.continue_()
        refused.append(url)
        return route.abort()

    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, headless=True,
                                             args=["--no-sandbox", "--disable-dev-shm-usage"])
        opened = browser.new_page(**{"viewport": {"width": 1300, "height": 900}, **options})
        opened.route("**/*", local_only)
        try:
            yield opened, refused
        finally:
            browser.close()
