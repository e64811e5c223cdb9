"""Load, update and images of a run over time, in bounded memory: the longer the time, the coarser its points."""
from __future__ import annotations

from typing import NamedTuple

MOST_POINTS = 1024


class Point(NamedTuple):
    """Sums over consecutive steps."""
    load: float = 0.0  # seconds, as `update` and `other`
    update: float = 0.0
    other: float = 0.0
    steps: float = 0.0
    images: float = 0.0

    @property
    def seconds(self) -> float:
        return self.load + self.update + self.other

    def plus(self, another: Point, part: float = 1.0) -> Point:
        """Returns the sums of this point and of a part of another."""
        return Point(*(one + part * other for one, other in zip(self, another)))


class History:
    """Points in the order of time. Each has at least a certain length, but for the last."""

    def __init__(self) -> None:
        self.points: list[Point] = []
        self._least_s = 0.0

    def add(self, step: Point) -> None:
        """Adds a step, which took some time."""
        if self.points and self.points[-1].seconds < self._least_s:
            self.points[-1] = self.points[-1].plus(step)
            return
        self.points.append(step)
        if len(self.points) > MOST_POINTS:
            self._least_s = 2 * self.seconds / MOST_POINTS
            points, self.points = self.points, []
            for one in points:
                self.add(one)

    @property
    def seconds(self) -> float:
        return sum(one.seconds for one in self.points)

    def latest(self, seconds: float) -> Point:
        """Returns the sums over the latest points that have so many seconds together, or over all."""
        found = Point()
        for one in reversed(self.points):
            if found.seconds >= seconds:
                break
            found = found.plus(one)
        return found

    def cells(self, count: int) -> list[Point]:
        """Returns the sums over `count` stretches of equal length."""
        cells, length, at = [Point()] * count, self.seconds / count, 0.0
        for one in self.points:
            begin, at = at, at + one.seconds
            for cell in range(min(int(begin / length), count - 1), min(int(at / length), count - 1) + 1):
                overlap = min(at, (cell + 1) * length) - max(begin, cell * length)
                cells[cell] = cells[cell].plus(one, max(0.0, overlap) / one.seconds)
        return cells
