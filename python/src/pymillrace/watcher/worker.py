"""Measures batches where they are made: in a worker process, or in the trainer's thread with num_workers=0.

WorkerInit travels to the worker as its worker_init_fn. It runs before the worker makes its fetcher, and wraps the
fetcher, the collate function and the queue that carries batches away.
"""
from __future__ import annotations

import sys
import types
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from .clocks import UNKNOWN, ThreadClock, between, kinds
from .records import Record, RecordFile
from .transforms import TransformTimer


@lru_cache(maxsize=None)
def _timed_fetcher(base: type) -> type:
    """Returns a subclass of a fetcher's class whose fetch() tells the probe in `_millrace_probe`."""
    plain: Callable[[Any, Any], Any] = getattr(base, "fetch")

    def fetch(self: Any, index: Any) -> Any:
        return self._millrace_probe.fetch(plain, self, index)

    return type(base.__name__, (base,), {"fetch": fetch, "__module__": base.__module__,
                                         "__qualname__": base.__qualname__})


class FetchProbe:
    """Measures the fetches and the collation of fetchers; subclasses keep what was measured of each batch.

    Nothing here refers to a fetcher, and no fetcher to itself: a data set lives no longer than without the probe.
    """

    def __init__(self, worker: int, dataset: Any, generation: int) -> None:
        self.worker, self.generation, self.next_batch = worker, generation, UNKNOWN
        self._clock = ThreadClock()
        self._timer = TransformTimer(dataset)
        self._start = (UNKNOWN, UNKNOWN)
        self._collate = (UNKNOWN, UNKNOWN, UNKNOWN)

    def install(self, fetcher: Any) -> Any:
        """Wraps a new fetcher. Each one serves a new iteration over the data set."""
        self.generation += 1
        collate = fetcher.collate_fn

        def timed_collate(samples: Any) -> Any:
            self._collate = self._clock.read()
            return collate(samples)

        of_fetcher: Any = type(fetcher)
        fetcher.collate_fn, fetcher._millrace_probe = timed_collate, self
        fetcher.__class__ = _timed_fetcher(of_fetcher)
        return fetcher

    def fetch(self, plain: Callable[[Any, Any], Any], fetcher: Any, index: Any) -> Any:
        """Calls a fetcher's own fetch() and keeps what it took."""
        batch, self.next_batch = self.next_batch, self.next_batch + 1
        self._collate = (UNKNOWN, UNKNOWN, UNKNOWN)
        begin = self._clock.read()
        if self._start == (UNKNOWN, UNKNOWN):
            self._start = begin[1:]
        sampled = bool(self._timer.names) and self._timer.begin()
        transform, transform_cpu = UNKNOWN, UNKNOWN
        parts: list[int] = []
        try:
            data = plain(fetcher, index)
        finally:
            end = self._clock.read()
            if sampled:
                transform, transform_cpu, parts = self._timer.end(end[0] - begin[0])
        self._keep(batch, index, begin, end, (transform, transform_cpu), parts)
        return data

    def _keep(self, batch: int, index: Any, begin: tuple[int, int, int], end: tuple[int, int, int],
              transform: tuple[int, int], parts: list[int]) -> None:
        begun, cpu, delay = begin
        middle, middle_cpu, middle_delay = self._collate
        ended, end_cpu, end_delay = end
        if middle == UNKNOWN:  # the fetcher does not use the collate function that it was given
            cpu = end_cpu = delay = end_delay = UNKNOWN
        else:
            cpu, end_cpu = middle_cpu - cpu, end_cpu - middle_cpu
            if end_delay == UNKNOWN:
                delay = UNKNOWN
            else:
                delay, end_delay = middle_delay - delay, end_delay - middle_delay
        samples = len(index) if hasattr(index, "__len__") else 1
        self._store((self.generation, batch, self.worker, begun, middle, ended, cpu, delay, end_cpu, end_delay, samples,
                     *transform, *self._start), parts)

    def _store(self, fetch: tuple[int, ...], parts: list[int]) -> None:
        raise NotImplementedError


class Latest:
    """Record of the latest batch made in the trainer's thread."""
    __slots__ = ("record",)

    def __init__(self) -> None:
        self.record: Record | None = None


class InlineProbe(FetchProbe):
    """Probe for num_workers=0: keeps the record of the latest batch."""

    def __init__(self, dataset: Any) -> None:
        super().__init__(0, dataset, 0)
        self.next_batch, self.latest = 0, Latest()

    def _store(self, fetch: tuple[int, ...], parts: list[int]) -> None:
        self.latest.record = Record._make((*fetch, fetch[1] + 1, fetch[5], fetch[5], 0, 0, 0, tuple(parts)))


class WorkerProbe(FetchProbe):
    """Probe for a worker process: writes each batch's record to the mapped file."""

    def __init__(self, worker: int, dataset: Any, generation: int, file: RecordFile) -> None:
        super().__init__(worker, dataset, generation)
        self._file = file

    def _store(self, fetch: tuple[int, ...], parts: list[int]) -> None:
        self._file.write(fetch, parts)


class WorkerInit:
    """Runs the loader's own worker_init_fn and installs the probes in this worker."""

    def __init__(self, own: Callable[[int], None] | None, path: str, slots: int, parts: int, generation: int) -> None:
        self.own, self._path, self._slots, self._parts, self._generation = own, path, slots, parts, generation

    def __call__(self, worker: int) -> None:
        if self.own is not None:
            self.own(worker)
        self._install(worker)

    def _install(self, worker: int) -> None:
        from torch.utils.data import _DatasetKind, get_worker_info

        file = RecordFile(self._path, self._slots, self._parts, create=False)
        info = get_worker_info()
        probe = WorkerProbe(worker, None if info is None else info.dataset, self._generation, file)
        if len(probe._timer.names) != self._parts:
            probe._timer = TransformTimer(None)  # this copy of the data set has other transforms: no rows
        create: Callable[..., Any] = _DatasetKind.create_fetcher
        # The class belongs to this process; a persistent worker makes a fetcher per epoch.
        setattr(_DatasetKind, "create_fetcher", staticmethod(lambda *args: probe.install(create(*args))))
        frame: types.FrameType | None = sys._getframe()
        while frame is not None and frame.f_code.co_name != "_worker_loop":
            frame = frame.f_back
        if frame is not None:
            _wrap_index_queue(frame.f_locals["index_queue"], probe)
            _wrap_data_queue(frame.f_locals["data_queue"], file)


def _wrap_index_queue(queue: Any, probe: FetchProbe) -> None:
    """Notes the number of each batch that the worker is asked for."""
    get = queue.get

    def noting_get(*args: Any, **kwargs: Any) -> Any:
        task = get(*args, **kwargs)
        if isinstance(task, tuple):
            probe.next_batch = task[0]
        return task

    queue.get = noting_get


def _wrap_data_queue(queue: Any, file: RecordFile) -> None:
    """Measures pickling and sending of each batch in the queue's feeder thread."""
    from multiprocessing import queues

    if not hasattr(queue, "_send_bytes") or not hasattr(queues, "_ForkingPickler"):
        return
    send, base = queue._send_bytes, getattr(queues, "_ForkingPickler")
    state: dict[str, Any] = {"clock": None, "batch": None}

    class Pickler(base):  # type: ignore[misc, valid-type]
        @classmethod
        def dumps(cls, obj: Any, protocol: Any = None) -> Any:
            state["batch"] = obj[0] if isinstance(obj, tuple) and len(obj) == 2 and type(obj[0]) is int else None
            if state["batch"] is not None:
                if state["clock"] is None:
                    state["clock"] = ThreadClock()
                state["begin"] = state["clock"].read()
            data = super().dumps(obj, protocol)
            if state["batch"] is not None:
                state["pickled"] = state["clock"].read()
            return data

    def timed_send(data: Any) -> None:
        send(data)
        if state["batch"] is not None:
            begin, end = state["begin"], state["clock"].read()
            # Since it was pickled, the thread has waited for other workers' turns and for room in the pipe.
            _, blocked, _, unknown = kinds(*between(state["pickled"], end))
            file.write_sending(state["batch"], begin[0], end[0], *between(begin, end)[1:], int(blocked + unknown))

    setattr(queues, "_ForkingPickler", Pickler)
    queue._send_bytes = timed_send
