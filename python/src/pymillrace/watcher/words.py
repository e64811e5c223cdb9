"""Words of a record that may reach a loader: augmentations of millrace's own with numbers, and a normalisation.

    word   = "augment+=" op | "output.mean=" value | "output.std=" value
    op     = NAME [ "{" [ NAME "=" value { "," NAME "=" value } ] "}" ]
    value  = number | "[" [ number { "," number } ] "]" | true | false | NAME of a choice | op { ";" op }

NAME of an op is that of a built-in one, never of a plugin or of a function in Python. The list of ops is the value of
`ops`, which random_apply takes. No value can name a file, an address or a key: the loader takes all other words for
what its user has typed.
"""
from __future__ import annotations

import functools
import re
from typing import Any

from .fields import Field

MOST_WORDS = 64
MOST_NESTED = 4
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?")
_BLANKS = re.compile(" *")
_NORMALISATION = ("output.mean=", "output.std=")
_AUGMENT = "augment+="


@functools.cache
def _built_in_ops() -> frozenset[str]:
    from .. import builtin_ops  # whose classes take longer to make than most commands take

    return frozenset(getattr(builtin_ops, name)._op for name in builtin_ops.__all__)


class _Refused(Exception):
    """Says what a word ought to be."""


class _Reader:
    """Reads a word from left to right."""

    def __init__(self, text: str, at: int) -> None:
        self._text, self._at = text, at

    def take(self, mark: str) -> bool:
        found = self._text.startswith(mark, self._at)
        self._at += len(mark) * found
        return found

    def require(self, mark: str) -> None:
        if not self.take(mark):
            raise _Refused("NAME{NAME=VALUE,...} with numbers, lists of numbers and choices")

    def match(self, pattern: re.Pattern[str]) -> str | None:
        found = pattern.match(self._text, self._at)
        if found is None:
            return None
        self._at = found.end()
        return found.group()

    def end(self) -> None:
        if self._at != len(self._text):
            self.require("the end")

    def op(self, depth: int = 0) -> tuple[str, dict[str, Any]]:
        """Returns the name and the values: strings as they are written, lists of these, or ops."""
        name, values = self.match(_NAME), dict[str, Any]()
        if name not in _built_in_ops():
            raise _Refused("one of the built-in augmentations")
        if depth > MOST_NESTED:
            raise _Refused(f"nested at most {MOST_NESTED} times")
        if not self.take("{") or self.take("}"):
            return name, values
        while True:
            key = self.match(_NAME)
            self.require("=")
            values[key or ""] = self.ops(depth + 1) if key == "ops" else self.value()
            if self.take("}"):
                return name, values
            self.require(",")

    def ops(self, depth: int) -> list[tuple[str, dict[str, Any]]]:
        found = [self.op(depth)]
        while self.take(";"):
            self.match(_BLANKS)
            found.append(self.op(depth))
        return found

    def value(self) -> str | list[str]:
        if not self.take("["):
            found = self.match(_NUMBER) or self.match(_NAME)
            if found is None:
                self.require("a value")
            return found or ""
        numbers = list[str]()
        if self.take("]"):
            return numbers
        while True:
            number = self.match(_NUMBER)
            if number is None:
                self.require("a number")
            numbers.append(number or "")
            if self.take("]"):
                return numbers
            self.require(",")


def allowed_words(words: Field) -> list[str]:
    """Returns the words if all are allowed. Raises DataError that names the first other one."""
    found = words.items(MOST_WORDS)
    for one in found:
        try:
            parse(one.text())
        except _Refused as error:
            raise one.refuse(str(error)) from None
    return [one.text() for one in found]


def parse(word: str) -> tuple[str, Any]:
    """Returns what stands before the first "=" or "+=", and the op or the value behind it. Raises _Refused."""
    begin = next((one for one in (_AUGMENT, *_NORMALISATION) if word.startswith(one)), None)
    if begin is None:
        raise _Refused("an augmentation, output.mean or output.std")
    reader = _Reader(word, len(begin))
    found = reader.op() if begin == _AUGMENT else reader.value()
    reader.end()
    return begin.rstrip("+="), found
