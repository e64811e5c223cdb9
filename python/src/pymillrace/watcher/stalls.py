"""Stalls: no batch for ten times the usual wait. Says who is waited for, what it does, and what the machine has left.

The trainer's process looks once per second. In each worker, a thread leaves what the worker does in a file of the run
while one batch takes long. Both need the interpreter's lock of their process: of one that native code holds, the stack
is unavailable. Where that is the trainer's, a native thread writes what the last look has left for it.
"""
from __future__ import annotations

import os
import threading
import time
import weakref
from pathlib import Path
from typing import Any, NamedTuple

from . import watchdog
from .._watch import LockWatch, Steps
from .live import descriptor, write_at_once
from .printable import printable
from .records import NotARecord, read_json
from .room import left, left_text
from .run_directory import RunDirectory, dump, write_file
from .stack import doing

STALLS = "stalls.jsonl"
LEAST_S = 10.0  # a shorter wait is not a stall
FIRST_S = 60.0  # nor is a shorter one for the first batch
USUAL = 10.0  # times the mean wait
FRESH = 10  # looks after which a worker's file, which it writes at each look, says nothing
WORKER_S = 0.5 * LEAST_S  # a worker that makes one batch for longer says what it does
AGAIN = 2.0  # a stall is reported again after so many times its length
MOST = 100  # reports of a run
LOOKS_AT_ROOM = 10  # looks between two at the room that is left
HELD = "native code is holding this process's GIL, or the recorder's own thread is blocked"
SHOWN = 6  # frames on stderr


def file_of(directory: Path, process: int) -> Path:
    return directory / f"stall.{process}.json"


class Wait(NamedTuple):
    """A loader that is waited for."""
    loader: str
    recorder: Steps
    steps: int
    load_ns: int  # of all steps
    # Torch's iterator and the data set. Strong references would let one of them end in this thread.
    iterator: weakref.ref[Any] | None
    dataset: weakref.ref[Any] | None
    thread: int  # that waits


class Stalls:
    """Stalls of one run."""

    def __init__(self) -> None:
        self._next_s = 0.0  # length at which the stall under way is reported
        self._since = 0  # when it began
        self._count = 0
        self._lock_watch = LockWatch()
        self._left: dict[str, int | None] = {}  # as of a recent look
        self._looks = 0

    def start(self) -> bool:
        """Starts the native thread, which reports what check() cannot. Returns whether it needs a first check()."""
        return self._lock_watch.begin(int(1e9 * watchdog.LOOK_S))

    def pause(self) -> None:
        self._lock_watch.end()

    @property
    def reports(self) -> int:
        return self._count + self._lock_watch.reports

    def check(self, waits: list[Wait], directory: RunDirectory, writes_lines: bool) -> None:
        """Reports a wait that has become a stall, or twice as long as at its last report."""
        self._wind_up(waits, directory.path, writes_lines)
        for wait in waits:
            since = wait.recorder.waiting_since
            if since == 0 or self.reports >= MOST:
                continue
            waited = 1e-9 * (time.perf_counter_ns() - since)
            if since != self._since:
                if waited < _limit_s(wait):
                    continue
                self._since, self._next_s = since, waited
            if waited < self._next_s:
                continue
            self._next_s = AGAIN * waited
            report = {"loader": wait.loader, **_who(wait, directory.path), **left(directory.path), "step": wait.steps,
                      "waited_s": waited}
            self._count += 1
            directory.append(STALLS, dump(report))
            if writes_lines:
                write_at_once("\n".join(lines(report)))

    def _wind_up(self, waits: list[Wait], directory: Path, writes_lines: bool) -> None:
        """Leaves to the native thread what it writes if no look follows this one."""
        if self._looks % LOOKS_AT_ROOM == 0:
            self._left = left(directory)
        self._looks += 1
        loaders = []
        for wait in waits:
            report: dict[str, Any] = {"loader": wait.loader, "worker": None, "pid": os.getpid(), "index": None,
                                      "file": None, "stack": [], "unavailable": HELD, **self._left}
            loaders.append((wait.recorder, int(1e9 * _limit_s(wait)), f"pymillrace watch: {printable(wait.loader)}",
                            "\n".join(_who_lines(report)), dump(report).removesuffix("}\n")))
        self._lock_watch.beat(loaders, os.fsencode(directory / "stalls.jsonl"), descriptor() if writes_lines else -1,
                              MOST - self._count)


def _limit_s(wait: Wait) -> float:
    """Returns how long a wait is before it is a stall."""
    usual = 1e-9 * wait.load_ns / wait.steps if wait.steps else 0.0
    return max(LEAST_S if wait.steps else FIRST_S, USUAL * usual)


def remove_files(directory: Path) -> None:
    """Removes what workers that have died left in a run directory."""
    for file in directory.glob("stall.*.json"):
        file.unlink(missing_ok=True)


def _who(wait: Wait, directory: Path) -> dict[str, Any]:
    """Returns who is waited for, and what it does."""
    iterator = None if wait.iterator is None else wait.iterator()
    workers = getattr(iterator, "_workers", None)
    if not workers:
        dataset = None if wait.dataset is None else wait.dataset()
        return {"worker": None, "pid": os.getpid(), **doing(wait.thread, dataset), "unavailable": None}
    task = getattr(iterator, "_task_info", {}).get(getattr(iterator, "_rcvd_idx", None))
    if not task or len(task) != 1:  # made already: it waits elsewhere, as for the thread that pins memory
        return {"worker": None, "pid": os.getpid(), **doing(wait.thread), "unavailable": None}
    worker = workers[task[0]]
    found: dict[str, Any] = {"index": None, "file": None, "stack": []}
    why = None
    try:
        file = file_of(directory, worker.pid)
        if time.time() - file.stat().st_mtime > FRESH * watchdog.LOOK_S:
            raise FileNotFoundError
        found |= read_json(file)
    except (OSError, TypeError, ValueError, NotARecord):
        why = ("native code is holding the worker's GIL, or the worker is not making a batch" if worker.is_alive() else
               "it has ended")
    return {"worker": int(task[0]), "pid": worker.pid, **found, "unavailable": why}


def lines(report: dict[str, Any]) -> list[str]:
    """Returns what is printed of a stall."""
    first, *rest = _who_lines(report)
    wait = f"{report['loader']}: no batch for {report['waited_s']:.0f} s after step {report['step']}"
    return [f"{printable(wait)}: {first}", *rest]


def _who_lines(report: dict[str, Any]) -> list[str]:
    """Returns the lines of a stall without the wait, with which the first one begins."""
    who = "this process" if report["worker"] is None else f"DataLoader worker {report['worker']}"
    what = "".join(f", {key} {report[key]}" for key in ("index", "file") if report[key] is not None)
    stack = [f"stack unavailable: {report['unavailable']}"] if report["unavailable"] else report["stack"][-SHOWN:]
    return [printable(line) for line in (f"{who} (pid {report['pid']}){what}; {left_text(report)}",
                                         *(f"  {frame}" for frame in stack))]


of_worker: list[WorkerWatch] = []  # that of this process, if it is a worker


class WorkerWatch:
    """Leaves what a worker does in a file while it makes one batch for longer than WORKER_S."""

    def __init__(self, directory: str, dataset: Any) -> None:
        self._file, self._dataset = file_of(Path(directory), os.getpid()), dataset
        self._worker = threading.get_ident()
        self.began = 0.0  # when the batch under way was begun; 0: none is
        self._told = 0.0  # that of the batch in the file
        self._watchdog = watchdog.Watchdog(self._tell)
        self._watchdog.start()

    def end(self) -> None:
        """Ends the thread for good."""
        self._watchdog.pause()

    def _tell(self) -> bool:
        began = self.began
        if self._told and self._told != began:
            self._file.unlink(missing_ok=True)
            self._told = 0.0
        if began and time.monotonic() - began >= WORKER_S:
            self._told = began
            write_file(self._file, dump(doing(self._worker, self._dataset)))
        return True
