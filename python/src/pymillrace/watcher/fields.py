"""Values of a record, which may be untrusted: the type and range of each are checked before use."""
from __future__ import annotations

import reprlib
from pathlib import Path
from typing import Any

from ..errors import DataError

MOST_SECONDS, MOST_RATE = 1e9, 1e15  # sums of a run; per second
MOST_STEPS = 1 << 53  # of a run
HINT = "the file is damaged, or pymillrace watch did not write it; record the run again"


class Field:
    """A value and its place in a file. A value that does not fit raises DataError with that place."""

    def __init__(self, value: Any, file: Path, place: str = "") -> None:
        self.value, self._file, self._place = value, file, place

    def refuse(self, expected: str) -> DataError:
        """Returns the error that names the value and what was expected."""
        place = self._place or "the whole"
        return DataError(f"{self._file}: {place} is {reprlib.repr(self.value)}, not {expected}", HINT)

    def __getitem__(self, key: str) -> Field:
        if not isinstance(self.value, dict):
            raise self.refuse("an object")
        return Field(self.value.get(key), self._file, f"{self._place}.{key}" if self._place else key)

    def __bool__(self) -> bool:
        """Returns whether there is a value: null is none."""
        return self.value is not None

    def items(self, most: int) -> list[Field]:
        if not isinstance(self.value, list) or len(self.value) > most:
            raise self.refuse(f"a list of at most {most}")
        return [Field(one, self._file, f"{self._place}[{i}]") for i, one in enumerate(self.value)]

    def text(self, most: int = 4096) -> str:
        if not isinstance(self.value, str) or len(self.value) > most:
            raise self.refuse(f"a text of at most {most} characters")
        return self.value

    def whole(self, low: int, high: int) -> int:
        if not isinstance(self.value, int) or isinstance(self.value, bool) or not low <= self.value <= high:
            raise self.refuse(f"a whole number from {low} to {high}")
        return self.value

    def number(self, low: float, high: float) -> float:
        if not isinstance(self.value, (int, float)) or isinstance(self.value, bool) or not low <= self.value <= high:
            raise self.refuse(f"a number from {low:g} to {high:g}")
        return float(self.value)

    def flag(self) -> bool:
        if not isinstance(self.value, bool):
            raise self.refuse("true or false")
        return self.value
