"""A thread other than the trainer's, which takes batches ahead of the loop, and how long the loop waits for it."""
from __future__ import annotations

import threading
from time import perf_counter_ns
from typing import Any

from .._watch import Around, StepHooks, threads_of
from .clocks import ThreadClock


class Lane:
    """Recording of one such thread."""

    def __init__(self, marks: StepHooks, whole: StepHooks, clock: ThreadClock) -> None:
        """`whole`: the hooks of the trainer's thread."""
        self.marks, self.clock = marks, clock
        self.marks.whole, self.marks.open = whole, True

    @classmethod
    def here(cls, whole: StepHooks) -> Lane:
        """Returns a recording of the calling thread."""
        lane = cls(StepHooks(perf_counter_ns()), whole, ThreadClock())
        lane.enter()
        return lane

    def enter(self) -> None:
        """Makes the calling thread the one that is recorded."""
        self.marks.thread, self.clock = threading.get_ident(), ThreadClock()

    @property
    def is_here(self) -> bool:
        return self.marks.thread == threading.get_ident()

    @property
    def lives(self) -> bool:
        return any(one.ident == self.marks.thread for one in threading.enumerate())

    def used(self) -> tuple[int, int]:
        """Returns CPU and run-queue time of the thread in ns, as another thread reads it; zeros if it has ended."""
        number = next((one.native_id for one in threading.enumerate() if one.ident == self.marks.thread), None)
        return next(((cpu, delay) for one, cpu, delay in threads_of(0) if one == number), (0, 0))


class WaitHook:
    """Hook into threading.Condition.wait, which tells how long the trainer's thread waits for others.

    queue.Queue, futures and events wait there, queue.SimpleQueue does not.
    """

    def __init__(self, marks: StepHooks) -> None:
        self._plain: Any = threading.Condition.wait
        setattr(threading.Condition, "wait", Around(marks.before_wait, self._plain, marks.after_wait))

    def remove(self) -> None:
        setattr(threading.Condition, "wait", self._plain)
