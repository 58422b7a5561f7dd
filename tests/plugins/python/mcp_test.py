"""Uses `stepscope mcp` as an agent does: with the official client over stdio, in a separate process."""

import asyncio
import importlib.util
import json
import os
import pathlib
import sys

import pytest

from stepscope import _program, mcp_server

ROOT = pathlib.Path(__file__).parents[3]
TRACES = ROOT / "tests/data/traces"
RESNET = str(TRACES / "resnet50_v100_workers0.pt.trace.json.gz")
PAGEABLE, PINNED = str(TRACES / "h2d_a100_pageable.json.gz"), str(TRACES / "h2d_a100_pinned.json.gz")

needs_mcp = pytest.mark.skipif(importlib.util.find_spec("mcp") is None, reason="mcp is not installed")


def session(roots, calls):
    """Starts the server for `roots` and makes `calls` ((tool, arguments), ...). Returns the tools and, for each call, whether
    it failed and its text."""
    from mcp import ClientSession, StdioServerParameters, stdio_client

    async def talk():
        server = StdioServerParameters(command=sys.executable, args=["-m", "stepscope", "mcp", *roots],
                                       env={**os.environ, "PYTHONPATH": str(ROOT / "plugins/python")})
        async with stdio_client(server) as (reads, writes), ClientSession(reads, writes) as client:
            await client.initialize()
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            answers = []
            for tool, arguments in calls:
                result = await client.call_tool(tool, arguments)
                answers.append((bool(result.is_error), result.content[0].text))
            return tools, answers

    return asyncio.run(asyncio.wait_for(talk(), timeout=120))


@needs_mcp
def test_an_agent_finds_the_fix_tries_it_and_asks_why():
    tools, answers = session([str(TRACES)], [
        ("analyze", {"path": RESNET}),
        ("what_if", {"path": RESNET, "changes": {"workers": 1}}),
        ("explain", {"id": "sync-data-loading"}),
        ("top", {"path": RESNET, "table": "kernels", "limit": 3}),
        ("compare", {"before": PAGEABLE, "after": PINNED}),
        ("rules", {}),
        ("list_runs", {}),
    ])
    assert set(tools) == {"list_runs", "analyze", "compare", "what_if", "top", "rules", "explain"}
    assert all(tool.description for tool in tools.values())
    assert not any(failed for failed, _ in answers), answers
    assert all(len(text) <= mcp_server.LIMIT for _, text in answers)
    report, prediction, rule, top, comparison, rules, runs = (json.loads(text) for _, text in answers)
    first = report["findings"][0]
    assert report["plan"]["order"][0] == first["id"] == "sync-data-loading"
    assert first["gain_ms_per_step"]["expected"] == pytest.approx(53.586, abs=0.001)
    assert prediction["predicted_ms"] < prediction["baseline_ms"] == pytest.approx(report["steps"]["unprofiled_ms"] or report["steps"]["mean_ms"])
    assert "num_workers" in rule["fix"]["python"]
    assert len(top["kernels"]["rows"]) == 3 and "self_us" in top["kernels"]["rows"][0]
    assert comparison["measured_ms"]["expected"] == pytest.approx(37, abs=2)
    assert "sync-data-loading" in rules
    assert runs["paths"]


@needs_mcp
def test_nothing_outside_the_paths_is_read(tmp_path):
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "link.json.gz").symlink_to(RESNET)
    (tmp_path / "inside2").mkdir()
    _, answers = session([str(inside)], [
        ("analyze", {"path": RESNET}),
        ("analyze", {"path": str(inside / "../../etc/passwd")}),
        ("top", {"path": str(inside / "link.json.gz")}),
        ("analyze", {"path": str(inside)}),
        ("list_runs", {"path": str(tmp_path)}),
        ("compare", {"before": RESNET, "after": RESNET}),
        ("what_if", {"path": RESNET, "changes": {"workers": 1}}),
        ("list_runs", {"path": str(tmp_path / "inside2")}),
    ])
    for failed, text in answers:
        assert failed
        assert "is not in the paths that this server was started with" in text


@needs_mcp
def test_what_cannot_be_done_is_said():
    _, answers = session([str(TRACES)], [
        ("analyze", {"path": str(TRACES / "none.json")}),
        ("what_if", {"path": RESNET, "changes": {"wrkers": 1}}),
        ("explain", {"id": "no-such-rule"}),
        ("top", {"path": RESNET, "table": "none"}),
        ("what_if", {"path": RESNET}),
    ])
    expected = ["none.json", "did you mean 'workers'?", "no rule has the id", "no table", "at least one change"]
    for (failed, text), says in zip(answers, expected):
        assert failed and says in text


def test_answers_are_bounded_and_say_what_is_left_out():
    value = {"rows": [{"name": f"{i} " + "x" * 5000} for i in range(5000)], "number": 1.5}
    text = mcp_server.bounded(value)
    assert len(text) <= mcp_server.LIMIT
    short = json.loads(text)
    assert short["number"] == 1.5
    assert "left out" in short["rows"][-1] and "characters left out" in short["rows"][0]["name"]
    assert json.loads(mcp_server.bounded({"a": [1, 2]})) == {"a": [1, 2]}
    assert len(mcp_server.bounded({str(i): "x" for i in range(100_000)})) <= mcp_server.LIMIT


def test_the_words_of_the_command(capsys, tmp_path):
    assert mcp_server.mcp([]) == 2
    assert mcp_server.mcp(["--help-me"]) == 2
    assert mcp_server.mcp([str(tmp_path / "none")]) == 1
    assert "none" in capsys.readouterr().err
    usage = _program.output(["help", "mcp"])
    assert all(tool.__name__ in usage for tool in mcp_server.tools(mcp_server.Places([])))
