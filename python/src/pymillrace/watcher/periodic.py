"""Work that is due from time to time beside a training, such as a line on stderr."""
from __future__ import annotations

import threading
import time
from collections.abc import Callable


class Periodic:
    """Work of one kind. Each time a thread of its own does it, which ends with it.

    No thread lives between, so that a process that forks has only its own. Work that takes longer than the interval
    delays the next.
    """

    def __init__(self, name: str, first_s: float, interval_s: float) -> None:
        self._name, self._interval = name, interval_s
        self._due = time.monotonic() + first_s
        self._thread: threading.Thread | None = None

    def due(self, late_s: float = 0.0) -> bool:
        """Returns whether work is due for so many seconds."""
        return time.monotonic() >= self._due + late_s and (self._thread is None or not self._thread.is_alive())

    def begin(self, work: Callable[[], None]) -> None:
        """Begins the work, which must not raise."""
        self._due = time.monotonic() + self._interval
        self._thread = threading.Thread(target=work, name=f"pymillrace {self._name}", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:  # the script may start no more threads: this time is left out
            self._thread = None

    def wait(self, seconds: float) -> None:
        """Waits for work that has begun."""
        if self._thread is not None:
            self._thread.join(seconds)
