"""Output of what-if: text from records passes here before it reaches a terminal."""
from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TextIO

from .. import _core


def print_lines(lines: Iterable[str], stream: TextIO | None = None) -> None:
    """Prints each line without characters that a terminal acts on, as the program's reports do."""
    print("\n".join(_core.printable(_bytes(line)) for line in lines), file=stream or sys.stdout, flush=True)


def _bytes(text: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")  # names of files may be no UTF-8
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")
