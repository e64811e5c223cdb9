"""Output of what-if: text from records passes here before it reaches a terminal."""
from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TextIO

from .printable import printable


def print_lines(lines: Iterable[str], stream: TextIO | None = None) -> None:
    """Prints each line without characters that a terminal acts on, as the program's reports do."""
    print("\n".join(map(printable, lines)), file=stream or sys.stdout, flush=True)
