"""Tests data sets and augmentations as Python objects, and the translation of torchvision's transforms."""
import enum
import subprocess
import sys

import numpy as np
import pymillrace as mr
import pytest
from batches import hash_of
from torchvision_stand_in import stand_in, transform  # noqa: F401

# A Loader with these gives the batches of the shipped recipe imagenet-rrc.
RRC = [mr.RandomResizedCrop(224), mr.HFlip()]


def test_objects_give_the_bytes_of_the_recipe(data):
    photos = data / "photos"
    recipe = mr.Loader("imagenet-rrc", f"data.path={photos}", "loader.batch=32", numpy=True)
    objects = mr.Loader(mr.Folder(photos), RRC, batch=32, normalize=mr.IMAGENET, numpy=True)
    chained = mr.Loader(mr.Folder(photos), [*RRC, mr.IMAGENET], "loader.workers=0", batch=32, numpy=True)
    expected = hash_of(recipe)
    assert hash_of(objects) == expected
    assert hash_of(chained) == expected
    chained.load_state_dict(recipe.state_dict())  # they are the same recipe
    other = mr.Loader(mr.Folder(photos), [mr.RandomResizedCrop(192), mr.HFlip()], batch=32, numpy=True)
    assert hash_of(other) != expected


def test_batch_counts_a_rank(data):
    loader = mr.Loader(mr.Folder(data / "photos"), RRC, batch=8, rank=1, world_size=2, numpy=True)
    assert loader.batch_size == 8
    assert next(iter(loader)).images.shape == (8, 3, 224, 224)


@pytest.mark.parametrize("op", [
    mr.Resize(40), mr.CenterCrop((20, 30)), mr.RandomCrop(24, padding=(2, 4), fill=7), mr.VFlip(1), mr.ColorJitter(0.4, hue=(0, 0.1)),
    mr.RandomGrayscale(0.5), mr.RandomRotation(30, "bilinear", center=(3, 4)), mr.GaussianBlur(3, (0.5, 1)), mr.Grayscale(),
    mr.Pad((1, 2), 9), mr.RandomAffine(20, (0.1, 0.2), (0.5, 1), 3, fill=(1, 2, 3)), mr.RandomPerspective(0.5, 1),
    mr.ElasticTransform(9, 2), mr.RandomAdjustSharpness(3, 1), mr.RandomInvert(1), mr.RandomPosterize(2, 1),
    mr.RandomSolarize(99.5, 1), mr.RandomAutocontrast(1), mr.RandomEqualize(1), mr.GaussianNoise(0.1), mr.JPEG((5, 9)),
    mr.RandomErasing(1, (0.3, 0.3), value=(1, 2, 3)), mr.AutoAugment("svhn"), mr.RandAugment(3, 20), mr.TrivialAugmentWide(),
    mr.RandomApply([mr.VFlip(1), mr.RandomApply([mr.RandomInvert(1)], 1)], 1), mr.Affine(20), mr.Brightness(2),
    mr.Contrast(2), mr.Crop(1, 2, 20, 30), mr.Hue(0.25), mr.Saturation(2), mr.MixUp(), mr.CutMix(),
])
def test_each_augmentation_runs_and_changes_the_images(data, op):
    size = [mr.Resize((48, 48))]
    plain = next(iter(mr.Loader(mr.Folder(data / "photos"), size, "loader.shuffle=none", batch=4, numpy=True)))
    changed = next(iter(mr.Loader(mr.Folder(data / "photos"), [*size, op], "loader.shuffle=none", batch=4, numpy=True)))
    assert changed.images.shape != plain.images.shape or not np.array_equal(changed.images, plain.images)


def test_digits_are_read_from_idx_files(data):
    loader = mr.Loader(mr.Idx(data / "digits", "test"), batch=16, numpy=True)
    assert len(loader.dataset) == 64 and next(iter(loader)).images.shape == (16, 1, 28, 28)


@pytest.mark.parametrize("arguments, options, message", [
    ((mr.Folder("x"), [3]), {}, "3 is not an augmentation"),
    ((mr.Folder("x"), [mr.IMAGENET, mr.HFlip()]), {}, "comes after Normalize"),
    ((mr.Folder("x"), [mr.IMAGENET]), {"normalize": mr.IMAGENET}, "leave out one"),
    ((mr.Folder("x"), [mr.RandomResizedCrop(0)]), {}, "random_resized_crop"),
    (("imagenet-rrc",), {"batch": 3}, "belong to a data set"),
])
def test_bad_input_is_named(arguments, options, message):
    with pytest.raises(mr.UsageError, match=message):
        mr.Loader(*arguments, numpy=True, **options)


class Mode(enum.Enum):
    """As torchvision's InterpolationMode."""

    BILINEAR = "bilinear"
    BICUBIC = "bicubic"


class RandomHorizontalFlip:
    """A class of a name that torchvision also has."""

    p = 0.25


def test_transforms_are_translated_by_type_and_attribute(stand_in):
    jitter = transform("ColorJitter", brightness=(0.6, 1.4), contrast=None, saturation=None, hue=None)
    chain = mr.from_torchvision(transform("Compose", transforms=[
        transform("RandomResizedCrop", size=(224, 224), scale=(0.1, 1.0), ratio=(0.75, 1.5),
                  interpolation=Mode.BILINEAR, antialias=True),
        transform("RandomHorizontalFlip", p=0.25),
        transform("RandomApply", transforms=[jitter, transform("RandomVerticalFlip", p=0.5)], p=0.1),
        transform("ToTensor"),
        transform("Normalize", mean=[0.5, 0.4, 0.3], std=[0.2, 0.2, 0.1], inplace=False),
    ]))
    assert chain == [
        mr.RandomResizedCrop((224, 224), (0.1, 1.0), (0.75, 1.5)),
        mr.HFlip(0.25),
        mr.RandomApply((mr.ColorJitter((0.6, 1.4)), mr.VFlip(0.5)), 0.1),
        mr.Normalize((0.5, 0.4, 0.3), (0.2, 0.2, 0.1)),
    ]
    assert chain[2].override() == ("augment+=random_apply{p=0.1,ops=color_jitter{brightness=[0.6,1.4],contrast=0,"
                                   "saturation=0,hue=0};vflip{p=0.5}}")


@pytest.mark.parametrize("name, attributes, message", [
    ("Lambda", {"lambd": abs}, "torchvision's Lambda has no counterpart"),
    ("RandomChoice", {"transforms": [], "p": None}, "torchvision's RandomChoice has no counterpart"),
    ("RandomOrder", {"transforms": []}, "torchvision's RandomOrder has no counterpart"),
    ("PILToTensor", {}, "the chain ends with levels from 0 to 255"),
    ("ToDtype", {"dtype": "torch.float32", "scale": False}, "with scale=False"),
    ("Resize", {"size": 256, "interpolation": Mode.BICUBIC, "max_size": None, "antialias": True},
     "interpolation='bicubic'"),
    ("Resize", {"size": 256, "interpolation": Mode.BILINEAR, "max_size": None, "antialias": None}, "antialias=None"),
    ("Resize", {"size": "many", "interpolation": Mode.BILINEAR, "max_size": None, "antialias": True}, "cannot be read"),
    ("CenterCrop", {}, "cannot be read"),
    ("RandomCrop", {"size": (32, 32), "padding": 4, "pad_if_needed": False, "fill": 0, "padding_mode": "wrap"},
     "padding_mode='wrap'"),
    ("RandomRotation", {"degrees": [-5, 5], "interpolation": Mode.BILINEAR, "expand": True, "center": None, "fill": 0},
     "expand=True"),
    ("RandomVerticalFlip", {"p": 0.5, "axis": 1}, "with the argument axis"),
])
def test_what_has_no_counterpart_is_named(stand_in, name, attributes, message):
    with pytest.raises(mr.UsageError, match=message):
        mr.from_torchvision([transform(name, **attributes)])


def test_a_class_of_the_same_name_is_refused(stand_in):
    transform("RandomHorizontalFlip", p=0.25)
    with pytest.raises(mr.UsageError, match="the transform RandomHorizontalFlip is not torchvision's: it comes from"):
        mr.from_torchvision([RandomHorizontalFlip()])
    derived = type("RandomHorizontalFlip", (type(transform("RandomHorizontalFlip")),), {"p": 0.25})
    with pytest.raises(mr.UsageError, match="derived from torchvision's RandomHorizontalFlip"):
        mr.from_torchvision([derived()])


def test_gray_images_do_not_get_three_channels_silently(data):
    for op in (mr.Grayscale(), mr.RandomApply([mr.Grayscale()], 0.5)):
        with pytest.raises(mr.UsageError, match="images of an Idx set keep their one"):
            mr.Loader(mr.Idx(data / "digits"), [op], batch=4, numpy=True)


def test_translating_imports_nothing():
    code = ("import sys, pymillrace as mr\n"
            "try: mr.from_torchvision([object()])\n"
            "except mr.UsageError: sys.exit(any(name in sys.modules for name in ('torch', 'torchvision', 'timm')))")
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
