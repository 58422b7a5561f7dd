#!/usr/bin/env python3
"""Runs the programs of this folder, records and measures them, and compares stepscope's advice with the truth.

    run.py list                       every program with its split and what is expected
    run.py run NAME [--fixed]         the times of its steps
    run.py record|measure [NAME...]   what --work does not hold yet
    run.py table [NAME...]            first finding right? false findings? predicted and measured step
    run.py all [NAME...]              record, measure, table
    run.py keep FOLDER [NAME...]      short recordings for the regression test
    run.py cost [NAME...]             compares steps recorded by stepscope, recorded by torch.profiler, and not recorded
"""

import argparse
import statistics
import sys

import dense, distributed, good, loading, loops, recurring, sequence, vision, written_out  # noqa: E401,F401 they declare programs
import unseen_common, unseen_rare, unseen_science, unseen_text, unseen_vision  # noqa: E401,F401
import unseen_generative, unseen_language, unseen_structured  # noqa: E401,F401
import unseen_guides, unseen_repos, unseen_reviews  # noqa: E401,F401
import unseen_notebooks, unseen_overlooked, unseen_teams, unseen_trial, unseen_incidents, unseen_ports  # noqa: E401,F401
import unseen_forum, unseen_acceptance, unseen_labs, unseen_production, unseen_domains, unseen_trainers, unseen_papers, unseen_contests  # noqa: E401,F401
import unseen_assistants, unseen_audits, unseen_field, unseen_jury, unseen_reviewers, unseen_starters, unseen_students  # noqa: E401,F401
import keep
import table
from harness import PROGRAMS, Running
from truth import ROOT, Folder


def show_list(programs):
    for one in programs:
        print(f"{one.name:24}{one.split:6}{one.kind:24}{' or '.join(one.expect) or '(nothing is wrong)'}")


def show_run(one, fixed, steps):
    with Running(one, fixed) as running:
        times, samples = running.time(one.warm + steps)
    times = times[one.warm:]
    print(" ".join(f"{ms:.1f}" for ms in times))
    print(f"{one.name}: median {statistics.median(times):.1f} ms, mean {statistics.fmean(times):.1f} ms, {samples:g} samples a step")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0], epilog=__doc__.split("\n", 2)[2],
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("list", "run", "record", "measure", "table", "all", "keep", "cost"))
    parser.add_argument("names", nargs="*", help="programs, all by default; keep: first the folder")
    parser.add_argument("--bin", default=str(ROOT / "build/cli/bin/stepscope"), help="the stepscope command")
    parser.add_argument("--work", default=str(ROOT / "build/programs"), help="where recordings and times are kept")
    parser.add_argument("--split", choices=("tune", "held"), help="programs of this half only")
    parser.add_argument("--active", type=int, default=12, help="recorded steps")
    parser.add_argument("--fixed", action="store_true", help="run: with the fix")
    parser.add_argument("--steps", type=int, default=20, help="run: so many steps")
    parser.add_argument("--results", help="table: write it there, too")
    parser.add_argument("--rounds", type=int, default=10, help="cost: so often each recorder takes its turn")
    parser.add_argument("--cpu", action="store_true", help="cost: CPU time of the process instead of wall time")
    return parser.parse_intermixed_args()  # names may follow options


def main():
    asked = arguments()
    target = asked.names.pop(0) if asked.command == "keep" and asked.names else None
    unknown = sorted(set(asked.names) - set(PROGRAMS))
    if unknown:
        sys.exit(f"no program: {', '.join(unknown)}; run.py list has them")
    programs = [one for name, one in sorted(PROGRAMS.items())
                if name in (asked.names or PROGRAMS) and asked.split in (None, one.split)]
    if asked.command == "list":
        return show_list(programs)
    if asked.command == "run":
        return [show_run(one, asked.fixed, asked.steps) for one in programs]
    if asked.command == "cost":
        import cost  # needs the package stepscope
        return cost.of(programs, asked.active, asked.rounds, asked.cpu, lambda line: print(line, flush=True))
    folder = Folder(asked.work, asked.bin)
    if asked.command == "keep":
        return keep.keep(folder, programs, target)
    for one in programs:
        if asked.command in ("record", "all"):
            for fixed in (False, True)[:2 if one.expect else 1]:
                folder.record(one, fixed, asked.active)
            print(f"recorded {one.name}", flush=True)
        if asked.command in ("measure", "all") and one.expect:
            measured = folder.measure(one)
            print(f"measured {one.name}: {measured.before_ms:.1f} to {measured.after_ms:.1f} ms, ratio {measured.ratio:.2f} "
                  f"({measured.interval.low:.2f} to {measured.interval.high:.2f})", flush=True)
    if asked.command in ("table", "all"):
        text = table.of(folder, programs)
        print(text)
        if asked.results:
            with open(asked.results, "w", encoding="utf-8") as file:
                file.write(text + "\n")
    return None


if __name__ == "__main__":
    main()
