"""Lines that a file of a run gains: each is read once, and of a long file only the end."""
from __future__ import annotations

import os
from pathlib import Path

from .records import open_record

MOST_BYTES = 1 << 20  # that are read at once; what a file has gained beyond them is left out


class Tail:
    """Whole lines of a file, which need not exist yet and may become another one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._inode = self._at = 0

    def read(self) -> tuple[bool, list[str]]:
        """Returns whether the file is another than before, and the lines that it has gained.

        A line that is still being written comes with the next call. Raises OSError, and NotARecord.
        """
        with open_record(self._path) as file:
            found = os.fstat(file.fileno())
            is_another = found.st_ino != self._inode or found.st_size < self._at
            if is_another:
                self._inode, self._at = found.st_ino, 0
            begin = max(self._at, found.st_size - MOST_BYTES)
            file.seek(begin)
            data = file.read(found.st_size - begin)
        end = data.rfind(b"\n") + 1
        lines = data[:end].decode(errors="replace").split("\n")[:-1]
        is_cut = begin > self._at
        self._at = begin + end
        return is_another, lines[1:] if is_cut else lines
