"""Lines of the recorder on stderr, in a process whose streams and signals belong to a script."""
from __future__ import annotations

import os
import sys
from contextlib import suppress

from .signals import without_signals_of_writes


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
