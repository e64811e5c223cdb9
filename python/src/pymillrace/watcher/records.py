"""Files of a run, which may be untrusted: only regular files are opened, and a bounded number of bytes is read.

All that reads a record opens it here (docs/reference/records.md#hostile-records). A FIFO would make open(2) wait for a
writer, and opening a device may do something; opening with O_PATH does neither.
"""
from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path
from typing import Any, BinaryIO

MOST_JSON_BYTES = 16 << 20
_KINDS = ((stat.S_ISLNK, "a link"), (stat.S_ISFIFO, "a FIFO"), (stat.S_ISSOCK, "a socket"), (stat.S_ISCHR, "a device"),
          (stat.S_ISBLK, "a device"), (stat.S_ISDIR, "a folder"))


class NotARecord(OSError):
    """Says why a file is not read as a record."""

    def __init__(self, path: str | os.PathLike[str], why: str) -> None:
        super().__init__(errno.EINVAL, why, os.fspath(path))


def _reopen(path: str | os.PathLike[str], flags: int, most: int | None, links: int = 0) -> int:
    """Opens what exists, if it is a regular file of at most `most` bytes. Raises NotARecord for anything else."""
    place = os.open(path, os.O_PATH | os.O_CLOEXEC | links)
    try:
        found = os.fstat(place)
        if not stat.S_ISREG(found.st_mode):
            kind = next((name for is_kind, name in _KINDS if is_kind(found.st_mode)), "something else")
            raise NotARecord(path, f"is {kind}, not a regular file")
        if most is not None and found.st_size > most:
            raise NotARecord(path, f"has {found.st_size:,} bytes, more than {most:,}")
        return os.open(f"/proc/self/fd/{place}", flags | os.O_CLOEXEC | os.O_NONBLOCK)
    finally:
        os.close(place)


def open_record(path: str | os.PathLike[str], most: int | None = None) -> BinaryIO:
    """Opens a regular file of at most `most` bytes. Raises NotARecord for anything else, and OSError."""
    return open(_reopen(path, os.O_RDONLY, most), "rb")


def open_lock(path: str | os.PathLike[str]) -> int:
    """Returns the descriptor of a file to lock, which it makes if there is none. Raises NotARecord and OSError."""
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    except FileExistsError:
        return _reopen(path, os.O_RDWR, None, os.O_NOFOLLOW)  # the holder writes into it


def read_record(path: str | os.PathLike[str], most: int) -> bytes:
    """Returns a file's bytes, as many as it has when it is opened: some kernel files never end."""
    with open_record(path, most) as file:
        return file.read(os.fstat(file.fileno()).st_size)


def read_json(path: Path) -> Any:
    """Returns the contents of a JSON file. Raises OSError, and NotARecord if it holds no JSON."""
    try:
        return json.loads(read_record(path, MOST_JSON_BYTES))
    except RecursionError:
        raise NotARecord(path, "nests too deeply") from None
    except ValueError:  # also of bytes that are not UTF-8
        raise NotARecord(path, "holds no JSON") from None
