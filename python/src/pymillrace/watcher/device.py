"""Device time lost to loading: CUDA events at the entry and the return of next(), read without synchronising.

An event completes when the device has done what was queued before it. The one at the entry completes when the device
has run out of work, or at once if it had none; the one at the return completes at that moment or later. Their distance
is the time for which the device had nothing to do because the host waited for a batch: 0 while queued work covers the
wait.

Between launches of other work a pair of events can cost far more than the few µs that it takes alone. Beyond the first
256 waits, one in eight is measured, at random distances so that no rhythm of workers hides, and stands for those since
the last one.
"""
from __future__ import annotations

import sys
from collections import deque
from random import Random
from typing import Any

MOST_PENDING = 4096  # pairs whose events have not completed; more are not measured
ALL_OF = 256  # waits from the first on that are all measured
LONGEST = 15  # waits from one that is measured to the next, drawn from 1 to this number


class DeviceGaps:
    """Gaps of one loader's waits on the current stream. Its calls cost the host a few µs and never wait for the device.

    An error of CUDA ends the measurement and not the watched loop.
    """

    def __init__(self, cuda: Any) -> None:
        self.gaps = 0  # waits that were measured
        self.waits = 0  # waits for which these stand
        self.lost = 0  # waits for which none stands, as when the device lay too far behind
        self.seconds = self.first_s = 0.0  # of all gaps, and of the first wait's
        self._cuda = cuda
        self._begin: Any = None
        self._pending: deque[tuple[Any, Any, int]] = deque()  # in the order of the stream, with what each stands for
        self._free: list[Any] = []
        self._failed = False
        self._left = self._stands_for = 1  # waits to the next that is measured, and from the last one to it
        self._tried, self._random = 0, Random(1)

    def next_begins(self) -> None:
        self._begin = None
        self._left -= 1
        if self._left > 0:
            return
        if len(self._pending) >= MOST_PENDING or self._failed:
            self._lose()
            return
        try:
            if self._cuda.is_current_stream_capturing():  # an event would become part of the graph
                self._lose()
            else:
                self._begin = self._record()
        except RuntimeError:
            self._lose()
            self._fail()

    def next_ended(self) -> None:
        begin, self._begin = self._begin, None
        if begin is None:
            return
        try:
            self._pending.append((begin, self._record(), self._stands_for))
            self._next()
        except RuntimeError:
            self._lose()
            self._fail()

    def _lose(self) -> None:
        self.lost += self._stands_for
        self._next()

    def _next(self) -> None:
        """Draws the next wait to measure."""
        self._tried += 1
        self._left = self._stands_for = 1 if self._tried < ALL_OF else self._random.randint(1, LONGEST)

    def collect(self) -> None:
        """Adds up the pairs that have completed, up to the first that has not."""
        try:
            if not self._cuda.is_current_stream_capturing():  # a query would end the capture
                self._collect()
        except RuntimeError:  # events of two devices have no distance
            self._fail()

    def _fail(self) -> None:
        self.lost += sum(stands_for for _, _, stands_for in self._pending)
        self._pending.clear()
        self._failed = True

    def _collect(self) -> None:
        while self._pending and self._pending[0][1].query():
            begin, end, stands_for = self._pending[0]
            seconds = 1e-3 * max(0.0, begin.elapsed_time(end))
            self._pending.popleft()
            if not self.gaps:
                self.first_s = seconds
            self.gaps += 1
            self.waits += stands_for
            self.seconds += stands_for * seconds
            self._free += (begin, end)

    @property
    def unread(self) -> int:
        """Waits for which pairs stand whose events have not completed."""
        return sum(stands_for for _, _, stands_for in self._pending)

    def _record(self) -> Any:
        event = self._free.pop() if self._free else self._cuda.Event(enable_timing=True)
        event.record()
        return event


def device_gaps() -> DeviceGaps | None:
    """Returns the measurement of this process's device; None until the script has begun to use CUDA."""
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return None
    return DeviceGaps(cuda)
