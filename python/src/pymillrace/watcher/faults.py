"""Faults of the recorder: the first one ends all recording in this process, and never affects the script.

Each place at which the script runs code of the recorder lies in a `try` whose handler calls stop(); the script's own
code lies outside of it. tests/python/test_watch_faults.py finds these places in the source and raises in each.
"""
from __future__ import annotations

import functools
import signal
from types import CodeType
from typing import Any, Protocol

from .._watch import StepHooks
from .messages import say


class Stoppable(Protocol):
    """What a fault ends, and what a fork interrupts: a session."""
    closed: bool
    marks: StepHooks

    def pause(self) -> None: ...
    def close_in_child(self) -> None: ...


stopped = False
recording: set[Stoppable] = set()  # under way in this process


def stop(error: Exception) -> None:
    """Ends all recording, with one line for the process. Raises the error again if it is the script's."""
    global stopped
    pass_on(error)
    if stopped:
        return
    stopped = True
    # Hooks stay where they are, and do nothing: torch may be iterating over them. Nothing is called before all sessions
    # have ended, which may fail near the limit of recursion.
    for session in tuple(recording):
        session.closed, session.marks.open = True, False
    recording.clear()
    try:
        say(f"pymillrace watch: recording stopped: {text_of(error)}; the training goes on")
    except Exception:  # not even that is left
        pass


def pass_on(error: BaseException) -> None:
    """Re-raises an exception of a signal handler, which may run at any point of the process."""
    if is_of_signal_handler(error):
        raise error


def is_of_signal_handler(error: BaseException) -> bool:
    """Returns whether an exception passed through a signal handler, such as the script's or torch's."""
    trace, codes = error.__traceback__, None
    while trace is not None:
        if codes is None:
            codes = {_code_of(signal.getsignal(number)) for number in signal.valid_signals()} - {None}
        if trace.tb_frame.f_code in codes:
            return True
        trace = trace.tb_next
    return False


def _code_of(handler: Any) -> CodeType | None:
    while isinstance(handler, functools.partial):
        handler = handler.func
    for function in (handler, getattr(type(handler), "__call__", None)):
        code = getattr(getattr(function, "__func__", function), "__code__", None)
        if isinstance(code, CodeType):
            return code
    return None


def text_of(error: BaseException) -> str:
    """Returns one line: what has failed, and where."""
    if isinstance(error, OSError) and error.strerror:
        text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    else:
        text = f"{type(error).__name__}: {error}"
    return " ".join(text.split())
