"""Timeline of a run, in the Trace Event Format of Perfetto (ui.perfetto.dev) and chrome://tracing.

A track per watched loader shows the trainer's spans, from the rows of steps.csv: those of a step in a fixed order, with
the update last, though code between iter() and the first next() ran before the first batch came. Two tracks per worker
show its main thread and the thread that sends batches, from the worker's records. The first holds the latest 4096
steps, the others the last epoch's batches: a record is overwritten by that of the same number in the next epoch.
"""
from __future__ import annotations

import csv
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .records import open_record
from .run_directory import HEADER, dump, write_file

if TYPE_CHECKING:
    from .session import Session
    from .watched_loader import WatchedLoader

MOST_STEPS = 4096
ROW_BYTES = 160  # of steps.csv; most have fewer
ORDER = ("setup", "first_batch", "load", "log", "loop", "update", "evaluate", "between")  # within a row
TRAINER = 1  # process id of the trainer's tracks; those of a loader's workers follow


def write(session: Session, end: int) -> None:
    """Writes timeline.json. `end`: when the recording was closed, in ns of perf_counter_ns()."""
    events: list[dict[str, Any]] = [_name("process_name", TRAINER, 1, "trainer")]
    for loader in session.loaders:
        events.append(_name("thread_name", TRAINER, loader.number, loader.name))
        events += _steps(session.directory.path / session.file_name("steps", "csv", loader.number), loader, end)
        events += _batches(loader)
    for event in events:
        if "ts" in event:
            event["ts"] = (event["ts"] - session.begin) / 1e3
    write_file(session.directory.path / session.file_name("timeline", "json", 1), dump({"traceEvents": events}))


def _name(kind: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "pid": process, "tid": thread, "name": kind, "args": {"name": name}}


def _slice(process: int, thread: int, name: str, begin: int, ns: int, **more: int) -> dict[str, Any]:
    return {"ph": "X", "pid": process, "tid": thread, "name": name, "ts": begin, "dur": ns / 1e3, "args": more}


def _steps(file: Path, loader: WatchedLoader, end: int) -> Iterator[dict[str, Any]]:
    """Yields the spans of the latest steps. The rows of a loader add up to the time until `end`."""
    try:
        with open_record(file) as source:
            source.seek(max(0, os.fstat(source.fileno()).st_size - MOST_STEPS * ROW_BYTES))
            lines = source.read().decode().splitlines()[1:]  # without the header, or a line that is cut
        rows = list(csv.DictReader(lines[-MOST_STEPS:], HEADER.strip().split(",")))
        spans = [[(name, round(1e9 * float(row[name]))) for name in ORDER] for row in rows]
    except (OSError, TypeError, ValueError, csv.Error):  # it gave no batch, or something else lies in the file's place
        return
    at = end - sum(ns for one in spans for _, ns in one)
    for row, one in zip(rows, spans):
        for name, ns in one:
            if ns > 0:
                yield _slice(TRAINER, loader.number, name, at, ns, epoch=int(row["epoch"]), step=int(row["step"]))
            at += ns


def _batches(loader: WatchedLoader) -> Iterator[dict[str, Any]]:
    """Yields what the workers did for the latest batches."""
    if not loader.workers or loader.records is None:
        return
    process = TRAINER + loader.number
    yield _name("process_name", process, 1, f"workers of {loader.name}")
    for worker in range(loader.workers):
        yield _name("thread_name", process, 2 * worker + 1, f"worker {worker}")
        yield _name("thread_name", process, 2 * worker + 2, f"worker {worker}, sending")
    for epoch, batch, worker, begin, collate, end, send_begin, send_end in loader.records.made():
        track, key = 2 * worker + 1, {"epoch": epoch, "batch": batch}
        collate = collate or end
        yield _slice(process, track, "samples", begin, collate - begin, **key)
        if collate < end:
            yield _slice(process, track, "collate", collate, end - collate, **key)
        if send_begin:
            yield _slice(process, track + 1, "send", send_begin, send_end - send_begin, **key)
