"""Deaths of workers: which one, how it ended, whether memory was the reason, and what is left.

torch raises in the trainer's process, from next() or, by its handler of SIGCHLD, wherever the loop is. The dead are
noted while their iterator exists, and told of when the exception is known, which passes through unchanged.
"""
from __future__ import annotations

import signal
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Any

from . import cgroup
from .live import write_at_once
from .printable import printable
from .room import bytes_text, left, left_text
from .run_directory import RunDirectory, dump

DYING_S = 2  # seconds to wait for the end of a worker that has closed its queue; a busy machine takes long
LOOK_S = 0.01
MOST = 100  # reports of a run
AT_EXIT = (-signal.SIGTERM,)  # exit codes of workers that Python and torch end when their process does


class Deaths:
    """Dead workers of one run."""

    def __init__(self) -> None:
        self._kills: int | None = None  # of the control group, when the run began
        self._noted: list[dict[str, Any]] = []  # not told of yet
        self._known: set[int] = set()  # their processes
        self.reports: list[dict[str, Any]] = []

    def begin(self) -> None:
        self._kills = cgroup.oom_kills()

    def note(self, loader: str, step: int, needed: int | None, workers: Sequence[Any],
             besides: Collection[int] = ()) -> list[str]:
        """Notes the workers that did not end as they should. Returns how.

        `needed`: bytes of shared memory for the loader's batches in flight. `besides`: exit codes that are no deaths.
        """
        dead: list[dict[str, Any]] = [
            {"worker": number, "pid": one.pid, "exit_code": one.exitcode if one.exitcode > 0 else None,
             "signal": _signal(one.exitcode)}
            for number, one in enumerate(workers) if one.exitcode not in (None, 0, *besides)]
        for one in dead:
            if one["pid"] not in self._known and len(self._known) < MOST:
                self._known.add(one["pid"])
                self._noted.append({"loader": loader, "step": step, **one, "shared_memory_needed": needed})
        return list(map(_ending, dead))

    def tell(self, directory: RunDirectory, error: str | None) -> None:
        """Writes a record per dead worker, and one line on stderr. `error`: kind and first line of the exception."""
        noted, self._noted = self._noted, []
        if not noted:
            return
        now = cgroup.oom_kills()
        kills = None if now is None or self._kills is None else now - self._kills
        known = {"error": error, "oom_kills": kills, **left(directory.path)}
        reports = [one | known for one in noted]
        self.reports += reports
        write_at_once(line(reports))
        with suppress(OSError):  # the summary, which is written next, says what the disk lacks
            directory.append(directory.name("deaths", "jsonl", 1), "".join(map(dump, reports)))


def line(reports: Sequence[dict[str, Any]]) -> str:
    """Returns what is printed of workers that died together."""
    first = reports[0]
    dead = ", ".join(map(_ending, reports))
    kills = "unknown" if first["oom_kills"] is None else first["oom_kills"]
    text = (f"{first['loader']}: {dead} after step {first['step']}; out-of-memory kills in its control group: {kills}; "
            f"{left_text(first)}; batches in flight need {bytes_text(first['shared_memory_needed'])} of /dev/shm")
    return printable(text + (f"; {first['error']}" if first["error"] else ""))


def wait_for_the_end(workers: Sequence[Any], error: BaseException) -> None:
    """Waits for a worker that has closed its queue, as the error says, and may still be dying."""
    if not workers or not isinstance(error, (ConnectionError, EOFError)):
        return
    deadline = time.monotonic() + DYING_S
    while all(one.exitcode in (None, 0) for one in workers) and time.monotonic() < deadline:
        time.sleep(LOOK_S)


def _signal(code: int) -> str | None:
    """Returns the name of the signal that ended a process; None if none did."""
    try:
        return signal.Signals(-code).name if code < 0 else None
    except ValueError:  # a real-time signal has no name
        return f"signal {-code}"


def _ending(one: dict[str, Any]) -> str:
    how = f"was killed by {one['signal']}" if one["signal"] else f"ended with exit code {one['exit_code']}"
    return f"DataLoader worker {one['worker']} (pid {one['pid']}) {how}"
