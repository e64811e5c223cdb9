"""Ranks of one launch: their summaries are collected in that of rank 0, which names the straggler.

Whichever rank ends last completes rank 0's summary: each writes its own first and then, under a lock, adds what is
missing. Rank 0 waits a while only to print the result.

Ranks that train together wait for each other inside their updates, so every rank's steps take the same time. The rank
that waits longest for its loader is the one that the others wait for.
"""
from __future__ import annotations

import fcntl
import os
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ..errors import DataError
from .fields import MOST_RATE, MOST_SECONDS, MOST_STEPS, Field
from .records import open_lock, read_json
from .run_directory import dump, is_complete, write_file

if TYPE_CHECKING:
    from .summary_record import RankRow, StragglerRecord, Summary

LOCK = "ranks.lock"
PATIENCE = 10.0  # seconds for which rank 0 waits to print the other ranks' result
MOST_RANKS = 1 << 16
STRAGGLES = 0.1  # of a step: load beyond that of the other ranks' median


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


def _read(directory: Path, rank: int) -> tuple[Summary, RankRow] | None:
    """Returns the last summary of a rank and its row; None if it does not exist yet or is not a summary."""
    file = directory / summary_name(rank)
    try:
        summary = Field(read_json(file), file)
        summary["world_size"].whole(1, MOST_RANKS)
        return (cast("Summary", summary.value), row_of(summary)) if is_complete(summary.value) else None
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
        first = _read(directory, 0)
        if first is None:
            return None
        record = first[0]
        found = [_read(directory, rank) for rank in range(1, record["world_size"])]
        rows = [one[1] for one in (first, *found) if one is not None]
        if rows != record.get("ranks"):
            record["ranks"], record["straggler"] = rows, straggler(rows)
            write_file(directory / summary_name(0), dump(record, indent=2))
        return record
    finally:
        os.close(file)


def wait_for_all(directory: Path, record: Summary) -> Summary:
    """Returns rank 0's summary, completed by the ranks that end within PATIENCE."""
    deadline = time.monotonic() + PATIENCE
    missing = set(range(1, record["world_size"]))
    while True:
        missing = {rank for rank in missing if _read(directory, rank) is None}
        if not missing or time.monotonic() > deadline:
            return complete(directory) or record
        time.sleep(0.02)


def straggler(rows: list[RankRow]) -> StragglerRecord | None:
    """Returns the row of the rank that delays the others by its loading; None if there is none."""
    if len(rows) < 2:
        return None
    slowest = max(rows, key=lambda row: float(row["load_s_per_step"]))
    others = statistics.median(row["load_s_per_step"] for row in rows if row is not slowest)
    step = statistics.median(row["load_s_per_step"] + row["update_s_per_step"] for row in rows)
    excess = slowest["load_s_per_step"] - others
    return {**slowest, "excess_s_per_step": excess} if excess > STRAGGLES * step else None


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
