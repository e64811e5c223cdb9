"""The arrays of a batch."""
from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from types import FunctionType, ModuleType
from typing import Any

from .faults import pass_on

SEQUENCES = (list, tuple, set, frozenset)
MOST_VISITED = 20_000  # objects; a walk over them takes about 10 ms
WITHOUT_PARTS = (str, bytes, bytearray, int, float, complex, type(None), type, FunctionType, ModuleType)


def arrays_in(batch: Any) -> Iterator[Any]:
    """Yields what has `nbytes` in mappings, sequences, sets and attributes, each once. Visits MOST_VISITED objects."""
    seen: set[int] = set()
    left = [batch]
    while left and len(seen) < MOST_VISITED:
        one = left.pop()
        if isinstance(one, WITHOUT_PARTS) or id(one) in seen:
            continue
        seen.add(id(one))
        if hasattr(type(one), "nbytes"):
            yield one
        else:
            left += _parts(one)


def bytes_of(array: Any) -> int:
    """Returns the size of an array; 0 if it has none to tell, as a sparse tensor."""
    try:
        return int(array.nbytes)
    except Exception as error:
        pass_on(error)
        return 0


def tensors_of(arrays: Iterable[Any]) -> list[Any]:
    """Returns torch's tensors that are not empty. A worker puts each into shared memory of its own."""
    torch = sys.modules.get("torch")
    return [] if torch is None else [one for one in arrays if isinstance(one, torch.Tensor) and bytes_of(one)]


def descriptors_of(tensors: list[Any]) -> int:
    """Returns how many file descriptors a worker hands over for such tensors; 0 if they have names instead."""
    torch = sys.modules.get("torch")
    return len(tensors) if torch and torch.multiprocessing.get_sharing_strategy() == "file_descriptor" else 0


def _parts(one: Any) -> list[Any]:
    """Returns what may be or hold arrays: elements and attributes; none if an object of the script's fails to tell."""
    try:
        parts = list(one.values() if isinstance(one, Mapping) else one if isinstance(one, SEQUENCES) else ())
        return parts + list(getattr(one, "__dict__", {}).values())
    except Exception as error:
        pass_on(error)
        return []
