"""Clocks of a thread: wall time, CPU time, and time spent ready to run without a core."""
from __future__ import annotations

import os
from os import pread
from time import perf_counter_ns, thread_time_ns

UNKNOWN = -1


class ThreadClock:
    """Reads the clocks of the thread that constructs it.

    `perf_counter_ns` is CLOCK_MONOTONIC on Linux, so that times of several processes compare.
    """

    def __init__(self) -> None:
        try:
            self._schedstat = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
            os.pread(self._schedstat, 64, 0).split()[1]
        except (OSError, IndexError):
            self._schedstat = UNKNOWN

    def __del__(self) -> None:
        if self._schedstat != UNKNOWN:
            os.close(self._schedstat)

    def read(self) -> tuple[int, int, int]:
        """Returns wall, CPU and run-queue time in ns; the last is UNKNOWN without schedstat."""
        delay = UNKNOWN
        if self._schedstat != UNKNOWN:
            delay = int(pread(self._schedstat, 64, 0).split(None, 2)[1])
        return perf_counter_ns(), thread_time_ns(), delay


def between(begin: tuple[int, int, int], end: tuple[int, int, int]) -> tuple[int, int, int]:
    """Returns wall, CPU and run-queue time between two readings of one clock."""
    delay = UNKNOWN if begin[2] == UNKNOWN or end[2] == UNKNOWN else end[2] - begin[2]
    return end[0] - begin[0], end[1] - begin[1], delay


def kinds(wall: int, cpu: int, delay: int) -> tuple[float, float, float, float]:
    """Splits a stretch of time into cpu, blocked, cores (ready, but without a core) and unknown.

    Without schedstat the time that is not CPU time is unknown.
    """
    if cpu == UNKNOWN:
        return 0, 0, 0, wall
    if cpu > wall:
        cpu = wall
    rest = wall - cpu
    if delay == UNKNOWN:
        return cpu, 0, 0, rest
    if delay > rest:
        delay = rest
    return cpu, rest - delay, delay, 0
