"""A watched run as its directory tells it, while it goes on and afterwards: what `pymillrace top` shows.

The directory may be anybody's (docs/reference/records.md#hostile-records). Nothing is written there.
"""
from __future__ import annotations

import json
import os
import re
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ..errors import DataError, UsageError
from . import ranks
from .fields import MOST_SECONDS, MOST_STEPS, Field
from .history import History, Point
from .printable import printable
from .recorded import MOST_BATCH, MOST_LOADERS, advice_of, read_summary
from .records import NotARecord
from .room import Room
from .run_directory import HEADER, file_name, is_complete, is_held
from .tail import Tail
from .worker_activity import CELLS, MOST_WORKERS

if TYPE_CHECKING:
    from .summary_record import RankRow

MOST_RANKS = 64  # that are shown
MOST_BYTES = 1 << 60
MOST_IMAGES = 1 << 40  # per step
LEAST_STEP_S = 1e-9
COLUMNS = HEADER.strip().split(",")
VALUES = "load_s", "update_s", "other_s", "setup", "images"  # set-up before the first iteration is not drawn


@dataclass
class Epoch:
    """How far the loop came in its present iteration over the loader."""
    number: int
    done: int  # steps
    length: int | None  # steps of the whole; None: unknown
    is_estimate: bool  # of the length: no epoch has ended yet


class Memory(NamedTuple):
    """Memory at the latest sample before a summary."""
    trainer: int  # bytes
    workers: int  # bytes of all workers
    room: Room
    warning: str  # when it will be full; may be empty


@dataclass
class Summary:
    """The part of a summary that is shown. Texts are printable."""
    loader: str
    state: str
    ended: bool
    error: str  # that ended it; may be empty
    age_s: float  # since it was written
    wall_s: float
    steps: int
    epochs: int
    total: Point  # of the whole run
    verdict: str  # without the warning of memory
    advice: str
    activity: list[str]  # of worker_activity
    memory: Memory | None  # None: no sample
    ranks: list[RankRow]  # of ranks.row_of()
    straggler: int | None  # its rank


@dataclass
class State:
    """A look at a run."""
    directory: str
    history: History
    steps: int
    quiet_s: float  # since rows of steps were written last
    summary: Summary | None = None  # None: the first one comes a second after the run's begin
    epoch: Epoch | None = None
    faults: list[str] = field(default_factory=list)  # why something is not shown


class WatchedRun:
    """Looks at a run again and again. Files that have not changed are not read again, nor lines of those that grow."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._rows, self._epochs = (Tail(directory / file_name(*name, 0))
                                    for name in (("steps", "csv"), ("metrics", "jsonl")))
        self._history = History()
        self._latest = 0, 0  # epoch and number of the latest step
        self._epoch_end = 0  # number of the last step of the latest epoch that has ended
        self._length: int | None = None  # steps of the latest epoch that was gone through
        self._summaries: dict[int, tuple[tuple[int, ...], Field]] = {}  # by rank: what tells versions apart, contents
        self._advice: tuple[Field | None, str] = None, ""  # and the summary that it belongs to

    def look(self) -> State:
        """Returns what the directory holds now. Raises DataError, and UsageError if it holds no run."""
        runs = is_held(self._directory)  # first: a run that ends meanwhile has written its last summary
        summary = self._summary(0)
        if summary is None and not runs:
            raise UsageError(f"{self._directory} holds no summary.json of a watched run",
                             f"record one with: pymillrace watch --run {self._directory} -- python train.py")
        faults = [f"{name} {error.strerror}" for name, error in
                  (("steps.csv", self._read_rows()), ("metrics.jsonl", self._read_epochs())) if error is not None]
        state = State(printable(str(self._directory)), self._history, self._latest[1], self._age_s("steps.csv"),
                      faults=faults)
        if summary is not None:
            state.summary = self._shown(summary, runs)
            state.steps = max(state.steps, state.summary.steps)
            state.epoch = None if state.summary.ended else self._epoch(summary, len(state.summary.ranks))
        return state

    # Tables

    def _read_rows(self) -> NotARecord | None:
        """Adds the rows that steps.csv has gained. Returns why it cannot be read."""
        fault, is_another, lines = _gained(self._rows)
        if is_another:
            self._history, self._latest = History(), (0, 0)
        for line in lines:
            try:
                row = dict(zip(COLUMNS, line.split(",")))
                load, update, other, setup, images = (float(row[key]) for key in VALUES)
                latest = int(row["epoch"]), int(row["step"])
            except (KeyError, ValueError):  # the header, or no row
                continue
            point = Point(load, update, other - setup, 1, images)
            if (all(0 <= one <= MOST_SECONDS for one in point[:3]) and point.seconds >= LEAST_STEP_S and
                    0 <= images <= MOST_IMAGES and all(0 <= one <= MOST_STEPS for one in latest)):
                self._history.add(point)
                self._latest = latest
        return fault

    def _read_epochs(self) -> NotARecord | None:
        """Takes the lines that metrics.jsonl has gained. Returns why it cannot be read."""
        fault, is_another, lines = _gained(self._epochs)
        if is_another:
            self._epoch_end, self._length = 0, None
        for line in lines:
            try:
                found = json.loads(line)
                end, steps, whole = found["step"], found["steps"], found["whole"]
            except (KeyError, RecursionError, TypeError, ValueError):
                continue
            if type(end) is int and 0 <= end <= MOST_STEPS:
                self._epoch_end = end
            if type(steps) is int and 0 < steps <= MOST_STEPS and whole is True:
                self._length = steps
        return fault

    def _age_s(self, name: str) -> float:
        """Returns the seconds since a file was written; 0 if there is none."""
        try:
            return max(0.0, time.time() - os.stat(self._directory / name).st_mtime)
        except OSError:
            return 0.0

    # Summaries

    def _summary(self, rank: int) -> Field | None:
        """Returns the summary of a rank; None if there is none. Raises DataError."""
        file = self._directory / ranks.summary_name(rank)
        try:
            found = os.stat(file)
            version = found.st_ino, found.st_size, found.st_mtime_ns
            if rank not in self._summaries or self._summaries[rank][0] != version:
                self._summaries[rank] = version, read_summary(file)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise DataError(f"{file} cannot be read: {error.strerror}", "check its permissions") from None
        return self._summaries[rank][1]

    def _shown(self, summary: Field, runs: bool) -> Summary:
        complete = is_complete(summary.value)
        rows, memory = self._ranks(summary), _memory(summary["memory"])
        straggler = ranks.straggler(rows)
        verdict, of = _verdict(summary, memory), summary
        if straggler is not None and straggler["rank"] > 0 and not summary["verdict_rank"]:  # not yet in its words
            of = self._summary(straggler["rank"]) or summary
            verdict = ranks.holds_up(straggler["rank"], _verdict(of, _memory(of["memory"])))
        return Summary(
            loader=printable(summary["loader"].text()), state=_state(summary, runs), ended=complete or not runs,
            error=printable(summary["error"].text()) if summary["error"] else "",
            age_s=self._age_s(ranks.summary_name(0)), wall_s=summary["wall_s"].number(0, MOST_SECONDS),
            steps=summary["steps"].whole(0, MOST_STEPS), epochs=summary["epochs"].whole(0, MOST_STEPS),
            total=Point(summary["load_s"].number(0, MOST_SECONDS), summary["update_s"].number(0, MOST_SECONDS),
                        summary["other_s"].number(0, MOST_SECONDS), summary["steps"].whole(0, MOST_STEPS),
                        summary["images"].whole(0, MOST_STEPS)),
            verdict=verdict, advice=self._advice_of(of),
            activity=_activity(summary["worker_activity"]), memory=memory, ranks=rows,
            straggler=None if straggler is None else straggler["rank"])

    def _advice_of(self, summary: Field) -> str:
        if self._advice[0] is not summary:  # replays take a while
            self._advice = summary, printable(advice_of(summary))
        return self._advice[1]

    def _ranks(self, first: Field) -> list[RankRow]:
        """Returns a row per rank whose summary can be used; none of a single rank."""
        count = first["world_size"].whole(1, ranks.MOST_RANKS) if first["world_size"] else 1
        rows: list[RankRow] = []
        for rank in range(min(count, MOST_RANKS) if count > 1 else 0):
            try:
                if (summary := self._summary(rank)) is not None:
                    row = ranks.row_of(summary)
                    rows.append({**row, "rank": rank, "bound": printable(row["bound"])})
            except DataError:
                continue
        return rows

    def _epoch(self, summary: Field, rank_count: int) -> Epoch:
        """Estimates the first epoch's length from the data set's, unless several ranks share it."""
        length, name = self._length, summary["loader"].value
        main = next((one for one in summary["loaders"].items(MOST_LOADERS) if one["name"].value == name), None)
        if length is None and main is not None and main["samples"] and main["batch"] and rank_count == 0:
            length = main["samples"].whole(0, MOST_STEPS) // max(1, main["batch"].whole(0, MOST_BATCH)) or None
        return Epoch(self._latest[0], max(0, self._latest[1] - self._epoch_end), length, self._length is None)


def _gained(tail: Tail) -> tuple[NotARecord | None, bool, list[str]]:
    """Returns why a table cannot be read, else whether it is another one than before, and the lines that it gained."""
    try:
        return None, *tail.read()
    except NotARecord as error:
        return error, False, []
    except OSError:  # nothing was written yet
        return None, False, []


def _state(summary: Field, runs: bool) -> str:
    if not is_complete(summary.value):
        return "running" if runs else "cut off"
    return "interrupted" if summary["interrupted"].value is True else "ended"


def _activity(found: Field) -> list[str]:
    """Returns the cells of each worker; none of records before this version."""
    texts = [one.text(CELLS) for one in found.items(MOST_WORKERS)] if found else []
    return [text for text in texts if re.fullmatch(r"[0-9-]+", text, re.ASCII)]


def _memory(found: Field) -> Memory | None:
    """Returns the record of memory; None without samples, and of records before it was kept."""
    if not found:
        return None
    trainer, workers, used, total = (found[key].whole(0, MOST_BYTES) for key in ("trainer", "workers", "used", "total"))
    return Memory(trainer, workers, Room(used, total), printable(found["warning"].text()) if found["warning"] else "")


def _verdict(summary: Field, memory: Memory | None) -> str:
    """Returns the verdict without the warning of memory that it ends with."""
    verdict = printable(summary["verdict"].text())
    return verdict if memory is None or not memory.warning else verdict.removesuffix(f"; {memory.warning}")
