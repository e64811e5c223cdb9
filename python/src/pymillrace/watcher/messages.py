"""Lines of the recorder on stderr, in a process whose streams and signals belong to a script."""
from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

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


def say(text: str) -> None:
    """Writes lines to stderr. One that is closed, full or abandoned by its reader loses them.

    Nothing stays in the stream's buffer: what cannot be flushed when the process ends makes its exit code 120.
    """
    stream = sys.stderr
    if stream is None:  # print() would take stdout
        return
    with suppress(Exception), without_signals_of_writes():
        try:
            number = stream.fileno()
        except Exception:  # a stream of the script's own
            stream.write(text + "\n")
            return
        with suppress(Exception):
            stream.flush()
        data = (text + "\n").encode(getattr(stream, "encoding", None) or "utf-8", "backslashreplace")
        while data:
            data = data[os.write(number, data):]
