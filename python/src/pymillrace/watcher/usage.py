"""CPU and wall time of a loop's body."""
from __future__ import annotations

from collections import deque
from copy import copy

from .._predict import Demand
from .batch_means import half_width

MOST_STRETCHES = 256  # the latest, whose lengths tell how much updates vary


class Usage:
    """Sums over stretches in which nothing but this loader's loop ran.

    `cpu` holds that of the process's other threads during the whole of the stretches, which are the `others`. They
    used the share `in_next` of it while the trainer's thread was in next(). `waited` is the time for which the loop
    waited for the thread that takes batches ahead of it.
    """
    __slots__ = ("cpu", "delay", "in_next", "ns", "others", "steps", "stretches", "waited")

    def __init__(self) -> None:
        self.steps = self.ns = self.cpu = self.delay = self.others = self.waited = 0
        self.in_next = 0.0
        self.stretches = deque[tuple[int, int]](maxlen=MOST_STRETCHES)  # the latest ones' steps and ns

    def add(self, steps: int, ns: int, cpu: int, others: int, delay: int) -> None:
        """Adds a stretch."""
        self.steps += steps
        self.ns += ns
        self.cpu += cpu
        self.others += others
        self.delay += delay
        self.stretches.append((steps, ns))

    def add_loop(self, steps: int, ns: int, cpu: int, waited: int) -> None:
        """Adds a stretch of a loop ahead of which another thread takes the batches. `ns`: without what it waited."""
        self.add(steps, ns, cpu, 0, 0)
        self.waited += waited

    def copy(self) -> Usage:
        """Returns a copy, which nothing is added to."""
        found = copy(self)
        found.stretches = self.stretches.copy()
        return found

    @property
    def update_s(self) -> float:
        """Returns the mean length of an update; 0 if none was measured."""
        return 1e-9 * self.ns / self.steps if self.steps else 0.0

    def half_width(self) -> float:
        """Returns the relative half width of the interval of an update's length."""
        return half_width([float(ns) for _, ns in self.stretches], [float(steps) for steps, _ in self.stretches])

    def demand(self) -> Demand | None:
        """Returns the demand of one update; None if nothing was measured."""
        if self.steps == 0 or self.ns <= 0:
            return None
        body = self.cpu - self.in_next * self.others
        wall, cpu = 1e-9 * self.ns / self.steps, 1e-9 * max(0.0, body) / self.steps
        running = max(wall - 1e-9 * max(0, self.delay) / self.steps, 1e-9)
        threads = max(1, round(cpu / running))
        return Demand(cpu / threads, max(0.0, running - cpu / threads), threads)
