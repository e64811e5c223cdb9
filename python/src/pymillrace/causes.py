"""Exceptions that functions of the user's raised for single samples, kept as the causes of a loader's errors."""
from __future__ import annotations

import traceback

from .errors import DataError

_MOST = 16  # each keeps the frames of its function alive
_causes: dict[str, BaseException] = {}  # by the line that a sample's error contains


def forget() -> None:
    """Frees what functions have raised so far, with the frames that hold their images."""
    _causes.clear()


def of(error: DataError) -> BaseException | None:
    """Returns what a function raised for the sample of this error, or None."""
    return next((cause for line, cause in list(_causes.items()) if line in error.what), None)


def failure(start: str, error: BaseException, remedy: str) -> str:
    """Keeps an exception for of(). Returns two lines: `start`, what was raised and where; and what to do."""
    text = (str(error).splitlines() or [""])[0].encode(errors="replace")[:200].decode(errors="ignore")
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({frames[-1].filename.rsplit('/', 1)[-1]}:{frames[-1].lineno})" if len(frames) > 1 else ""
    line = f"{start}{type(error).__name__}{': ' if text else ''}{text}{where}"
    if len(_causes) < _MOST:  # the first ones: a loader ends at the first sample that fails
        _causes[line] = error
    return f"{line}\n{remedy}, or leave such samples out: loader.on_error=skip"
