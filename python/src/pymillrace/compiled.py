"""Augmentations compiled with Numba: native functions that workers call without Python's interpreter lock."""
from __future__ import annotations

import ctypes
import importlib
import importlib.util
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from .errors import UsageError

RAISED, OTHER_SHAPE = 1, 2  # what a compiled function returns besides 0, as python/ext/augmentation.cpp reads it
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_PLACE = re.compile(r'File "(?:.*/)?([^"/]+)", line (\d+)')


class Compiled(NamedTuple):
    """A native function `int32 f(uint8 *pixels, int64 height, int64 width, int64 channels, void *pcg64)`."""
    address: int
    code: Any  # which goes with its last reference


def compile_function(function: Callable[..., Any], name: str, random: bool) -> Compiled:
    """Compiles a function of an image, and of a generator if `random`. Raises UsageError with Numba's reason."""
    if importlib.util.find_spec("numba") is None:
        raise UsageError(f"augmentation {name}: compile=True needs numba, which is not installed", "pip install numba")
    numba: Any = importlib.import_module("numba")
    types = numba.types
    image = types.Array(types.uint8, 3, "C")
    inner = numba.njit(function)
    try:
        inner.compile((image, types.npy_rng) if random else (image,))
        result = inner.overloads[next(iter(inner.overloads))].signature.return_type
        is_image = isinstance(result, types.Array) and (result.dtype, result.ndim) == (types.uint8, 3)
        if result != types.none and not is_image:
            raise UsageError(f"augmentation {name} returns {result} instead of a uint8 image",
                             "return nothing, or an image like the one it gets: .astype(np.uint8)")
        pixels = types.CPointer(types.uint8)
        signature = types.int32(pixels, types.int64, types.int64, types.int64, types.uintp)
        code = numba.cfunc(signature)(_entry(numba, inner, random, result != types.none))
    except UsageError:
        raise
    except Exception as error:  # Numba's own errors, and what its rules for types trip over
        raise UsageError(f"augmentation {name} cannot be compiled: {_reason(error)}",
                         "change the function, or leave compile=True out") from error
    return Compiled(code.address, code)


def _reason(error: Exception) -> str:
    """Returns the line of Numba's message that says what is wrong, and where."""
    text = _COLOURS.sub("", str(error))
    lines = [line.strip() for line in text.splitlines() if not line.startswith("Failed in nopython mode")]
    said = next(filter(None, lines), type(error).__name__)
    places = _PLACE.findall(text)
    return f"{said} ({places[-1][0]}:{places[-1][1]})" if places else said


def _entry(numba: Any, inner: Any, random: bool, returns: bool) -> Callable[..., int]:
    """Returns what workers call, in the language that Numba compiles."""
    carray, generator_at = numba.carray, _generator_at(numba)
    if random:
        def run(image: Any, state: Any) -> Any:
            return inner(image, generator_at(state))
    else:
        def run(image: Any, state: Any) -> Any:
            return inner(image)

    if returns:
        def store(image: Any, result: Any) -> int:
            if result.shape != image.shape:
                return OTHER_SHAPE
            image[:] = result
            return 0
    else:
        def store(image: Any, result: Any) -> int:
            return 0

    run, store = numba.njit(run), numba.njit(store)

    def entry(pixels: Any, height: Any, width: Any, channels: Any, state: Any) -> int:
        image = carray(pixels, (height, width, channels))
        try:
            found = store(image, run(image, state))
        except Exception:
            found = RAISED
        return found

    return entry


def _generator_at(numba: Any) -> Any:
    """Returns a function of Numba's that makes a numpy.random.Generator of the state of a PCG64 at an address."""
    import numpy as np

    types, cgutils = numba.types, importlib.import_module("numba.core.cgutils")
    extending = importlib.import_module("numba.extending")
    functions = np.random.PCG64(0).ctypes  # their code stays as long as the process
    kinds = ("next_uint64", "next_uint32", "next_double")
    addresses = {kind: ctypes.cast(getattr(functions, kind), ctypes.c_void_p).value for kind in kinds}

    def generator_at(typing: Any, state: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            bits = cgutils.create_struct_proxy(types.npy_bitgen)(context, builder)
            bits.state = arguments[0]
            for kind, address in addresses.items():
                setattr(bits, f"fnptr_{kind}", context.get_constant(types.uintp, address))
            generator = cgutils.create_struct_proxy(types.npy_rng)(context, builder)
            generator.bit_generator = bits._getvalue()
            return generator._getvalue()

        return types.npy_rng(types.uintp), generate

    return extending.intrinsic(generator_at)
