"""Finds the transforms of a data set and times each of them on sampled batches.

A data set keeps them in attributes whose names contain "transform" or "augment". Compose objects of torchvision (v1,
v2) and albumentations hold a list named `transforms`. During a sampled batch attributes and lists hold timed stand-ins;
otherwise nothing is in the way.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from time import perf_counter_ns, thread_time_ns
from typing import Any

from .faults import pass_on

MOST = 32  # rows
DEPTH = 6  # of data sets in data sets
CALL_NS = 2500  # cost of timing one call
BATCH_NS = 30_000  # cost of putting the stand-ins in place and taking them away
COST = 0.001  # greatest share of the fetch time that timing may take


class Timed:
    """Stands for a callable and adds up the time spent in it.

    It also passes for an instance of the callable's class: albumentations records the class of what it has applied.
    """
    __slots__ = ("calls", "cpu", "inner", "wall")

    def __init__(self, inner: Callable[..., Any]) -> None:
        self.inner, self.calls, self.wall, self.cpu = inner, 0, 0, 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        cpu, wall = thread_time_ns(), perf_counter_ns()
        try:
            return self.inner(*args, **kwargs)
        finally:
            self.wall += perf_counter_ns() - wall
            self.cpu += thread_time_ns() - cpu
            self.calls += 1

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "inner"), name)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(self.inner)


def _parts_of(transform: Any) -> list[Any] | None:
    """Returns the list of a Compose, or None."""
    parts = getattr(transform, "transforms", None)
    if isinstance(parts, (list, tuple)) and parts and all(callable(part) for part in parts):
        return list(parts)
    return None


def _owners(dataset: Any, depth: int = DEPTH) -> Iterator[Any]:
    """Yields the data set and the data sets and pairs of transforms inside it."""
    yield dataset
    if depth == 0:
        return
    values = getattr(dataset, "__dict__", {})
    nested = [values.get("dataset"), values.get("transforms"), *(values.get("datasets") or ())]
    for inner in nested:
        if inner is not None and hasattr(inner, "__dict__") and _parts_of(inner) is None:
            yield from _owners(inner, depth - 1)


def _places(dataset: Any) -> Iterator[tuple[Any, str, Any]]:
    """Yields (object, attribute, callable) for each transform of a data set."""
    seen: set[int] = set()
    for owner in _owners(dataset):
        if id(owner) in seen:
            continue
        seen.add(id(owner))
        for name, value in getattr(owner, "__dict__", {}).items():
            if not (("transform" in name or "augment" in name) and callable(value)):
                continue
            if hasattr(value, "transform") and _parts_of(value) is None:
                continue  # torchvision's pair of transforms, which _owners() yields
            yield owner, name, value


def callables(dataset: Any) -> list[tuple[str, Any]]:
    """Returns the attributes of a data set that hold transforms, and what they hold."""
    return [(name, transform) for _, name, transform in _places(dataset)]


def _name(transform: Any) -> str:
    return str(getattr(transform, "__name__", None) or type(transform).__name__)


class TransformTimer:
    """Times the transforms of one data set."""

    def __init__(self, dataset: Any) -> None:
        self.names: list[str] = []  # a row per transform, in the order of their calls
        self._rows: dict[int, int] = {}
        self._calls = 0
        self._outer: list[Timed] = []
        self._inner: list[tuple[int, Timed]] = []
        self._undo: list[tuple[Any, str, Any, Any]] = []
        self._dataset = dataset
        for _, _, transform in _places(dataset):
            for part in _parts_of(transform) or [transform]:
                if id(part) not in self._rows and len(self.names) < MOST:
                    self._rows[id(part)] = len(self.names)
                    self.names.append(_name(part))

    def begin(self) -> None:
        """Puts the stand-ins in place, for a batch that is sampled."""
        known: dict[int, Timed] = {}
        for owner, attribute, transform in list(_places(self._dataset)):
            outer = known.get(id(transform)) or Timed(transform)
            if not self._put(owner, attribute, transform, outer) or id(transform) in known:
                continue
            known[id(transform)] = outer
            self._outer.append(outer)
            parts = _parts_of(transform)
            if parts is None:
                self._remember(transform, outer)
            else:
                timed = [Timed(part) for part in parts]
                held = transform.transforms
                if self._put(transform, "transforms", held, type(held)(timed)):
                    for part, one in zip(parts, timed):
                        self._remember(part, one)

    def _remember(self, transform: Any, timed: Timed) -> None:
        row = self._rows.get(id(transform))
        if row is not None:
            self._inner.append((row, timed))

    def _put(self, owner: Any, attribute: str, value: Any, timed: Any) -> bool:
        try:
            setattr(owner, attribute, timed)
        except Exception as error:  # somebody's object decides what it takes
            pass_on(error)
            return False
        self._undo.append((owner, attribute, value, timed))
        return True

    def end(self) -> tuple[int, int, list[int]]:
        """Takes the stand-ins away. Returns wall and CPU of all transforms, and of each in turn."""
        for owner, attribute, value, timed in reversed(self._undo):
            if getattr(owner, attribute, None) is timed:
                setattr(owner, attribute, value)
        parts = [0] * (2 * len(self.names))
        for row, timed in self._inner:
            parts[2 * row] += timed.wall
            parts[2 * row + 1] += timed.cpu
        wall, cpu = sum(one.wall for one in self._outer), sum(one.cpu for one in self._outer)
        self._calls = sum(one.calls for one in self._outer) + sum(one.calls for _, one in self._inner)
        self._outer, self._inner, self._undo = [], [], []
        return wall, cpu, parts

    def unsampled_after(self, fetch_ns: int) -> int:
        """Returns how many batches not to sample after a sampled one, which took so long."""
        spent = BATCH_NS + self._calls * CALL_NS
        return min(1000, math.ceil(spent / (COST * max(1, fetch_ns - spent)))) - 1
