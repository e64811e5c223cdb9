"""Measures the cost of handing a batch over in shared memory.

A worker collates each batch into new shared memory: the kernel provides and clears its pages at their first write. The
trainer maps these pages, reads them for the first time, and gives them back. Without workers a batch lies in memory
that the process has already used. For a batch of images this is milliseconds, so it is measured on the machine.
"""
from __future__ import annotations

import mmap
import os
import statistics
from collections.abc import Callable
from functools import lru_cache
from time import thread_time_ns

from .._predict import Paging

MAX_BYTES = 8 << 20  # larger batches are extrapolated
REPEATS = 3


def _time(work: Callable[[], None]) -> int:
    begin = thread_time_ns()
    work()
    return thread_time_ns() - begin


def _once(size: int, source: bytearray, used: bytearray) -> tuple[int, int]:
    """Hands `size` bytes over in shared memory, in this thread. Returns what making and taking cost, in ns."""
    def copy(target: memoryview | bytearray, origin: memoryview | bytearray) -> Callable[[], None]:
        def run() -> None:
            target[:] = origin
        return run

    file = os.memfd_create("pymillrace")
    try:
        os.ftruncate(file, size)
        with mmap.mmap(file, size) as made, memoryview(made) as pages:
            make = _time(copy(pages, source)) - _time(copy(pages, source))
        begin = thread_time_ns()
        with mmap.mmap(file, size) as taken, memoryview(taken) as pages:
            mapped = thread_time_ns() - begin
            read = _time(copy(used, pages)) - _time(copy(used, pages))
            begin = thread_time_ns()
    finally:
        os.close(file)  # of the last mapping: frees the pages
    return max(0, make), max(0, mapped + read + thread_time_ns() - begin)


@lru_cache(maxsize=16)
def measure(batch_bytes: int) -> Paging:
    """Measures batches of so many bytes; zeros where the system has no anonymous shared files."""
    size = min(batch_bytes, MAX_BYTES)
    if size <= 0 or not hasattr(os, "memfd_create"):
        return Paging()
    source, used = bytearray(b"\1" * size), bytearray(b"\1" * size)
    try:
        found = [_once(size, source, used) for _ in range(REPEATS)]
    except OSError:  # no memory or no files are left: the watched program matters more
        return Paging()
    scale = 1e-9 * batch_bytes / size
    return Paging(*(scale * statistics.median(one) for one in zip(*found)))
