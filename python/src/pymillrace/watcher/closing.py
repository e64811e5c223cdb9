"""Last words of `pymillrace watch` on a command that ended without its own: killed, by os._exit(), or not recorded."""
from __future__ import annotations

import csv
import glob
import io
import os
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from .printable import printable
from .records import open_record, read_json
from .run_directory import file_name, is_complete

MOST_ROWS = 1_000_000  # of steps.csv, which are added up


class Stamp(NamedTuple):
    """Tells the records of a new run from those of an earlier one."""
    summary: tuple[int, int] | None
    steps: tuple[int, int] | None
    apart: frozenset[str]  # folders of this rank beside those of rank 0


def _files(directory: str, rank: int) -> list[Path]:
    """Returns the summary and the steps of a rank."""
    return [Path(directory) / file_name(*name, rank) for name in (("summary", "json"), ("steps", "csv"))]


def stamp(directory: str, rank: int) -> Stamp:
    def of_file(file: Path) -> tuple[int, int] | None:
        try:
            status = os.stat(file)
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns

    path = Path(directory)
    apart = path.parent.glob(f"{glob.escape(path.name)}.rank{rank}-*")
    summary, steps = map(of_file, _files(directory, rank))
    return Stamp(summary, steps, frozenset(one.name for one in apart))


def words(directory: str, rank: int, before: Stamp) -> str:
    """Returns what a run has left unsaid: a verdict of what was recorded; nothing if it has printed its own.

    `rank`: that of the command, if a launcher has started a watch for each rank.
    """
    summary, steps = _files(directory, rank)
    now = stamp(directory, rank)
    try:
        if now.summary not in (None, before.summary):
            record = read_json(summary)
            if is_complete(record):
                return ""
            from .summary import lines

            said = map(printable, lines(Path(directory), record)) if rank == 0 else ()
            return "\n".join([*said, cut_off(record["steps"], rank)])
        if now.steps not in (None, before.steps):
            rows = _rows(steps)
            return "\n".join([*([_shares(steps, rows)] if rank == 0 else ()), cut_off(len(rows), rank)])
    except (OSError, ValueError, LookupError, TypeError) as error:
        return f"pymillrace watch: the records in {directory} cannot be read: {type(error).__name__}: {error}"
    if now.apart - before.apart:
        return ""  # the rank has said so
    return (f"pymillrace watch: {_whose(rank)}nothing was recorded: no process of the command recorded a torch DataLoader "
            "and then ran its exit handlers; for other loaders see pymillrace.watch()")


def _whose(rank: int) -> str:
    return f"rank {rank}: " if rank > 0 else ""


def cut_off(steps: int, rank: int = 0) -> str:
    return f"pymillrace watch: {_whose(rank)}the run, or its recording, was cut off; the figures cover {steps} steps"


def _rows(file: Path) -> list[list[float]]:
    """Returns load, update and other of each step."""
    with io.TextIOWrapper(open_record(file), encoding="utf-8") as text:
        return [[float(row[key]) for key in ("load_s", "update_s", "other_s")]
                for row in islice(csv.DictReader(text), MOST_ROWS) if row["other_s"]]


def _shares(file: Path, rows: list[list[float]]) -> str:
    """Returns the shares of a run that was cut off before its first summary."""
    load, update, other = (sum(row[i] for row in rows) for i in range(3))
    whole = load + update + other or 1.0
    return (f"{file}: load {100 * load / whole:.0f}%, update {100 * update / whole:.0f}%, "
            f"other {100 * other / whole:.0f}%")
