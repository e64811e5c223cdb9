"""Threads that compute beside the training loop and inside workers: pools of LibTorch, OpenMP, OpenCV and others.

From time to time the trainer's thread reads the CPU and run-queue time of all threads of its process and of its
workers from /proc, so that it is known how many of them want a core. Between, the clocks of the trainer's other busy
threads are read at some steps (measure/data_loader/threads.h), which tells what they compute during load. Threads of
threading.Thread are no pool's: no library's number of threads changes them. Those of workers cannot be told apart.
"""
from __future__ import annotations

import math
import os
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._watch import threads_of
from .breakdown import TRANSFER, Breakdown
from .proc import read, stat

if TYPE_CHECKING:
    from .summary_record import ChangeRecord

INTERVAL_S = 0.9  # at least, between two readings
COST = 3000  # at most one part in so many of the time is CPU time of readings, but for the second one
BUSY = 0.1  # of the time: a thread that wants a core for less does not count
ANY_NS = 1_000_000  # CPU time from which on a thread has computed
MOST_PROCESSES = 1000  # of this process's descendants: with more, other programs are unknown
FOLLOWED = 0.002  # of the time: CPU of a thread whose clock is read at some steps
OVERSUBSCRIBED = 1.2  # threads that want a core at any moment, per core
TAKEN = 0.15  # of the cores' time: CPU of other programs that counts
IN_LOAD = 0.1  # of the time of next(): CPU of other threads that counts

Times = dict[int, tuple[int, int]]  # CPU and run-queue time of each thread, in ns


@dataclass(frozen=True)
class Facts:
    """Means over a recording. Threads are those that want a core for at least a tenth of the time."""
    threads: float = 0.0  # of the trainer and all workers
    trainer: float = 0.0  # the trainer's own, besides the one that trains
    worker: float = 0.0  # of a worker, besides the one that makes batches
    wanted: float = 0.0  # cores: CPU and run-queue time of all threads per time
    worker_cpu: float = 0.0  # cores that the threads of all workers' pools use
    in_load: float = 0.0  # cores that the trainer's other threads use during next()
    pools_in_load: float = 0.0  # those of them that pools use, if all other threads share alike in it
    taken: float | None = None  # share of the cores' time that other programs used; None: unknown

    def oversubscribed(self, cores: int) -> bool:
        """Returns whether threads of pools and workers want more cores than there are."""
        return (round(self.threads) > cores and self.wanted > OVERSUBSCRIBED * cores and
                (self.trainer >= 0.5 or self.worker >= 0.5) and not self.cores_are_taken)

    @property
    def cores_are_taken(self) -> bool:
        return self.taken is not None and self.taken > TAKEN


class Threads:
    """Readings of one loader's loop."""

    def __init__(self) -> None:
        self._due = 0.0
        self._latest: dict[int, Times] = {}
        self._at = self._busy = 0.0  # when they were read, and the cores' busy seconds then
        self._s = self._wanted = self._busy_s = self._own_s = 0.0  # sums of all intervals
        self._counts = [0.0, 0.0, 0.0]  # thread seconds: of the trainer's pools, of workers' pools, of all
        self._worker_s = self._worker_cpu = 0.0  # seconds of all workers, and of CPU time of their pools
        self._own_cpu = [0.0, 0.0]  # CPU seconds of the trainer's other threads: of pools, of Python's
        self._family = 0.0  # CPU seconds of this process and its descendants
        self._knows_busy = True
        self.processes: tuple[int, ...] = ()  # the workers

    def read(self, breakdown: Breakdown, alone: bool) -> list[int] | None:
        """Reads all threads, if that is due. Returns the trainer's other threads that compute; None if it was not.

        `alone`: no other rank is part of this run.
        """
        begin = time.monotonic()
        if begin < self._due:
            return None
        cpu = time.thread_time()
        now: dict[int, Times] = {process: {thread: (cpu, delay) for thread, cpu, delay in threads_of(process)}
                                 for process in (0, *self.processes)}
        busy, family = None, 0.0
        if alone:  # other ranks are no other programs
            busy, family = busy_s(), family_s()
        if math.isnan(family):
            busy = None
        is_first = not self._latest
        followed = self._add(breakdown, begin, now, None if busy is None else (busy, family))
        self._latest, self._at, self._busy, self._family = now, begin, busy or 0.0, family
        self._knows_busy = self._knows_busy and busy is not None
        self._due = begin + (INTERVAL_S if is_first else max(INTERVAL_S, COST * (time.thread_time() - cpu)))
        return followed

    def _add(self, breakdown: Breakdown, begin: float, now: dict[int, Times],
             cores: tuple[float, float] | None) -> list[int]:
        """Adds an interval. `cores`: CPU seconds of the cores, and of this process and its descendants."""
        wall, trainer = begin - self._at, threading.get_native_id()
        if not self._latest or wall <= 0:  # those that have computed at all
            return _busiest([(1e-9 * cpu, one) for one, (cpu, _) in now[0].items()
                             if one != trainer and cpu > ANY_NS])
        own, of_pools, followed = 0.0, [0.0, 0.0], list[tuple[float, int]]()
        threads, workers = 1.0, 0
        pythons = {one.native_id for one in threading.enumerate()}
        for process, times in now.items():
            before = self._latest.get(process)
            if before is None or not times:
                continue
            main = trainer if process == 0 else process
            workers += process != 0
            for thread, (cpu, delay) in times.items():
                first = before.get(thread, (0, 0))
                used, wanted = 1e-9 * (cpu - first[0]), 1e-9 * (cpu - first[0] + delay - first[1])
                own += used
                self._wanted += wanted
                if thread == main:
                    continue
                is_python = process == 0 and thread in pythons
                if wanted >= BUSY * wall:
                    if is_python:
                        threads += 1
                    else:
                        of_pools[process != 0] += 1
                    self._worker_cpu += used if process != 0 else 0.0
                if process == 0:
                    self._own_cpu[is_python] += used
                    if used >= FOLLOWED * wall:
                        followed.append((used, thread))
        of_pools[1] = max(0.0, of_pools[1] - self._feeders(breakdown, workers))
        threads += workers + sum(of_pools)
        for at, count in enumerate((*of_pools, threads)):
            self._counts[at] += count * wall
        self._s, self._worker_s = self._s + wall, self._worker_s + workers * wall
        if cores is not None:
            self._busy_s += cores[0] - self._busy
            own = max(own, cores[1] - self._family)  # less where nobody waited for a process that has ended
        self._own_s += own
        return _busiest(followed)

    @staticmethod
    def _feeders(breakdown: Breakdown, workers: int) -> int:
        """Returns how many of the workers' threads are those that send batches, as far as these compute."""
        work = breakdown.work
        every = sum(sum(row) for row in work)
        return workers if every > 0 and work[TRANSFER][0] > BUSY * every else 0

    def facts(self, in_load: float) -> Facts:
        """Returns what was found. `in_load`: cores that other threads use during next()."""
        if self._s <= 0:
            return Facts(in_load=in_load)
        trainer, workers, every = self._counts
        of_pools, of_python = self._own_cpu
        pools = in_load * of_pools / (of_pools + of_python) if of_pools > 0 else 0.0
        taken = None
        if self._knows_busy and self._busy_s > 0:
            taken = max(0.0, self._busy_s - self._own_s) / (self._s * len(os.sched_getaffinity(0)))
        return Facts(every / self._s, trainer / self._s, workers / self._worker_s if self._worker_s else 0.0,
                     self._wanted / self._s, self._worker_cpu / self._s if workers else 0.0, in_load, pools, taken)


def _busiest(found: list[tuple[float, int]]) -> list[int]:
    return [thread for _, thread in sorted(found, reverse=True)]


def busy_s() -> float | None:
    """Returns the CPU seconds for which the cores that this process may use were busy since boot, with stolen
    time; None: unknown."""
    names = {f"cpu{one}" for one in os.sched_getaffinity(0)}
    try:
        rows = [line.split() for line in Path("/proc/stat").read_text().split("\n") if line.startswith("cpu")]
        times = [list(map(int, row[1:9])) for row in rows if row[0] in names]
    except (OSError, ValueError):
        return None
    return sum(sum(row) - row[3] - row[4] for row in times) / os.sysconf("SC_CLK_TCK") if times else None


def family_s() -> float:
    """Returns the CPU seconds of this process, of its descendants, and of those that they waited for; NaN: unknown."""
    total, left, seen = sum(os.times()[:4]), _children("self"), 0
    if left is None:
        return math.nan
    ticks = os.sysconf("SC_CLK_TCK")
    while left:
        process, seen = left.pop(), seen + 1
        if seen > MOST_PROCESSES:
            return math.nan
        fields = stat(process)
        if not fields:  # it has ended
            continue
        total += sum(map(int, fields[11:15])) / ticks
        left += _children(process) or []
    return total


def _children(process: str) -> list[str] | None:
    """Returns the children of a process; None where the kernel does not tell or it is gone."""
    try:
        texts = [read(f"/proc/{process}/task/{one}/children") for one in os.listdir(f"/proc/{process}/task")]
    except OSError:
        return None
    known = [text for text in texts if text is not None]  # the others are of threads that have ended
    return b" ".join(known).decode().split() if known else None


def rows(facts: Facts, workers: int, cores: int) -> list[ChangeRecord]:
    """Returns the changes of numbers of threads to try. Nobody knows what they give before they are measured.

    What pools gain a small model on a CPU is often less than they cost it: one thread is worth a measurement wherever
    a pool computes.
    """
    found: list[tuple[str, dict[str, int]]] = []
    omp = [] if os.environ.get("OMP_NUM_THREADS") == "1" else [("OMP_NUM_THREADS=1", {"OMP_NUM_THREADS": 1})]
    counts = []
    if facts.trainer >= 0.5 and facts.oversubscribed(cores) and facts.pools_in_load < IN_LOAD:
        counts.append(max(1, cores - workers))
    if facts.trainer >= 0.5 or facts.pools_in_load >= IN_LOAD:
        counts.append(1)
    for threads in dict.fromkeys(counts):
        if name := _set_threads(threads):
            found.append((name, {"threads": threads}))
        elif threads == 1:
            found += omp
    if facts.worker >= 0.5:  # torch itself computes with one thread there
        found += [("worker_init_fn: cv2.setNumThreads(0)", {"worker_threads": 1})] if _opencv_threads() > 1 else omp
    return [{"change": change, "overrides": overrides, "ratio": None, "low": None, "high": None,
             "loading_only": False, "images_per_s": None, "loader_images_per_s": None} for change, overrides in dict(found).items()]


def _set_threads(threads: int) -> str:
    """Returns the calls that leave the pools of this process so many threads; an empty text if they have no more."""
    torch, names = sys.modules.get("torch"), []
    if torch is not None and torch.get_num_threads() > threads:
        names.append(f"torch.set_num_threads({threads})")
    if _opencv_threads() > threads:
        names.append(f"cv2.setNumThreads({0 if threads == 1 else threads})")
    return " and ".join(names)


def _opencv_threads() -> int:
    """Returns the number of OpenCV's threads; 0 where it is not loaded, or only in part."""
    get = getattr(sys.modules.get("cv2"), "getNumThreads", None)
    return int(get()) if callable(get) else 0


def apply(threads: int) -> None:
    """Sets the number of threads of this process's pools, for a plan that measures it."""
    torch, cv2 = sys.modules.get("torch"), sys.modules.get("cv2")
    if torch is not None:
        torch.set_num_threads(threads)
    if _opencv_threads() and cv2 is not None:
        cv2.setNumThreads(0 if threads == 1 else threads)
