"""90% intervals of predictions, by the rules of `millrace profile` (docs/explanation/what-if.md).

An interval holds the ratios of replays with the demands of loading and of the update at either end of their own
intervals. It is widened by what the replay misses where demands are known, and by how far its rate of the run itself is
from the measured one. Two more replays stand for what a record cannot tell of another number of workers: how much
slower code gets while more cores are busy, and how much of an update in several threads was waiting for each other.
"""
from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from .._watch import INTERVAL_LEVEL
from .batch_means import ratio
from .replay import Demand, Setup, replay

# Relative half width if demands are known and the replay of the run is right: nine tenths of the errors in
# docs/results/2026-11-23-what-if-loops.md are smaller.
MODEL_ERROR = 0.055
# CPU time on busy cores over that on one busy core, at most (docs/results/2026-11-27-without-workers.md).
CROWDED = 1.3
FEWEST = 8  # values that tell how much they vary


@dataclass(frozen=True)
class Doubts:
    """Uncertainty of a run's demands: relative half widths of their 90% intervals, and spinning.

    `spinning`: CPU time that was measured for an update in several threads, over that which the replay takes for work.
    """
    fetch: float = 0.0
    update: float = 0.0
    spinning: float = 1.0


def half_width(above: Sequence[float], below: Sequence[float]) -> float:
    """Returns the relative half width of the interval of a ratio of sums; 0 if too few values tell."""
    if len(above) < FEWEST or sum(above) <= 0:
        return 0.0
    found = ratio(above, below)
    low, _ = found.interval(INTERVAL_LEVEL)
    return 1 - low / found.value


def scaled(demand: Demand, cpu: float, blocked: float) -> Demand:
    return replace(demand, cpu=cpu * demand.cpu, blocked=blocked * demand.blocked)


def _with_demands(setup: Setup, fetch: float, update: float) -> Setup:
    return replace(setup, fetch=tuple(scaled(one, fetch, fetch) for one in setup.fetch),
                   update=scaled(setup.update, update, update))


def _crowded(setup: Setup, factor: float) -> Setup:
    """Returns the setup with other CPU times of loading and of the update."""
    return replace(setup, fetch=tuple(scaled(one, factor, 1) for one in setup.fetch),
                   update=scaled(setup.update, factor, 1))


def _as_measured(setup: Setup, spinning: float) -> Setup:
    return replace(setup, spins=False, update=scaled(setup.update, spinning, 1))


def _busy(setup: Setup) -> float:
    """Returns the share of the cores beyond the first that workers and the trainer can keep busy."""
    return min(setup.workers, setup.cores - 1) / (setup.cores - 1) if setup.cores > 1 else 0.0


class Intervals:
    """Intervals of ratios to one run."""

    def __init__(self, setup: Setup, measured: float | None, doubts: Doubts) -> None:
        """`setup`: of the run. `measured`: its images/s; None if they were not measured."""
        self._setup, self._doubts = setup, doubts
        self._base = replay(setup).images_per_s
        high, low = 1 + doubts.fetch, 1 + doubts.update
        self._ends = [(high, 1 / low), (1 / high, low)] if doubts.fetch > 0 or doubts.update > 0 else []
        self._bases = [replay(_with_demands(setup, *end)).images_per_s for end in self._ends]
        missed = math.log(self._base / measured) if measured else 0.0
        self._widened = 1 + math.hypot(MODEL_ERROR, missed)

    def around(self, ratio: float, changed: Setup) -> tuple[float, float]:
        """Returns the interval of the ratio of a changed setup, which it holds."""
        found = [ratio, *(replay(_with_demands(changed, *end)).images_per_s / base
                          for end, base in zip(self._ends, self._bases))]
        if (more := _busy(changed) - _busy(self._setup)) != 0:
            found.append(replay(_crowded(changed, CROWDED ** more)).images_per_s / self._base)
        if changed.update.threads > 1 and changed.workers != self._setup.workers:
            base = replay(_as_measured(self._setup, self._doubts.spinning)).images_per_s
            found.append(replay(_as_measured(changed, self._doubts.spinning)).images_per_s / base)
        return min(found) / self._widened, max(found) * self._widened
