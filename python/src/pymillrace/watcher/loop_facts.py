"""Facts about a loader's loop up to one moment, from which its verdict, advice and predictions follow."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from .breakdown import Breakdown
from .threads import Facts
from .usage import Usage


OF_THAT_THREAD = " (of the thread that fetches batches)"  # follows shares that are not of the loop's own thread
NEVER_WAITS = 0.9  # share of load from which a thread that takes batches ahead does not wait for the loop


@dataclass(frozen=True)
class DeviceWaits:
    """Waits for a batch during which the device had nothing to do."""
    count: int
    seconds: float
    first_s: float  # the first one's


@dataclass(frozen=True)
class LoopFacts:
    """A loop at one moment."""
    kind: str = "DataLoader"
    workers: int = 0
    prefetch: int = 0  # batches per worker; 0 without workers
    takes_prefetch: bool = True  # `prefetch_factor` is an argument of its loader
    iterable: bool = False  # its data set divides its samples among workers
    generator: bool = False  # that data set reads from one generator, which workers cannot share
    shards: int = 0  # of that data set, of which a worker needs one or more; 0: unknown
    persistent: bool = False
    transforms: Sequence[str] = ()
    batch_bytes: int = 0  # of the first batch
    tensors: int = 0  # of that batch, that workers hand over to next() by file descriptors; 0: unknown
    infers: bool = False  # it only computes outputs
    takes_ahead: bool = False  # another thread than the loop's takes the batches
    alternates: bool = False  # another loader gives a batch in most of its steps, whose wait counts as update
    epoch: int = 1
    steps: int = 0
    images: int = 0
    update_s: float = 0.0  # of finished steps
    first_steps: int = 0  # whose updates do not count (FIRST_STEPS)
    first_update_s: float = 0.0  # of these
    epochs: Sequence[dict[str, Any]] = ()  # as in epochs.jsonl
    breakdown: Breakdown = field(default_factory=Breakdown)  # a copy, which nothing is added to
    usage: Usage = field(default_factory=Usage)  # of its body; a copy too
    device: DeviceWaits | None = None
    threads: Facts = Facts()

    @property
    def sees_inside(self) -> bool:
        return self.kind == "DataLoader"

    @property
    def loop_update_s(self) -> float | None:
        """Returns the mean length of the loop's update, also where another thread takes the batches; None: unknown."""
        if not self.takes_ahead:
            return self.mean_update_s
        return None if self.loop_waits is None else self.usage.update_s

    @property
    def share_of_load(self) -> float:
        """Returns the share of load in load + update, without the first wait and updates."""
        load, update = 1e-9 * sum(self.breakdown.steady), self.steps * self.mean_update_s
        return load / (load + update) if load + update > 0 else 0.0

    @property
    def loop_waits(self) -> float | None:
        """Returns the share of its time for which a loop waits for the thread that takes batches ahead of it.

        None without such a thread, and where no wait was seen although that thread does not wait for the loop.
        """
        usage = self.usage
        if not self.takes_ahead or usage.steps == 0 or (usage.waited == 0 and self.share_of_load >= NEVER_WAITS):
            return None
        return usage.waited / max(1, usage.waited + usage.ns)

    @property
    def mean_update_s(self) -> float:
        """Returns the mean length of an update, without those of the first steps if there are others."""
        if self.steps <= self.first_steps:
            return self.update_s / max(1, self.steps)
        return max(0.0, self.update_s - self.first_update_s) / (self.steps - self.first_steps)
