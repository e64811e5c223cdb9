"""pymillrace top: a page that shows a watched run while it goes on.

Imports nothing of the recorder before its arguments are known to be good.
"""
from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path

from ..errors import Error
from .durations import seconds_of
from .printable import printable


def main(arguments: list[str]) -> int:
    """Returns the exit code: 0 also after q and Ctrl-C, that of the error where the run cannot be read."""
    parser = argparse.ArgumentParser(prog="pymillrace top", description="show a watched run while it goes on")
    parser.add_argument("run", type=Path, metavar="RUN", help="directory of a run of pymillrace watch")
    parser.add_argument("--every", type=seconds_of, default=2.0, metavar="TIME",
                        help="time between two looks at the run, such as 5s (default: 2s)")
    parser.add_argument("--once", action="store_true",
                        help="print one page and exit (the default when stdout is not a terminal)")
    parsed = parser.parse_args(arguments)
    try:
        show(parsed.run, parsed.every, parsed.once or not sys.stdout.isatty() or os.environ.get("TERM") == "dumb")
    except Error as error:
        print(printable(f"pymillrace: {error}"), file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        pass
    return 0


def show(directory: Path, every_s: float, once: bool) -> None:
    """Shows pages until the run has ended or q is pressed; the last page, or the only one, stays. Raises Error."""
    from . import page
    from .screen import Screen
    from .watched_run import WatchedRun

    run = WatchedRun(directory)
    state = run.look()
    encoding = sys.stdout.encoding or "utf-8"
    levels = page.LEVELS if encoding.lower().startswith("utf") else page.ASCII_LEVELS
    painted = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

    def lines(width: int) -> list[str]:
        found = (one.painted() if painted else one.text for one in page.lines(state, width, levels))
        return [one.encode(encoding, "backslashreplace").decode(encoding) for one in found]

    if not once:
        with Screen() as screen:
            while state.summary is None or not state.summary.ended:
                width, height = screen.size()
                screen.show([*lines(width)[:height - 1], "press q to quit"[:width]])
                if screen.wait(every_s) == "q":
                    return
                try:
                    state = run.look()
                except Error as error:  # until the record has been written again
                    state.faults = [printable(str(error))]
    print("\n".join(lines(shutil.get_terminal_size().columns)), flush=True)
