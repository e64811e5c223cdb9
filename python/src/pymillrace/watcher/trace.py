"""Timeline of a run, in the Trace Event Format of Perfetto (ui.perfetto.dev) and chrome://tracing.

A track per watched loader shows the trainer's spans, from the rows of steps.csv: those of a step in a fixed order, with
the update last, though code between iter() and the first next() ran before the first batch came. Two tracks per worker
show its main thread and the thread that sends batches, from the worker's records. The first holds the latest 4096
steps, the others the last epoch's batches: a record is overwritten by that of the same number in the next epoch.
"""
from __future__ import annotations

import csv
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from .._predict import TraceEvents
from .._watch import RecordRing
from .records import open_record
from .run_directory import HEADER, write_file

MOST_STEPS = 4096
ROW_BYTES = 160  # of steps.csv; most have fewer
MOST_NS = 1 << 60  # that are believed
ORDER = ("setup", "first_batch", "load", "log", "loop", "update", "evaluate", "between")  # within a row
TRAINER = 1  # process id of the trainer's tracks; those of a loader's workers follow


class Loader(NamedTuple):
    """What the trace shows of a loader."""
    number: int
    name: str
    steps: Path  # steps.csv
    workers: int
    records: RecordRing | None


def write(file: Path, begin: int, end: int, loaders: Sequence[Loader]) -> None:
    """Writes timeline.json. `begin`, `end`: of the recording, in ns of perf_counter_ns()."""
    events = TraceEvents(begin)
    events.name_process(TRAINER, json.dumps("trainer"))
    for loader in loaders:
        events.name_track(TRAINER, loader.number, json.dumps(loader.name))
        _add_steps(events, _spans(loader.steps), loader.number, end)
        _add_batches(events, loader)
    write_file(file, events.finish())


def _spans(file: Path) -> list[tuple[str, list[tuple[str, int]]]]:
    """Returns the latest steps: the arguments of their slices, and the names and ns of their spans."""
    try:
        with open_record(file) as source:
            source.seek(max(0, os.fstat(source.fileno()).st_size - MOST_STEPS * ROW_BYTES))
            lines = source.read().decode().splitlines()[1:]  # without the header, or a line that is cut
        steps = [(f'"epoch":{int(row["epoch"])},"step":{int(row["step"])}',
                  [(name, round(1e9 * float(row[name]))) for name in ORDER])
                 for row in csv.DictReader(lines[-MOST_STEPS:], HEADER.strip().split(","))]
    except (OSError, TypeError, ValueError, OverflowError, csv.Error):
        return []  # it gave no batch, or something else lies in the file's place
    times = [ns for _, spans in steps for _, ns in spans]
    return steps if min(times, default=0) >= 0 and sum(times) <= MOST_NS else []


def _add_steps(events: TraceEvents, steps: list[tuple[str, list[tuple[str, int]]]], track: int, end: int) -> None:
    """Adds the spans of steps. The rows of a loader add up to the time until `end`."""
    at = end - sum(ns for _, spans in steps for _, ns in spans)
    for key, spans in steps:
        for name, ns in spans:
            if ns > 0:
                events.slice(TRAINER, track, name, at, at + ns, key)
            at += ns


def _add_batches(events: TraceEvents, loader: Loader) -> None:
    """Adds what the workers did for the latest batches."""
    if not loader.workers or loader.records is None:
        return
    process = TRAINER + loader.number
    events.name_process(process, json.dumps(f"workers of {loader.name}"))
    for worker in range(loader.workers):
        events.name_track(process, 2 * worker + 1, json.dumps(f"worker {worker}"))
        events.name_track(process, 2 * worker + 2, json.dumps(f"worker {worker}, sending"))
    for epoch, batch, worker, begin, collate, end, send_begin, send_end in loader.records.made():
        track, key = 2 * worker + 1, f'"epoch":{epoch},"batch":{batch}'
        collate = collate or end
        events.slice(process, track, "samples", begin, collate, key)
        if collate < end:
            events.slice(process, track, "collate", collate, end, key)
        if send_begin:
            events.slice(process, track + 1, "send", send_begin, send_end, key)
