"""Summary of a run that is under way: a run that is killed, as by SIGKILL, leaves what was recorded so far.

The trainer's thread makes the record, when it writes rows anyway. A thread of its own, which ends with that, puts it on
the disk: it waits for the disk without the interpreter's lock. No thread lives between two summaries, so that a process
that forks has only its own.
"""
from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .faults import stop
from .run_directory import dump, write_file

FIRST_S, INTERVAL_S = 1.0, 10.0  # from the begin of the recording to the first summary; between two
PATIENCE = 2.0  # seconds that the last summary waits for one that is being written


class Provisional:
    """Rewrites one file periodically, until end()."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._due = time.monotonic() + FIRST_S
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._ended = False

    def due(self) -> bool:
        return time.monotonic() >= self._due and (self._thread is None or not self._thread.is_alive())

    def write(self, record: dict[str, Any], activity: Callable[[], list[str] | None]) -> None:
        """Starts writing a record, which must not change afterwards, with the workers' activity."""
        self._due = time.monotonic() + INTERVAL_S
        self._thread = threading.Thread(target=self._write, args=(record, activity), name="pymillrace summary", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:  # the script may start no more threads: this summary is left out
            self._thread = None

    def _write(self, record: dict[str, Any], activity: Callable[[], list[str] | None]) -> None:
        try:
            write_file(self._path, dump({**record, "worker_activity": activity()}), self._replace)
        except Exception as error:
            stop(error)

    def _replace(self, temporary: Path, target: Path) -> None:
        with self._lock:
            if self._ended:
                temporary.unlink()
            else:
                temporary.replace(target)

    def end(self) -> None:
        """Waits for a summary that is being written; nothing is written afterwards."""
        if self._thread is not None:
            self._thread.join(PATIENCE)
        with self._lock:
            self._ended = True
