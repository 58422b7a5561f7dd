#!/usr/bin/env python3
"""Drives resnet and stepscope: does following the advice lead to the fastest settings, and does each prediction hold?"""

import argparse
import datetime
import os
import shlex
import sys

import climb
import rungs
import sweep
from bench import Bench, run_program, write_whole
from report import Failed
from resnet_flags import Settings
from tables import to_json
from timing import Length

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def at_least(low):
    def whole_number(text):
        if int(text) < low:
            raise argparse.ArgumentTypeError(f"must be at least {low}")
        return int(text)
    return whole_number


def parse(words):
    """Returns (options, arguments for resnet). On an error, prints it and exits with status 2, as argparse does."""
    parser = argparse.ArgumentParser(prog="ladder.py", description=__doc__, allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", required=True)

    def command(name, text, pairs=5, **defaults):
        one = commands.add_parser(name, help=text, description=text, allow_abbrev=False,
                                  formatter_class=argparse.ArgumentDefaultsHelpFormatter)
        one.add_argument("--bin", default=os.path.join(ROOT, "build/default/bin"), help="folder of both programs")
        one.add_argument("--train", type=shlex.split, default=[], metavar="COMMAND", help="program that trains instead of resnet and"
                         " takes its flags: 'python samples/resnet/train.py'")
        one.add_argument("--work", default=f"runs/{name}", help="folder that keeps the runs, which are not repeated:"
                         " empty it after you change a program")
        one.add_argument("--limit", type=at_least(0), default=24 * 3600, metavar="SECONDS",
                         help="stop after this time, with exit status 3; the same command continues")
        one.add_argument("--json", metavar="FILE", help="write what was found")
        one.add_argument("--results", metavar="FILE", help="write the tables there, too")
        one.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="where to train; rungs has a list for each")
        one.add_argument("--side", type=at_least(16), help="side of the images, in every run")
        one.add_argument("--pairs" if pairs else "--rounds", type=at_least(2), default=pairs or 5,
                         help="interleaved pairs of runs per comparison" if pairs else "runs of each combination")
        one.add_argument("--steps", type=at_least(8), default=defaults["steps"], help="steps per run")
        one.add_argument("--active", type=at_least(2), default=defaults["active"], help="steps that a profile records")
        return one

    command("rungs", "measure each rung of the published case study, one after the other", steps=16, active=6)
    one = command("climb", "follow the first finding, measure the change, keep it or take it back", steps=30, active=12)
    one.add_argument("--start", type=Settings.of, default=Settings(), metavar="FLAGS",
                     help="flags of resnet to begin with, as one word")
    one.add_argument("--bad-habits", action="store_true", help="begin with habits that waste time")
    one.add_argument("--max-changes", type=at_least(1), default=16, help="stop after this many changes")
    one.add_argument("--profiles", type=at_least(1), default=3, help="profiles of the current settings; the one with the median step time counts")
    one.add_argument("--no-sweep", dest="sweep", action="store_false", help="do not look for the best of 144 settings")
    one.add_argument("--sweep-steps", type=at_least(4), default=6, help="steps per run of the sweep's first round")
    one = command("sweep", "every combination: --workers 0,1 --channels-last off,on [flags of resnet]; the first value"
                  " of each flag is the baseline", pairs=0, steps=24, active=10)
    one.add_argument("--alone", action="store_true", help="each value by itself, beside what replay predicts of it")
    options, rest = parser.parse_known_args(words)
    if rest and options.command != "sweep":
        parser.error(f"unknown: {' '.join(rest)} (--help lists all flags)")
    return options, rest


def run(options, rest, bench):
    """Returns (record for --json, tables)."""
    if options.command == "climb":
        record = climb.climb(bench, options)
        return record, climb.to_text(record)
    if options.command == "sweep":
        record = sweep.sweep(bench, Settings.of(rest), options.rounds, options.steps, options.alone)
        return record, sweep.to_text(record)
    record = rungs.go_up(bench, rungs.RUNGS[options.device], options.pairs, Length(options.steps))
    command = " ".join(f"--{key} {getattr(options, key)}" for key in ("device", "side", "pairs", "steps", "active")
                       if getattr(options, key))
    return record, rungs.to_markdown(record, f"{datetime.date.today()}, {record['machine']}. `ladder.py rungs {command}`")


def main(words, start=run_program):
    """Returns the exit status: 0; 1: something failed; 2: wrong command line; 3: --limit was reached. `start`: see Bench."""
    try:
        options, rest = parse(words)
        gpu = options.device == "cuda"
        always = ({"--side": str(options.side)} if options.side else {}) | ({"--device": "cuda"} if gpu else {})
        bench = Bench(options.bin, options.work + "_gpu" * gpu + "_train" * bool(options.train), always, options.limit,
                      options.active, start, options.train)
        record, text = run(options, rest, bench)
        print(text)
        for path, written in ((options.results, text), (options.json, to_json(record))):
            if path:
                write_whole(path, written + "\n")
        return 0
    except (Failed, OSError) as error:
        print(f"ladder.py: {error}", file=sys.stderr)
        return getattr(error, "exit_status", 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
