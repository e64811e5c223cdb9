"""Tests data sets and augmentations as Python objects, and the translation of torchvision's transforms."""
import enum
import importlib

import numpy as np
import pymillrace as mr
import pytest
from batches import hash_of

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
    mr.RandomGrayscale(0.5), mr.RandomRotation(30, "bilinear"), mr.GaussianBlur(3, (0.5, 1)),
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
    ((mr.Folder("x"), [3]), {}, "3 is no augmentation"),
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


def step(name, **attributes):
    """An object with the class name and the attributes of one of torchvision's transforms."""
    return type(name, (), attributes)()


def test_transforms_are_translated_by_name_and_attribute():
    chain = mr.from_torchvision(step("Compose", transforms=[
        step("RandomResizedCrop", size=(224, 224), scale=(0.1, 1.0), ratio=(0.75, 1.5), interpolation=Mode.BILINEAR, antialias=None),
        step("RandomHorizontalFlip", p=0.25),
        step("ColorJitter", brightness=(0.6, 1.4), contrast=None, saturation=None, hue=None),
        step("ToTensor"),
        step("Normalize", mean=[0.5, 0.4, 0.3], std=[0.2, 0.2, 0.1]),
    ]))
    assert chain == [
        mr.RandomResizedCrop((224, 224), (0.1, 1.0), (0.75, 1.5)),
        mr.HFlip(0.25),
        mr.ColorJitter((0.6, 1.4)),
        mr.Normalize((0.5, 0.4, 0.3), (0.2, 0.2, 0.1)),
    ]


@pytest.mark.parametrize("transform, message", [
    (step("Lambda"), "Lambda has no counterpart"),
    (step("Resize", size=256, interpolation=Mode.BICUBIC), "interpolation='bicubic'"),
    (step("RandomCrop", size=(32, 32), padding=4, pad_if_needed=False, fill=0, padding_mode="reflect"), "padding_mode='reflect'"),
    (step("RandomRotation", degrees=[-5, 5], interpolation=Mode.BILINEAR, expand=True, center=None, fill=0), "expand=True"),
])
def test_what_has_no_counterpart_is_named(transform, message):
    with pytest.raises(mr.UsageError, match=message):
        mr.from_torchvision([transform])


@pytest.mark.parametrize("version", ["transforms", "transforms.v2"])
def test_torchvisions_own_transforms_are_translated(version, data):
    try:
        transforms = importlib.import_module(f"torchvision.{version}")
    except (ImportError, OSError, RuntimeError):
        pytest.skip("NOT TESTED with torchvision: it cannot be imported")
    theirs = transforms.Compose([
        transforms.RandomResizedCrop(96), transforms.RandomHorizontalFlip(), transforms.ColorJitter(0.4, 0.3, 0.2, 0.1),
        transforms.RandomGrayscale(0.2), transforms.RandomRotation(10), transforms.GaussianBlur(3), transforms.ToTensor(),
        transforms.Normalize(mr.IMAGENET.mean, mr.IMAGENET.std),
    ])
    chain = mr.from_torchvision(theirs)
    assert [type(op).__name__ for op in chain] == [
        "RandomResizedCrop", "HFlip", "ColorJitter", "RandomGrayscale", "RandomRotation", "GaussianBlur", "Normalize"]
    images = next(iter(mr.Loader(mr.Folder(data / "photos"), chain, batch=4, numpy=True))).images
    assert images.shape == (4, 3, 96, 96)
    evaluation = transforms.Compose([transforms.Resize(64), transforms.CenterCrop(56), transforms.RandomCrop(48, 2),
                                     transforms.RandomVerticalFlip()])
    images = next(iter(mr.Loader(mr.Folder(data / "photos"), mr.from_torchvision(evaluation), batch=4, numpy=True))).images
    assert images.shape == (4, 3, 48, 48)
