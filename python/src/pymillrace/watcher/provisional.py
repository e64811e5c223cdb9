"""Summary of a run that is under way: a run that is killed, as by SIGKILL, leaves what was recorded so far.

The trainer's thread makes the record, when it writes rows anyway. Another one puts it on the disk: it waits for the
disk without the interpreter's lock.
"""
from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .faults import stop
from .periodic import Periodic
from .run_directory import dump, write_file

if TYPE_CHECKING:
    from .summary_record import Summary

FIRST_S, INTERVAL_S = 1.0, 10.0  # from the begin of the recording to the first summary; between two
PATIENCE = 2.0  # seconds that the last summary waits for one that is being written


class Provisional(Periodic):
    """Rewrites one file periodically, until end()."""

    def __init__(self, path: Path) -> None:
        super().__init__("summary", FIRST_S, INTERVAL_S)
        self._path = path
        self._lock = threading.Lock()
        self._ended = False

    def write(self, record: Summary, activity: Callable[[], list[str] | None]) -> None:
        """Starts writing a record, which must not change afterwards, with the workers' activity."""
        self.begin(lambda: self._write(record, activity))

    def _write(self, record: Summary, activity: Callable[[], list[str] | None]) -> None:
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
        self.wait(PATIENCE)
        with self._lock:
            self._ended = True
