"""Measures where a data loader's time goes, without changing the loop that uses it.

`watch(loader)` records one loader, `watching()` every DataLoader that is iterated inside. Both write a run directory
that `millrace report` reads, and print a verdict when the process ends or the context is left.
"""
from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from . import faults
from .errors import WatchError
from .faults import stop
from .import_finder import Finder
from .iterators import WatchedIterable, WatchedIterator, calling_line, is_inside, make_iterator, replace_init
from .log import Call
from .messages import say
from .other_loaders import METHODS, replace_imported, replace_in
from .plan import FASTAI, override_arguments
from .session import Session
from .watched_loader import Given, WatchedLoader

__all__ = ["WatchError", "watch", "watching"]

T = TypeVar("T")

_sessions: dict[str, Session] = {}  # by the directory that was asked for
_given: weakref.WeakKeyDictionary[Any, WatchedLoader] = weakref.WeakKeyDictionary()
_every: list[Session] = []  # sessions of watching(), innermost last
_replaced: set[type] = set()  # classes whose __iter__ was replaced


def watch(loader: T, run: str | os.PathLike[str] | None = None, log: Call | None = None) -> T:
    """Records the time spent waiting for a loader's batches and using them.

    Returns the same object if it is a torch DataLoader; any other iterable comes back in a thin stand-in. Called again
    with the same directory, it continues that run. The records lie in `run`; by default in those of `pymillrace watch`
    or of the watching() around it, else in runs/watch-DATE-TIME. The summary is written when the process ends.

    `log` is called with a dict of the loop's figures every 10 s and at the end, by rank 0 in a thread of its own. What
    it raises goes no further, but for one line on stderr.

    Raises WatchError if the object is no iterable, if `log` cannot be called, or if the directory belongs to somebody
    else.
    """
    _check(log)
    if not hasattr(type(loader), "__iter__") and not hasattr(type(loader), "__getitem__"):
        raise WatchError(f"watch: {type(loader).__name__} is not iterable; give it a DataLoader or another iterable")
    try:
        return loader if faults.stopped else _watch(loader, run, log)
    except WatchError:
        raise
    except Exception as error:
        stop(error)
        return loader


def _check(log: object) -> None:
    if log is not None and not callable(log):
        raise WatchError(f"log={type(log).__name__} cannot be called; give a function that takes a dict")


def _watch(loader: Any, run: str | os.PathLike[str] | None, log: Call | None) -> Any:
    session = _session(run)
    session.open_directory(wait=True)
    session.log_to(log)
    if not _is_dataloader(loader):
        stand_in = WatchedIterator if hasattr(type(loader), "__next__") else WatchedIterable
        return stand_in(loader, session.loader(calling_line(), type(loader).__name__, loader, given=True))
    _patch()
    iterated = _iterated(loader)
    known = _given.get(iterated)
    if known is None or known.session is not session:
        known = _given[iterated] = session.loader(calling_line(), "DataLoader", iterated, given=True)
        known.given = None if _is_for_a_rank(iterated) else Given.of(iterated)
    return loader


@contextmanager
def watching(run: str | os.PathLike[str] | None = None, log: Call | None = None) -> Iterator[None]:
    """Records every DataLoader that is iterated inside, each named by the line that iterates over it.

    Writes the summary and prints the verdict when the context is left. `log` and errors are as in watch().
    """
    _check(log)
    session = None
    try:
        if not faults.stopped:
            session = Session(None if run is None else Path(run))
            session.log_to(log)
            session.open_directory(wait=True)
            _patch()
            _every.append(session)
    except WatchError:
        raise
    except Exception as error:
        stop(error)
    try:
        yield
    except BaseException as error:
        try:
            if session is not None:
                session.failed(error)
        except Exception as fault:
            stop(fault)
        raise
    finally:
        try:
            if session is not None:
                session.close()
                _every.remove(session)
        except Exception as error:
            stop(error)


def start_when_imported(module: Any, run: str) -> None:
    """Records every DataLoader of this process until it ends. The directory is made at the first iteration."""
    try:
        override_arguments(module.DataLoader)
        _patch(module.DataLoader)
        after = dict.fromkeys(METHODS, lambda imported: replace_in(imported, _watched))
        after[FASTAI] = lambda imported: override_arguments(imported.DataLoader)
        sys.meta_path.insert(0, Finder(after, stop))
        _every.append(Session(Path(run), live=True))
    except Exception as error:
        stop(error)


def _session(run: str | os.PathLike[str] | None) -> Session:
    if run is None and _every and not _every[-1].closed:
        return _every[-1]
    key = "" if run is None else os.path.abspath(run)
    session = _sessions.get(key)
    if session is None or session.closed:
        session = _sessions[key] = Session(None if run is None else Path(run))
    return session


def _iterated(loader: Any) -> Any:
    """Returns the loader that one of a class with its own __iter__ iterates over, as accelerate's and Ray's do."""
    own: Any = type(loader)
    if any(own.__iter__ is getattr(one, "__iter__") for one in _replaced):
        return loader
    inside = [one for one in vars(loader).values() if _is_dataloader(one) and one.dataset is loader.dataset]
    return inside[0] if inside else loader


def _is_dataloader(loader: object) -> bool:
    data = sys.modules.get("torch.utils.data")
    return data is not None and isinstance(loader, data.DataLoader)


def _watched(loader: Any, kind: str = "DataLoader") -> WatchedLoader | None:
    """Returns the recording that an iteration over a loader belongs to."""
    own = _given_as(loader) if kind == "DataLoader" else None  # others may have no hash
    if own is not None and (own.session.takes_part() or own.is_free()):
        return own
    for session in reversed(_every):
        if (session.takes_part() or session.records_threads) and _opens(session):
            return session.loader(calling_line(), kind, loader, given=False)
    return None


def _given_as(loader: Any) -> WatchedLoader | None:
    """Returns the recording of a loader that was given, itself or as it was before a framework remade it for its rank."""
    own = _given.get(loader)
    if own is not None or not _is_for_a_rank(loader):
        return own
    for session in {*_sessions.values(), *_every}:
        for one in session.loaders:
            if one.was_given_as(loader):
                _given[loader] = one
                return one
    return None


def _is_for_a_rank(loader: Any) -> bool:
    """Returns whether a loader hands out one rank's share of its data set."""
    module = sys.modules.get("torch.utils.data.distributed")
    return module is not None and isinstance(getattr(loader, "sampler", None), module.DistributedSampler)


def _watched_iterator(loader: Any) -> WatchedLoader | None:
    """Returns the recording of an iterator that is made without its loader's __iter__: the loader's latest, if any."""
    for session in reversed(_every):
        for one in reversed(session.loaders):
            if one.inner is not None and one.inner() is loader and (session.takes_part() or one.is_free()):
                return one
    return _watched(loader)


def _opens(session: Session) -> bool:
    """Returns whether a session has its directory. A script that knows nothing of it goes on without."""
    try:
        session.open_directory()
    except WatchError as error:
        say(f"pymillrace watch: {error}; this process is not recorded")
        session.closed = True
    return not session.closed


def _patch(dataloader: Any = None) -> None:
    """Replaces DataLoader.__iter__, once per process, and that of torchdata's StatefulDataLoader, which is its own.

    StatefulDataLoader has an __init__ of its own too, which is replaced to take the plan's arguments.
    """
    replace_imported(_watched)
    if _replaced:
        return
    if dataloader is None:
        from torch.utils.data import DataLoader

        dataloader = DataLoader
    _replace_iter(dataloader)
    module: Any = sys.modules[dataloader.__module__]
    for name in ("_SingleProcessDataLoaderIter", "_MultiProcessingDataLoaderIter"):
        replace_init(getattr(module, name), _watched_iterator)
    stateful = getattr(sys.modules.get("torchdata.stateful_dataloader"), "StatefulDataLoader", None)
    if stateful is not None:
        _replace_iter(stateful)
        return

    def __init_subclass__(cls: Any, /, **options: Any) -> None:
        super(dataloader, cls).__init_subclass__(**options)
        try:
            if cls.__name__ == "StatefulDataLoader" and cls.__module__.startswith("torchdata."):
                _replace_iter(cls)
                override_arguments(cls)
        except Exception as error:
            stop(error)

    dataloader.__init_subclass__ = classmethod(__init_subclass__)


def _replace_iter(dataloader: Any) -> None:
    """Replaces the __iter__ of a class of loaders."""
    _replaced.add(dataloader)
    original = dataloader.__iter__

    def __iter__(self: Any) -> Any:
        try:
            watched = None if is_inside() else _watched(self)
        except Exception as error:
            stop(error)
            watched = None
        return original(self) if watched is None else make_iterator(self, watched, original)

    __iter__.__doc__ = original.__doc__
    dataloader.__iter__ = __iter__
