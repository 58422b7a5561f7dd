"""Turns the results of slot.sh into fixtures and a section of RESULTS.md. unpack.sh describes its use."""

from __future__ import annotations

import argparse
import dataclasses
import gzip
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

from slot_engine import ROOT, STATE, Outcome
from slot_parts import PARTS

Machine = dict[str, Any]  # as slot.py describes it

MOST_FIXTURE_BYTES = 256 << 10  # for a recording kept in the repository
# For each folder of the results: which files become tests/data/gpu/<part>_<name>.
FIXTURES = {"doctor": "doctor.txt", "buffers": "*.cupti", "same": "*.json.gz", "threads": "*.json.gz", "graphs": "*.json.gz",
            "baseline": "log/stepscope/*/c0/trace/rank0.json.gz"}
# Files that a fresh machine needs to continue: the outcomes, and the journals of parts that take several calls.
STATE_FILES = re.compile(r"state\.json|(ladder|climb)/runs[^/]*/(runs\.jsonl|profiles/[^/]*\.json)|(ladder|climb)/found\.(json|md)"
                         r"|gallery/[^/]*\.json\.(gz|zst)")
README = """# Recordings of a GPU

`bash tests/gpu/slot.sh` made these files on the machine below, with the commands in `tests/gpu/slot_parts.py`. `bash tests/gpu/unpack.sh`
copied them here, except files larger than 256 KiB. It compressed recordings again; their contents are unchanged.

- `same_N_ours` and `same_N_kineto`: recordings of the same work by stepscope and by LibTorch's own profiler.
- `*.cupti`: CUPTI's buffers as the driver filled them; `tests/gpu/recorded_cupti.h` describes the format.
- `gallery/`: recordings of the gallery's programs. `<rule>` has the problem that the rule finds; `<rule>_fixed` does not.

| | |
| --- | --- |
"""


class Refused(Exception):
    """The results cannot be used; the message says why."""


def read_results(folders: Sequence[pathlib.Path], work: pathlib.Path) -> tuple[Machine, dict[str, Outcome]]:
    """Unpacks the pieces into `work`, later ones over earlier ones. Returns the last machine and all outcomes."""
    outcomes: dict[str, Outcome] = {}
    for results in folders:
        pieces = sorted(results.glob("slot-*.tar"))
        if not pieces or not (results / STATE).exists():
            raise Refused(f"{results} has no {STATE} or no slot-*.tar: it is not what slot.sh leaves")
        for piece in pieces:
            with tarfile.open(piece) as tar:
                tar.extractall(work, filter="data")
        outcomes |= {name: Outcome(**one) for name, one in json.loads((results / STATE).read_text()).items()}
    (work / STATE).write_text(json.dumps({name: dataclasses.asdict(one) for name, one in outcomes.items()}, indent=1) + "\n")
    return json.loads((work / "machine.json").read_text()), outcomes


def machine_rows(machine: Machine) -> list[tuple[str, str]]:
    gpu, driver, memory = (machine["gpu"].splitlines() or ["unknown, unknown, unknown"])[0].split(", ")
    return [("recorded", machine["date"]), ("GPU", f"{gpu}, {memory}"), ("driver", driver), ("CPU", f"{machine['cores']} cores"),
            ("LibTorch", machine["torch"]), ("build", machine["build"].replace("\n", ", ")), ("licence", "Apache-2.0, as this repository")]


def packed_again(source: pathlib.Path, target: pathlib.Path) -> pathlib.Path:
    """Compresses a .json.gz as .json.zst, which is half as large, if zstd is installed. The same input always gives the same
    bytes."""
    if shutil.which("zstd"):
        target = target.with_suffix(".zst")
        target.write_bytes(subprocess.run(["zstd", "--ultra", "-22", "-c"], input=gzip.decompress(source.read_bytes()),
                                          capture_output=True, check=True).stdout)
    else:
        with gzip.open(source) as plain, open(target, "wb") as file, gzip.GzipFile("", "wb", 9, file, 0) as packed:
            shutil.copyfileobj(plain, packed)
    return target


def fixtures(work: pathlib.Path) -> Iterator[tuple[pathlib.Path, str]]:
    """Yields (file, its path under tests/data/gpu)."""
    for part, pattern in FIXTURES.items():
        for file in sorted((work / part).glob(pattern)):
            yield file, f"{part}_{file.name}" if part != "doctor" else file.name
    for file in sorted((work / "gallery").glob("*.json.*")):
        yield file, f"gallery/{file.name}"


def write_fixtures(work: pathlib.Path, machine: Machine, folder: pathlib.Path) -> list[str]:
    """Replaces the contents of `folder`. Returns the files that were too large."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "gallery").mkdir(parents=True)
    left_out = []
    for file, name in fixtures(work):
        target = folder / name
        if name.endswith(".gz"):
            target = packed_again(file, target)
        else:
            shutil.copyfile(file, target)
        if target.stat().st_size > MOST_FIXTURE_BYTES:
            left_out.append(f"{target.relative_to(folder)}, {target.stat().st_size >> 10} KiB")
            target.unlink()
    rows = "".join(f"| {key} | {value} |\n" for key, value in machine_rows(machine))
    (folder / "README.md").write_text(README + rows)
    return left_out


def cell(text: str) -> str:
    return text.strip().replace("|", "\\|").replace("\n", "<br>")


def section(work: pathlib.Path, machine: Machine, outcomes: dict[str, Outcome]) -> str:
    """Returns the section of RESULTS.md, from its heading to its end."""
    rows = dict(machine_rows(machine))
    lines = [f"## On a GPU: {rows['GPU'].split(',')[0]}, {machine['date']}", "",
             f"{rows['GPU']}; driver {rows['driver']}; {rows['CPU']}; LibTorch {rows['LibTorch']}; {rows['build']}. `bash tests/gpu/slot.sh`", "",
             "| part | what | result | figures |", "| --- | --- | --- | --- |"]
    for part in PARTS:
        one = outcomes.get(part.name, Outcome())
        state = f"**{one.state}**" if one.state != "passed" else one.state
        lines.append(f"| {part.name} | {part.what} | {state}, {one.seconds} s | {cell(one.said)} |")
    for part_name, title in (("ladder", "Rungs on a GPU"), ("climb", "Climb on a GPU")):
        table = work / part_name / "found.md"
        if table.exists():
            lines += ["", f"### {title}", "", spaced(table.read_text())]
    return "\n".join(lines) + "\n"


def spaced(text: str) -> str:
    """Separates lines into paragraphs, so that Markdown does not join them, except in tables and code."""
    lines: list[str] = []
    in_code = False
    for line in text.strip().splitlines():
        of_one_table = bool(lines) and lines[-1].startswith("|") and line.startswith("|")
        if lines and lines[-1] and line and not in_code and not of_one_table:
            lines.append("")
        lines.append(line)
        in_code ^= line.startswith("```")
    return "\n".join(lines)


def put_section(page: pathlib.Path, text: str) -> None:
    """Appends the section, or replaces the one with the same heading."""
    old = page.read_text() if page.exists() else "# Results\n"
    old = old.replace("\n\nNot yet run on a GPU (`rungs --device cuda`).", "")
    parts = re.split(r"(?m)^(?=## )", old)
    heading = text.split("\n", 1)[0]
    kept = [part for part in parts if part.split("\n", 1)[0] != heading]
    page.write_text("".join(part.rstrip("\n") + "\n\n" for part in kept) + text)


def write_state(work: pathlib.Path, archive: pathlib.Path) -> None:
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive, "w:gz") as tar:
        for file in sorted(work.rglob("*")):
            name = str(file.relative_to(work))
            if file.is_file() and STATE_FILES.fullmatch(name):
                tar.add(file, arcname=name)


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="unpack.sh", description=__doc__)
    parser.add_argument("results", type=pathlib.Path, nargs="+", metavar="DIR")
    parser.add_argument("--root", type=pathlib.Path, default=ROOT)
    options = parser.parse_args(words)
    try:
        with tempfile.TemporaryDirectory() as scratch:
            work = pathlib.Path(scratch)
            machine, outcomes = read_results(options.results, work)
            if machine["fake"] and options.root.resolve() == ROOT:
                raise Refused("these are results of a fake GPU; --root FOLDER writes them elsewhere")
            left_out = write_fixtures(work, machine, options.root / "tests/data/gpu")
            page = options.root / "samples/resnet/RESULTS.md"
            page.parent.mkdir(parents=True, exist_ok=True)
            put_section(page, section(work, machine, outcomes))
            write_state(work, options.root / "build/gpu-state.tar.gz")
    except (Refused, OSError, tarfile.TarError, KeyError, ValueError) as error:
        print(f"unpack.sh: {error}", file=sys.stderr)
        return 1
    for one in left_out:
        print(f"left out of tests/data/gpu: {one}")
    print("".join(f"{name}: {one.state}\n" for name, one in outcomes.items() if one.state != "passed"), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
