"""Measures batches where they are made: in a worker process, or in the trainer's thread with num_workers=0.

WorkerInit travels to the worker as its worker_init_fn. It runs before the worker makes its fetcher, and wraps the
fetcher, the collate function and the queue that carries batches away.
"""
from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

from .clocks import UNKNOWN, ThreadClock, between
from .records import Record, RecordFile
from .transforms import TransformTimer


class FetchProbe:
    """Wraps the `fetch` and `collate_fn` of fetchers, and hands a tuple of measurements per batch to `store`."""

    def __init__(self, worker: int, dataset: Any, generation: int,
                 store: Callable[[tuple[int, ...], list[int]], None]) -> None:
        self.worker, self.generation, self.next_batch = worker, generation, UNKNOWN
        self._clock, self._store = ThreadClock(), store
        self._timer = TransformTimer(dataset)
        self._start = (UNKNOWN, UNKNOWN)
        self._collate = (UNKNOWN, UNKNOWN, UNKNOWN)

    def install(self, fetcher: Any) -> Any:
        """Wraps a new fetcher. Each one serves a new iteration over the data set."""
        self.generation += 1
        fetch, collate = fetcher.fetch, fetcher.collate_fn

        def timed_collate(samples: Any) -> Any:
            self._collate = self._clock.read()
            return collate(samples)

        def timed_fetch(index: Any) -> Any:
            batch, self.next_batch = self.next_batch, self.next_batch + 1
            self._collate = (UNKNOWN, UNKNOWN, UNKNOWN)
            begin = self._clock.read()
            if self._start == (UNKNOWN, UNKNOWN):
                self._start = begin[1:]
            sampled = self._timer.begin()
            transform, transform_cpu = UNKNOWN, UNKNOWN
            parts: list[int] = []
            try:
                data = fetch(index)
            finally:
                end = self._clock.read()
                if sampled:
                    transform, transform_cpu, parts = self._timer.end(end[0] - begin[0])
            self._keep(batch, index, begin, end, (transform, transform_cpu), parts)
            return data

        fetcher.collate_fn, fetcher.fetch = timed_collate, timed_fetch
        return fetcher

    def _keep(self, batch: int, index: Any, begin: tuple[int, int, int], end: tuple[int, int, int],
              transform: tuple[int, int], parts: list[int]) -> None:
        collate = self._collate
        if collate[0] == UNKNOWN:  # the fetcher does not use the collate function that it was given
            dataset, collating = (UNKNOWN, UNKNOWN, UNKNOWN), (UNKNOWN, UNKNOWN, UNKNOWN)
        else:
            dataset, collating = between(begin, collate), between(collate, end)
        samples = len(index) if hasattr(index, "__len__") else 1
        self._store((self.generation, batch, self.worker, begin[0], collate[0], end[0], dataset[1], dataset[2],
                     collating[1], collating[2], samples, *transform, *self._start), parts)


class InlineProbe(FetchProbe):
    """Probe for num_workers=0: keeps the record of the latest batch."""

    def __init__(self, dataset: Any) -> None:
        super().__init__(0, dataset, 0, self._take)
        self.next_batch = 0
        self.record: Record | None = None

    def _take(self, fetch: tuple[int, ...], parts: list[int]) -> None:
        self.record = Record._make((*fetch, fetch[1] + 1, fetch[5], fetch[5], 0, 0, tuple(parts)))


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
        probe = FetchProbe(worker, None if info is None else info.dataset, self._generation, file.write)
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
            return super().dumps(obj, protocol)

    def timed_send(data: Any) -> None:
        send(data)
        if state["batch"] is not None:
            begin, end = state["begin"], state["clock"].read()
            file.write_sending(state["batch"], begin[0], end[0], *between(begin, end)[1:])

    setattr(queues, "_ForkingPickler", Pickler)
    queue._send_bytes = timed_send
