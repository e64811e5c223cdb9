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
class Grayscale(Op):
    """Makes RGB gray, keeping three channels; draws nothing."""

    _op = "saturation"

    def override(self) -> str:
        """Returns the augmentation as an override of a recipe."""
        return f"augment+={self._op}{{factor=0}}"


@dataclasses.dataclass(frozen=True)
class Pad(Op):
    """Adds pixels around the image: on all sides, (x, y) or (left, top, right, bottom)."""

    padding: Size
    fill: Size = 0
    padding_mode: str = "constant"
    _op = "pad"


@dataclasses.dataclass(frozen=True)
class RandomRotation(Op):
    """Rotates by a random angle in degrees: d for [-d, d], or (low, high)."""

    degrees: Range
    interpolation: str = "nearest"
    fill: Size = 0
    center: Sequence[float] = ()
    _op = "random_rotation"


@dataclasses.dataclass(frozen=True)
class RandomAffine(Op):
    """Rotates, translates (at most by a part of each side), scales and shears (degrees) by random amounts."""

    degrees: Range
    translate: Range = 0
    scale: Range = 1
    shear: Range = 0
    interpolation: str = "nearest"
    fill: Size = 0
    center: Sequence[float] = ()
    _op = "random_affine"


@dataclasses.dataclass(frozen=True)
class RandomPerspective(Op):
    """Moves the corners inwards at random, with probability p."""

    distortion_scale: float = 0.5
    p: float = 0.5
    interpolation: str = "bilinear"
    fill: Size = 0
    _op = "random_perspective"


@dataclasses.dataclass(frozen=True)
class ElasticTransform(Op):
    """Moves pixels by smooth random displacements."""

    alpha: Range = 50
    sigma: Range = 5
    interpolation: str = "bilinear"
    fill: Size = 0
    _op = "elastic"


@dataclasses.dataclass(frozen=True)
class GaussianBlur(Op):
    """Smooths with a Gaussian whose sigma, in pixels, is drawn uniformly."""

    kernel_size: Size
    sigma: Range = (0.1, 2.0)
    _op = "gaussian_blur"


@dataclasses.dataclass(frozen=True)
class RandomAdjustSharpness(Op):
    """Sharpens (factor above 1) or smooths (below 1) with probability p."""

    sharpness_factor: float
    p: float = 0.5
    _op = "sharpness"


@dataclasses.dataclass(frozen=True)
class RandomInvert(Op):
    """Turns every level into 255 - level with probability p."""

    p: float = 0.5
    _op = "invert"


@dataclasses.dataclass(frozen=True)
class RandomPosterize(Op):
    """Keeps the upper bits of every level with probability p."""

    bits: int
    p: float = 0.5
    _op = "posterize"


@dataclasses.dataclass(frozen=True)
class RandomSolarize(Op):
    """Inverts levels of `threshold` and above with probability p."""

    threshold: float
    p: float = 0.5
    _op = "solarize"


@dataclasses.dataclass(frozen=True)
class RandomAutocontrast(Op):
    """Stretches each channel's levels to 0..255 with probability p."""

    p: float = 0.5
    _op = "autocontrast"


@dataclasses.dataclass(frozen=True)
class RandomEqualize(Op):
    """Makes each channel's levels equally frequent with probability p."""

    p: float = 0.5
    _op = "equalize"


@dataclasses.dataclass(frozen=True)
class GaussianNoise(Op):
    """Adds normally distributed noise; mean and sigma are parts of full scale."""

    mean: float = 0.0
    sigma: float = 0.1
    clip: bool = True
    _op = "gaussian_noise"


@dataclasses.dataclass(frozen=True)
class JPEG(Op):
    """Compresses as JPEG, of one quality or of one drawn from (low, high), and decodes again."""

    quality: Size
    p: float = 1.0
    _op = "jpeg_compression"


@dataclasses.dataclass(frozen=True)
class RandomErasing(Op):
    """Covers a random rectangle with probability p.

    `value` holds levels (0 to 255) for mode="value". mode="mean" takes the levels that Normalize turns into 0,
    mode="random" noise that it turns into Normal(0, 1), cut off at black and white.
    """

    p: float = 0.5
    scale: Sequence[float] = (0.02, 0.33)
    ratio: Sequence[float] = (0.3, 3.3)
    value: Size = 0
    mode: str = "value"
    _op = "random_erasing"


@dataclasses.dataclass(frozen=True)
class AutoAugment(Op):
    """One of a learned policy's 25 pairs of operations; the policy is imagenet, cifar10 or svhn."""

    policy: str = "imagenet"
    interpolation: str = "nearest"
    fill: Size = 0
    _op = "auto_augment"


@dataclasses.dataclass(frozen=True)
class RandAugment(Op):
    """num_ops of 14 operations, each at the same strength."""

    num_ops: int = 2
    magnitude: int = 9
    num_magnitude_bins: int = 31
    interpolation: str = "nearest"
    fill: Size = 0
    _op = "rand_augment"


@dataclasses.dataclass(frozen=True)
class TrivialAugmentWide(Op):
    """One of 14 operations at a random strength."""

    num_magnitude_bins: int = 31
    interpolation: str = "nearest"
    fill: Size = 0
    _op = "trivial_augment"


@dataclasses.dataclass(frozen=True)
class RandomApply(Op):
    """Applies all of up to 16 augmentations with probability p, or none."""

    transforms: Sequence[Op]
    p: float = 0.5
    _op = "random_apply"

    def override(self) -> str:
        """Returns the augmentation as an override of a recipe."""
        ops = ";".join(op.override().removeprefix("augment+=") for op in self.transforms)
        return f"augment+={self._op}{{p={_text(self.p)},ops={ops}}}"


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


def _parts(op: Op) -> list[Op]:
    """Returns an augmentation, or those that it applies."""
    return [part for one in op.transforms for part in _parts(one)] if isinstance(op, RandomApply) else [op]


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
            if isinstance(source, Idx) and any(isinstance(part, Grayscale) for part in _parts(op)):
                raise UsageError("Grayscale makes three channels, and images of an Idx set keep their one",
                                 "leave it out, and let the model take one channel")
            words.append(op.override())
        else:
            raise UsageError(f"{op!r} is no augmentation", "from_torchvision() translates torchvision's transforms")
    if normalize is not None:
        words += normalize.overrides()
    if batch is not None:
        words.append(f"loader.batch_per_rank={batch}")
    return words
