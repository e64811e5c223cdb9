"""Data sets and augmentations as Python objects, in place of a recipe file."""
from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Union

from .errors import UsageError

Size = Union[int, Sequence[int]]
Range = Union[float, Sequence[float]]


def _text(value: Any) -> str:
    """Returns a value as recipes write it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float, str)):
        return str(value)
    return "[" + ",".join(_text(item) for item in value) + "]"


# --- data sets


@dataclasses.dataclass(frozen=True)
class Source:
    """Base of the data sets: a path, and "train" or "test"."""

    path: str | os.PathLike[str]
    split: str = "train"
    _reader: ClassVar[str] = ""

    def overrides(self) -> list[str]:
        """Returns the data set as overrides of a recipe."""
        return [f"data.reader={self._reader}", f"data.path={os.fspath(self.path)}", f"data.split={self.split}"]


class Folder(Source):
    """JPEG files, one folder per class, as torchvision's ImageFolder; with train/ and test/ or val/ if they exist."""

    _reader = "folder"


class Tar(Source):
    """Shards in WebDataset's format: a folder, a file, or shard-{000..003}.tar."""

    _reader = "tar"


class Manifest(Source):
    """Files and labels listed in CSV or JSONL."""

    _reader = "manifest"


class Idx(Source):
    """MNIST's files."""

    _reader = "idx"


class Cifar(Source):
    """CIFAR-10's or CIFAR-100's binary files."""

    _reader = "cifar"


# --- augmentations: names and arguments of torchvision's transforms


@dataclasses.dataclass(frozen=True)
class Op:
    """Base of the augmentations. They run in the order given, each image with draws of its own."""

    _op: ClassVar[str] = ""

    def override(self) -> str:
        """Returns the augmentation as an override of a recipe."""
        values = (f"{field.name}={_text(getattr(self, field.name))}" for field in dataclasses.fields(self))
        return f"augment+={self._op}{{{','.join(values)}}}"


@dataclasses.dataclass(frozen=True)
class RandomResizedCrop(Op):
    """Cuts out a window of random area and aspect ratio, and resizes it."""

    size: Size
    scale: Sequence[float] = (0.08, 1.0)
    ratio: Sequence[float] = (3 / 4, 4 / 3)
    interpolation: str = "bilinear"
    antialias: bool = True
    _op = "random_resized_crop"


@dataclasses.dataclass(frozen=True)
class Resize(Op):
    """Resizes to (height, width), or until the shorter side has the size."""

    size: Size
    interpolation: str = "bilinear"
    max_size: int = 0
    antialias: bool = True
    _op = "resize"


@dataclasses.dataclass(frozen=True)
class CenterCrop(Op):
    """Cuts out the middle; smaller images are padded."""

    size: Size
    _op = "center_crop"


@dataclasses.dataclass(frozen=True)
class RandomCrop(Op):
    """Pads with `fill` (levels, 0 to 255), then cuts out a window at a random place."""

    size: Size
    padding: Size = 0
    pad_if_needed: bool = False
    fill: Size = 0
    _op = "random_crop"


@dataclasses.dataclass(frozen=True)
class HFlip(Op):
    """Mirrors left and right with probability p."""

    p: float = 0.5
    _op = "hflip"


@dataclasses.dataclass(frozen=True)
class VFlip(Op):
    """Mirrors top and bottom with probability p."""

    p: float = 0.5
    _op = "vflip"


@dataclasses.dataclass(frozen=True)
class ColorJitter(Op):
    """Changes brightness, contrast, saturation and hue by random amounts, in a random order."""

    brightness: Range = 0
    contrast: Range = 0
    saturation: Range = 0
    hue: Range = 0
    _op = "color_jitter"


@dataclasses.dataclass(frozen=True)
class RandomGrayscale(Op):
    """Makes RGB gray with probability p, keeping three channels."""

    p: float = 0.1
    _op = "grayscale"


@dataclasses.dataclass(frozen=True)
class RandomRotation(Op):
    """Rotates by a random angle in degrees: d for [-d, d], or (low, high)."""

    degrees: Range
    interpolation: str = "nearest"
    fill: Size = 0
    _op = "random_rotation"


@dataclasses.dataclass(frozen=True)
class GaussianBlur(Op):
    """Smooths with a Gaussian whose sigma, in pixels, is drawn uniformly."""

    kernel_size: Size
    sigma: Range = (0.1, 2.0)
    _op = "gaussian_blur"


@dataclasses.dataclass(frozen=True)
class Normalize:
    """Mean and standard deviation by channel, for values from 0 to 1; the last of the chain."""

    mean: Sequence[float]
    std: Sequence[float]

    def overrides(self) -> list[str]:
        """Returns the normalisation as overrides of a recipe."""
        return [f"output.mean={_text(self.mean)}", f"output.std={_text(self.std)}"]


IMAGENET = Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
"""Mean and standard deviation of ImageNet."""


def overrides(
    source: Source, chain: Iterable[Op | Normalize], batch: int | None, normalize: Normalize | None
) -> list[str]:
    """Returns the overrides that stand for a data set, a chain, samples per batch and rank, and a normalisation."""
    words = source.overrides()
    ended = False
    for op in chain:
        if ended:
            raise UsageError(f"{op} comes after Normalize", "Normalize is the last of the chain")
        if isinstance(op, Normalize):
            if normalize is not None:
                raise UsageError("the chain ends with Normalize, and normalize= is given", "leave out one of them")
            normalize, ended = op, True
        elif isinstance(op, Op):
            words.append(op.override())
        else:
            raise UsageError(f"{op!r} is no augmentation", "from_torchvision() translates torchvision's transforms")
    if normalize is not None:
        words += normalize.overrides()
    if batch is not None:
        words.append(f"loader.batch_per_rank={batch}")
    return words


# --- from torchvision

# Class in torchvision.transforms or .v2, ours, and the arguments that both have.
_COUNTERPARTS: dict[str, tuple[type[Op], tuple[str, ...]]] = {
    "RandomResizedCrop": (RandomResizedCrop, ("size", "scale", "ratio", "interpolation", "antialias")),
    "Resize": (Resize, ("size", "interpolation", "max_size", "antialias")),
    "CenterCrop": (CenterCrop, ("size",)),
    "RandomCrop": (RandomCrop, ("size", "padding", "pad_if_needed", "fill")),
    "RandomHorizontalFlip": (HFlip, ("p",)),
    "RandomVerticalFlip": (VFlip, ("p",)),
    "ColorJitter": (ColorJitter, ("brightness", "contrast", "saturation", "hue")),
    "RandomGrayscale": (RandomGrayscale, ("p",)),
    "RandomRotation": (RandomRotation, ("degrees", "interpolation", "fill")),
    "GaussianBlur": (GaussianBlur, ("kernel_size", "sigma")),
}
# Conversions that the loader makes anyway: to RGB, to a tensor, to values from 0 to 1.
_CONVERSIONS = {"ToTensor", "PILToTensor", "ToImage", "ConvertImageDtype", "ToDtype", "ToPureTensor", "RGB"}
# Values that stand for an argument of None.
_ABSENT = {"antialias": True, "max_size": 0, "padding": 0, "brightness": 0, "contrast": 0, "saturation": 0, "hue": 0}


def from_torchvision(transforms: Any) -> list[Op | Normalize]:
    """Translates a Compose of torchvision.transforms or torchvision.transforms.v2, or a list of transforms.

    Draws come from this package's random numbers, so single images differ from torchvision's; their distribution is
    the same.

    Raises:
        UsageError: a transform, or the value of an argument, has no counterpart; it is named.
    """
    steps = getattr(transforms, "transforms", transforms)
    if not isinstance(steps, Sequence):
        steps = [transforms]
    chain: list[Op | Normalize] = []
    for step in steps:
        name = type(step).__name__
        if name == "Compose":
            chain += from_torchvision(step)
        elif name == "Normalize":
            chain.append(Normalize(tuple(map(float, step.mean)), tuple(map(float, step.std))))
        elif name in _COUNTERPARTS:
            chain.append(_translate(step, name))
        elif name not in _CONVERSIONS:
            raise UsageError(
                f"torchvision's {name} has no counterpart in from_torchvision()",
                "leave it out, apply it to the batch in the training loop, or write a recipe with the op "
                "(docs/reference/augmentations.md lists them)",
            )
    return chain


def _translate(step: Any, name: str) -> Op:
    ours, arguments = _COUNTERPARTS[name]
    for rejected, only in (("padding_mode", "constant"), ("expand", False), ("center", None)):
        if getattr(step, rejected, only) != only:
            raise UsageError(f"torchvision's {name} with {rejected}={getattr(step, rejected)!r} has no counterpart")
    values = {}
    for argument in arguments:
        value = getattr(step, argument, None)
        value = _ABSENT.get(argument) if value is None else getattr(value, "value", value)
        if argument == "interpolation" and value not in ("nearest", "bilinear"):
            raise UsageError(f"torchvision's {name} with interpolation={value!r} has no counterpart", "use bilinear")
        if isinstance(value, dict):
            raise UsageError(f"torchvision's {name} with {argument}={value!r} has no counterpart", "give one number")
        if value is not None:
            values[argument] = tuple(value) if isinstance(value, (list, tuple)) else value
    return ours(**values)
