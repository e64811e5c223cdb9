"""Last words of `pymillrace watch` on a command that ended without its own: killed, by os._exit(), or not recorded."""
from __future__ import annotations

import csv
import io
import os
from itertools import islice
from pathlib import Path

from .records import open_record, read_json
from .run_directory import is_complete

FILES = ("summary.json", "steps.csv")
MOST_ROWS = 1_000_000  # of steps.csv, which are added up

Stamp = list[tuple[int, int] | None]


def stamp(directory: str) -> Stamp:
    """Returns what tells the records of a new run from those of an earlier one."""
    found: Stamp = []
    for name in FILES:
        try:
            status = os.stat(Path(directory) / name)
            found.append((status.st_ino, status.st_mtime_ns))
        except OSError:
            found.append(None)
    return found


def words(directory: str, before: Stamp) -> str:
    """Returns what a run has left unsaid: a verdict of what was recorded; nothing if it has printed its own."""
    path = Path(directory)
    now = stamp(directory)
    try:
        if now[0] not in (None, before[0]):
            record = read_json(path / FILES[0])
            if is_complete(record):
                return ""
            from .summary import lines

            return "\n".join([*lines(path, record), cut_off(record["steps"])])
        if now[1] not in (None, before[1]):
            return _steps(path)
    except (OSError, ValueError, LookupError, TypeError) as error:
        return f"pymillrace watch: the records in {directory} cannot be read: {type(error).__name__}: {error}"
    return ("pymillrace watch: nothing was recorded: none of the command's processes iterated over a torch DataLoader "
            "and then exited normally")


def cut_off(steps: int) -> str:
    return f"pymillrace watch: the run, or its recording, was cut off after {steps} steps"


def _steps(path: Path) -> str:
    """Returns the shares of a run that was cut off before its first summary."""
    with io.TextIOWrapper(open_record(path / FILES[1]), encoding="utf-8") as file:
        rows = [[float(row[key]) for key in ("load_s", "update_s", "other_s")]
                for row in islice(csv.DictReader(file), MOST_ROWS) if row["other_s"]]
    load, update, other = (sum(row[i] for row in rows) for i in range(3))
    whole = load + update + other or 1.0
    return (f"{path / FILES[1]}: load {100 * load / whole:.0f}%, update {100 * update / whole:.0f}%, "
            f"other {100 * other / whole:.0f}%\n{cut_off(len(rows))}")
