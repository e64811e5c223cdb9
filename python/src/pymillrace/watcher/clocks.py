"""Clocks of a thread: wall time, CPU time, and time spent ready to run without a core."""
from __future__ import annotations

from .._watch import SCHEDSTAT, UNKNOWN, ThreadClock

__all__ = ["SCHEDSTAT", "UNKNOWN", "Reading", "ThreadClock", "between"]

Reading = tuple[int, int, int]  # wall, CPU and run-queue time in ns; the last is UNKNOWN without schedstat


def between(begin: Reading, end: Reading) -> Reading:
    """Returns wall, CPU and run-queue time between two readings of one clock."""
    delay = UNKNOWN if begin[2] == UNKNOWN or end[2] == UNKNOWN else end[2] - begin[2]
    return end[0] - begin[0], end[1] - begin[1], delay
