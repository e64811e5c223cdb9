"""Tells the extension module that the interpreter ends, also if a thread imports it only then.

Python calls no function that is registered with atexit once it has begun to call them: a daemon thread that makes its
first Loader at that time would ask an interpreter that is gone for its lock.
"""
from __future__ import annotations

import atexit
import sys
from types import ModuleType

_began = False


@atexit.register
def _begin() -> None:
    global _began
    _began = True
    begin_exit = getattr(sys.modules.get(f"{__package__}._core"), "begin_exit", None)
    if begin_exit is not None:
        begin_exit()


def tell(core: ModuleType) -> None:
    """Is called by what has just imported the extension module."""
    if _began:
        core.exit_has_begun()
