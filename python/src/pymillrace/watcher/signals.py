"""Signals that the recorder's own work must not bring to a script."""
from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

# A write that fails sends them, and a script may have made them deadly: signal.signal(signal.SIGPIPE, signal.SIG_DFL).
OF_WRITES = {signal.SIGPIPE, signal.SIGXFSZ}


@contextmanager
def without_signals_of_writes() -> Iterator[None]:
    """Blocks the signals of failed writes in this thread: a write fails with an error alone."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, OF_WRITES)
    try:
        yield
    finally:
        own = OF_WRITES - before
        while own and hasattr(signal, "sigtimedwait") and signal.sigtimedwait(own, 0) is not None:
            pass
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def without_signals_of_workers() -> Iterator[None]:
    """Puts off torch's handler of SIGCHLD, which raises wherever the process happens to be when a worker has died."""
    if threading.current_thread() is not threading.main_thread() or not callable(signal.getsignal(signal.SIGCHLD)):
        yield
        return
    late: list[Any] = []
    handler = signal.signal(signal.SIGCHLD, lambda *arguments: late.append(arguments))
    try:
        yield
    finally:
        signal.signal(signal.SIGCHLD, handler)
        if late and callable(handler):
            handler(*late[0])
