"""Measures batches where they are made: in a worker process, or in the trainer's thread with num_workers=0.

WorkerInit travels to the worker as its worker_init_fn. It runs before the worker makes its fetcher, and wraps the
fetcher, the collate function and the queue that carries batches away.
"""
from __future__ import annotations

import sys
import types
from collections.abc import Callable
from functools import lru_cache
from time import monotonic
from typing import Any

from .._watch import OUTLINE, TRANSFORMS, FetchProbe, RecordRing, SendProbe
from .clocks import SCHEDSTAT, UNKNOWN
from .faults import stop
from .plan import threads_of_plan
from .stalls import WorkerWatch, of_worker
from .threads import apply
from .transforms import TransformTimer


@lru_cache(maxsize=None)
def _timed_fetcher(base: type) -> type:
    """Returns a subclass of a fetcher's class whose fetch() tells the timer in `_millrace_timer`."""
    plain: Callable[[Any, Any], Any] = getattr(base, "fetch")

    def fetch(self: Any, index: Any) -> Any:
        try:
            timer = self._millrace_timer
            recorder = timer.recorder
            if timer.watch is not None:
                timer.watch.began = monotonic()
            depth = recorder.begin()
        except Exception as error:
            stop(error)
            recorder, depth = None, OUTLINE
        if depth != OUTLINE:
            return timer.fetch_in_detail(plain, self, index, depth == TRANSFORMS)
        data = plain(self, index)
        try:
            if recorder is not None:
                recorder.finish(index)
                if timer.watch is not None:
                    timer.watch.began = 0.0
        except Exception as error:
            stop(error)
        return data

    return type(base.__name__, (base,), {"fetch": fetch, "__module__": base.__module__,
                                         "__qualname__": base.__qualname__})


class FetchTimer:
    """Measures the fetches and the collation of fetchers.

    Nothing here refers to a fetcher, and no fetcher to itself: a data set lives no longer than without the timer.
    """

    def __init__(self, worker: int, dataset: Any, generation: int, file: RecordRing | None = None) -> None:
        self.recorder = FetchProbe(worker, generation, SCHEDSTAT, file)
        self.transforms = TransformTimer(dataset)
        self.watch: WorkerWatch | None = None

    def install(self, fetcher: Any) -> None:
        """Wraps a new fetcher. Each one serves a new iteration over the data set."""
        self.recorder.generation += 1
        if self.transforms.names and self.recorder.unsampled == UNKNOWN:
            self.recorder.unsampled = 0
        collate, begins = fetcher.collate_fn, self.recorder.collate

        def timed_collate(samples: Any) -> Any:
            try:
                begins()
            except Exception as error:
                stop(error)
            return collate(samples)

        of_fetcher: Any = type(fetcher)
        fetcher._millrace_timer, fetcher._millrace_collates = self, (collate, timed_collate)
        fetcher.__class__ = _timed_fetcher(of_fetcher)

    def fetch_in_detail(self, plain: Callable[[Any, Any], Any], fetcher: Any, index: Any, with_transforms: bool) -> Any:
        """Calls the fetch() of a fetcher for a batch that is recorded in detail and has begun, and keeps what it took."""
        recorder = self.recorder
        measured: tuple[int, int, list[int]] = UNKNOWN, UNKNOWN, []
        collate, timed_collate = fetcher._millrace_collates
        times_collate = fetcher.collate_fn is collate
        try:
            if times_collate:
                fetcher.collate_fn = timed_collate
            if with_transforms:
                self.transforms.begin()
        except Exception as error:
            stop(error)
        try:
            data = plain(fetcher, index)
        finally:
            try:
                if self.watch is not None:
                    self.watch.began = 0.0
                if times_collate:
                    fetcher.collate_fn = collate
                ns = recorder.end()
                if with_transforms:
                    measured = self.transforms.end()
                    recorder.unsampled = self.transforms.unsampled_after(ns)
            except Exception as error:
                stop(error)
        try:
            recorder.keep(len(index) if hasattr(index, "__len__") else 1, *measured)
        except Exception as error:
            stop(error)
        return data


class WorkerInit:
    """Runs the loader's own worker_init_fn and installs the probes in this worker."""

    def __init__(self, own: Callable[[int], None] | None, file: RecordRing, parts: int, generation: int,
                 directory: str) -> None:
        self.own, self._path, self._slots, self._parts, self._generation = own, file.path, file.slots, parts, generation
        self._directory = directory  # of the run

    def __call__(self, worker: int) -> None:
        if self.own is not None:
            self.own(worker)
        try:
            if (threads := threads_of_plan("worker_threads")) is not None:
                apply(threads)
            self._install(worker)
        except Exception as error:
            stop(error)

    def _install(self, worker: int) -> None:
        from torch.utils.data import _DatasetKind, get_worker_info

        try:
            file = RecordRing(self._slots, self._parts, self._path)
        except FileNotFoundError:  # the trainer ended its recording, and with it the file, before this worker began
            return
        info = get_worker_info()
        timer = FetchTimer(worker, None if info is None else info.dataset, self._generation, file)
        if len(timer.transforms.names) != self._parts:
            timer.transforms = TransformTimer(None)  # this copy of the data set has other transforms: no rows
        timer.watch = WorkerWatch(self._directory, None if info is None else info.dataset)
        of_worker[:] = [timer.watch]
        create: Callable[..., Any] = _DatasetKind.create_fetcher

        def timed_create(*args: Any) -> Any:
            fetcher = create(*args)
            try:
                timer.install(fetcher)
            except Exception as error:
                stop(error)
            return fetcher

        # The class belongs to this process; a persistent worker makes a fetcher per epoch.
        setattr(_DatasetKind, "create_fetcher", staticmethod(timed_create))
        frame: types.FrameType | None = sys._getframe()
        while frame is not None and frame.f_code.co_name != "_worker_loop":
            frame = frame.f_back
        if frame is not None:
            _wrap_index_queue(frame.f_locals["index_queue"], timer.recorder)
            _wrap_data_queue(frame.f_locals["data_queue"], file)


def _wrap_index_queue(queue: Any, probe: FetchProbe) -> None:
    """Notes the number of each batch that the worker is asked for."""
    get, asked = queue.get, probe.asked

    def noting_get(*args: Any, **kwargs: Any) -> Any:
        task = get(*args, **kwargs)
        try:
            asked(task)
        except Exception as error:
            stop(error)
        return task

    queue.get = noting_get


def _wrap_data_queue(queue: Any, file: RecordRing) -> None:
    """Measures pickling and sending of each batch in the queue's feeder thread."""
    from multiprocessing import queues

    if not hasattr(queue, "_send_bytes") or not hasattr(queues, "_ForkingPickler"):
        return
    send, base = queue._send_bytes, getattr(queues, "_ForkingPickler")
    probe = SendProbe(SCHEDSTAT, file)
    begin, dumps, pickled, sent = probe.begin, base.dumps, probe.pickled, probe.sent

    class Pickler(base):  # type: ignore[misc, valid-type]
        @classmethod
        def dumps(cls, obj: Any, protocol: Any = None) -> Any:
            try:
                begin(obj)
            except Exception as error:
                stop(error)
            data = dumps(obj, protocol)
            try:
                pickled()
            except Exception as error:
                stop(error)
            return data

    def timed_send(data: Any) -> None:
        send(data)
        try:
            sent()
        except Exception as error:
            stop(error)

    setattr(queues, "_ForkingPickler", Pickler)
    queue._send_bytes = timed_send
