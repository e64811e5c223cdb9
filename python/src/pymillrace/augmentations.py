"""Augmentations that are Python functions, for trying an idea out before it is written in C++."""
from __future__ import annotations

import importlib.util
import inspect
import re
import sys
import threading
from collections.abc import Callable
from typing import Any, overload

from . import _core, _exit, causes
from .arguments import flag, shown
from .compiled import Compiled, compile_function
from .errors import DataError, UsageError
from .op import Op

_exit.tell(_core)
_NAME = re.compile("[a-z][a-z0-9_]*")
_REACHES = ("pointwise", "global")
_code: list[Compiled] = []  # workers may call what has been replaced


class Augmentation(Op):
    """A NumPy function as an op; made by `augmentation`. Calling it calls the function.

    Attributes:
        name: the op's name in recipes.
        reach: "pointwise" or "global".
    """

    def __init__(self, function: Callable[..., Any], name: str, reach: str, random: bool,
                 compiled: Compiled | None = None) -> None:
        self.name, self.reach, self._function, self._compiled = name, reach, function, compiled
        self.__doc__ = function.__doc__
        text = inspect.getdoc(function) or "a Python function"
        if compiled is not None:
            _code.append(compiled)
        caller = _caller(function, name, random)
        _core.define_augmentation(name, text.splitlines()[0], reach == "global", random, caller,
                                  0 if compiled is None else compiled.address)

    __eq__ = object.__eq__  # the base class compares fields, and functions are none
    __hash__ = object.__hash__

    def __call__(self, *arguments: Any) -> Any:
        return self._function(*arguments)

    def override(self) -> str:
        """Returns the augmentation as an override of a recipe."""
        return f"augment+={self.name}"

    @property
    def calls(self) -> int:
        """Calls by loaders and checks of this process so far."""
        return _core.augmentation_counts(self.name)[0]

    @property
    def seconds(self) -> float:
        """Wall time that these calls have spent in the function, with Python's interpreter lock."""
        return _core.augmentation_counts(self.name)[1]

    @property
    def waited_s(self) -> float:
        """Seconds for which these calls have waited for Python's interpreter lock."""
        return _core.augmentation_counts(self.name)[2]

    def __repr__(self) -> str:
        return f"<augmentation {self.name}>"


@overload
def augmentation(function: Callable[..., Any]) -> Augmentation: ...


@overload
def augmentation(*, name: str | None = None, reach: str = "global", compile: bool = False
                 ) -> Callable[[Callable[..., Any]], Augmentation]: ...


def augmentation(
    function: Callable[..., Any] | None = None, *, name: str | None = None, reach: str = "global", compile: bool = False
) -> Augmentation | Callable[[Callable[..., Any]], Augmentation]:
    """Makes a NumPy function an op of the pipeline: `@mr.augmentation`, or `@mr.augmentation(reach="pointwise")`.

    The function takes an image, a uint8 array of height x width x channels that it may change and keep. It returns the
    changed image, of the same shape and type, or None if it has changed the array in place. With a second parameter it
    also gets a numpy.random.Generator, which depends on seed, epoch and sample alone: with draws from it and from
    nowhere else, any number of workers gives the same bytes. The result must depend on the arguments alone.

    Calls hold Python's interpreter lock, so that workers take turns: use it to try an idea, and write a plugin in C++
    when it has proved itself. A free-threaded Python has no lock: there they run side by side. What the function raises
    is the failure of one sample (loader.on_error). The same name defined again, as in a notebook, replaces the function
    for loaders that are made afterwards.

    With `compile=True` Numba compiles the function (in nopython mode), and calls hold no lock: workers run it side by
    side. Of the generator it may use random(), integers(), uniform() and normal(), which give the numbers that they
    give uncompiled. Indices are not checked: one outside of the image overwrites other memory.

    Args:
        name: of the op; by default the function's own.
        reach: the pixels that a pixel of the result may depend on: "pointwise" (itself alone) or "global" (all).
        compile: whether Numba compiles the function.

    Raises:
        UsageError: the name is taken or malformed, the function takes other arguments, NumPy or Numba is missing, or
            Numba cannot compile the function.
    """
    if function is None:
        return lambda given: augmentation_of(given, name, reach, compile)
    return augmentation_of(function, name, reach, compile)


def check(op: Augmentation | str, *, may_raise: bool = False, report: Callable[[str], object] | None = None) -> None:
    """Checks an augmentation written in Python, as `plugins check` does one in C++: images from 1x1 to 224x224, gray
    and RGB, the declared reach, equal results of equal calls in any order and on several threads, and leaks. Returns if
    nothing is wrong.

    It calls the function about a thousand times in this process. A compiled function that writes beyond the image by
    less than 4096 bytes fails; one that goes farther may end the process.

    Args:
        op: the augmentation, or its name.
        may_raise: whether the function may reject images by raising an exception, such as all gray ones.
        report: called with each line of the report, such as `print`.

    Raises:
        DataError: checks have failed; a line for each says why.
        UsageError: `op` is no augmentation written in Python, or another argument is wrong.
    """
    if not isinstance(op, Augmentation) and not (isinstance(op, str) and _NAME.fullmatch(op)):
        raise UsageError(f"{shown(op)} is no augmentation written in Python",
                         "give what @mr.augmentation made, or its name")
    if report is not None and not callable(report):
        raise UsageError(f"report={shown(report)} is not a function", "give one that takes a line, such as print")
    name = op if isinstance(op, str) else op.name
    lines: list[tuple[bool, str]] = []  # whether it failed, and its text
    checks = _core.Checks(name, flag("may_raise", may_raise))
    while (line := checks.next()) is not None:
        lines.append(line)
        if report is not None:
            report(line[1])
    failed = [text for is_failed, text in lines if is_failed]
    if failed:
        raise DataError("\n".join((f"{name}: {len(failed)} of {len(lines)} checks failed", *failed)),
                        "docs/reference/plugins.md says what each check asks for")


def augmentation_of(function: Callable[..., Any], name: str | None, reach: str, compile: bool = False) -> Augmentation:
    """Returns the op of a function."""
    if not callable(function):
        raise UsageError(f"{shown(function)} is not a function", "write @mr.augmentation above a function")
    called = getattr(function, "__name__", "") if name is None else name
    if not isinstance(called, str) or not _NAME.fullmatch(called):
        raise UsageError(f"{shown(called)} cannot be the name of an augmentation: it needs a-z, 0-9 and _",
                         'give one: @mr.augmentation(name="my_op")')
    if reach not in _REACHES:
        raise UsageError(f"reach={shown(reach)} of augmentation {called} is not a reach",
                         f"give one of {', '.join(_REACHES)}")
    if "numpy" not in sys.modules and importlib.util.find_spec("numpy") is None:
        raise UsageError("numpy is not installed, but augmentations take NumPy arrays", "pip install numpy")
    random = _takes_random(function, called)
    compiled = compile_function(function, called, random) if compile else None
    return Augmentation(function, called, reach, random, compiled)


def _takes_random(function: Callable[..., Any], name: str) -> bool:
    """Returns whether a function takes random numbers beside the image."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # a function in C does not tell
        parameters = []
    needed = [one for one in parameters if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]
    if len(needed) not in (1, 2) or any(one.kind not in kinds for one in needed):
        raise UsageError(f"augmentation {name} does not take one or two arguments", "define it as f(image) or f(image, rng)")
    return len(needed) == 2


def _caller(function: Callable[..., Any], name: str, random: bool) -> Callable[..., str | None]:
    """Returns what a worker calls: it returns None, or why the sample failed."""
    import numpy as np

    def call(memory: memoryview, height: int, width: int, channels: int, low: int, high: int) -> str | None:
        shape = (height, width, channels)
        pixels = np.frombuffer(memory, np.uint8).reshape(shape)
        image = pixels.copy()  # the memory is used again; the function's array is its own
        try:
            result = function(image, np.random.Generator(np.random.PCG64(low << 64 | high))) if random else function(image)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt) and threading.get_ident() == threading.main_thread().ident:
                raise
            return causes.failure(f"{name}: ", error, f"fix the function {name}")
        if result is None:
            result = image
        if not isinstance(result, np.ndarray) or result.shape != shape or result.dtype != np.uint8:
            what = (f"{result.dtype} of shape {result.shape}" if isinstance(result, np.ndarray)
                    else f"an object of type {type(result).__name__}")
            return (f"{name}: it returned {what} instead of uint8 of shape {shape}\n"
                    "return an image like the one it got, or None after changing that")
        pixels[...] = result
        return None

    return call
