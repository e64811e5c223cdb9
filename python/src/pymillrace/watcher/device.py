"""Device time lost to loading: CUDA events at the entry and the return of next(), read without synchronising.

An event completes when the device has done what was queued before it. The one at the entry completes when the device
has run out of work, or at once if it had none; the one at the return completes at that moment or later. Their distance
is the time for which the device had nothing to do because the host waited for a batch: 0 while queued work covers the
wait.
"""
from __future__ import annotations

import sys
from collections import deque
from typing import Any

MOST_PENDING = 4096  # pairs whose events have not completed; more are not measured


class DeviceGaps:
    """Gaps of one loader's waits on the current stream. Its calls cost the host a few µs and never wait for the device.

    An error of CUDA ends the measurement and not the watched loop.
    """

    def __init__(self, cuda: Any) -> None:
        self.gaps = 0  # waits that were measured
        self.lost = 0  # waits that were not, as when the device lay too far behind
        self.seconds = self.first_s = 0.0  # of all gaps, and of the first wait's
        self._cuda = cuda
        self._begin: Any = None
        self._pending: deque[tuple[Any, Any, bool]] = deque()  # in the order of the stream
        self._free: list[Any] = []
        self._any = self._failed = False

    def next_begins(self) -> None:
        self._begin = None
        if len(self._pending) >= MOST_PENDING or self._failed:
            self.lost += 1
            return
        try:
            if self._cuda.is_current_stream_capturing():  # an event would become part of the graph
                self.lost += 1
            else:
                self._begin = self._record()
        except RuntimeError:
            self.lost += 1
            self._fail()

    def next_ended(self) -> None:
        begin, self._begin = self._begin, None
        if begin is None:
            return
        try:
            self._pending.append((begin, self._record(), not self._any))
            self._any = True
        except RuntimeError:
            self.lost += 1
            self._fail()

    def collect(self) -> None:
        """Adds up the pairs that have completed, up to the first that has not."""
        try:
            if not self._cuda.is_current_stream_capturing():  # a query would end the capture
                self._collect()
        except RuntimeError:  # events of two devices have no distance
            self._fail()

    def _fail(self) -> None:
        self.lost += len(self._pending)
        self._pending.clear()
        self._failed = True

    def _collect(self) -> None:
        while self._pending and self._pending[0][1].query():
            begin, end, first = self._pending[0]
            seconds = 1e-3 * max(0.0, begin.elapsed_time(end))
            self._pending.popleft()
            self.gaps += 1
            self.seconds += seconds
            if first:
                self.first_s = seconds
            self._free += (begin, end)

    @property
    def unread(self) -> int:
        """Waits whose events have not completed."""
        return len(self._pending)

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
