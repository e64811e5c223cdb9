"""pymillrace watch, what-if and compare. Each imports what it needs, so that it starts at once."""
from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import Error
from . import closing
from .command_line import EVERY, watched_environment
from .durations import seconds_of
from .errors import WatchError
from .messages import say
from .output import print_lines
from .place import place
from .run_directory import check

if TYPE_CHECKING:
    from .budget import Budget
    from .estimates import Run

def main(arguments: list[str]) -> int:
    """Returns the exit code of the watched command; 2 for wrong usage."""
    parser = argparse.ArgumentParser(prog="pymillrace")
    commands = parser.add_subparsers(dest="command", required=True)
    watch = commands.add_parser("watch", help="run a command and record its DataLoaders",
                                usage="pymillrace watch [--run DIR] [--every TIME] [--quiet] [BUDGET ...] [--] COMMAND "
                                      "[ARGUMENT ...]")
    watch.add_argument("--run", help="directory for the records (default: runs/watch-DATE-TIME)")
    watch.add_argument("--every", type=seconds_of, default=60.0, metavar="TIME",
                       help="time between two lines on stderr while the command runs, such as 30s or 5m (default: 60s)")
    watch.add_argument("--quiet", action="store_true", help="print no lines while the command runs")
    budgets = watch.add_argument_group("budgets", "Judged after a command that ends with 0, by 95% intervals, on the "
                                       "main loader and the worst rank: exit code 5 if one is exceeded, 6 if undecided")
    budgets.add_argument("--max-load", metavar="SHARE", help="of load + update, such as 10%%")
    budgets.add_argument("--max-wait", metavar="TIME", help="of load per step, such as 5ms; with --baseline also 110%%")
    budgets.add_argument("--min-images-per-s", metavar="RATE", help="such as 1500; with --baseline also 95%%")
    budgets.add_argument("--baseline", metavar="RUN",
                         help="a watched run; a percentage in --max-wait or --min-images-per-s is relative to it")
    watch.add_argument("words", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    what_if = commands.add_parser(
        "what-if", help="predict a recorded loop's images/s under other settings",
        usage="pymillrace what-if RUN [--show-code]\n       pymillrace what-if --verify [--run DIR] [--steps N] [--blocks N] "
              "[--change CHANGE] [--with SCRIPT] [--] COMMAND [ARGUMENT ...]")
    what_if.add_argument("--show-code", action="store_true",
                         help="print the code that replaces the loader by millrace's, and nothing else")
    what_if.add_argument("--verify", action="store_true", help="predict, then run the command with each change")
    what_if.add_argument("--run", help="directory for the records (default: runs/what-if-DATE-TIME)")
    what_if.add_argument("--steps", type=int, default=100, help="steps of each run (default: 100)")
    what_if.add_argument("--blocks", type=int, default=3, help="blocks; each runs every change once (default: 3)")
    what_if.add_argument("--change", action="append", help="run only this change, e.g. num_workers=2; may be repeated")
    what_if.add_argument("--with", dest="other", metavar="SCRIPT",
                         help="run a changed script beside that of the command; without --change nothing else")
    what_if.add_argument("words", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    differences = commands.add_parser("compare", help="the differences of two recorded runs, with intervals")
    differences.add_argument("before", type=Path, metavar="RUN")
    differences.add_argument("after", type=Path, metavar="RUN")
    form = differences.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print one JSON document")
    form.add_argument("--markdown", action="store_true", help="print a table for a pull request")
    parsed = parser.parse_args(arguments)
    words: list[str] = getattr(parsed, "words", [])
    if words[:1] == ["--"]:
        words = words[1:]
    now = time.strftime("%Y%m%d-%H%M%S")
    if parsed.command == "watch":
        if not words:
            watch.error("nothing to run; say for example: pymillrace watch -- python train.py")
        limits: list[Budget] = []
        baseline: Run | None = None
        wanted = (parsed.max_load, parsed.max_wait, parsed.min_images_per_s)
        if wanted != (None, None, None) or parsed.baseline is not None:
            from . import budget

            try:
                limits = budget.parse(*wanted, parsed.baseline is not None)
                baseline = None if parsed.baseline is None else budget.read_baseline(Path(parsed.baseline))
            except Error as error:
                print_lines([f"pymillrace: {error}"], sys.stderr)
                return error.exit_code
        return run(words, parsed.run or f"runs/watch-{now}", None if parsed.quiet else parsed.every, limits,
                   baseline)
    try:
        if parsed.command == "compare":
            from . import compare

            runs = compare.compare(parsed.before, parsed.after)
            if parsed.json:
                print(compare.document(*runs))
            else:
                print_lines(compare.markdown(*runs) if parsed.markdown else compare.lines(*runs))
            return 0
        if parsed.verify:
            if not words:
                what_if.error("nothing to run; say for example: pymillrace what-if --verify -- python train.py")
            if parsed.steps < 2 or parsed.blocks < 1:
                what_if.error("--steps needs at least 2, --blocks at least 1")
            from . import verify

            folder = Path(parsed.run or f"runs/what-if-{now}")
            record = verify.verify(words, folder, parsed.steps, parsed.blocks, parsed.change, parsed.other)
            print_lines(verify.lines(record))
            return 1 if verify.failed(record) else 0
        if words[1:] == ["--show-code"]:  # behind the run
            words, parsed.show_code = words[:1], True
        if len(words) != 1:
            what_if.error("give one run directory; or --verify -- COMMAND")
        if parsed.other is not None:
            what_if.error("--with needs --verify")
        return show(Path(words[0]), parsed.show_code)
    except Error as error:
        print_lines([f"pymillrace: {error}"], sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:  # while no script runs
        return 130


def show(directory: Path, code: bool = False) -> int:
    """Prints the predictions of a recorded run, or the code that replaces its loader."""
    from . import predict, recorded, replacement

    try:
        summary = recorded.checked(recorded.read_summary(directory / "summary.json"))
    except OSError:
        say(f"pymillrace: {directory} holds no summary.json of a finished run; record one with: pymillrace watch "
            f"--run {directory} -- python train.py")
        return 2
    record = summary["what_if"]
    if "missing" in summary:
        say(f"pymillrace: {directory} cannot be used for predictions: {summary['missing']}; watch a longer run")
        return 2
    if record is None:
        say(f"pymillrace: {directory} cannot be used for predictions: it is not a watched run, its loader is not a "
            "torch DataLoader, its data set reads from a generator, or its batches were not recorded")
        return 2
    row = replacement.row(summary)
    if code:
        return show_code(directory, summary, row)
    if row["reason"] is None:
        record["rows"].append(row)
    print_lines([*predict.lines(record), replacement.line(row), replacement.advice(summary, row, str(directory))])
    return 0


def show_code(directory: Path, summary: dict[str, Any], row: dict[str, Any]) -> int:
    """Prints the code that replaces a recorded loader by millrace's."""
    from . import replacement, replacement_code

    entry: dict[str, Any] = next((one for one in summary["loaders"] if one["name"] == summary["loader"]), {})
    reason: str | None = row["reason"]
    found: dict[str, Any] = entry.get("counterpart") or {"source": None, "no_source": None}
    if reason is None and found["source"] is None:
        reason = found["no_source"] or replacement.EARLIER
    if reason is not None:
        say(f"pymillrace: there is no code in place of the loader of {directory}: {reason}")
        return 2
    print_lines(replacement_code.code(summary["loader"], found, row["loader_workers"]))
    return 0


def run(words: list[str], directory: str, every: float | None = None, budgets: Sequence[Budget] = (),
        baseline: Run | None = None) -> int:
    """Runs a command whose Python processes record their DataLoaders. Returns its exit code.

    If it is 0, `budgets` are judged, which may make it 5 or 6. `every`: seconds between two lines on stderr; None: no
    lines.
    """
    from . import child

    rank = place()[0]  # of a launcher that has started this watch
    before = closing.stamp(directory, rank)
    try:
        if rank == 0:  # which makes the directory
            check(Path(directory))
    except WatchError as error:
        print(f"pymillrace: {error}", file=sys.stderr)
        return 2
    try:
        environment = watched_environment(directory)
        environment.pop(EVERY, None)
        code = child.run(words, environment if every is None else {**environment, EVERY: str(every)}).code
    except OSError as error:
        say(f"pymillrace: cannot run {words[0]}: {error.strerror}")
        return 2
    if unsaid := closing.words(directory, rank, before):
        say(unsaid)
    if code != 0 or not budgets or rank > 0:
        return code
    from . import budget

    try:
        code, lines = budget.of_run(budgets, Path(directory), baseline)
    except Error as error:  # what was recorded cannot be read
        code, lines = budget.UNDECIDED, [f"budgets undecided: {error}"]
    say("\n".join(f"pymillrace watch: {line}" for line in lines))
    return code
