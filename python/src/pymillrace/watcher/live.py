"""Lines on stderr while a watched script runs: shares, verdict and what to try first.

The trainer's thread collects the figures, when it writes rows anyway. Another one predicts changes by short replays and
writes the line, so that a terminal or a pipe that takes nothing holds up nobody. What cannot be written at once is
dropped. Only `pymillrace watch` asks for the lines, and only rank 0 writes them.
"""
from __future__ import annotations

import os
import select
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from ..errors import DataError
from .command_line import EVERY
from .faults import pass_on, stop
from .loop_facts import OF_THAT_THREAD, LoopFacts
from .periodic import Periodic
from .predict import quick_predictions, recorded
from .printable import printable
from .ranks import holds_up, read, straggler
from .recorded import advice_of
from .run_directory import RunDirectory
from .signals import without_signals_of_writes
from .spans import FIRST_BATCH, LOAD, LOOP, UPDATE, Table
from .verdict import advice, classify, too_short

if TYPE_CHECKING:
    from .summary_record import RankRow

FIRST_S = 10.0  # from the begin of the recording to the first line
MOST_RANKS = 64  # whose summaries are looked at
MOST_BYTES = 4000  # of a line: a pipe takes up to 4096 in one write


def interval() -> float | None:
    """Returns the seconds between two lines; None without lines."""
    try:
        return float(os.environ[EVERY])
    except (KeyError, ValueError):
        return None


class Live(Periodic):
    """Lines of one run."""

    def __init__(self, interval_s: float, directory: RunDirectory) -> None:
        super().__init__("line", min(FIRST_S, interval_s), interval_s)
        self._directory = directory
        self._begin = time.monotonic()

    def tell(self, name: str, table: Table, loop: LoopFacts, cores: int) -> None:
        """Begins to write a line on a loader, or on that of the rank which this one waits for."""
        ns = table.spans
        whole = sum(ns) or 1
        text = (f"{name}: {table.steps} steps in {time.monotonic() - self._begin:.0f} s: "
                f"load {100 * (ns[FIRST_BATCH] + ns[LOAD]) / whole:.0f}%, "
                f"update {100 * (ns[UPDATE] + ns[LOOP]) / whole:.0f}%"
                f"{OF_THAT_THREAD if loop.takes_ahead else ''}")
        self.begin(lambda: self._write(text, loop, cores))

    def _write(self, text: str, loop: LoopFacts, cores: int) -> None:
        try:
            words = [text, *(_of_straggler(loop, self._directory) or _of_loop(loop, cores))]
            write_at_once("; ".join(one for one in words if one))
        except Exception as error:
            stop(error)


def _of_loop(loop: LoopFacts, cores: int) -> list[str]:
    """Returns verdict and advice."""
    verdict = classify(loop, cores)
    given = None if too_short(loop.steps) else recorded(loop, cores)
    predicted = None if given is None else quick_predictions(*given)
    return [verdict.sentence, advice(loop, verdict, cores, predicted)]


def _of_straggler(loop: LoopFacts, directory: RunDirectory) -> list[str]:
    """Returns the latest verdict and advice of the rank that the others wait for.

    Returns nothing if that is this rank, or if there is none.
    """
    if directory.world_size == 1 or too_short(loop.steps):
        return []
    total = 1e-9 * sum(loop.breakdown.steady)
    own: RankRow = {"rank": 0, "steps": loop.steps, "load_s_per_step": total / max(1, loop.steps - 1), "bound": "",
                    "update_s_per_step": loop.mean_update_s, "images_per_s": None}
    known = [read(directory.path, rank, ended=False) for rank in range(1, min(directory.world_size, MOST_RANKS))]
    summaries = {row["rank"]: (summary, row) for summary, row in filter(None, known)}
    found = straggler([own, *(row for _, row in summaries.values())])
    if found is None or found["rank"] == 0:
        return []
    summary, _ = summaries[found["rank"]]
    with suppress(DataError):  # not a summary's words
        return [printable(holds_up(found["rank"], summary["verdict"].text())), printable(advice_of(summary))]
    return []


def descriptor() -> int:
    """Returns the descriptor of stderr; -1 where that is no file."""
    try:
        return sys.stderr.fileno()
    except Exception as error:  # None, a notebook's, or one of the script
        pass_on(error)
        return -1


def write_at_once(line: str) -> None:
    """Writes a line to stderr in one call, if it is a file that takes it at once; else drops it."""
    with suppress(Exception), without_signals_of_writes():
        number = descriptor()
        data = f"pymillrace watch: {line}".encode("utf-8", "backslashreplace")[:MOST_BYTES] + b"\n"
        poll = select.poll()
        poll.register(number, select.POLLOUT)
        if [events for _, events in poll.poll(0)] == [select.POLLOUT]:
            os.write(number, data)
