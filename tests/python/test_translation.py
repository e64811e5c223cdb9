"""Table of torchvision's transforms: each gives the images of its translation, as often, or is refused by name.

Both sides augment one image a few thousand times. Arguments are chosen so that few results are possible: then each of
ours must be one of torchvision's to within some levels, and as frequent. What draws from too many results, such as
noise, is compared by the mean and the deviation of each pixel.
"""
import dataclasses
import math
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch", reason="NOT TESTED with PyTorch: it cannot be imported", exc_type=ImportError)
pytest.importorskip("torchvision", reason="NOT TESTED: torchvision is missing", exc_type=ImportError)

import numpy as np
import pymillrace as mr
import torch
import torchvision
from conftest import LONG
from PIL import Image
from torch.utils.data import default_collate
from torchvision import transforms as v1
from torchvision.transforms import v2

pytestmark = pytest.mark.filterwarnings("ignore:.*ToTensor.* is deprecated")
WIDTH, HEIGHT = 30, 24
MEAN, STD = (0.5, 0.4, 0.3), (0.25, 0.2, 0.5)
NEAREST, BILINEAR = v1.InterpolationMode.NEAREST, v1.InterpolationMode.BILINEAR
EXACT = v1.InterpolationMode.NEAREST_EXACT
NAMESPACES = {"v1": v1, "v2": v2}


@dataclasses.dataclass
class Same:
    """Most levels off, and the part of pixels that may lie farther off, for each kind of input.

    The kinds are 8-bit tensors, PIL images, and float32 tensors from 0 to 1. None: torchvision raises an exception,
    hands out PIL images, of which no batch can be made, or from_torchvision() refuses it. What lies farther off: pixels
    whose position is on the border of two, and with bilinear warps and a fill, the rim where the image meets it.
    """

    tensor: tuple[float, float] | None = (0, 0)
    pil: tuple[float, float] | None = (0, 0)
    unit: tuple[float, float] | None = (0, 0)
    samples: int = 400
    moments: bool = False  # compares mean and deviation only
    margin: int = 0  # pixels along the edges that are not compared: the rim of warps that move corners by a pixel


@dataclasses.dataclass
class Case:
    """One call of a constructor in a chain."""

    build: Callable[[Any], Any]  # gets a namespace of transforms, and returns a transform or a chain
    expected: Same | str  # the latter: part of the message with which it is refused
    only: str | None = None  # the namespace


# --- the two sides


@pytest.fixture(scope="module")
def photo(tmp_path_factory):
    """A small photograph: its folder, and its levels as the loader decodes them."""
    folder = tmp_path_factory.mktemp("photo")
    y, x = np.mgrid[:HEIGHT, :WIDTH] / 8
    waves = [np.sin(x + 0.5 * y), np.cos(1.5 * y - x), np.sin(2 * x) * np.cos(y)]
    dots = np.random.default_rng(3).normal(0, 12, (HEIGHT, WIDTH, 3))
    levels = np.clip(np.rint(120 + 75 * np.stack(waves, 2) + dots), 0, 255).astype(np.uint8)
    Image.fromarray(levels).save(folder / "photo.jpg", quality=95)
    return folder, ours_of((folder, None), [], 1)[0].transpose(1, 2, 0).astype(np.uint8)


def ours_of(photo, chain, samples):
    """Returns images of the translated chain, in levels: samples x channels x height x width."""
    rows = photo[0] / f"{samples}.csv"
    rows.write_text("path,label\n" + "photo.jpg,a\n" * samples)
    loader = mr.Loader(mr.Manifest(rows), chain, "resample=stepwise", "loader.workers=0", batch=samples, numpy=True)
    return levels_of(next(iter(loader)).images, any(isinstance(op, mr.Normalize) for op in chain))


def levels_of(values, normalized):
    """Returns what values from 0 to 1, normalised or not, are in levels."""
    if normalized:
        values = values * np.reshape(STD, (3, 1, 1)) + np.reshape(MEAN, (3, 1, 1))
    return (255 * values).astype(np.float32)


def source_of(photo, kind):
    if kind == "pil":
        return Image.fromarray(photo[1])
    tensor = torch.from_numpy(photo[1].transpose(2, 0, 1).copy())
    return tensor / 255 if kind == "unit" else tensor


def theirs_of(transform, source, samples):
    """Returns images of torchvision's transform, in levels."""
    torch.manual_seed(5)
    random.seed(5)
    np.random.seed(5)
    images = []
    for _ in range(samples):
        given = source.copy() if isinstance(source, Image.Image) else source.clone()
        result = transform(given)
        if isinstance(result, Image.Image):
            result = torch.from_numpy(np.array(result).transpose(2, 0, 1))
        images.append(result.numpy())
    found = np.stack(images)
    if found.dtype == np.uint8:
        return found.astype(np.float32)
    assert found.dtype == np.float32
    return levels_of(found, holds_normalize(transform))


def holds_normalize(transform):
    names = {type(part).__name__ for part in getattr(transform, "transforms", [transform])}
    return bool(names & {"Normalize", "ImageClassification", "SemanticSegmentation"})


# --- comparing


def distinct(images):
    """Returns the different images, and how often each occurs."""
    counts = Counter(image.tobytes() for image in images)
    return np.stack([np.frombuffer(one, np.float32).reshape(images.shape[1:]) for one in counts]), list(counts.values())


def off(image, others, levels):
    """Returns the part of pixels that lie more than `levels` away, for each of the others."""
    return (np.abs(others - image).max(1) > levels + 0.01).mean((1, 2))


def compare(ours, theirs, levels, part):
    """Asserts that each of our images is one of theirs, and as frequent."""
    ours, our_counts = distinct(ours)
    theirs, their_counts = distinct(theirs)
    assert ours.shape[1:] == theirs.shape[1:]
    nearest = []
    for image in ours:
        distances = off(image, theirs, levels)
        nearest.append(int(np.argmin(distances + 1e-6 * np.abs(theirs - image).mean((1, 2, 3)))))
        worst = distances[nearest[-1]]
        assert worst <= part, f"{worst:.1%} of the pixels lie more than {levels} levels off; others at most " \
                              f"{np.abs(theirs[nearest[-1]] - image).max():.1f}"
    group = groups_of(theirs, levels, part)
    table = np.zeros((2, len(theirs)))
    for where, count in zip(nearest, our_counts):
        table[0, group[where]] += count
    for where, count in enumerate(their_counts):
        table[1, group[where]] += count
    assert_equally_frequent(table)


def groups_of(images, levels, part):
    """Returns a number per image, equal for those that cannot be told apart with such a tolerance."""
    group = list(range(len(images)))
    for i, image in enumerate(images):
        for j in np.flatnonzero(off(image, images[:i], 2 * levels) <= 2 * part) if i else ():
            group = [group[i] if one == group[j] else one for one in group]
    return group


def assert_equally_frequent(table):
    """Chi-square test of two samples; rare results count together."""
    table = table[:, table.sum(0) > 0]
    rare = table.sum(0) < 16
    if rare.any():
        table = np.concatenate([table[:, ~rare], table[:, rare].sum(1, keepdims=True)], 1)
    expected = table.sum(1, keepdims=True) * table.sum(0) / table.sum()
    statistic = ((table - expected) ** 2 / expected).sum()
    freedom = table.shape[1] - 1
    assert statistic < freedom + 4 * math.sqrt(2 * freedom) + 4, f"frequencies differ: {table.tolist()}"


def compare_moments(ours, theirs, levels, part):
    """Asserts that mean and deviation of each pixel agree, apart from chance and some levels, for all but some."""
    for images in (ours, theirs):
        assert len(distinct(images)[0]) > len(images) / 4
    noise = np.sqrt((ours.var(0) + theirs.var(0)) / len(ours))
    away = np.abs(ours.mean(0) - theirs.mean(0)) > 5 * noise + levels
    assert away.any(0).mean() <= part
    spread = np.abs(ours.std(0) - theirs.std(0)) > levels + 0.1 * theirs.std(0) + 0.5
    assert spread.any(0).mean() <= part + 0.01


# --- the table

ROUNDED = (1, 0)


def floats(t, *rest):
    return t.Compose([t.ConvertImageDtype(torch.float32), *rest])


def normalized(t, *rest):
    return floats(t, t.Normalize(MEAN, STD), *rest)


CASES = {
    "AugMix": [Case(lambda t: t.AugMix(), "AugMix has no counterpart")],
    "AutoAugment": [
        Case(lambda t: t.AutoAugment(), Same((2, 0.01), (8, 0.07), None, samples=6000)),
        Case(lambda t: t.AutoAugment(v1.AutoAugmentPolicy.CIFAR10, BILINEAR),
             Same((2, 0.01), (8, 0.12), None, samples=9000)),
        Case(lambda t: t.AutoAugment(v1.AutoAugmentPolicy.SVHN, fill=[9.0, 8.0, 7.0]),
             Same((2, 0.12), (8, 0.13), None, samples=9000)),
        Case(lambda t: t.AutoAugment(interpolation=v1.InterpolationMode.BICUBIC), "interpolation='bicubic'"),
        Case(lambda t: with_policy(t.AutoAugment()), "a policy of its own", "v1"),
    ],
    "CenterCrop": [Case(lambda t: t.CenterCrop((20, 17)), Same()), Case(lambda t: t.CenterCrop((27, 35)), Same())],
    "ClampBoundingBoxes": [Case(lambda t: t.ClampBoundingBoxes(), "has no counterpart")],
    "ClampKeyPoints": [Case(lambda t: t.ClampKeyPoints(), "has no counterpart")],
    "ColorJitter": [
        Case(lambda t: t.ColorJitter((1.3, 1.3)), Same(pil=(0, 0), unit=ROUNDED)),
        Case(lambda t: t.ColorJitter(0, (0.7, 0.7)), Same(pil=ROUNDED, unit=(1.1, 0))),
        Case(lambda t: t.ColorJitter(saturation=(1.4, 1.4)), Same(ROUNDED, ROUNDED, ROUNDED)),
        Case(lambda t: t.ColorJitter((1.3, 1.3), (0.7, 0.7)), Same(pil=(2, 0), unit=(2.4, 0))),
        Case(lambda t: t.ColorJitter(hue=(0.1, 0.1)), Same(pil=(8, 0), unit=ROUNDED)),
        Case(lambda t: t.ColorJitter((1.2, 1.2), (0.8, 0.8), (1.4, 1.4), (0.1, 0.1)),
             Same((4, 0), (12, 0.02), (6, 0), samples=1500)),
    ],
    "Compose": [
        Case(lambda t: t.Compose([t.RandomHorizontalFlip(0.2), t.Compose([t.RandomVerticalFlip(0.4)])]), Same()),
        Case(lambda t: t.Compose([t.Lambda(abs)]), "Lambda has no counterpart"),
    ],
    "ConvertBoundingBoxFormat": [Case(lambda t: t.ConvertBoundingBoxFormat("xywh"), "has no counterpart")],
    "ConvertImageDtype": [
        Case(lambda t: t.ConvertImageDtype(torch.float32), Same(pil=None)),
        Case(lambda t: t.ConvertImageDtype(torch.float64), "with dtype=torch.float64"),
        Case(lambda t: floats(t, t.ConvertImageDtype(torch.uint8)),
             "with dtype=torch.uint8"),
        Case(lambda t: t.ConvertImageDtype(torch.uint8), "the chain ends with levels"),
        Case(lambda t: t.Compose([t.ToPILImage(), t.ConvertImageDtype(torch.float32)]), "on a PIL image"),
    ],
    "CutMix": [Case(lambda t: t.CutMix(num_classes=3), "has no counterpart")],
    "ElasticTransform": [
        Case(lambda t: t.ElasticTransform(20.0, 3.0), Same((2, 0.3), (2, 0.3), (2, 0.3), 1500, True)),
        Case(lambda t: t.ElasticTransform(20.0, 3.0, fill=None), Same((2, 0.03), None, (2, 0.03), 1500, True), "v2"),
        Case(lambda t: t.ElasticTransform(8.0, [1.0, 2.0], NEAREST, 50), Same((2, 0), (2, 0), None, 1500, True)),
    ],
    "FiveCrop": [Case(lambda t: t.FiveCrop(8), "has no counterpart")],
    "GaussianBlur": [
        Case(lambda t: t.GaussianBlur((3, 5), 1.0), Same(unit=ROUNDED)),
        Case(lambda t: t.GaussianBlur(3, (0.3, 2.0)), Same(ROUNDED, ROUNDED, ROUNDED, moments=True)),
    ],
    "GaussianNoise": [
        Case(lambda t: t.GaussianNoise(0.1, 0.05), Same(ROUNDED, None, None, moments=True)),
        Case(lambda t: t.GaussianNoise(0.0, 0.3, clip=False), Same(ROUNDED, None, None, moments=True, samples=1000)),
    ],
    "Grayscale": [
        Case(lambda t: t.Grayscale(3), Same(pil=ROUNDED, unit=ROUNDED)),
        Case(lambda t: t.Grayscale(), "num_output_channels=1"),
    ],
    "Identity": [Case(lambda t: t.Identity(), Same())],
    "JPEG": [Case(lambda t: t.JPEG((40, 42)), Same(unit=None)), Case(lambda t: t.JPEG(9), Same(unit=None))],
    "Lambda": [Case(lambda t: t.Lambda(lambda image: image), "has no counterpart")],
    "LinearTransformation": [
        Case(lambda t: t.LinearTransformation(torch.eye(4), torch.zeros(4)), "has no counterpart"),
    ],
    "MixUp": [Case(lambda t: t.MixUp(num_classes=3), "has no counterpart")],
    "Normalize": [
        Case(lambda t: normalized(t), Same((0.01, 0), None, (0.01, 0))),
        Case(lambda t: floats(t, t.Normalize(torch.tensor(MEAN), torch.tensor(STD), inplace=True)),
             Same((0.01, 0), None, (0.01, 0))),
        Case(lambda t: normalized(t, t.RandomHorizontalFlip(0.4)),
             Same((0.01, 0), None, (0.01, 0))),
        Case(lambda t: t.Normalize(MEAN, STD), "before the conversion to float"),
        Case(lambda t: normalized(t, t.Normalize(MEAN, STD)), "a second Normalize"),
        Case(lambda t: normalized(t, t.Resize((9, 9))), "Resize after Normalize"),
    ],
    "PILToTensor": [
        Case(lambda t: t.Compose([t.PILToTensor(), t.ConvertImageDtype(torch.float32)]),
             Same(None, (0, 0), None), "v1"),
        Case(lambda t: t.Compose([t.PILToTensor(), t.ConvertImageDtype(torch.float32)]), Same(), "v2"),
        Case(lambda t: t.PILToTensor(), "the chain ends with levels"),
        Case(lambda t: t.Compose([t.ToTensor(), t.PILToTensor()]), "takes no tensor", "v1"),
    ],
    "Pad": [
        Case(lambda t: t.Pad((1, 2, 3, 4), 10), Same(unit=None)),
        Case(lambda t: t.Pad((1, 2), (10, 20, 30)), Same(unit=None), "v2"),
        Case(lambda t: t.Pad([2], 0.2), Same(None, None, (0, 0)), "v2"),
        Case(lambda t: t.Pad(3, padding_mode="edge"), Same()),
        Case(lambda t: t.Pad((1, 2), padding_mode="reflect"), Same()),
        Case(lambda t: t.Pad((4, 0, 0, 1), padding_mode="symmetric"), Same()),
        Case(lambda t: t.Pad((-1, 0)), "whole numbers from 0 on"),
        Case(lambda t: t.Pad(1, 300), "300 as its fill"),
        Case(lambda t: t.Pad(1, {torch.Tensor: 3}), "give one number", "v2"),
    ],
    "RGB": [Case(lambda t: t.RGB(), "has no counterpart")],
    "RandAugment": [
        Case(lambda t: t.RandAugment(1, 12), Same((1, 0.03), (3, 0.03), None, samples=1500)),
        Case(lambda t: t.RandAugment(1, 3, 5, BILINEAR), Same(ROUNDED, (3, 0.1), None, samples=1500)),
        Case(lambda t: t.RandAugment(2, 1, 3, fill=[90.0]), Same((2, 0.03), (4, 0.1), None, samples=12000), "v2"),
    ],
    "RandomAdjustSharpness": [
        Case(lambda t: t.RandomAdjustSharpness(2.5, 0.4), Same(unit=(1.3, 0))),
        Case(lambda t: t.RandomAdjustSharpness(0.3, 0.4), Same(unit=(1.3, 0))),
    ],
    "RandomAffine": [
        Case(lambda t: t.RandomAffine((20, 20), scale=(1.2, 1.2), shear=(5, 5, -8, -8), fill=50), Same(unit=None)),
        Case(lambda t: t.RandomAffine((20, 20), shear=(5, 5), interpolation=BILINEAR),
             Same((1, 0.07), (1, 0.07), (1, 0.07))),
        Case(lambda t: t.RandomAffine((20, 20), interpolation=BILINEAR, fill=None),
             Same(ROUNDED, (1, 0.07), ROUNDED), "v2"),
        Case(lambda t: t.RandomAffine(0, translate=(0.06, 0.04)), Same()),
        Case(lambda t: t.RandomAffine((20, 20), center=(3, 4), fill=(90, 80, 70)), Same(unit=None)),
        Case(lambda t: t.RandomAffine(9, interpolation=v1.InterpolationMode.BICUBIC), "interpolation='bicubic'"),
    ],
    "RandomApply": [
        Case(lambda t: t.RandomApply([t.ColorJitter((0.5, 0.5))], p=0.1), Same(unit=ROUNDED, samples=2000)),
        Case(lambda t: t.RandomApply([t.RandomInvert(0.5), t.RandomApply([t.RandomVerticalFlip(1)], 0.3)], p=0.6),
             Same(samples=2000)),
        Case(lambda t: t.RandomApply(torch.nn.ModuleList([t.RandomVerticalFlip(1)]), p=0.6), Same()),
        Case(lambda t: t.RandomApply([t.ToTensor()]), "of a conversion or of Normalize"),
        Case(lambda t: t.RandomApply([t.RandomOrder([t.RandomVerticalFlip()])]), "RandomOrder has no counterpart"),
    ],
    "RandomAutocontrast": [Case(lambda t: t.RandomAutocontrast(0.4), Same(pil=ROUNDED, unit=None))],
    "RandomChannelPermutation": [Case(lambda t: t.RandomChannelPermutation(), "has no counterpart")],
    "RandomChoice": [Case(lambda t: t.RandomChoice([t.RandomVerticalFlip(1)]), "RandomChoice has no counterpart")],
    "RandomCrop": [
        Case(lambda t: t.RandomCrop((22, 29), padding=(1, 0), fill=7), Same(unit=None)),
        Case(lambda t: t.RandomCrop((25, 31), padding=(1, 2, 0, 0)), Same()),
        Case(lambda t: t.RandomCrop((26, 30), pad_if_needed=True), Same()),
        Case(lambda t: t.RandomCrop((24, 31), padding=(0, 1, 2, 0), padding_mode="reflect"), Same()),
        Case(lambda t: t.RandomCrop(40, padding_mode="edge", pad_if_needed=True), "pad_if_needed=True"),
    ],
    "RandomEqualize": [Case(lambda t: t.RandomEqualize(0.4), Same(unit=None))],
    "RandomErasing": [
        Case(lambda t: t.RandomErasing(0.6, (0.7, 0.7), (0.8, 0.8), (9, 8, 7)),
             Same(pil=None, unit=None, samples=1500), "v1"),
        Case(lambda t: t.RandomErasing(0.6, (0.7, 0.7), (0.8, 0.8), (9, 8, 7)), Same(unit=None, samples=1500), "v2"),
        Case(lambda t: t.RandomErasing(0.6, (0.7, 0.7), (0.8, 0.8), 0.31), Same(None, None, (0.5, 0), samples=1500)),
        Case(lambda t: normalized(t, t.RandomErasing(1, (0.7, 0.7), (0.8, 0.8))),
             Same((0.51, 0), None, (0.51, 0), samples=1500)),
        Case(lambda t: normalized(t, t.RandomErasing(1, (0.7, 0.7), (0.8, 0.8), (0.5, -0.5, 0), inplace=True)),
             Same((0.51, 0), None, (0.51, 0), samples=1500)),
        Case(lambda t: normalized(t, t.RandomErasing(value=9)), "9"),
        Case(lambda t: normalized(t, t.RandomErasing(value="random")), "with noise"),
    ],
    "RandomGrayscale": [Case(lambda t: t.RandomGrayscale(0.3), Same(pil=ROUNDED, unit=ROUNDED))],
    "RandomHorizontalFlip": [Case(lambda t: t.RandomHorizontalFlip(0.3), Same())],
    "RandomInvert": [Case(lambda t: t.RandomInvert(0.4), Same())],
    "RandomIoUCrop": [Case(lambda t: t.RandomIoUCrop(), "has no counterpart")],
    "RandomOrder": [Case(lambda t: t.RandomOrder([t.RandomVerticalFlip(1)]), "RandomOrder has no counterpart")],
    "RandomPerspective": [
        Case(lambda t: t.RandomPerspective(0.09, 0.8, NEAREST), Same((0, 0.01), (0, 0.01), (0, 0.01), samples=4000)),
        Case(lambda t: t.RandomPerspective(0.09, 0.8), Same((1, 0.01), (1, 0.01), (1, 0.01), samples=4000, margin=3)),
        Case(lambda t: t.RandomPerspective(0.09, 0.8, fill=None), Same((1, 0.01), None, (1, 0.01), samples=4000), "v2"),
    ],
    "RandomPhotometricDistort": [Case(lambda t: t.RandomPhotometricDistort(), "has no counterpart")],
    "RandomPosterize": [Case(lambda t: t.RandomPosterize(3, 0.4), Same(unit=None))],
    "RandomResize": [Case(lambda t: t.RandomResize(8, 9), "has no counterpart")],
    "RandomResizedCrop": [
        Case(lambda t: t.RandomResizedCrop((16, 20), (0.8, 0.8), (1.25, 1.25)), Same(ROUNDED, ROUNDED, ROUNDED)),
        Case(lambda t: t.RandomResizedCrop(16, (0.8, 0.8), (1.25, 1.25), EXACT), Same()),
        Case(lambda t: t.Compose([t.ToTensor(), t.RandomResizedCrop(16, (0.8, 0.8), (1, 1), antialias=False)]),
             Same(None, ROUNDED, None), "v1"),
        Case(lambda t: t.RandomResizedCrop(16, antialias=False), "antialias=False"),
        Case(lambda t: t.RandomResizedCrop(16, interpolation=NEAREST), "write InterpolationMode.NEAREST_EXACT"),
        Case(lambda t: t.RandomResizedCrop(16, interpolation=3), "interpolation='bicubic'"),
    ],
    "RandomRotation": [
        Case(lambda t: t.RandomRotation((20, 20)), Same()),
        Case(lambda t: t.RandomRotation((20, 20), BILINEAR, center=(4, 9)), Same((1, 0.07), (1, 0.07), (1, 0.07))),
        Case(lambda t: t.RandomRotation((20, 20), BILINEAR, fill=None), Same(ROUNDED, (1, 0.07), ROUNDED), "v2"),
        Case(lambda t: t.RandomRotation(9, expand=True), "expand=True"),
    ],
    "RandomShortestSize": [Case(lambda t: t.RandomShortestSize(8), "has no counterpart")],
    "RandomSolarize": [Case(lambda t: t.RandomSolarize(100, 0.4), Same(unit=None))],
    "RandomVerticalFlip": [Case(lambda t: t.RandomVerticalFlip(0.3), Same())],
    "RandomZoomOut": [Case(lambda t: t.RandomZoomOut(), "has no counterpart")],
    "Resize": [
        Case(lambda t: t.Resize((17, 40)), Same(ROUNDED, ROUNDED, ROUNDED)),
        Case(lambda t: t.Resize(20), Same(ROUNDED, ROUNDED, ROUNDED)),
        Case(lambda t: t.Resize(20, max_size=22), Same(ROUNDED, ROUNDED, ROUNDED)),
        Case(lambda t: t.Resize((16, 20), EXACT), Same()),
        Case(lambda t: t.Resize((18, 41), EXACT), Same((0, 0.3), (0, 0.3), (0, 0.3))),  # positions between two pixels
        Case(lambda t: t.Compose([t.ToPILImage(), t.Resize((16, 20), NEAREST), t.ToTensor()]), Same(unit=None), "v2"),
        Case(lambda t: floats(t, t.Resize((11, 12), antialias=False)), Same(ROUNDED, None, ROUNDED)),
        Case(lambda t: t.Resize((9, 9), antialias=None), "antialias=None"),
        Case(lambda t: t.Resize((9, 9), NEAREST), "write InterpolationMode.NEAREST_EXACT"),
        Case(lambda t: t.Resize(None, max_size=9), "size=None", "v2"),
    ],
    "SanitizeBoundingBoxes": [Case(lambda t: t.SanitizeBoundingBoxes(), "has no counterpart")],
    "SanitizeKeyPoints": [Case(lambda t: t.SanitizeKeyPoints(), "has no counterpart")],
    "ScaleJitter": [Case(lambda t: t.ScaleJitter((9, 9)), "has no counterpart")],
    "SetClampingMode": [Case(lambda t: t.SetClampingMode("soft"), "has no counterpart")],
    "TenCrop": [Case(lambda t: t.TenCrop(8), "has no counterpart")],
    "ToDtype": [
        Case(lambda t: t.Compose([t.ToImage(), t.ToDtype(torch.float32, scale=True)]), Same()),
        Case(lambda t: t.Compose([t.ToDtype(torch.uint8, scale=True), t.ToDtype(torch.float32, scale=True)]),
             Same(pil=None, unit=None)),
        Case(lambda t: t.ToDtype(torch.float32), "with scale=False"),
        Case(lambda t: t.ToDtype({torch.Tensor: torch.float32}, scale=True), "with dtype={"),
        Case(lambda t: t.ToDtype(torch.uint8, scale=True), "the chain ends with levels"),
    ],
    "ToImage": [
        Case(lambda t: t.Compose([t.ToImage(), t.ToDtype(torch.float32, scale=True)]), Same()),
        Case(lambda t: t.ToImage(), "the chain ends with levels"),
    ],
    "ToPILImage": [
        Case(lambda t: t.Compose([t.ToPILImage(), t.RandomVerticalFlip(0.5), t.ToTensor()]),
             Same(pil=None, unit=None), "v1"),
        Case(lambda t: t.Compose([t.ToPILImage(), t.RandomVerticalFlip(0.5), t.ToTensor()]), Same(unit=None), "v2"),
        Case(lambda t: t.ToPILImage("YCbCr"), "mode='YCbCr'"),
    ],
    "ToPureTensor": [
        Case(lambda t: t.Compose([t.ToImage(), t.ToDtype(torch.float32, scale=True), t.ToPureTensor()]), Same()),
    ],
    "ToTensor": [
        Case(lambda t: t.ToTensor(), Same(None, (0, 0), None), "v1"),
        Case(lambda t: t.Compose([t.ToTensor(), t.Normalize(MEAN, STD)]), Same(None, (0.01, 0), (0.01, 0)), "v2"),
        Case(lambda t: t.Compose([t.ToImage(), t.ToTensor()]), "the chain ends with levels", "v2"),
        Case(lambda t: t.Compose([t.ToTensor(), t.ToTensor()]), "takes no tensor", "v1"),
    ],
    "TrivialAugmentWide": [
        Case(lambda t: t.TrivialAugmentWide(3), Same((1, 0.04), (3, 0.04), None, samples=3000)),
        Case(lambda t: t.TrivialAugmentWide(3, BILINEAR), Same((1, 0.04), (3, 0.1), None, samples=3000)),
    ],
    "UniformTemporalSubsample": [Case(lambda t: t.UniformTemporalSubsample(2), "has no counterpart")],
}
NO_TRANSFORMS = {"AutoAugmentPolicy", "InterpolationMode", "Transform"}
ROWS = [pytest.param(space, case, id=f"{space}-{name}-{i}") for name, cases in CASES.items()
        for i, case in enumerate(cases) for space in NAMESPACES
        if hasattr(NAMESPACES[space], name) and case.only in (None, space)]


def with_policy(transform):
    """Returns an AutoAugment whose policy somebody has changed."""
    transform.policies = transform.policies[:3]
    return transform


def exported(namespace):
    return {name for name, value in vars(namespace).items() if isinstance(value, type) and not name.startswith("_")}


def test_each_class_of_torchvision_is_in_the_table():
    assert exported(v1) | exported(v2) == set(CASES) | NO_TRANSFORMS
    for name, namespace in NAMESPACES.items():
        tried = {row.id.split("-")[1] for row in ROWS if row.id.startswith(name)}
        assert tried == exported(namespace) - NO_TRANSFORMS


# All kinds take ten minutes: MILLRACE_LONG_TESTS=1 tries them.
ALL_KINDS = ("tensor", "pil", "unit")
KINDS = {"v1": ALL_KINDS if LONG else ("pil",), "v2": ALL_KINDS if LONG else ("unit",)}


@pytest.mark.parametrize("space, case", ROWS)
def test_a_transform_gives_its_images_as_often_or_is_refused(space, case, photo):
    build = lambda: case.build(NAMESPACES[space])  # noqa: E731
    if isinstance(case.expected, str):
        with pytest.raises(mr.UsageError) as caught:
            mr.from_torchvision(build())
        assert case.expected in str(caught.value)
        return
    in_both = case.only is None and hasattr(v1, type(build()).__name__)
    if case.expected.moments and space == "v2" and in_both and not LONG:
        # The images of v1 are compared: those of v2 take as long again, and come of the same chain.
        assert mr.from_torchvision(build()) == mr.from_torchvision(case.build(v1))
        return
    for kind in KINDS[space]:
        check(build(), case.expected, kind, photo)


def check(transform, expected, kind, photo):
    tolerance = getattr(expected, kind)
    before = [v1.ConvertImageDtype(torch.float32)] if kind == "unit" else []
    if tolerance is None:
        with pytest.raises((mr.UsageError, TypeError, AttributeError, ValueError, RuntimeError)):
            mr.from_torchvision([*before, transform])
            default_collate([transform(source_of(photo, kind)) for _ in range(20)])  # raises for PIL images
        return
    ours = ours_of(photo, mr.from_torchvision([*before, transform]), expected.samples)
    theirs = theirs_of(transform, source_of(photo, kind), expected.samples)
    if expected.margin:
        inner = np.s_[:, :, expected.margin:-expected.margin, expected.margin:-expected.margin]
        ours, theirs = ours[inner], theirs[inner]
    if expected.moments:
        compare_moments(ours, theirs, *tolerance)
    else:
        compare(ours, theirs, *tolerance)


# --- what weights.transforms() returns, and timm's

PRESETS = {
    "ImageClassification": Case(lambda t: t.ImageClassification(crop_size=12, resize_size=16, mean=MEAN, std=STD),
                                Same(ROUNDED, ROUNDED, ROUNDED)),
    "SemanticSegmentation": Case(lambda t: t.SemanticSegmentation(resize_size=16, mean=MEAN, std=STD),
                                 Same(ROUNDED, ROUNDED, ROUNDED)),
    "ObjectDetection": Case(lambda t: t.ObjectDetection(), Same()),
    "VideoClassification": Case(lambda t: t.VideoClassification(crop_size=(8, 8), resize_size=(8, 8)),
                                "has no counterpart"),
    "OpticalFlow": Case(lambda t: t.OpticalFlow(), "has no counterpart"),
    "InterpolationMode": None,
}


def test_each_preset_is_in_the_table():
    presets = {name for name in exported(torchvision.transforms._presets) if name != "Tensor"}
    assert presets == set(PRESETS)


@pytest.mark.parametrize("case", [pytest.param(case, id=name) for name, case in PRESETS.items() if case])
def test_a_preset_gives_its_images_or_is_refused(case, photo):
    test_a_transform_gives_its_images_as_often_or_is_refused("v1", Case(
        lambda _: case.build(torchvision.transforms._presets), case.expected), photo)


def test_weights_of_classifiers_are_translated_or_refused_for_their_interpolation():
    translated, refused = 0, 0
    for name in torchvision.models.list_models(module=torchvision.models):
        for weights in torchvision.models.get_model_weights(name):
            transform = weights.transforms()
            if transform.interpolation == BILINEAR:
                assert [type(op) for op in mr.from_torchvision(transform)] == [mr.Resize, mr.CenterCrop, mr.Normalize]
                translated += 1
            else:
                with pytest.raises(mr.UsageError, match="ImageClassification with interpolation='bicubic'"):
                    mr.from_torchvision(transform)
                refused += 1
    assert translated > 40 and refused > 10


def timm_train(**options):
    timm = pytest.importorskip("timm.data", reason="NOT TESTED: timm is missing")
    given = {"input_size": 16, "is_training": True, "scale": (0.8, 0.8), "ratio": (1, 1), "color_jitter": None,
             "mean": MEAN, "std": STD, **options}
    return timm.create_transform(**given)


TIMM = {
    "crop": Case(lambda _: timm_train(hflip=0.4), Same(None, ROUNDED, None)),
    "erasing": Case(lambda _: timm_train(scale=(1, 1), ratio=(1.25, 1.25), re_prob=0.5, re_mode="const"),
                    Same(None, (1, 0), None, moments=True, samples=3000)),
    "jitter": Case(lambda _: timm_train(scale=(1, 1), ratio=(1.25, 1.25), hflip=0, color_jitter=0.3,
                                        color_jitter_prob=0.5, grayscale_prob=0.2),
                   Same(None, (3, 0), None, moments=True, samples=3000)),
    "evaluation": Case(lambda _: timm_train(is_training=False, scale=None, ratio=None), Same(None, ROUNDED, ROUNDED)),
    "no augmentation": Case(lambda _: timm_train(no_aug=True), Same(None, ROUNDED, None)),
    "random interpolation": Case(lambda _: timm_train(interpolation="random"), "interpolation='random'"),
    "bicubic": Case(lambda _: timm_train(interpolation="bicubic"), "interpolation='bicubic'"),
    "squash": Case(lambda _: timm_train(is_training=False, scale=None, ratio=None, crop_mode="squash"),
                   Same(None, ROUNDED, ROUNDED)),
    "border": Case(lambda _: timm_train(is_training=False, scale=None, ratio=None, crop_mode="border"),
                   "timm's ResizeKeepRatio"),
    "policy": Case(lambda _: timm_train(auto_augment="rand-m9"), "the transform RandAugment is not torchvision's"),
    "noise": Case(lambda _: timm_train(re_prob=0.5, re_mode="pixel"), "timm's RandomErasing with noise"),
    "colours": Case(lambda _: timm_train(re_prob=0.5, re_mode="rand"), "timm's RandomErasing with noise"),
    "rectangles": Case(lambda _: timm_train(re_prob=0.5, re_count=3), "1 to 3 rectangles"),
    "unscaled": Case(lambda _: timm_train(normalize=False), "the chain ends with levels"),
}


@pytest.mark.parametrize("case", [pytest.param(case, id=name) for name, case in TIMM.items()])
def test_a_chain_of_timm_gives_its_images_as_often_or_is_refused(case, photo):
    if isinstance(case.expected, Same):  # timm's crop asks for the size of PIL images; evaluation takes any
        kinds = [kind for kind in ("tensor", "pil", "unit") if getattr(case.expected, kind) is not None]
        for kind in kinds:
            check(case.build(None), case.expected, kind, photo)
    else:
        test_a_transform_gives_its_images_as_often_or_is_refused("v1", case, photo)


# --- what is not torchvision's


class RandomHorizontalFlip(v1.RandomHorizontalFlip):
    """Acts otherwise than torchvision's."""

    def forward(self, image):
        return image


class Resize:
    size, interpolation, max_size, antialias = 9, BILINEAR, None, True


@pytest.mark.parametrize("transform, message", [
    (RandomHorizontalFlip(), "derived from torchvision's RandomHorizontalFlip"),
    (v1.Compose([RandomHorizontalFlip()]), "derived from torchvision's RandomHorizontalFlip"),
    (Resize(), "the transform Resize is not torchvision's: it comes from test_translation"),
    (lambda image: image, "the transform <lambda> is not torchvision's"),
    (v1.functional.hflip, "the transform hflip is not torchvision's"),
    (None, "the transform NoneType is not torchvision's"),
])
def test_a_class_of_another_package_is_refused_by_name(transform, message):
    for chain in (transform, [transform], v2.RandomApply([transform or 3]) if transform else [None]):
        with pytest.raises(mr.UsageError, match=message):
            mr.from_torchvision(chain)


def test_albumentations_is_refused_by_name():
    albumentations = pytest.importorskip("albumentations", reason="NOT TESTED: albumentations is missing")
    for transform in (albumentations.Normalize(), albumentations.HorizontalFlip(), albumentations.RandomCrop(8, 8)):
        name = type(transform).__name__
        message = f"the transform {name} is not torchvision's: it comes from albumentations"
        with pytest.raises(mr.UsageError, match=message):
            mr.from_torchvision(v1.Compose([transform]))
    with pytest.raises(mr.UsageError, match="the transform Compose is not torchvision's"):
        mr.from_torchvision(albumentations.Compose([albumentations.HorizontalFlip()]))


def test_an_argument_that_a_later_version_adds_is_refused():
    flip = v2.RandomHorizontalFlip()
    flip.axis = 1
    with pytest.raises(mr.UsageError, match="RandomHorizontalFlip with the argument axis"):
        mr.from_torchvision(flip)


def test_a_sequential_of_transforms_is_a_chain():
    chain = torch.nn.Sequential(v1.CenterCrop(8), v1.RandomVerticalFlip(0.25))
    assert mr.from_torchvision(chain) == [mr.CenterCrop((8, 8)), mr.VFlip(0.25)]


@pytest.mark.parametrize("namespace", NAMESPACES.values(), ids=NAMESPACES)
def test_a_tenth_stays_a_tenth(namespace, photo):
    chain = mr.from_torchvision(namespace.RandomApply([namespace.ColorJitter((0.5, 0.5))], p=0.1))
    _, counts = distinct(ours_of(photo, chain, 2000))
    # Binomial(2000, 0.1) lies outside of 154 to 248 with a probability below 1e-3.
    assert len(counts) == 2 and 154 <= min(counts) <= 248
