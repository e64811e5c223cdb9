"""Tells the extension module that the interpreter is ending, also if a thread imports it only then.

Python ignores functions that are registered with atexit once it has begun to call them. Without this module, a daemon
thread that makes its first Loader at that time would take the lock of an interpreter that no longer exists.
"""
from __future__ import annotations

import atexit
import sys
from types import ModuleType

_began = False


@atexit.register
def begin() -> None:
    """Waits until no other thread of the extension module holds or takes the interpreter's lock; only the first time."""
    global _began
    if _began:
        return
    _began = True
    begin_exit = getattr(sys.modules.get(f"{__package__}._core"), "begin_exit", None)
    if begin_exit is not None:
        begin_exit()


def tell(core: ModuleType) -> None:
    """Tells the extension module, just imported, if the exit has begun."""
    if _began:
        core.exit_has_begun()
