"""A thread that looks around once per second, in the trainer's process and in its workers."""
from __future__ import annotations

import threading
from collections.abc import Callable

from .faults import stop

LOOK_S = 1.0
PATIENCE_S = 2.0  # at most, until a thread has ended, which may wait for a core


class Watchdog:
    """Looks around in a thread of its own, from start() to pause().

    A process that forks pauses it: the child would have no such thread, and might have its locks.
    """

    def __init__(self, look: Callable[[], bool]) -> None:
        """`look` is called every LOOK_S, until it returns False or raises, which stops the recording."""
        self._look_around = look
        self._thread: threading.Thread | None = None
        self._ended = threading.Event()

    def start(self) -> None:
        if self._thread is None:
            self._ended = threading.Event()
            self._thread = threading.Thread(target=self._look, args=(self._ended,), name="pymillrace stalls",
                                            daemon=True)
            try:
                self._thread.start()
            except RuntimeError:  # the script may start no more threads: nobody looks
                self._thread = None

    def pause(self) -> None:
        """Ends the thread until start() is called again."""
        thread, self._thread = self._thread, None
        self._ended.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join(PATIENCE_S)

    def _look(self, ended: threading.Event) -> None:
        try:
            while not ended.wait(LOOK_S) and self._look_around():
                pass
        except Exception as error:
            stop(error)
