"""Times iter() and next() of loaders, without changing what they return.

A DataLoader keeps its class and its attributes. DataLoader.__iter__ is replaced once per process; for a watched loader
it gives the iterator a subclass of its own class whose __next__ tells the session when it was called and when it
returned.
"""
from __future__ import annotations

import sys
import types
from collections.abc import Iterable, Iterator
from functools import lru_cache
from time import perf_counter_ns, thread_time_ns
from typing import TYPE_CHECKING, Any

from .breakdown import Wait
from .clocks import UNKNOWN, ThreadClock, between
from .worker import InlineProbe, WorkerInit

if TYPE_CHECKING:
    from .session import Loader


class Gets:
    """When the consumer received each batch from the workers' queue, for one iterator."""

    def __init__(self, iterator: Any, clock: ThreadClock) -> None:
        self.batch, self.received, self.rebuilt, self.cpu, self.delay = UNKNOWN, 0, 0, 0, UNKNOWN
        self.read_cpu = 0
        self._clock, self._begin = clock, (0, 0, 0)
        self.pinned = hasattr(iterator, "_pin_memory_thread")
        queue = getattr(iterator, "_worker_result_queue", None)
        if self.pinned or queue is None or not hasattr(queue, "_recv_bytes"):
            return
        receive = queue._recv_bytes

        def timed_receive(*args: Any) -> Any:
            cpu = thread_time_ns()
            data = receive(*args)
            self._begin = clock.read()
            self.received, self.read_cpu = self._begin[0], self._begin[1] - cpu
            return data

        queue._recv_bytes = timed_receive

    def begin(self) -> None:
        self.batch, self.received, self.rebuilt = UNKNOWN, 0, 0

    def got(self, batch: Any) -> None:
        if self.received != 0:
            end = self._clock.read()
            self.rebuilt = end[0]
            _, self.cpu, self.delay = between(self._begin, end)
        self.batch = batch if type(batch) is int else UNKNOWN


@lru_cache(maxsize=None)
def _timed_class(base: type) -> type:
    """Returns a subclass of an iterator's class that times next()."""

    def __next__(self: Any) -> Any:
        watched = self._millrace
        gets = self._millrace_gets
        if gets is not None:
            gets.begin()
        asked = perf_counter_ns()
        if not watched.next_begins(self._millrace_generation, asked):
            return base.__next__(self)  # type: ignore[attr-defined]
        try:
            data = base.__next__(self)  # type: ignore[attr-defined]
        except BaseException as error:
            watched.next_failed(error)
            raise
        now = perf_counter_ns()
        watched.next_ended(_wait(self, gets, asked, now), data)
        return data

    def _get_data(self: Any) -> Any:
        item = base._get_data(self)  # type: ignore[attr-defined]
        self._millrace_gets.got(item[0])
        return item

    def __del__(self: Any) -> None:
        watched, generation = self._millrace, self._millrace_generation
        ended = watched.iterator_dies(generation)
        inherited = getattr(base, "__del__", None)
        if inherited is not None:
            inherited(self)
        if ended:
            watched.iterator_died()

    members: dict[str, Any] = {"__next__": __next__, "__del__": __del__, "__module__": base.__module__,
                               "__qualname__": base.__qualname__}
    if hasattr(base, "_get_data"):
        members["_get_data"] = _get_data
    return type(base.__name__, (base,), members)


def _wait(iterator: Any, gets: Gets | None, asked: int, now: int) -> Wait:
    generation = iterator._millrace_generation
    if gets is None:
        return Wait(generation, iterator._num_yielded - 1, asked, 0, 0, 0, UNKNOWN, now)
    if iterator._in_order:
        batch = iterator._rcvd_idx - 1
    else:
        batch = gets.batch
    if gets.pinned:
        return Wait(generation, batch, asked, UNKNOWN, 0, 0, UNKNOWN, now)
    if gets.batch != batch:
        return Wait(generation, batch, asked, 0, 0, 0, UNKNOWN, now)
    return Wait(generation, batch, asked, gets.received, gets.rebuilt, gets.cpu, gets.delay, now, gets.read_cpu)


def make_iterator(loader: Any, watched: Loader, make: Any) -> Any:
    """Calls the loader's own __iter__ with the probes in place and returns its iterator."""
    generation = watched.iter_begins(loader)
    own = None
    if getattr(loader, "num_workers", 0) > 0 and watched.records is not None:
        own = loader.worker_init_fn
        file = watched.records
        loader.__dict__["worker_init_fn"] = WorkerInit(own, watched.records_path, file.slots, watched.parts,
                                                       generation - 1)
    try:
        iterator = make(loader)
    except BaseException as error:
        watched.next_failed(error)
        raise
    finally:
        if getattr(loader, "num_workers", 0) > 0 and watched.records is not None:
            loader.__dict__["worker_init_fn"] = own
    _adopt(iterator, loader, watched, generation)
    watched.iter_ended()
    return iterator


def _adopt(iterator: Any, loader: Any, watched: Loader, generation: int) -> None:
    known = getattr(iterator, "_millrace", None) is not None
    iterator._millrace, iterator._millrace_generation = watched, generation
    init = getattr(iterator, "_worker_init_fn", None)
    if isinstance(init, WorkerInit):
        iterator._worker_init_fn = init.own
    if known:
        return  # persistent workers
    iterator._millrace_gets = Gets(iterator, watched.session.clock) if hasattr(iterator, "_get_data") else None
    fetcher = getattr(iterator, "_dataset_fetcher", None)
    if fetcher is not None:
        probe = InlineProbe(loader.dataset)
        probe.install(fetcher)
        watched.latest = probe.latest  # the recording keeps no data set alive
    of_iterator: Any = type(iterator)
    iterator.__class__ = _timed_class(of_iterator)


class WatchedIterable:
    """Stands for a loader that is not a DataLoader. Everything but iteration goes to the loader itself."""

    def __init__(self, inner: Iterable[Any], watched: Loader) -> None:
        self._inner, self._watched = inner, watched

    def __iter__(self) -> Iterator[Any]:
        watched = self._watched
        generation = watched.iter_begins(None)
        try:
            iterator = iter(self._inner)
        except BaseException as error:
            watched.next_failed(error)
            raise
        watched.iter_ended()
        return _PlainIterator(iterator, watched, generation)

    def __len__(self) -> int:
        return len(self._inner)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "_inner"), name)


class _PlainIterator:
    def __init__(self, inner: Iterator[Any], watched: Loader, generation: int) -> None:
        self._inner, self._watched, self._generation = inner, watched, generation

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        watched, asked = self._watched, perf_counter_ns()
        if not watched.next_begins(self._generation, asked):
            return next(self._inner)
        try:
            data = next(self._inner)
        except BaseException as error:
            watched.next_failed(error)
            raise
        watched.next_ended(Wait(self._generation, UNKNOWN, asked, 0, 0, 0, UNKNOWN, perf_counter_ns()), data)
        return data

    def __del__(self) -> None:
        if self._watched.iterator_dies(self._generation):
            self._watched.iterator_died()

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "_inner"), name)


def calling_line() -> str:
    """Returns file:line of the nearest caller outside this package, torch and other installed packages."""
    frame: types.FrameType | None = sys._getframe(1)
    nearest = None
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(_HERE) and "/torch/utils/data/" not in file:
            nearest = nearest or frame
            if "site-packages" not in file and "dist-packages" not in file:
                nearest = frame
                break
        frame = frame.f_back
    if nearest is None:
        return "?"
    return f"{nearest.f_code.co_filename.rsplit('/', 1)[-1]}:{nearest.f_lineno}"


_HERE = __file__.rsplit("/", 1)[0]
