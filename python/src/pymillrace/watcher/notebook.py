"""A watched run in a notebook: the page of `pymillrace top`, once."""
from __future__ import annotations

import html
import os
from pathlib import Path

from . import page
from .watched_run import WatchedRun

WIDTH = 80


class Shown(str):
    """Text that notebooks show with equal widths of its characters. Names in it are escaped."""

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self)}</pre>"


def summary(run: str | os.PathLike[str]) -> Shown:
    """Returns what the directory of a watched run holds now, for print() and for notebooks.

    Raises UsageError if it holds no run, and DataError if its summary is damaged.
    """
    state = WatchedRun(Path(run)).look()
    return Shown("\n".join(line.text for line in page.lines(state, WIDTH)))
