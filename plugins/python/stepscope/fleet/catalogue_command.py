"""`stepscope catalogue`: collects the runs of many log directories in one file, and answers questions about them."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Sequence

from .._native import StepscopeError, say, show
from .catalogue import Catalogue, Found

WITH_VALUE = ("--waits-for", "--finding", "--since", "--at-least", "--format", "--workers")


def parse(words: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Returns the arguments and the values of the options."""
    arguments: list[str] = []
    options: dict[str, str] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.partition("=")
        if not word.startswith("-"):
            arguments.append(word)
            continue
        if name not in WITH_VALUE:
            raise StepscopeError(f"unknown option '{name}'; stepscope help catalogue lists the options")
        if not equals:
            value = rest.pop(0) if rest else ""
        if not value:
            raise StepscopeError(f"{name} needs a value")
        options[name] = value
    return arguments, options


def _share(text: str) -> float:
    if not re.fullmatch(r"\d{1,3}(\.\d+)?%", text):
        raise StepscopeError(f"--at-least must be a share of the step such as 5%, not '{text}'")
    return float(text[:-1]) / 100


def catalogue(words: Sequence[str]) -> int:
    """Runs `stepscope catalogue`; returns the exit status."""
    try:
        arguments, options = parse(words)
        allowed = {"add": ("--workers",), "find": WITH_VALUE[:-1]}.get(arguments[0] if arguments else "", ())
        if not allowed or len(arguments) < 2 or (arguments[0] == "add") == (len(arguments) == 2):
            raise StepscopeError("catalogue needs: stepscope catalogue add FILE DIR..., or stepscope catalogue find FILE")
        if strange := [name for name in options if name not in allowed]:
            raise StepscopeError(f"{strange[0]} is no option of catalogue {arguments[0]}")
        workers = options.get("--workers", "1")
        if not workers.isdecimal() or int(workers) < 1:
            raise StepscopeError(f"--workers must be a whole number of at least 1, not '{workers}'")
        if (form := options.get("--format", "text")) not in ("text", "json"):
            raise StepscopeError(f"--format must be text or json, not '{form}'")
        at_least = _share(options.get("--at-least", "5%"))
    except StepscopeError as error:
        say(str(error))
        return 2
    try:
        if arguments[0] == "add":
            return _add(arguments[1], arguments[2:], int(workers) if "--workers" in options else None)
        with Catalogue(arguments[1], create=False) as runs:
            since = options.get("--since", "")
            found = runs.find(finding=options.get("--finding", ""), waits_for=options.get("--waits-for", ""), since=since,
                              at_least=at_least)
            if form == "json":
                text = json.dumps({"version": 1, "windows": runs.count(since), "found": [dataclasses.asdict(one) for one in found]}, indent=2) + "\n"
            else:
                text = _text(found, runs.count(since), "--waits-for" in options or "--finding" in options)
        return 0 if show(text) else 1
    except StepscopeError as error:
        say(str(error))
        return 1


def _add(path: str, folders: Sequence[str], workers: int | None) -> int:
    with Catalogue(path) as runs:
        added = sum(runs.add(folder, workers=workers) for folder in folders)
        total = runs.count()
        show(f"{path}: {added} window{'' if added == 1 else 's'} added or updated, {total} in all\n")
        return 0 if total else 1


def _printable(text: str) -> str:
    """Escapes characters that a terminal would interpret, because names come from traces."""
    return "".join(one if one.isprintable() else f"\\x{ord(one):02x}" if ord(one) < 256 else f"\\u{ord(one):04x}" for one in text)


def _text(found: Sequence[Found], total: int, asked: bool) -> str:
    lines = [f"{len(found)} of {total} window{'' if total == 1 else 's'}"]
    width = max([len(_printable(one.name)) for one in found], default=0)
    for one in found:
        share = f"{one.share:4.0%}  " if asked else ""
        first = f"first: {one.first_finding}, {one.first_gain_ms:.1f} ms" if one.first_finding else "nothing to change"
        lines.append(f"{share}{_printable(one.name):{width}}  {one.started}  {one.ranks} rank{' ' if one.ranks == 1 else 's'}  "
                     f"{one.step_ms:.1f} ms a step  {first}  {_printable(one.folder)}")
    return "\n".join(lines) + "\n"
