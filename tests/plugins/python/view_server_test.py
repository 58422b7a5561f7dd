"""Tests the arguments of `stepscope view`, and what its server serves to whom. tests/e2e/view_test.py opens Perfetto itself."""

import http.client
import threading

import pytest

from stepscope import _program, view
from stepscope._native import StepscopeError


@pytest.fixture
def served(tmp_path):
    """A server for a folder that replaces Perfetto's UI, and for a trace."""
    (tmp_path / "ui").mkdir()
    (tmp_path / "ui/index.html").write_text("<title>UI</title>")
    (tmp_path / "trace.json").write_text('{"traceEvents": []}')
    (tmp_path / "secret.txt").write_text("secret")
    with view.server(tmp_path / "ui", tmp_path / "trace.json", "/index.html#!/viewer?url={base}/trace.json", 0) as serving:
        threading.Thread(target=serving.serve_forever, daemon=True).start()
        yield serving.server_address[1]
        serving.shutdown()


def get(port, path, host=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", path, headers={"Host": host or f"127.0.0.1:{port}"})
    answer = connection.getresponse()
    return answer.status, answer.read().decode(errors="replace"), dict(answer.getheaders())


def test_the_address_leads_to_the_trace_in_the_ui(served):
    status, _, headers = get(served, "/")
    assert status == 302
    assert headers["Location"] == f"/index.html#!/viewer?url=http://127.0.0.1:{served}/trace.json"
    assert get(served, "/index.html")[1] == "<title>UI</title>"
    assert get(served, "/trace.json")[1] == '{"traceEvents": []}'


@pytest.mark.parametrize("path", ["/../secret.txt", "/%2e%2e/secret.txt", "//etc/passwd", "/../trace.json/../secret.txt"])
def test_nothing_else_is_served(served, path):
    status, text, _ = get(served, path)
    assert status == 404
    assert "secret" not in text.replace("secret.txt", "")


def test_folders_are_not_listed(served, tmp_path):
    (tmp_path / "ui/inner").mkdir()
    assert get(served, "/inner/")[0] == 404


def test_another_sites_name_for_this_machine_is_refused(served):
    assert get(served, "/trace.json", host="attacker.example:80")[0] == 403
    assert get(served, "/trace.json", host=f"localhost:{served}")[0] == 200


@pytest.mark.parametrize("words, says", [
    ([], "one path"), (["a", "b"], "one path"), (["--in", "word", "a"], "perfetto, page or tensorboard, not 'word'"),
    (["--port", "x", "a"], "below 65536"), (["--port=70000", "a"], "below 65536"), (["--prot", "1", "a"], "unknown option"),
])
def test_wrong_words_are_refused(words, says, capsys):
    assert view.view(words) == 2
    assert says in capsys.readouterr().err


def test_words_may_have_any_order():
    assert view.parse(["a", "--no-browser", "--in=page", "--port", "80"]) == ("a", "page", 80, False)
    assert view.parse(["a"]) == ("a", "perfetto", 0, True)


def test_the_options_are_those_of_the_usage():
    usage = _program.output(["help", "view"])
    assert "--in perfetto|page|tensorboard" in usage
    assert all(f"--{name}" in usage for name in ("port", "no-browser"))
    run_usage = _program.output(["help", "run"])
    assert all(f"--{name}" in run_usage for name in ("skip", "steps", "out"))


def test_a_trace_that_perfetto_reads_is_served_as_it_is(trace, tmp_path):
    assert str(view.timeline(trace, tmp_path)) == trace


def test_other_files_are_converted(trace, tmp_path, capsys):
    folder = tmp_path / "run"
    folder.mkdir()
    _program.output(["convert", trace, str(folder / "rank0.json")])
    made = view.timeline(str(folder), tmp_path)
    assert made == tmp_path / "trace.json.gz"
    assert made.stat().st_size > 0


def test_what_is_missing_is_said(tmp_path, monkeypatch, capsys):
    assert view.view([str(tmp_path / "none.json"), "--no-browser"]) == 1
    assert "No such file" in capsys.readouterr().err
    monkeypatch.setattr(view.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(StepscopeError, match="pip install"):
        view.perfetto_ui()
    assert view.view([str(tmp_path), "--in", "tensorboard"]) == 1
    assert "pip install tensorboard" in capsys.readouterr().err


def test_a_port_that_is_taken_is_said(served, tmp_path):
    with pytest.raises(StepscopeError, match="--port"):
        view.server(tmp_path, tmp_path / "trace.json", "/", served)
