"""Times iter() and next() of loaders, without changing what they return.

A DataLoader keeps its class and its attributes. DataLoader.__iter__ (and torchdata's StatefulDataLoader.__iter__), and
the __init__ of torch's iterators, are replaced once per process; for a watched loader they give the iterator a subclass
of its own class whose __next__ tells the session when it was called and when it returned. How the batch came about is
told in the steps that are recorded in detail: the other ones pass through nothing else of the recorder.
"""
from __future__ import annotations

import os
import sys
import threading
import types
import weakref
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from .._watch import DETAIL, OUTLINE, Around, Receipts
from .clocks import UNKNOWN, ThreadClock
from .faults import stop
from .worker import FetchTimer, WorkerInit

if TYPE_CHECKING:
    from .watched_loader import WatchedLoader

NOT_RECORDED = 0  # number of an iteration, and depth of a step, that is not recorded


class Receiving:
    """The queue from which an iterator receives its workers' batches."""

    def __init__(self, queue: Any, receipts: Receipts) -> None:
        self._queue, self._plain = queue, queue._recv_bytes
        self._timed = _timed_receive(self._plain, receipts)

    def set_depth(self, depth: int) -> None:
        self._queue._recv_bytes = self._timed if depth == DETAIL else self._plain


class Fetching:
    """The fetcher of an iterator that makes its batches itself."""

    def __init__(self, fetcher: Any, timer: FetchTimer) -> None:
        self._fetcher, self._plain = fetcher, type(fetcher)
        timer.install(fetcher)
        self._timed = type(fetcher)
        self.set_depth(OUTLINE)

    def set_depth(self, depth: int) -> None:
        self._fetcher.__class__ = self._timed if depth == DETAIL else self._plain


def source_of(iterator: Any, loader: Any, watched: WatchedLoader, receipts: Receipts | None
              ) -> Receiving | Fetching | None:
    """Returns where an iterator's own thread gets its batches from, if that can be timed."""
    fetcher = getattr(iterator, "_dataset_fetcher", None)
    if fetcher is not None:
        timer = FetchTimer(0, loader.dataset, 0)
        timer.recorder.next_batch = iterator._num_yielded  # above 0 where a StatefulDataLoader resumes
        watched.recorder.probe = timer.recorder  # the recording keeps no data set alive
        return Fetching(fetcher, timer)
    queue = getattr(iterator, "_worker_result_queue", None)
    if receipts is None or receipts.pinned or not hasattr(queue, "_recv_bytes"):
        return None
    return Receiving(queue, receipts)


def _timed_receive(receive: Any, receipts: Receipts) -> Any:
    reads, received = receipts.reads, receipts.received

    def timed_receive(*args: Any) -> Any:
        try:
            reads()
        except Exception as error:
            stop(error)
        data = receive(*args)
        try:
            received()
        except Exception as error:
            stop(error)
        return data

    return timed_receive


def _set_depth(iterator: Any, depth: int) -> None:
    """Has the fetch or the receipt of an iterator's next batch be told, or not."""
    if iterator._millrace_source is not None:
        iterator._millrace_source.set_depth(depth)
    iterator.__class__ = iterator._millrace_classes[depth]


@lru_cache(maxsize=None)
def _timed_classes(base: type) -> dict[int, type]:
    """Returns subclasses of an iterator's class that time next(), by depth: in detail also when it gets a batch."""
    plain_next: Any = getattr(base, "__next__")

    def __next__(self: Any) -> Any:
        try:
            watched, receipts = self._millrace, self._millrace_receipts
            recorder = watched.recorder
            depth = recorder.begin(self._millrace_generation, receipts)
            if not depth:
                depth = watched.moves_here(self._millrace_generation, receipts)
            if depth:
                if depth != self._millrace_depth:
                    _set_depth(self, depth)
                if watched.extras:
                    watched.before_next()
        except Exception as error:
            stop(error)
            depth = NOT_RECORDED
        if not depth:
            return plain_next(self)
        try:
            data = plain_next(self)
        except BaseException as error:
            try:
                watched.next_failed(error, getattr(self, "_workers", ()))
            except Exception as fault:
                stop(fault)
            raise
        try:
            if receipts is None:
                batch = self._num_yielded - 1
            else:
                batch = self._rcvd_idx - 1 if watched.in_order else receipts.batch
            due = recorder.end(batch, data, receipts)
            if due or watched.extras:
                watched.after_next(data, due)
        except Exception as error:
            stop(error)
        return data

    inherited_del: Any = getattr(base, "__del__", None)

    def __del__(self: Any) -> None:
        try:
            ended = self._millrace.iterator_dies(self._millrace_generation, getattr(self, "_workers", ()))
        except Exception as error:
            stop(error)
            ended = False
        if inherited_del is not None:
            inherited_del(self)
        if ended:
            try:
                self._millrace.iterator_died()
            except Exception as error:
                stop(error)

    named = {"__module__": base.__module__, "__qualname__": base.__qualname__}
    outline = type(base.__name__, (base,), {"__next__": __next__, "__del__": __del__, "_millrace_depth": OUTLINE, **named})
    in_detail: dict[str, Any] = {"_millrace_depth": DETAIL, **named}
    if hasattr(base, "_get_data"):
        plain_get_data: Any = getattr(base, "_get_data")

        def _get_data(self: Any) -> Any:
            item = plain_get_data(self)
            try:
                self._millrace_receipts.rebuilt(item)
            except Exception as error:
                stop(error)
            return item

        in_detail["_get_data"] = _get_data
    classes = {OUTLINE: outline, DETAIL: type(base.__name__, (outline,), in_detail)}
    setattr(outline, "_millrace_classes", classes)
    return classes


_inside = threading.local()  # `depth`: loaders that this thread is inside of, for a recording


def is_inside() -> bool:
    """Returns whether this thread is inside of a recorded loader that is made of others: these belong to it."""
    return getattr(_inside, "depth", 0) > 0


class Inside:
    """Marks the time in which this thread is inside of a recorded loader."""

    def __enter__(self) -> None:
        _inside.depth = getattr(_inside, "depth", 0) + 1

    def __exit__(self, *_: object) -> None:
        _inside.depth -= 1


class Making:
    """Probes in place while a loader's iterator is made."""

    def __init__(self, loader: Any, watched: WatchedLoader, iterator: Any = None) -> None:
        """`iterator`: where it exists and its __init__ is to be called."""
        self.loader, self.watched, self.iterator = loader, watched, iterator
        self.generation = NOT_RECORDED
        self.init: WorkerInit | None = None
        try:
            self.generation = watched.iter_begins(loader)
            if getattr(loader, "num_workers", 0) > 0 and watched.records is not None:
                self.init = WorkerInit(getattr(loader, "worker_init_fn", None), watched.records, watched.parts,
                                       self.generation - 1, str(watched.session.directory.path))
                loader.__dict__["worker_init_fn"] = self.init
        except Exception as error:
            stop(error)
        self.inside = Inside()
        self.inside.__enter__()

    def end(self, error: BaseException | None) -> None:
        """Removes the probes. `error`: the exception with which making the iterator failed."""
        self.inside.__exit__()
        attributes = getattr(self.loader, "__dict__", {})
        if self.init is not None:
            own = self.init.own
            if attributes.get("worker_init_fn") is self.init:
                attributes["worker_init_fn"] = own
        try:
            if error is not None:
                self.watched.next_failed(error)
            elif not self.watched.session.closed:
                _adopt(self.iterator, self.loader, self.watched, self.generation)
                self.watched.iter_ended()
        except Exception as fault:
            stop(fault)


def make_iterator(loader: Any, watched: WatchedLoader, make: Any) -> Any:
    """Calls the loader's own __iter__ with the probes in place and returns its iterator."""
    under_way = Making(loader, watched)
    try:
        under_way.iterator = make(loader)
    except BaseException as error:
        under_way.end(error)
        raise
    under_way.end(None)
    return under_way.iterator


def replace_init(iterator: Any, watched_by: Callable[[Any], WatchedLoader | None]) -> None:
    """Replaces the __init__ of a class of iterators, for those that are made without their loader's __iter__."""
    def before(self: Any, loader: Any = None, *_: Any, **__: Any) -> Making | None:
        try:
            watched = None if loader is None or is_inside() else watched_by(loader)
        except Exception as error:
            stop(error)
            watched = None
        return None if watched is None else Making(loader, watched, self)

    iterator.__init__ = Around(before, iterator.__init__, Making.end)


def _adopt(iterator: Any, loader: Any, watched: WatchedLoader, generation: int) -> None:
    known = getattr(iterator, "_millrace", None) is not None
    iterator._millrace, iterator._millrace_generation = watched, generation
    watched.iterator = weakref.ref(iterator)
    init = getattr(iterator, "_worker_init_fn", None)
    if isinstance(init, WorkerInit):
        iterator._worker_init_fn = init.own
    if known:
        return  # persistent workers
    pinned = hasattr(iterator, "_pin_memory_thread")
    iterator._millrace_receipts = Receipts(watched.clock, pinned) if hasattr(iterator, "_get_data") else None
    iterator._millrace_source = source_of(iterator, loader, watched, iterator._millrace_receipts)
    watched.threads.processes = tuple(one.pid for one in getattr(iterator, "_workers", ()))
    of_iterator: Any = type(iterator)
    iterator.__class__ = _timed_classes(of_iterator)[OUTLINE]


class WatchedIterable:
    """Stands for a loader that is not a DataLoader. Everything but iteration goes to the loader itself."""

    def __init__(self, inner: Iterable[Any], watched: WatchedLoader) -> None:
        self._inner, self._watched = inner, watched

    def __iter__(self) -> Iterator[Any]:
        return iterate(lambda: iter(self._inner), self._watched)

    def __len__(self) -> int:
        return len(self._inner)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "_inner"), name)


class WatchedIterator(WatchedIterable):
    """Stands for a loader that is itself an iterator."""

    _under_way: Iterator[Any] | None = None

    def __next__(self) -> Any:
        if self._under_way is None:
            self._under_way = iter(self)
        return next(self._under_way)


def iterate(make: Callable[[], Iterator[Any]], watched: WatchedLoader) -> Iterator[Any]:
    """Returns a stand-in for the iterator that `make` returns."""
    generation = NOT_RECORDED
    try:
        generation = watched.iter_begins(None)
    except Exception as error:
        stop(error)
    try:
        with Inside():
            iterator = make()
    except BaseException as error:
        try:
            watched.next_failed(error)
        except Exception as fault:
            stop(fault)
        raise
    try:
        watched.iter_ended()
    except Exception as error:
        stop(error)
    return _PlainIterator(iterator, watched, generation)


class _PlainIterator:
    """Counts as one of the class of the iterator that it stands for, of which it has the attributes."""

    def __init__(self, inner: Iterator[Any], watched: WatchedLoader, generation: int) -> None:
        self._inner, self._watched, self._generation = inner, watched, generation

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        watched = self._watched
        try:
            depth = watched.recorder.begin(self._generation, None)
            if not depth:
                depth = watched.moves_here(self._generation, None)
            if depth and watched.extras:
                watched.before_next()
        except Exception as error:
            stop(error)
            depth = NOT_RECORDED
        if not depth:
            return next(self._inner)
        try:
            with Inside():
                data = next(self._inner)
        except BaseException as error:
            try:
                watched.next_failed(error)
            except Exception as fault:
                stop(fault)
            raise
        try:
            due = watched.recorder.end(UNKNOWN, data, None)
            if due or watched.extras:
                watched.after_next(data, due)
        except Exception as error:
            stop(error)
        return data

    def __del__(self) -> None:
        try:
            if self._watched.iterator_dies(self._generation):
                self._watched.iterator_died()
        except Exception as error:
            stop(error)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(self._inner)

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "_inner"), name)


def calling_line() -> str:
    """Returns file:line of the nearest caller outside this package, Python's own library and installed packages.

    The package of the main module counts as the caller's own, also if `python -m PACKAGE` runs an installed one.
    """
    frame: types.FrameType | None = sys._getframe(1)
    nearest = None
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith((_HERE, "<frozen ")) and "/torch/utils/data/" not in file:
            nearest = nearest or frame
            if _is_of_main(frame.f_globals.get("__name__")) or not _is_installed(file.rpartition("/")[0]):
                nearest = frame
                break
        frame = frame.f_back
    if nearest is None:
        return "?"
    return f"{nearest.f_code.co_filename.rsplit('/', 1)[-1]}:{nearest.f_lineno}"


def _is_of_main(module: object) -> bool:
    """Returns whether a module is the main one or in its package."""
    package = getattr(getattr(sys.modules.get("__main__"), "__spec__", None), "name", "").partition(".")[0]
    return isinstance(module, str) and module.partition(".")[0] in ("__main__", package or "__main__")


@lru_cache(maxsize=None)
def _is_installed(folder: str) -> bool:
    """Returns whether a folder of source files belongs to Python's own library or to an installed package."""
    if "site-packages" in folder or "dist-packages" in folder or folder.startswith(_STANDARD):
        return True
    roots = [os.path.abspath(one) for one in sys.path if _holds_packages(one)]
    return any(folder == one or folder.startswith(one + "/") for one in roots)


@lru_cache(maxsize=None)
def _holds_packages(folder: str) -> bool:
    """Returns whether packages were installed into a folder, as by `pip install --target`."""
    try:
        with os.scandir(folder or ".") as entries:
            return any(one.name.endswith(".dist-info") for one in entries)
    except OSError:
        return False


_HERE = __file__.rsplit("/", 1)[0]
_STANDARD = os.__file__.rsplit("/", 1)[0] + "/"
