"""Data sets and augmentations as Python objects, in place of a recipe file."""
from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Sequence
from typing import ClassVar

from .errors import UsageError
from .op import Op, as_written


@dataclasses.dataclass(frozen=True)
class Source:
    """Base of the data sets."""

    def overrides(self) -> list[str]:
        """Returns the data set as overrides of a recipe."""
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class Files(Source):
    """Base of the data sets in files: a path, and "train" or "test"."""

    path: str | os.PathLike[str]
    split: str = "train"
    _reader: ClassVar[str] = ""

    def overrides(self) -> list[str]:
        """Returns the data set as overrides of a recipe."""
        return [f"data.reader={self._reader}", f"data.path={os.fspath(self.path)}", f"data.split={self.split}"]


def _masks(masks: str | os.PathLike[str] | None) -> list[str]:
    return [] if masks is None else [f"data.masks={os.fspath(masks)}"]


@dataclasses.dataclass(frozen=True)
class _Masked(Files):
    """Base of the data sets that may have masks."""

    masks: str | os.PathLike[str] | None = None

    def overrides(self) -> list[str]:
        """Returns the data set as overrides of a recipe."""
        return [*super().overrides(), *_masks(self.masks)]


class Folder(_Masked):
    """JPEG files, one folder per class, as torchvision's ImageFolder; with train/ and test/ or val/ if they exist.

    `masks` is a folder of masks for segmentation, Batch.masks: masks/SPLIT/.../NAME.png beside path/SPLIT/.../NAME.jpg.
    """

    _reader = "folder"


@dataclasses.dataclass(frozen=True)
class Tar(Files):
    """Shards in WebDataset's format: a folder, a file, or shard-{000..003}.tar.

    `members` names other members of the samples, as ("txt", "json"), which batches then have: Batch.members. `masks`
    names the member with a mask for segmentation, as "seg.png": Batch.masks.
    """

    members: Sequence[str] = ()
    masks: str | None = None
    _reader: ClassVar[str] = "tar"

    def overrides(self) -> list[str]:
        """Returns the data set as overrides of a recipe."""
        names = [self.members] if isinstance(self.members, str) else self.members
        return [*super().overrides(), *([f"data.members={','.join(names)}"] if names else []), *_masks(self.masks)]


class Manifest(_Masked):
    """Files and labels listed in CSV or JSONL. `masks` names the column of masks' paths, for segmentation."""

    _reader = "manifest"


@dataclasses.dataclass(frozen=True)
class Coco(Files):
    """Images with boxes and key points: a COCO annotation file, or the folder of a COCO set.

    With `masks`, batches also have a mask of each object from its outline: Batch.instance_masks.
    """

    masks: bool = False
    _reader: ClassVar[str] = "coco"

    def overrides(self) -> list[str]:
        """Returns the data set as overrides of a recipe."""
        return [*super().overrides(), *(["data.instance_masks=true"] if self.masks else [])]


class Yolo(Files):
    """Images with boxes in YOLO's text files: a folder with images/train and labels/train, or train/images and so on."""

    _reader = "yolo"


class Idx(Files):
    """MNIST's files."""

    _reader = "idx"


class Cifar(Files):
    """CIFAR-10's or CIFAR-100's binary files."""

    _reader = "cifar"


@dataclasses.dataclass(frozen=True)
class Grayscale(Op):
    """Makes RGB gray, keeping three channels; draws nothing."""

    _op = "saturation"

    def override(self) -> str:
        """Returns the augmentation as an override of a recipe."""
        return f"augment+={self._op}{{factor=0}}"


@dataclasses.dataclass(frozen=True)
class Normalize:
    """Mean and standard deviation by channel, for values from 0 to 1; the last of the chain."""

    mean: Sequence[float]
    std: Sequence[float]

    def overrides(self) -> list[str]:
        """Returns the normalisation as overrides of a recipe."""
        return [f"output.mean={as_written(self.mean)}", f"output.std={as_written(self.std)}"]


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
            if isinstance(source, Idx) and any(isinstance(part, Grayscale) for part in op.parts()):
                raise UsageError("Grayscale makes three channels, and images of an Idx set keep their one",
                                 "leave it out, and let the model take one channel")
            words.append(op.override())
        else:
            raise UsageError(f"{op!r} is not an augmentation", "from_torchvision() translates torchvision's transforms")
    if normalize is not None:
        words += normalize.overrides()
    if batch is not None:
        words.append(f"loader.batch_per_rank={batch}")
    return words
