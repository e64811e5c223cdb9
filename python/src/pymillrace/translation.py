"""Translates chains of torchvision's and timm's transforms to augmentations of this package.

A transform is known by its type, which is looked up among the classes that torchvision and timm have defined; neither
is imported here. The walk over a chain keeps what its values are at each point: torchvision's arguments, and what may
follow, depend on it.
"""
from __future__ import annotations

import dataclasses
import enum
import math
import sys
from collections.abc import Callable, Iterable
from typing import Any

from . import builtin_ops
from .errors import UsageError
from .op import Op
from .recipes import Grayscale, Normalize


class _Values(enum.IntEnum):
    """Range of an image's elements; a chain only moves forward through these."""

    LEVELS = 0  # whole numbers from 0 to 255
    UNIT = 1  # float32, from 0 to 1
    NORMALIZED = 2


_AFTER = {_Values.UNIT: "the conversion to float", _Values.NORMALIZED: "Normalize"}


@dataclasses.dataclass
class _Chain:
    """The walk: the augmentations so far, and what an image is after them."""

    ops: list[Op] = dataclasses.field(default_factory=list)
    normalize: Normalize | None = None
    values: _Values = _Values.LEVELS
    tensor: bool | None = None  # False: a PIL image; None: whatever the data set hands out

    def levels(self, fill: Any, what: str) -> int | tuple[int, ...]:
        """Returns one level, or one per channel, for a fill in the unit of this place in the chain.

        Values that lie between two levels become the nearer one after the conversion to float, and are rejected before.
        """
        if isinstance(fill, dict):
            raise _no_counterpart(f"{what} with fill={fill!r}", "give one number, or one per channel")
        given = [0.0] if fill is None else _numbers(fill)
        if self.values is _Values.UNIT:
            given = [255 * value for value in given]
        elif self.normalize is not None and self.values is _Values.NORMALIZED:
            mean, std = self.normalize.mean, self.normalize.std
            count = max(len(given), len(mean), len(std))
            given = [255 * (given[i % len(given)] * std[i % len(std)] + mean[i % len(mean)]) for i in range(count)]
        whole = [round(value) for value in given]
        if any(not 0 <= level <= 255 for level in whole) or len(whole) not in (1, 3) or (
                self.values is _Values.LEVELS and any(level != value for level, value in zip(whole, given))):
            raise _no_counterpart(f"{what} with {fill!r} as its fill", "give whole levels from 0 to 255, one or three")
        return whole[0] if len(whole) == 1 else tuple(whole)

    def to_unit(self) -> None:
        """Converts to float32 from 0 to 1, as the loader does behind the last op."""
        self.tensor = True
        self.values = max(self.values, _Values.UNIT)


def from_torchvision(transforms: Any) -> list[Op | Normalize]:
    """Translates transforms of torchvision.transforms, torchvision.transforms.v2 or timm.data.

    Takes a Compose, a list, or one transform. Each is known by its type: a class of the same name elsewhere, or one
    derived from torchvision's, is rejected. Draws come from this package's random numbers, so single images differ from
    torchvision's; their distribution is the same. docs/reference/from-torchvision.md lists what is translated, to what,
    and how far levels may lie apart.

    Raises:
        UsageError: a transform, or the value of an argument, has no counterpart; it is named.
    """
    chain = _Chain()
    for step in transforms if type(transforms) in (list, tuple) else [transforms]:
        _translate(chain, step)
    if chain.values is _Values.LEVELS and chain.tensor:
        raise UsageError(
            "the chain ends with levels from 0 to 255, and the loader hands out float32 from 0 to 1",
            "append ToDtype(torch.float32, scale=True); or remove the conversion to a tensor, and give the loader "
            "output.dtype=u8",
        )
    return [*chain.ops, *([] if chain.normalize is None else [chain.normalize])]


# --- which transform it is


@dataclasses.dataclass(frozen=True)
class _Rule:
    """How the transforms of one class are translated."""

    translate: Callable[[_Chain, Any, str], None]
    arguments: frozenset[str]  # attributes that it reads, or that change no value
    latest: _Values  # what values it may meet at most


_rules: dict[tuple[str, str], _Rule] = {}  # by package and class

# Module whose attribute the class is, and the package that messages name.
_MODULES = {
    "torchvision.transforms": "torchvision",
    "torchvision.transforms.v2": "torchvision",
    "torchvision.transforms._presets": "torchvision",
    "timm.data.transforms": "timm",
    "timm.data.random_erasing": "timm",
}
_HINT = ("leave it out, apply it to the batch in the training loop, or write a recipe with the op "
         "(docs/reference/augmentations.md lists them)")


def _rule(
    names: str, arguments: str = "", latest: _Values = _Values.UNIT, package: str = "torchvision"
) -> Callable[[Callable[[_Chain, Any, str], None]], Callable[[_Chain, Any, str], None]]:
    """Enters a function as the translation of classes."""

    def enter(function: Callable[[_Chain, Any, str], None]) -> Callable[[_Chain, Any, str], None]:
        for name in names.split():
            _rules[package, name] = _Rule(function, frozenset(arguments.split()), latest)
        return function

    return enter


def _package_of(kind: type) -> str | None:
    """Returns the package whose transform a class is, or None if it is nobody's that is known here."""
    for module, package in _MODULES.items():
        home = kind.__module__ or ""
        if home.partition(".")[0] == package and getattr(sys.modules.get(module), kind.__name__, None) is kind:
            return package
    return None


def _no_counterpart(what: str, hint: str = _HINT) -> UsageError:
    return UsageError(f"{what} has no counterpart in from_torchvision()", hint)


def _foreign(step: Any) -> UsageError:
    """Returns the error for an object that is no transform of torchvision or timm."""
    name = step.__name__ if callable(step) and hasattr(step, "__name__") else type(step).__name__
    for base in type(step).__mro__[1:]:
        package = _package_of(base)
        if package is not None and (package, base.__name__) in _rules:
            theirs = f"{package}'s {base.__name__}"
            return UsageError(f"the transform {name} is derived from {theirs}, and may act otherwise",
                              f"use {theirs} itself")
    module = getattr(step, "__module__", None)
    whence = f": it comes from {module}" if module else ""
    return UsageError(f"the transform {name} is not torchvision's{whence}",
                      "from_torchvision() takes the classes of torchvision.transforms, torchvision.transforms.v2 and "
                      "timm.data; " + _HINT)


def _translate(chain: _Chain, step: Any) -> None:
    """Appends what stands for one transform."""
    kind = type(step)
    if kind is getattr(sys.modules.get("torch.nn"), "Sequential", None):
        for part in step:
            _translate(chain, part)
        return
    package = _package_of(kind)
    if package is None:
        raise _foreign(step)
    what = f"{package}'s {kind.__name__}"
    rule = _rules.get((package, kind.__name__))
    if rule is None:
        raise _no_counterpart(what)
    unknown = {name for name in vars(step) if not name.startswith("_")} - rule.arguments - {"training"}
    if unknown:
        raise _no_counterpart(f"{what} with the argument {min(unknown)}")
    if chain.values > rule.latest:
        passed = _Values(rule.latest + 1)
        raise _no_counterpart(f"{what} after {_AFTER[passed]}", "move it before that")
    try:
        rule.translate(chain, step, what)
    except (AttributeError, TypeError, ValueError, OverflowError) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"the arguments of {what} cannot be read: {error}",
                         "from_torchvision() knows torchvision 0.26 and timm 1.0") from None


# --- arguments

_PILLOW = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "box", 5: "hamming"}


def _numbers(value: Any) -> list[float]:
    """Returns a number, or each of several, as Python's; whole ones as int."""
    try:
        given = list(value)
    except TypeError:
        given = [value]
    found = [float(one) for one in given]
    if not all(math.isfinite(one) for one in found):
        raise ValueError(f"{value!r} is not finite")
    return [int(one) if one.is_integer() and not isinstance(raw, float) else one for one, raw in zip(found, given)]


def _range(value: Any, absent: float = 0) -> float | tuple[float, ...]:
    """Returns a number, or several as a tuple; `absent` for None."""
    if value is None:
        return absent
    found = _numbers(value)
    return tuple(found) if _is_several(value) or len(found) > 1 else found[0]


def _is_several(value: Any) -> bool:
    return isinstance(value, (list, tuple))


def _sizes(value: Any, what: str) -> int | tuple[int, ...]:
    """Returns one whole number, or several as a tuple."""
    found = _numbers(value)
    if not found or any(one != int(one) or one < 0 for one in found):
        raise _no_counterpart(f"{what} with {value!r}", "give whole numbers from 0 on")
    whole = tuple(int(one) for one in found)
    return whole if len(whole) > 1 else whole[0]


def _mode(value: Any) -> Any:
    """Returns an interpolation by its name; Pillow's numbers are accepted, as torchvision does."""
    if isinstance(value, int) and not isinstance(value, bool):
        return _PILLOW.get(value, value)
    return getattr(value, "value", value)


def _warp_mode(value: Any, what: str) -> str:
    """Returns the interpolation of a rotation and its like."""
    mode = _mode(value)
    if mode not in ("nearest", "bilinear"):
        raise _no_counterpart(f"{what} with interpolation={mode!r}", "use InterpolationMode.BILINEAR")
    return str(mode)


def _resize_mode(chain: _Chain, value: Any, antialias: Any, what: str) -> dict[str, Any]:
    """Returns the interpolation of a resize.

    Pillow takes the nearest pixel by its centre, which torchvision calls NEAREST_EXACT; tensors are read at corners
    with NEAREST. Pillow always smooths what shrinks, tensors only with antialias=True.
    """
    mode = _mode(value)
    if mode == "nearest-exact" or (mode == "nearest" and chain.tensor is False):
        return {"interpolation": "nearest"}
    if mode == "nearest":
        raise _no_counterpart(f"{what} with interpolation='nearest'",
                              "write InterpolationMode.NEAREST_EXACT; PIL images come out the same")
    if mode != "bilinear":
        raise _no_counterpart(f"{what} with interpolation={mode!r}", "use InterpolationMode.BILINEAR")
    if not antialias and chain.tensor is None:
        raise _no_counterpart(f"{what} with antialias={antialias!r}, which counts for tensors and not for PIL images,",
                              "write antialias=True; or put ToImage() before it")
    return {"interpolation": "bilinear", "antialias": bool(antialias) or chain.tensor is False}


def _center(value: Any) -> tuple[float, ...]:
    return () if value is None else tuple(_numbers(value))


# --- chains, chances and conversions


@_rule("Compose", "transforms", _Values.NORMALIZED)
def _compose(chain: _Chain, step: Any, what: str) -> None:
    for part in step.transforms:
        _translate(chain, part)


@_rule("RandomApply", "transforms p", _Values.NORMALIZED)
def _random_apply(chain: _Chain, step: Any, what: str) -> None:
    inner = dataclasses.replace(chain, ops=[])
    for part in step.transforms:
        _translate(inner, part)
    if (inner.values, inner.tensor) != (chain.values, chain.tensor):
        raise _no_counterpart(f"{what} of a conversion or of Normalize", "put that after it")
    if inner.ops:
        chain.ops.append(builtin_ops.RandomApply(tuple(inner.ops), float(step.p)))


@_rule("Identity ToPureTensor", "", _Values.NORMALIZED)
def _nothing(chain: _Chain, step: Any, what: str) -> None:
    pass


def _is_v2(step: Any) -> bool:
    return type(step).__module__.startswith("torchvision.transforms.v2")


def _refuses_tensors(chain: _Chain, step: Any, what: str) -> bool:
    """Returns whether an image is a tensor already, which v2 hands on, and v1 does not take."""
    if chain.tensor and not _is_v2(step):
        raise UsageError(f"{what} takes no tensor, and one comes from the transform before it", "leave it out")
    return bool(chain.tensor)


@_rule("ToTensor", "", _Values.NORMALIZED)
def _to_tensor(chain: _Chain, step: Any, what: str) -> None:
    if not _refuses_tensors(chain, step, what):
        chain.to_unit()


@_rule("PILToTensor", "", _Values.NORMALIZED)
def _pil_to_tensor(chain: _Chain, step: Any, what: str) -> None:
    _refuses_tensors(chain, step, what)
    chain.tensor = True


@_rule("ToImage", "", _Values.NORMALIZED)
def _to_image(chain: _Chain, step: Any, what: str) -> None:
    chain.tensor = True


@_rule("ToPILImage", "mode", _Values.LEVELS)
def _to_pil_image(chain: _Chain, step: Any, what: str) -> None:
    if step.mode not in (None, "L", "RGB"):  # others read the channels as other colours
        raise _no_counterpart(f"{what} with mode={step.mode!r}", "leave mode out")
    chain.tensor = False


@_rule("ToDtype ConvertImageDtype", "dtype scale", _Values.NORMALIZED)
def _to_dtype(chain: _Chain, step: Any, what: str) -> None:
    dtype, scale = str(step.dtype), getattr(step, "scale", True)
    if chain.tensor is False:
        raise _no_counterpart(f"{what} on a PIL image", "put ToImage() before it")
    if dtype == "torch.uint8" and chain.values is _Values.LEVELS:
        chain.tensor = True
    elif dtype != "torch.float32":
        raise _no_counterpart(f"{what} with dtype={dtype}",
                              "write torch.float32; the loader's output.dtype chooses other types")
    elif not scale and chain.values is _Values.LEVELS:
        raise _no_counterpart(f"{what} with scale=False, which leaves values from 0 to 255,",
                              "write scale=True, and divide the mean and std of Normalize by 255")
    else:
        chain.to_unit()


@_rule("Normalize", "mean std inplace", _Values.NORMALIZED)
def _normalize(chain: _Chain, step: Any, what: str) -> None:
    if chain.values is _Values.LEVELS:
        raise UsageError(f"{what} comes before the conversion to float",
                         "put ToDtype(torch.float32, scale=True) before it")
    if chain.values is _Values.NORMALIZED:
        raise _no_counterpart(f"a second {what.rpartition(' ')[2]}", "normalise once")
    mean, std = (tuple(float(one) for one in _numbers(value)) for value in (step.mean, step.std))
    chain.normalize, chain.values = Normalize(mean, std), _Values.NORMALIZED


# --- sizes and places


@_rule("RandomResizedCrop", "size scale ratio interpolation antialias")
def _random_resized_crop(chain: _Chain, step: Any, what: str) -> None:
    how = _resize_mode(chain, step.interpolation, step.antialias, what)
    chain.ops.append(builtin_ops.RandomResizedCrop(_sizes(step.size, what), tuple(_numbers(step.scale)),
                                               tuple(_numbers(step.ratio)), **how))


def _resize(chain: _Chain, step: Any, what: str, size: Any, max_size: Any = None) -> None:
    if size is None:
        raise _no_counterpart(f"{what} with size=None", "give the size of the shorter side")
    how = _resize_mode(chain, step.interpolation, step.antialias, what)
    chain.ops.append(builtin_ops.Resize(_sizes(size, what), max_size=0 if max_size is None else int(max_size), **how))


@_rule("Resize", "size interpolation max_size antialias")
def _resize_step(chain: _Chain, step: Any, what: str) -> None:
    _resize(chain, step, what, step.size, step.max_size)


@_rule("CenterCrop", "size")
def _center_crop(chain: _Chain, step: Any, what: str) -> None:
    chain.ops.append(builtin_ops.CenterCrop(_sizes(step.size, what)))


def _pad(chain: _Chain, step: Any, what: str, padding: Any, fill: int | tuple[int, ...]) -> Op:
    if step.padding_mode not in ("constant", "edge", "reflect", "symmetric"):
        raise _no_counterpart(f"{what} with padding_mode={step.padding_mode!r}")
    return builtin_ops.Pad(_sizes(padding, what), fill, str(step.padding_mode))


@_rule("Pad", "padding fill padding_mode")
def _pad_step(chain: _Chain, step: Any, what: str) -> None:
    chain.ops.append(_pad(chain, step, what, step.padding, chain.levels(step.fill, what)))


@_rule("RandomCrop", "size padding pad_if_needed fill padding_mode")
def _random_crop(chain: _Chain, step: Any, what: str) -> None:
    size, fill = _sizes(step.size, what), chain.levels(step.fill, what)
    padding = 0 if step.padding is None else _sizes(step.padding, what)
    if isinstance(padding, tuple) and len(padding) == 4 and _is_v2(step):  # v2 keeps left, right, top, bottom
        padding = (padding[0], padding[2], padding[1], padding[3])
    if step.padding_mode != "constant":
        if step.pad_if_needed:
            raise _no_counterpart(f"{what} with padding_mode={step.padding_mode!r} and pad_if_needed=True",
                                  "put Pad or Resize before it")
        chain.ops += [_pad(chain, step, what, padding, fill), builtin_ops.RandomCrop(size)]
    else:
        chain.ops.append(builtin_ops.RandomCrop(size, padding, bool(step.pad_if_needed), fill))


@_rule("RandomHorizontalFlip", "p", _Values.NORMALIZED)
def _hflip(chain: _Chain, step: Any, what: str) -> None:
    chain.ops.append(builtin_ops.HFlip(float(step.p)))


@_rule("RandomVerticalFlip", "p", _Values.NORMALIZED)
def _vflip(chain: _Chain, step: Any, what: str) -> None:
    chain.ops.append(builtin_ops.VFlip(float(step.p)))


@_rule("RandomRotation", "degrees interpolation expand center fill")
def _random_rotation(chain: _Chain, step: Any, what: str) -> None:
    if step.expand:
        raise _no_counterpart(f"{what} with expand=True", "leave it out: all images of a batch have one size")
    chain.ops.append(builtin_ops.RandomRotation(_range(step.degrees), _warp_mode(step.interpolation, what),
                                            chain.levels(step.fill, what), _center(step.center)))


@_rule("RandomAffine", "degrees translate scale shear interpolation fill center")
def _random_affine(chain: _Chain, step: Any, what: str) -> None:
    chain.ops.append(builtin_ops.RandomAffine(
        _range(step.degrees), _range(step.translate), _range(step.scale, 1), _range(step.shear),
        _warp_mode(step.interpolation, what), chain.levels(step.fill, what), _center(step.center)))


@_rule("RandomPerspective", "distortion_scale p interpolation fill")
def _random_perspective(chain: _Chain, step: Any, what: str) -> None:
    chain.ops.append(builtin_ops.RandomPerspective(
        float(step.distortion_scale), float(step.p), _warp_mode(step.interpolation, what),
        chain.levels(step.fill, what)))


@_rule("ElasticTransform", "alpha sigma interpolation fill")
def _elastic(chain: _Chain, step: Any, what: str) -> None:
    chain.ops.append(builtin_ops.ElasticTransform(
        _range(step.alpha), _range(step.sigma), _warp_mode(step.interpolation, what), chain.levels(step.fill, what)))


# --- colours and levels


@_rule("ColorJitter", "brightness contrast saturation hue")
def _color_jitter(chain: _Chain, step: Any, what: str) -> None:
    chain.ops.append(builtin_ops.ColorJitter(_range(step.brightness), _range(step.contrast), _range(step.saturation),
                                         _range(step.hue)))


@_rule("Grayscale", "num_output_channels")
def _grayscale(chain: _Chain, step: Any, what: str) -> None:
    if step.num_output_channels != 3:
        raise _no_counterpart(f"{what} with num_output_channels={step.num_output_channels}",
                              "write num_output_channels=3, and let the model take three channels")
    chain.ops.append(Grayscale())


def _with_chance(op: type[Op]) -> Callable[[_Chain, Any, str], None]:
    """Returns the translation of a transform whose only argument is its probability."""

    def translate(chain: _Chain, step: Any, what: str) -> None:
        chain.ops.append(op(p=float(step.p)))  # type: ignore[call-arg]

    return translate


_rule("RandomGrayscale", "p")(_with_chance(builtin_ops.RandomGrayscale))
_rule("RandomInvert", "p")(_with_chance(builtin_ops.RandomInvert))
_rule("RandomAutocontrast", "p", _Values.LEVELS)(_with_chance(builtin_ops.RandomAutocontrast))
_rule("RandomEqualize", "p", _Values.LEVELS)(_with_chance(builtin_ops.RandomEqualize))


@_rule("RandomPosterize", "bits p", _Values.LEVELS)
def _posterize(chain: _Chain, step: Any, what: str) -> None:
    chain.ops.append(builtin_ops.RandomPosterize(int(step.bits), float(step.p)))


@_rule("RandomSolarize", "threshold p", _Values.LEVELS)
def _solarize(chain: _Chain, step: Any, what: str) -> None:
    chain.ops.append(builtin_ops.RandomSolarize(_numbers(step.threshold)[0], float(step.p)))


@_rule("RandomAdjustSharpness", "sharpness_factor p")
def _sharpness(chain: _Chain, step: Any, what: str) -> None:
    chain.ops.append(builtin_ops.RandomAdjustSharpness(float(step.sharpness_factor), float(step.p)))


@_rule("GaussianBlur", "kernel_size sigma")
def _gaussian_blur(chain: _Chain, step: Any, what: str) -> None:
    chain.ops.append(builtin_ops.GaussianBlur(_sizes(step.kernel_size, what), _range(step.sigma)))


@_rule("GaussianNoise", "mean sigma clip", _Values.LEVELS)
def _gaussian_noise(chain: _Chain, step: Any, what: str) -> None:
    chain.ops.append(builtin_ops.GaussianNoise(float(step.mean), float(step.sigma), bool(step.clip)))


@_rule("JPEG", "quality", _Values.LEVELS)
def _jpeg(chain: _Chain, step: Any, what: str) -> None:
    chain.ops.append(builtin_ops.JPEG(_sizes(step.quality, what)))


def _erase(chain: _Chain, what: str, p: float, scale: Iterable[float], ratio: Iterable[float], value: Any) -> None:
    """Appends random_erasing; a value of None stands for normal noise."""
    if value is None:
        raise _no_counterpart(f"{what} with noise", "use the value 0 after Normalize; or write a recipe with "
                              "random_erasing{mode=random}, whose noise is cut off at black and white")
    where = (tuple(float(one) for one in scale), tuple(float(one) for one in ratio))
    if chain.values is _Values.NORMALIZED and not any(_numbers(value)):
        chain.ops.append(builtin_ops.RandomErasing(p, *where, mode="mean"))
    else:
        chain.ops.append(builtin_ops.RandomErasing(p, *where, chain.levels(value, what)))


@_rule("RandomErasing", "p scale ratio value inplace", _Values.NORMALIZED)
def _random_erasing(chain: _Chain, step: Any, what: str) -> None:
    value = None if isinstance(step.value, str) else step.value
    _erase(chain, what, float(step.p), step.scale, step.ratio, value)


# --- policies


@_rule("AutoAugment", "policy interpolation fill policies", _Values.LEVELS)
def _auto_augment(chain: _Chain, step: Any, what: str) -> None:
    held = getattr(step, "policies", None) or getattr(step, "_policies", None)
    if held != step._get_policies(step.policy):
        raise _no_counterpart(f"{what} with a policy of its own", "use one of AutoAugmentPolicy")
    chain.ops.append(builtin_ops.AutoAugment(str(step.policy.value), _warp_mode(step.interpolation, what),
                                         chain.levels(step.fill, what)))


@_rule("RandAugment", "num_ops magnitude num_magnitude_bins interpolation fill", _Values.LEVELS)
def _rand_augment(chain: _Chain, step: Any, what: str) -> None:
    chain.ops.append(builtin_ops.RandAugment(int(step.num_ops), int(step.magnitude), int(step.num_magnitude_bins),
                                         _warp_mode(step.interpolation, what), chain.levels(step.fill, what)))


@_rule("TrivialAugmentWide", "num_magnitude_bins interpolation fill", _Values.LEVELS)
def _trivial_augment(chain: _Chain, step: Any, what: str) -> None:
    chain.ops.append(builtin_ops.TrivialAugmentWide(int(step.num_magnitude_bins), _warp_mode(step.interpolation, what),
                                                chain.levels(step.fill, what)))


# --- what weights.transforms() returns


@_rule("ImageClassification", "crop_size resize_size mean std interpolation antialias")
def _image_classification(chain: _Chain, step: Any, what: str) -> None:
    _resize(chain, step, what, step.resize_size)
    _center_crop_to(chain, step.crop_size, what)
    _end_preset(chain, step, what)


@_rule("SemanticSegmentation", "resize_size mean std interpolation antialias")
def _semantic_segmentation(chain: _Chain, step: Any, what: str) -> None:
    if step.resize_size is not None:
        _resize(chain, step, what, step.resize_size)
    _end_preset(chain, step, what)


@_rule("ObjectDetection")
def _object_detection(chain: _Chain, step: Any, what: str) -> None:
    chain.to_unit()


def _center_crop_to(chain: _Chain, size: Any, what: str) -> None:
    chain.ops.append(builtin_ops.CenterCrop(_sizes(size, what)))


def _end_preset(chain: _Chain, step: Any, what: str) -> None:
    chain.to_unit()
    _normalize(chain, step, what)


# --- timm


@_rule("RandomResizedCropAndInterpolation", "size scale ratio interpolation", package="timm")
def _timm_crop(chain: _Chain, step: Any, what: str) -> None:
    if _is_several(step.interpolation):
        raise _no_counterpart(f"{what} with interpolation='random'", "write interpolation='bilinear'")
    how = _resize_mode(chain, step.interpolation, True, what)
    chain.ops.append(builtin_ops.RandomResizedCrop(_sizes(step.size, what), tuple(_numbers(step.scale)),
                                               tuple(_numbers(step.ratio)), **how))


@_rule("MaybeToTensor", "", _Values.NORMALIZED, package="timm")
def _maybe_to_tensor(chain: _Chain, step: Any, what: str) -> None:
    if not chain.tensor:
        chain.to_unit()


_rule("MaybePILToTensor", "", _Values.NORMALIZED, package="timm")(_to_image)


@_rule("RandomErasing", "probability min_area max_area log_aspect_ratio min_count max_count num_splits mode rand_color "
       "per_pixel device", _Values.NORMALIZED, package="timm")
def _timm_erasing(chain: _Chain, step: Any, what: str) -> None:
    if (step.min_count, step.max_count) != (1, 1):
        raise _no_counterpart(f"{what} with {step.min_count} to {step.max_count} rectangles", "write max_count=1")
    noise = step.rand_color or step.per_pixel
    _erase(chain, what, float(step.probability), (step.min_area, step.max_area), map(math.exp, step.log_aspect_ratio),
           None if noise else 0)
