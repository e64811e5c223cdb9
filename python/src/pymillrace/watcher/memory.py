"""Memory of a loop with workers: what the trainer and the workers use, how it grows, and when it no longer fits.

Set sizes are proportional (PSS): a page that n processes share counts 1/n in each, so that their sum is what they use
together. It grows when a worker copies pages of the trainer, as it does by counting the references of Python objects.
Pages of files do not count: the kernel gives them back, and programs that end change the shares of those that go on.
The thread that looks for stalls reads them: the kernel walks the page tables of each process for that, which takes
milliseconds, so the interval between two samples follows from their cost.

Growth is told from noise by fourths: it counts if the mean rises from each fourth of the samples to the next, by at
least half as much per step as over all. That of an epoch is expected to go on until its end, because workers may end
with it; that of the peaks of finished epochs, from the second one on, beyond. Neither is expected to go on for longer
than HORIZON times the steps over which it was seen.
"""
from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import chain
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

from . import proc, room
from .live import write_at_once
from .room import Room, bytes_text
from .run_directory import RunDirectory

if TYPE_CHECKING:
    from .summary_record import GrowthRecord, MemoryRecord

HEADER = "time_s,epoch,step,workers,trainer_bytes,workers_bytes,free_memory_bytes,free_shared_memory_bytes\n"
INTERVAL_S = 1.0  # at least, between two samples
COST = 1500  # at most one part in so many of the time is CPU time of samples: with threads.COST at most 1/1000
NS_PER_PAGE = 200.0  # expected CPU time of the first sample: 40 to 110 ns were measured
MARGIN = 1.5  # times the CPU time of a sample is expected of the next one
FOURTH = 2  # samples that a fourth of an epoch's needs
HORIZON = 10.0
AGAIN = 2.0  # said again when so many times fewer steps are left
MOST_SAMPLES = 512  # of an epoch, and peaks; every other one is dropped then


class Sample(NamedTuple):
    """Bytes of the trainer and of all workers at a moment."""
    epoch: int
    step: int  # over all epochs
    trainer: int
    workers: int
    room: Room

    @property
    def total(self) -> int:
        return self.trainer + self.workers


class Trend(NamedTuple):
    """Change of trainer and workers together over so many steps."""
    rate: float  # bytes per step
    steps: int
    grows: bool  # by the rule of fourths

    def steps_to(self, bytes_: int, within: float) -> float | None:
        """Returns the steps until it has grown by so many bytes; None if it does not grow, or not that far."""
        if not self.grows:
            return None
        left = bytes_ / self.rate
        return left if left < min(within, HORIZON * self.steps) else None


def trend(samples: Sequence[Sample], least: int) -> Trend | None:
    """Returns how the total changes; None where a fourth has fewer than `least` samples, or the loop stood still."""
    count = len(samples)
    if count < 4 * least:
        return None
    fourths = [samples[number * count // 4:(number + 1) * count // 4] for number in range(4)]
    means = [(fmean(sample.step for sample in one), fmean(sample.total for sample in one)) for one in fourths]
    if any(before[0] == after[0] for before, after in zip(means, means[1:])):
        return None

    def rise(before: tuple[float, float], after: tuple[float, float]) -> float:
        return (after[1] - before[1]) / (after[0] - before[0])

    rate, rates = rise(means[0], means[3]), [rise(*pair) for pair in zip(means, means[1:])]
    return Trend(rate, samples[-1].step - samples[0].step, rate > 0 and min(rates) >= rate / 2)


class Loop(NamedTuple):
    """The main loader's loop at one moment, and who takes part in it."""
    loader: object  # another one: an optimizer has stepped in another loop
    epoch: int
    step: int
    before: int  # steps before the epoch under way
    length: int | None  # steps of an epoch
    workers: list[list[int]]  # processes of each iterator that has some
    directory: RunDirectory
    writes_lines: bool


class Memory:
    """Samples of one run, and what follows from them."""

    def __init__(self, loop: Callable[[], Loop | None]) -> None:
        """`loop` returns None while there are no workers."""
        self._loop = loop
        self._begin = self._latest = time.monotonic()
        self._spent = 0.0  # CPU seconds of this thread
        self._ns_per_page = NS_PER_PAGE
        self._main: object = None
        self._epoch: list[Sample] = []  # of the epoch under way, from its first step on
        self._peaks: list[Sample] = []  # of the epochs before, but for the first
        self._grown: GrowthRecord | None = None  # bytes, in the latest epoch of which there are two samples
        self._said = float("inf")  # steps left when the line was written
        self._count = 0
        self.warning: str | None = None  # the latest
        self._facts: MemoryRecord | None = None  # replaced as a whole: another thread reads it

    def look(self) -> None:
        """Takes a sample if one is due. Writes a line on stderr if the memory is about to be full."""
        now = time.monotonic()
        if now - self._latest < INTERVAL_S or COST * self._spent > now - self._begin:
            return
        begin = time.thread_time()
        self._latest = now
        try:
            if (loop := self._loop()) is not None:
                self._take(loop, (now - self._begin) / COST - self._spent)
        finally:
            self._spent += time.thread_time() - begin

    def _take(self, loop: Loop, allowed: float) -> None:
        """Takes a sample if it is expected to cost no more CPU seconds than allowed."""
        workers = loop.workers
        pages = _pages("self") + sum(map(_pages, chain(*workers)))
        if 1e-9 * self._ns_per_page * pages > allowed:
            return
        begin = time.thread_time()
        trainer, sizes = _set_size("self"), [list(map(_set_size, one)) for one in workers]
        self._ns_per_page = MARGIN * 1e9 * (time.thread_time() - begin) / max(1, pages)
        left, known = room.memory(), [size for one in sizes if any(one) for size in one]  # the others have ended
        if trainer is None or left is None or not known or None in known:  # one is ending, or the kernel does not tell
            return
        sample = Sample(loop.epoch, loop.step, trainer, sum(filter(None, known)), left)
        self._write(loop.directory, sample, len(known))
        self._add(loop, sample)

    def _write(self, directory: RunDirectory, sample: Sample, workers: int) -> None:
        row = (f"{time.monotonic() - self._begin:.3f}", sample.epoch, sample.step, workers, sample.trainer,
               sample.workers, sample.room.free, room.free(room.SHARED_MEMORY))
        text = ("" if self._count else HEADER) + ",".join(map(str, row)) + "\n"
        directory.append(directory.name("memory", "csv", 1), text)
        self._count += 1

    def _add(self, loop: Loop, sample: Sample) -> None:
        if loop.loader is not self._main:
            self._main, self._epoch, self._peaks = loop.loader, [], []
        if self._epoch and self._epoch[0].epoch != sample.epoch:
            if self._epoch[0].epoch > 1:
                self._peaks.append(max(self._epoch, key=lambda one: one.total))
            self._epoch = []
        if sample.step > loop.before:
            self._epoch.append(sample)
        for each in (self._epoch, self._peaks):
            if len(each) > MOST_SAMPLES:
                del each[::2]
        if len(self._epoch) > 1:
            first = self._epoch[0]
            self._grown = {"trainer": sample.trainer - first.trainer, "workers": sample.workers - first.workers}
        self._tell(loop, sample)
        self._facts = self._conclude(loop, sample)

    # Projections

    def _tell(self, loop: Loop, sample: Sample) -> None:
        found = self._over_epochs(loop.length) or self._within_epoch(loop, sample)
        if found is None or found[0] * AGAIN > self._said:
            return
        self._said, self.warning = found
        if loop.writes_lines:
            write_at_once(self.warning)

    def _over_epochs(self, length: int | None) -> tuple[float, str] | None:
        """Returns the steps until memory is full, and what is said of them; None if it is not about to be."""
        grows = trend(self._peaks, 1)
        left = None if grows is None else grows.steps_to(self._peaks[-1].room.free, float("inf"))
        if grows is None or left is None or length is None:
            return None
        epochs = f"{left / length:,.0f}"
        return left, _text(grows.rate * length, "epoch", self._peaks, f"{epochs} epoch{'s' * (epochs != '1')}")

    def _within_epoch(self, loop: Loop, sample: Sample) -> tuple[float, str] | None:
        grows = trend(self._epoch, FOURTH)
        length = loop.length
        until = float("inf") if length is None else loop.before + length - sample.step
        left = None if grows is None else grows.steps_to(sample.room.free, until)
        if grows is None or left is None:
            return None
        return left, _text(grows.rate * 1000, "1,000 steps", self._epoch, f"{left:,.0f} steps" + (
            "" if length is None else ", before the epoch ends"))

    @property
    def facts(self) -> MemoryRecord | None:
        """Returns `memory` of summary.json, in bytes; None without samples."""
        return None if self._facts is None else {**self._facts, "samples": self._count, "cpu_s": self._spent}

    def _conclude(self, loop: Loop, sample: Sample) -> MemoryRecord:
        peaks, length = trend(self._peaks, 1), loop.length
        return {"samples": self._count, "cpu_s": self._spent, "trainer": sample.trainer, "workers": sample.workers,
                "used": sample.room.used, "total": sample.room.total, "growth_in_epoch": self._grown,
                "growth_per_epoch": None if peaks is None or length is None else peaks.rate * length,
                "warning": self.warning}


def _text(rate: float, unit: str, samples: Sequence[Sample], left: str) -> str:
    now = samples[-1].room
    workers, total = (getattr(samples[-1], name) - getattr(samples[0], name) for name in ("workers", "total"))
    where = "the workers" if 2 * workers >= total else "the training process"
    return (f"memory grows by {bytes_text(rate)} per {unit}, mostly in {where}; {bytes_text(now.used)} of "
            f"{bytes_text(now.total)} are used; at this rate it is full in about {left}")


def _set_size(process: str | int) -> int | None:
    """Returns the proportional set size of a process, without pages of files; None where the kernel does not tell."""
    rows = proc.table(f"/proc/{process}/smaps_rollup")
    return 1024 * (rows[b"Pss"] - rows.get(b"Pss_File", 0)) if b"Pss" in rows else None  # the latter from Linux 5.4 on


def _pages(process: str | int) -> int:
    return int((proc.read(f"/proc/{process}/statm") or b"0 0").split()[1])
