"""Ranks of one launch: their summaries are collected in that of rank 0, which names the straggler.

Whichever rank ends last completes rank 0's summary: each writes its own first and then, under a lock, adds what is
missing. Rank 0 waits a while only to print the result.

Ranks that train together wait for each other inside their updates, so every rank's steps take the same time. The rank
that waits longest for its loader is the one that the others wait for. Their own waits for it look like updates, so the
verdict, the advice and the predictions of the run are those of that rank.
"""
from __future__ import annotations

import fcntl
import os
import statistics
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ..errors import DataError
from .fields import MOST_RATE, MOST_SECONDS, MOST_STEPS, Field
from .recorded import predictions
from .records import open_lock, read_json
from .run_directory import dump, is_complete, write_file

if TYPE_CHECKING:
    from .summary_record import RankRow, StragglerRecord, Summary

LOCK = "ranks.lock"
PATIENCE = 10.0  # seconds for which rank 0 waits to print the other ranks' result
MOST_RANKS = 1 << 16
STRAGGLES = 0.1  # of a step: load beyond that of the other ranks' median
TOGETHER = 0.25  # of a step: by which the steps of ranks that wait for each other differ at most


def summary_name(rank: int) -> str:
    return "summary.json" if rank == 0 else f"summary.rank{rank}.json"


def row_of(summary: Field) -> RankRow:
    """Returns what is compared between ranks. Raises DataError."""
    steps = summary["steps"].whole(0, MOST_STEPS)
    load_s, update_s, first_batch_s = (summary[key].number(0, MOST_SECONDS)
                                       for key in ("load_s", "update_s", "first_batch_s"))
    rate = summary["images_per_s"]
    return {"rank": summary["rank"].whole(0, MOST_RANKS), "steps": steps,
            "load_s_per_step": (load_s - first_batch_s) / max(1, steps - 1),
            "update_s_per_step": update_s / max(1, steps),
            "images_per_s": rate.number(0, MOST_RATE) if rate else None, "bound": summary["bound"].text(64)}


def read(directory: Path, rank: int, ended: bool = True) -> tuple[Field, RankRow] | None:
    """Returns the summary of a rank and its row; None if it does not exist or is not a summary.

    `ended`: only the one that the rank has written at its end.
    """
    file = directory / summary_name(rank)
    try:
        summary = Field(read_json(file), file)
        summary["world_size"].whole(1, MOST_RANKS)
        row: RankRow = {**row_of(summary), "rank": rank}
        return (summary, row) if is_complete(summary.value) or not ended else None
    except (OSError, DataError):
        return None


def complete(directory: Path) -> Summary | None:
    """Adds the rows of the ranks that have written their summaries to rank 0's. Returns it; None if there is none."""
    try:
        file = open_lock(directory / LOCK)
    except OSError:  # the summaries stay as they are
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        first = read(directory, 0)
        if first is None:
            return None
        record = cast("Summary", first[0].value)
        found = [read(directory, rank) for rank in range(1, record["world_size"])]
        rows = [one[1] for one in (first, *found) if one is not None]
        if rows != record.get("ranks"):
            record["ranks"], record["straggler"] = rows, straggler(rows)
            _take_back(record)
            slowest = record["straggler"]
            if slowest is not None and slowest["rank"] > 0:
                other = found[slowest["rank"] - 1]
                assert other is not None
                _conclude(record, other[0])
            write_file(directory / summary_name(0), dump(record, indent=2))
        return record
    finally:
        os.close(file)


def _conclude(record: Summary, other: Field) -> None:
    """Puts what another rank concludes from its loop in place of what rank 0 does, which waits for that rank."""
    with suppress(DataError):  # it stays rank 0's
        rank, bound = other["rank"].whole(0, MOST_RANKS), other["bound"].text(64)
        verdict, advice = other["verdict"].text(), other["advice"].text()
        needed = other["workers_needed"].number(0, MOST_RATE) if other["workers_needed"] else None
        if other["what_if"]:
            predictions(other["what_if"])  # raises where it is none
        record["verdict_rank"] = rank
        record["of_rank_0"] = {"bound": record["bound"], "verdict": record["verdict"], "advice": record["advice"],
                               "workers_needed": record["workers_needed"], "what_if": record["what_if"]}
        record["bound"], record["workers_needed"], record["advice"] = bound, needed, advice
        record["verdict"], record["what_if"] = holds_up(rank, verdict), other["what_if"].value


def _take_back(record: Summary) -> None:
    """Puts rank 0's own conclusions back: a rank that has ended later may change which one is the straggler."""
    if "of_rank_0" in record:
        own = record.pop("of_rank_0")
        record["bound"], record["verdict"], record["advice"] = own["bound"], own["verdict"], own["advice"]
        record["workers_needed"], record["what_if"] = own["workers_needed"], own["what_if"]
        del record["verdict_rank"]


def holds_up(rank: int, verdict: str) -> str:
    """Returns the verdict of a run whose other ranks wait for one."""
    return f"rank {rank} holds up the others: {verdict}"


def wait_for_all(directory: Path, record: Summary) -> Summary:
    """Returns rank 0's summary, completed by the ranks that end within PATIENCE."""
    deadline = time.monotonic() + PATIENCE
    missing = set(range(1, record["world_size"]))
    while True:
        missing = {rank for rank in missing if read(directory, rank) is None}
        if not missing or time.monotonic() > deadline:
            return complete(directory) or record
        time.sleep(0.02)


def straggler(rows: list[RankRow]) -> StragglerRecord | None:
    """Returns the row of the rank that delays the others by its loading; None if there is none.

    Ranks whose steps take another time do not wait for it: they may have nothing in common but their launcher.
    """
    if len(rows) < 2:
        return None

    def step(row: RankRow) -> float:
        return float(row["load_s_per_step"] + row["update_s_per_step"])

    slowest = max(rows, key=lambda row: float(row["load_s_per_step"]))
    others = [row for row in rows if row is not slowest]
    usual = statistics.median(map(step, others))
    excess = slowest["load_s_per_step"] - statistics.median(row["load_s_per_step"] for row in others)
    if excess <= STRAGGLES * usual or abs(step(slowest) - usual) > TOGETHER * usual:
        return None
    return {**slowest, "excess_s_per_step": excess}


def line(record: Summary) -> str:
    """Returns what a run of several ranks prints."""
    found, rows = record["straggler"], record["ranks"]
    missing = record["world_size"] - len(rows)
    tail = f"; {missing} ranks left no complete summary" if missing else ""
    if found is None:
        return f"ranks: {len(rows)}, no straggler in loading{tail}"
    return (f"straggler: rank {found['rank']} loads {1e3 * found['load_s_per_step']:.1f} ms per step, "
            f"{1e3 * found['excess_s_per_step']:.1f} ms more than the others, which wait for it; "
            f"it is {found['bound']}-bound{tail}")
