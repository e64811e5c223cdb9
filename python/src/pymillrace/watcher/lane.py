"""A thread other than the trainer's, which takes batches ahead of the loop, and its time."""
from __future__ import annotations

import threading
from time import perf_counter_ns

from .._watch import StepHooks
from .clocks import ThreadClock


class Lane:
    """Recording of one such thread."""

    def __init__(self, whole: StepHooks) -> None:
        self.marks = StepHooks(perf_counter_ns())
        self.marks.whole, self.marks.open = whole, True
        self.enter()

    def enter(self) -> None:
        """Makes the calling thread the one that is recorded."""
        self.marks.thread, self.clock = threading.get_ident(), ThreadClock()

    @property
    def is_here(self) -> bool:
        return self.marks.thread == threading.get_ident()

    @property
    def lives(self) -> bool:
        return any(one.ident == self.marks.thread for one in threading.enumerate())
