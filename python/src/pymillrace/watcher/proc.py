"""Files of the kernel below /proc and /sys, read in less time than other ways take."""
from __future__ import annotations

import os
import time

CHUNK_BYTES = 1 << 16


def read(path: str) -> bytes | None:
    """Returns a file's bytes; None if there are none to read."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    parts = []
    try:
        while part := os.read(file, CHUNK_BYTES):  # the kernel gives some files a page at a time
            parts.append(part)
        return b"".join(parts)
    except OSError:
        return None
    finally:
        os.close(file)


def stat(process: int | str) -> list[bytes]:
    """Returns the fields of a process's `stat` from the third one, its state, on; nothing if there are none to read."""
    return (read(f"/proc/{process}/stat") or b"").rpartition(b")")[2].split()  # the name may hold anything


def begin_of_this() -> float:
    """Returns when this process began, in seconds as time.time(); now where that is not known."""
    fields = stat(os.getpid())
    uptime = (read("/proc/uptime") or b"").split()
    age_s = float(uptime[0]) - int(fields[19]) / os.sysconf("SC_CLK_TCK") if len(fields) > 19 and uptime else 0.0
    return time.time() - age_s


def table(path: str) -> dict[bytes, int]:
    """Returns the rows `NAME[:] NUMBER [UNIT]` of a file."""
    rows = (line.split() for line in (read(path) or b"").split(b"\n"))
    return {row[0].rstrip(b":"): int(row[1]) for row in rows if len(row) > 1 and row[1].isdigit()}
