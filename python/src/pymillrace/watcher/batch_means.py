"""Ratios of sums over the steps of a loop, with intervals for what the steps vary.

Steps are no independent samples: workers deliver in bursts, and the page cache, a clock or another program lasts many
steps. Therefore the steps are cut into consecutive batches of equal length, and the interval is Student's, from the
batches' deviations from the ratio of the sums (batch means, with the ratio's linearisation: Law, Simulation Modeling and
Analysis, 9.5; Cochran, Sampling Techniques, 2.11).
"""
from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from .._predict import t_quantile
from .._watch import INTERVAL_LEVEL

LEVEL = 0.95
BATCHES = 20  # of steps; fewer where a batch would have less than two
FEWEST = 8  # values that tell how much they vary


@dataclass(frozen=True)
class Estimate:
    value: float
    error: float  # standard error
    freedom: float  # degrees of freedom of the error

    def interval(self, level: float = LEVEL) -> tuple[float, float]:
        half = t_quantile(self.freedom, level) * self.error
        return self.value - half, self.value + half


def ratio(above: Sequence[float], below: Sequence[float]) -> Estimate:
    """Returns the ratio of two sums over the same steps, in their order. At least 4 steps, whose sum below is not 0."""
    count = min(BATCHES, len(above) // 2)
    size = len(above) // count
    begin = len(above) - count * size  # what does not fill the batches is left out at the begin
    tops, bottoms = ([sum(values[i:i + size]) for i in range(begin, len(values), size)] for values in (above, below))
    value = sum(tops) / sum(bottoms)
    spread = sum((top - value * bottom) ** 2 for top, bottom in zip(tops, bottoms))
    return Estimate(value, math.sqrt(spread * count / (count - 1)) / sum(bottoms), count - 1)


def half_width(above: Sequence[float], below: Sequence[float]) -> float:
    """Returns the relative half width of the 90% interval of a ratio of sums; 0 if too few values tell."""
    if len(above) < FEWEST or sum(above) <= 0:
        return 0.0
    found = ratio(above, below)
    low, _ = found.interval(INTERVAL_LEVEL)
    return 1 - low / found.value
