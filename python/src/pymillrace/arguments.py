"""Checks arguments of calls: raises UsageError for any value that does not fit, whatever its type."""
from __future__ import annotations

import operator
from typing import Any

from .errors import UsageError

_LONGEST = 80  # characters of a value in a message


def shown(value: object) -> str:
    """Returns a value for a message: on one line, shortened if it is long, as its type if it has no repr."""
    try:
        text = repr(value)
    except Exception:  # an int of thousands of digits, or a class of the caller's
        return f"an object of type {type(value).__name__}"
    text = " ".join(text.encode(errors="backslashreplace").decode().split())
    return text if len(text) <= _LONGEST else text[:_LONGEST - 3] + "..."


def whole(name: str, value: Any, least: int, most: int = 2**63 - 1, hint: str = "") -> int:
    """Returns an integer; NumPy's and PyTorch's are accepted. Raises UsageError for other values, and out of range."""
    try:
        number = operator.index(value)
    except Exception:  # arrays and tensors raise what they like
        raise UsageError(f"{name}={shown(value)} is not a whole number", hint) from None
    if least <= number <= most:
        return number
    raise UsageError(f"{name}={shown(number)} is {'less than' if number < least else 'more than'} "
                     f"{least if number < least else most}", hint)


def flag(name: str, value: Any) -> bool:
    """Returns True or False. Raises UsageError for anything else."""
    if isinstance(value, bool):
        return value
    raise UsageError(f"{name}={shown(value)} is neither True nor False")
