"""The built-in augmentations. tools/python_classes.py makes this file from the declarations in augment/ops."""
from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from .op import Compound, Op

__all__ = [
    "Affine",
    "AutoAugment",
    "Brightness",
    "CenterCrop",
    "ColorJitter",
    "Contrast",
    "CopyPaste",
    "Crop",
    "CutMix",
    "ElasticTransform",
    "GaussianBlur",
    "GaussianNoise",
    "HFlip",
    "Hue",
    "JPEG",
    "MixUp",
    "Mosaic",
    "Pad",
    "RandAugment",
    "RandomAdjustSharpness",
    "RandomAffine",
    "RandomApply",
    "RandomAutocontrast",
    "RandomCrop",
    "RandomEqualize",
    "RandomErasing",
    "RandomGrayscale",
    "RandomHSV",
    "RandomInvert",
    "RandomPerspective",
    "RandomPosterize",
    "RandomResizedCrop",
    "RandomRotation",
    "RandomSolarize",
    "Resize",
    "Saturation",
    "TrivialAugmentWide",
    "VFlip",
]


@dataclasses.dataclass(frozen=True)
class Affine(Op):
    """Rotate, translate, scale and shear by fixed amounts.

    Args:
        degrees: angle in degrees, clockwise (a number from -360 to 360; default 0)
        translate: shift in pixels: [x, y] (a list of 2 numbers from -65535 to 65535; default (0, 0))
        translate_part: shift as a fraction of width and height, truncated to whole pixels: [x, y] (a list of 2 numbers
            from -1 to 1; default (0, 0))
        scale: factor (a number from 0.01 to 100; default 1)
        shear: degrees: [x, y] (a list of 2 numbers from -89 to 89; default (0, 0))
        interpolation: interpolation method (one of "nearest", "bilinear"; default "nearest")
        fill: level outside the image: one for all channels, or one per channel (one number or a list of 3 whole numbers
            from 0 to 255; default 0)
        center: [x, y] in pixels from the top left corner; []: the image's centre (a list of 0 or 2 numbers from -65535
            to 65535; default ())
    """

    degrees: float = 0
    translate: Sequence[float] = (0, 0)
    translate_part: Sequence[float] = (0, 0)
    scale: float = 1
    shear: Sequence[float] = (0, 0)
    interpolation: str = "nearest"
    fill: int | Sequence[int] = 0
    center: Sequence[float] = ()
    _op = "affine"


@dataclasses.dataclass(frozen=True)
class AutoAugment(Op):
    """Apply one of a learned policy's 25 pairs of operations.

    Args:
        policy: data set that the policy was learned on (one of "imagenet", "cifar10", "svhn"; default "imagenet")
        interpolation: interpolation method (one of "nearest", "bilinear"; default "nearest")
        fill: level outside the image: one for all channels, or one per channel (one number or a list of 3 whole numbers
            from 0 to 255; default 0)
    """

    policy: str = "imagenet"
    interpolation: str = "nearest"
    fill: int | Sequence[int] = 0
    _op = "auto_augment"


@dataclasses.dataclass(frozen=True)
class Brightness(Op):
    """Multiply every level by a factor.

    Args:
        factor: 0: black, 1: unchanged, 2: twice as bright (a number from 0 to 1000)
    """

    factor: float
    _op = "brightness"


@dataclasses.dataclass(frozen=True)
class CenterCrop(Op):
    """Cut out the middle; smaller images are padded.

    Args:
        size: pixels: a side, or [height, width] (one number or a list of 2 whole numbers from 1 to 65535)
        fill: level outside the image: one for all channels, or one per channel (one number or a list of 3 whole numbers
            from 0 to 255; default 0)
    """

    size: int | Sequence[int]
    fill: int | Sequence[int] = 0
    _op = "center_crop"


@dataclasses.dataclass(frozen=True)
class ColorJitter(Op):
    """Change brightness, contrast, saturation and hue by random amounts in a random order.

    Args:
        brightness: factor: b for [max(0, 1 - b), 1 + b], or [low, high] (one number or a list of 2 numbers from 0 to
            1000; default 0)
        contrast: factor: b for [max(0, 1 - b), 1 + b], or [low, high] (one number or a list of 2 numbers from 0 to
            1000; default 0)
        saturation: factor: b for [max(0, 1 - b), 1 + b], or [low, high] (one number or a list of 2 numbers from 0 to
            1000; default 0)
        hue: fraction of a full turn: h for [-h, h], or [low, high] (one number or a list of 2 numbers from -0.5 to 0.5;
            default 0)
    """

    brightness: float | Sequence[float] = 0
    contrast: float | Sequence[float] = 0
    saturation: float | Sequence[float] = 0
    hue: float | Sequence[float] = 0
    _op = "color_jitter"


@dataclasses.dataclass(frozen=True)
class Contrast(Op):
    """Scale every level's distance from the image's mean gray.

    Args:
        factor: 0: all gray, 1: unchanged, 2: twice as far (a number from 0 to 1000)
    """

    factor: float
    _op = "contrast"


@dataclasses.dataclass(frozen=True)
class CopyPaste(Op):
    """Paste objects of neighbouring samples onto each other.

    Args:
        p: probability that an object is pasted (a number from 0 to 1; default 0.5)
    """

    p: float = 0.5
    _op = "copy_paste"


@dataclasses.dataclass(frozen=True)
class Crop(Op):
    """Cut out a window at a fixed place.

    Args:
        top: pixels from the upper edge; negative: pad (a whole number from -65535 to 65535)
        left: pixels from the left edge; negative: pad (a whole number from -65535 to 65535)
        height: of the window, in pixels (a whole number from 1 to 65535)
        width: of the window, in pixels (a whole number from 1 to 65535)
        fill: level outside the image: one for all channels, or one per channel (one number or a list of 3 whole numbers
            from 0 to 255; default 0)
    """

    top: int
    left: int
    height: int
    width: int
    fill: int | Sequence[int] = 0
    _op = "crop"


@dataclasses.dataclass(frozen=True)
class CutMix(Op):
    """Swap a box between neighbouring samples, and mix their labels.

    Args:
        alpha: 1 - area of the box is drawn from Beta(alpha, alpha) (a number from 0.001 to 1000; default 1)
    """

    alpha: float = 1
    _op = "cutmix"


@dataclasses.dataclass(frozen=True)
class ElasticTransform(Op):
    """Move pixels by smooth random displacements.

    Args:
        alpha: strength: displacements are smoothed noise times half of it, in pixels; or [x, y] (one number or a list
            of 2 numbers from 0 to 10000; default 50)
        sigma: smoothness in pixels, or [x, y]; 0: none (one number or a list of 2 numbers from 0 to 100; default 5)
        interpolation: interpolation method (one of "nearest", "bilinear"; default "bilinear")
        fill: level outside the image: one for all channels, or one per channel (one number or a list of 3 whole numbers
            from 0 to 255; default 0)
    """

    alpha: float | Sequence[float] = 50
    sigma: float | Sequence[float] = 5
    interpolation: str = "bilinear"
    fill: int | Sequence[int] = 0
    _op = "elastic"


@dataclasses.dataclass(frozen=True)
class GaussianBlur(Op):
    """Smooth with a Gaussian whose sigma is drawn uniformly.

    Args:
        kernel_size: pixels, odd: one for both directions, or [width, height] (one number or a list of 2 whole numbers
            from 1 to 255)
        sigma: standard deviation in pixels: one, or [low, high] (one number or a list of 2 numbers from 0.001 to 1000;
            default (0.1, 2))
    """

    kernel_size: int | Sequence[int]
    sigma: float | Sequence[float] = (0.1, 2)
    _op = "gaussian_blur"


@dataclasses.dataclass(frozen=True)
class GaussianNoise(Op):
    """Add normally distributed noise to every level.

    Args:
        mean: mean, as a fraction of full scale (255 levels) (a number from -1 to 1; default 0)
        sigma: standard deviation, as a fraction of full scale (a number from 0 to 10; default 0.1)
        clip: keep results in 0..255, or floats in 0..1; otherwise levels wrap around (True or False; default True)
    """

    mean: float = 0
    sigma: float = 0.1
    clip: bool = True
    _op = "gaussian_noise"


@dataclasses.dataclass(frozen=True)
class HFlip(Op):
    """Mirror left and right with probability p.

    Args:
        p: probability (a number from 0 to 1; default 0.5)
    """

    p: float = 0.5
    _op = "hflip"


@dataclasses.dataclass(frozen=True)
class Hue(Op):
    """Turn the hue of every pixel.

    Args:
        turn: fraction of a full turn of the colour circle (a number from -0.5 to 0.5)
    """

    turn: float
    _op = "hue"


@dataclasses.dataclass(frozen=True)
class JPEG(Op):
    """Compress as JPEG and decompress, with probability p.

    Args:
        quality: JPEG quality: one, or [lowest, highest] of a uniform draw (one number or a list of 2 whole numbers from
            1 to 100)
        p: probability that a sample is changed (a number from 0 to 1; default 1)
    """

    quality: int | Sequence[int]
    p: float = 1
    _op = "jpeg_compression"


@dataclasses.dataclass(frozen=True)
class MixUp(Op):
    """Blend neighbouring samples and their labels.

    Args:
        alpha: weights are drawn from Beta(alpha, alpha) (a number from 0.001 to 1000; default 1)
    """

    alpha: float = 1
    _op = "mixup"


@dataclasses.dataclass(frozen=True)
class Mosaic(Op):
    """Put four neighbours of a batch together, with their boxes, masks or labels.

    Args:
        p: probability that a sample is changed (a number from 0 to 1; default 1)
        center: where the four meet, as a fraction of each side: [low, high] (a list of 2 numbers from 0 to 1; default
            (0.25, 0.75))
    """

    p: float = 1
    center: Sequence[float] = (0.25, 0.75)
    _op = "mosaic"


@dataclasses.dataclass(frozen=True)
class Pad(Op):
    """Add pixels around the image.

    Args:
        padding: pixels: all sides, [x, y] or [left, top, right, bottom] (one number or a list of 2 or 4 whole numbers
            from 0 to 65535)
        fill: level outside the image: one for all channels, or one per channel (one number or a list of 3 whole numbers
            from 0 to 255; default 0)
        padding_mode: constant: fill; edge: the outermost pixel; reflect, symmetric: mirrored without, with the
            outermost pixel twice (one of "constant", "edge", "reflect", "symmetric"; default "constant")
    """

    padding: int | Sequence[int]
    fill: int | Sequence[int] = 0
    padding_mode: str = "constant"
    _op = "pad"


@dataclasses.dataclass(frozen=True)
class RandAugment(Op):
    """Apply num_ops of 14 operations, all at the same strength.

    Args:
        num_ops: number of operations, applied one after the other (a whole number from 0 to 16; default 2)
        magnitude: strength, 0 to num_magnitude_bins - 1 (a whole number from 0 to 255; default 9)
        num_magnitude_bins: number of strengths (a whole number from 2 to 256; default 31)
        interpolation: interpolation method (one of "nearest", "bilinear"; default "nearest")
        fill: level outside the image: one for all channels, or one per channel (one number or a list of 3 whole numbers
            from 0 to 255; default 0)
    """

    num_ops: int = 2
    magnitude: int = 9
    num_magnitude_bins: int = 31
    interpolation: str = "nearest"
    fill: int | Sequence[int] = 0
    _op = "rand_augment"


@dataclasses.dataclass(frozen=True)
class RandomAdjustSharpness(Op):
    """Sharpen or smooth by a factor, with probability p.

    Args:
        sharpness_factor: 0: smoothed, 1: unchanged, 2: twice as sharp (a number from 0 to 1000)
        p: probability that a sample is changed (a number from 0 to 1; default 0.5)
    """

    sharpness_factor: float
    p: float = 0.5
    _op = "sharpness"


@dataclasses.dataclass(frozen=True)
class RandomAffine(Op):
    """Rotate, translate, scale and shear about the centre, each drawn uniformly.

    Args:
        degrees: angle in degrees: d for [-d, d], or [low, high] (one number or a list of 2 numbers from -360 to 360)
        translate: largest shift as a fraction of width and height: one for both, or [x, y] (one number or a list of 2
            numbers from 0 to 1; default 0)
        scale: factor: one, or [low, high] (one number or a list of 2 numbers from 0.01 to 100; default 1)
        shear: degrees: s for x in [-s, s], [x low, x high] or [x low, x high, y low, y high] (one number or a list of 2
            or 4 numbers from -89 to 89; default 0)
        interpolation: interpolation method (one of "nearest", "bilinear"; default "nearest")
        fill: level outside the image: one for all channels, or one per channel (one number or a list of 3 whole numbers
            from 0 to 255; default 0)
        center: [x, y] in pixels from the top left corner; []: the image's centre (a list of 0 or 2 numbers from -65535
            to 65535; default ())
    """

    degrees: float | Sequence[float]
    translate: float | Sequence[float] = 0
    scale: float | Sequence[float] = 1
    shear: float | Sequence[float] = 0
    interpolation: str = "nearest"
    fill: int | Sequence[int] = 0
    center: Sequence[float] = ()
    _op = "random_affine"


@dataclasses.dataclass(frozen=True)
class RandomApply(Compound):
    """Apply all of `transforms` with probability p, or none.

    Args:
        transforms: the augmentations, in order
        p: probability that all are applied (a number from 0 to 1; default 0.5)
    """

    transforms: Sequence[Op]
    p: float = 0.5
    _op = "random_apply"


@dataclasses.dataclass(frozen=True)
class RandomAutocontrast(Op):
    """Stretch each channel's levels to 0..255, with probability p.

    Args:
        p: probability that a sample is changed (a number from 0 to 1; default 0.5)
    """

    p: float = 0.5
    _op = "autocontrast"


@dataclasses.dataclass(frozen=True)
class RandomCrop(Op):
    """Pad, then cut out a window of `size` at a random place.

    Args:
        size: pixels: a side, or [height, width] (one number or a list of 2 whole numbers from 1 to 65535)
        padding: pixels: all sides, [x, y] or [left, top, right, bottom] (one number or a list of 2 or 4 whole numbers
            from 0 to 65535; default 0)
        pad_if_needed: pad images smaller than the window (True or False; default False)
        fill: level outside the image: one for all channels, or one per channel (one number or a list of 3 whole numbers
            from 0 to 255; default 0)
    """

    size: int | Sequence[int]
    padding: int | Sequence[int] = 0
    pad_if_needed: bool = False
    fill: int | Sequence[int] = 0
    _op = "random_crop"


@dataclasses.dataclass(frozen=True)
class RandomEqualize(Op):
    """Make each channel's levels equally frequent, with probability p.

    Args:
        p: probability that a sample is changed (a number from 0 to 1; default 0.5)
    """

    p: float = 0.5
    _op = "equalize"


@dataclasses.dataclass(frozen=True)
class RandomErasing(Op):
    """Cover a rectangle of random area, shape and place with probability p.

    Args:
        p: probability that a sample is changed (a number from 0 to 1; default 0.5)
        scale: fraction of the image's area: [low, high] (a list of 2 numbers from 0 to 1; default (0.02, 0.33))
        ratio: height over width: [low, high] (a list of 2 numbers from 0.001 to 1000; default (0.3, 3.3))
        value: level for mode=value: one for all channels, or one per channel (one number or a list of 3 whole numbers
            from 0 to 255; default 0)
        mode: value: the level `value`; mean: the level that output.mean turns into 0; random: noise that becomes
            Normal(0, 1) (one of "value", "mean", "random"; default "value")
    """

    p: float = 0.5
    scale: Sequence[float] = (0.02, 0.33)
    ratio: Sequence[float] = (0.3, 3.3)
    value: int | Sequence[int] = 0
    mode: str = "value"
    _op = "random_erasing"


@dataclasses.dataclass(frozen=True)
class RandomGrayscale(Op):
    """Make RGB gray, keeping three channels, with probability p.

    Args:
        p: probability that a sample is changed (a number from 0 to 1; default 0.1)
    """

    p: float = 0.1
    _op = "grayscale"


@dataclasses.dataclass(frozen=True)
class RandomHSV(Op):
    """Change hue, saturation and value by random amounts.

    Args:
        hue: fraction of a full turn: h for [-h, h], or [low, high] (one number or a list of 2 numbers from -0.5 to 0.5;
            default 0.015)
        saturation: factor: b for [max(0, 1 - b), 1 + b], or [low, high] (one number or a list of 2 numbers from 0 to
            1000; default 0.7)
        value: factor: b for [max(0, 1 - b), 1 + b], or [low, high] (one number or a list of 2 numbers from 0 to 1000;
            default 0.4)
    """

    hue: float | Sequence[float] = 0.015
    saturation: float | Sequence[float] = 0.7
    value: float | Sequence[float] = 0.4
    _op = "random_hsv"


@dataclasses.dataclass(frozen=True)
class RandomInvert(Op):
    """Turn every level into 255 - level, with probability p.

    Args:
        p: probability that a sample is changed (a number from 0 to 1; default 0.5)
    """

    p: float = 0.5
    _op = "invert"


@dataclasses.dataclass(frozen=True)
class RandomPerspective(Op):
    """Move the corners inwards at random, with probability p.

    Args:
        distortion_scale: largest shift of a corner, as a fraction of half a side (a number from 0 to 1; default 0.5)
        p: probability (a number from 0 to 1; default 0.5)
        interpolation: interpolation method (one of "nearest", "bilinear"; default "bilinear")
        fill: level outside the image: one for all channels, or one per channel (one number or a list of 3 whole numbers
            from 0 to 255; default 0)
    """

    distortion_scale: float = 0.5
    p: float = 0.5
    interpolation: str = "bilinear"
    fill: int | Sequence[int] = 0
    _op = "random_perspective"


@dataclasses.dataclass(frozen=True)
class RandomPosterize(Op):
    """Keep the upper bits of every level, with probability p.

    Args:
        bits: number of bits kept (a whole number from 0 to 8)
        p: probability that a sample is changed (a number from 0 to 1; default 0.5)
    """

    bits: int
    p: float = 0.5
    _op = "posterize"


@dataclasses.dataclass(frozen=True)
class RandomResizedCrop(Op):
    """Cut out a window of random area and aspect ratio, and stretch it to `size`.

    Args:
        size: pixels: a side, or [height, width] (one number or a list of 2 whole numbers from 1 to 65535)
        scale: [low, high]: fraction of the image's area (a list of 2 numbers from 1e-06 to 1; default (0.08, 1))
        ratio: [low, high]: width over height, drawn uniformly in its logarithm (a list of 2 numbers from 0.001 to 1000;
            default (0.75, 1.3333333333333333))
        interpolation: interpolation method (one of "nearest", "bilinear"; default "bilinear")
        antialias: bilinear: widen the filter where the image shrinks (True or False; default True)
    """

    size: int | Sequence[int]
    scale: Sequence[float] = (0.08, 1)
    ratio: Sequence[float] = (0.75, 1.3333333333333333)
    interpolation: str = "bilinear"
    antialias: bool = True
    _op = "random_resized_crop"


@dataclasses.dataclass(frozen=True)
class RandomRotation(Op):
    """Rotate counter-clockwise by an angle drawn uniformly.

    Args:
        degrees: angle in degrees: d for [-d, d], or [low, high] (one number or a list of 2 numbers from -360 to 360)
        interpolation: interpolation method (one of "nearest", "bilinear"; default "nearest")
        fill: level outside the image: one for all channels, or one per channel (one number or a list of 3 whole numbers
            from 0 to 255; default 0)
        center: [x, y] in pixels from the top left corner; []: the image's centre (a list of 0 or 2 numbers from -65535
            to 65535; default ())
    """

    degrees: float | Sequence[float]
    interpolation: str = "nearest"
    fill: int | Sequence[int] = 0
    center: Sequence[float] = ()
    _op = "random_rotation"


@dataclasses.dataclass(frozen=True)
class RandomSolarize(Op):
    """Invert levels of `threshold` and above, with probability p.

    Args:
        threshold: lowest level that is inverted (a number from 0 to 255)
        p: probability that a sample is changed (a number from 0 to 1; default 0.5)
    """

    threshold: float
    p: float = 0.5
    _op = "solarize"


@dataclasses.dataclass(frozen=True)
class Resize(Op):
    """Stretch to a size, or until the shorter side has it.

    Args:
        size: pixels: [height, width], or one number for the shorter side (one number or a list of 2 whole numbers from
            1 to 65535)
        interpolation: interpolation method (one of "nearest", "bilinear"; default "bilinear")
        max_size: with one number as size: limit for the longer side; 0: none (a whole number from 0 to 65535; default
            0)
        antialias: bilinear: widen the filter where the image shrinks (True or False; default True)
    """

    size: int | Sequence[int]
    interpolation: str = "bilinear"
    max_size: int = 0
    antialias: bool = True
    _op = "resize"


@dataclasses.dataclass(frozen=True)
class Saturation(Op):
    """Scale every pixel's distance from its gray.

    Args:
        factor: 0: gray, 1: unchanged, 2: twice as far (a number from 0 to 1000)
    """

    factor: float
    _op = "saturation"


@dataclasses.dataclass(frozen=True)
class TrivialAugmentWide(Op):
    """Apply one of 14 operations at a random strength.

    Args:
        num_magnitude_bins: number of strengths (a whole number from 2 to 256; default 31)
        interpolation: interpolation method (one of "nearest", "bilinear"; default "nearest")
        fill: level outside the image: one for all channels, or one per channel (one number or a list of 3 whole numbers
            from 0 to 255; default 0)
    """

    num_magnitude_bins: int = 31
    interpolation: str = "nearest"
    fill: int | Sequence[int] = 0
    _op = "trivial_augment"


@dataclasses.dataclass(frozen=True)
class VFlip(Op):
    """Mirror top and bottom with probability p.

    Args:
        p: probability (a number from 0 to 1; default 0.5)
    """

    p: float = 0.5
    _op = "vflip"
