"""Stack of a thread, as another thread of its process sees it, and the sample that the thread loads.

The other thread needs the interpreter's lock. It does not get it while native code holds it.
"""
from __future__ import annotations

import sys
import types
from typing import Any

from .counterpart import PATHS
from .faults import pass_on

FRAMES = 12  # innermost ones that are kept
LOCALS = ("path", "file", "filename", "file_name", "fname", "img_path", "image_path", "f")
FETCH = "/torch/utils/data/_utils/fetch.py"


def doing(thread: int, dataset: Any = None) -> dict[str, Any]:
    """Returns the stack of a thread, innermost frame last, and the sample's index and file where they are known."""
    frame = sys._current_frames().get(thread)
    stack: list[str] = []
    index = file = None
    while frame is not None:
        code = frame.f_code
        if FETCH in code.co_filename or "/pymillrace/watcher/" in code.co_filename:
            index = _local(frame, ("idx",), (int, str)) if index is None else index
            if code.co_name == "fetch":
                break
        else:
            stack.append(f"{code.co_filename}:{frame.f_lineno} in {code.co_name}")
            file = file or _local(frame, LOCALS, (str,))
        frame = frame.f_back
    return {"index": index, "file": _of_dataset(dataset, index) or file, "stack": stack[:FRAMES][::-1]}


def _local(frame: types.FrameType, names: tuple[str, ...], kinds: tuple[type, ...]) -> Any:
    """Returns a local variable of a frame; the last characters of a long one."""
    try:
        found = next((frame.f_locals[one] for one in names if isinstance(frame.f_locals.get(one), kinds)), None)
    except Exception as error:
        pass_on(error)
        return None
    return found[-300:] if isinstance(found, str) else found


def _of_dataset(dataset: Any, index: Any) -> str | None:
    """Returns the file of a sample, from the list in which its data set keeps them."""
    try:
        for name in PATHS:
            if name in vars(dataset):
                one = vars(dataset)[name][index]
                one = one[0] if isinstance(one, tuple) else one
                return one[-300:] if isinstance(one, str) else None
    except Exception as error:
        pass_on(error)
    return None
