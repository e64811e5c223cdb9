"""Each transform of an albumentations Compose has a row, and watching changes no image."""
import json

import pytest

pytest.importorskip("torch", reason="NOT TESTED with PyTorch: it cannot be imported", exc_type=ImportError)
albumentations = pytest.importorskip("albumentations", reason="NOT TESTED: albumentations is missing")

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

import pymillrace as mr
import watch_plants as plants_of
from conftest import timing


class Planted(albumentations.ImageOnlyTransform):
    """Delays an image."""

    def __init__(self, plant):
        super().__init__(p=1)
        self.plant = plant

    def apply(self, img, **_):
        self.plant()
        return img


class Images(Dataset):
    def __init__(self, transform):
        self.transform = transform

    def __len__(self):
        return 24

    def __getitem__(self, index):
        image = np.random.default_rng(index).integers(0, 256, (40, 40, 3), np.uint8)
        done = self.transform(image=image)
        self.applied = [name for name, _ in done.get("applied_transforms", [])]
        return torch.from_numpy(np.ascontiguousarray(done["image"]))


def chain_of(plant, **options):
    return albumentations.Compose([albumentations.RandomCrop(32, 32), albumentations.HorizontalFlip(p=0.5),
                                   Planted(plant)], seed=5, **options)


@timing
@pytest.mark.parametrize("workers", (0, 2))
def test_each_transform_of_a_compose_has_a_row(tmp_path, workers):
    log = tmp_path / "plants"
    loader = DataLoader(Images(chain_of(plants_of.Plant(log, "transform", "blocked", 12))), 3, num_workers=workers)
    with mr.watching(run=tmp_path / "run"):
        for _ in loader:
            pass
    main = json.loads((tmp_path / "run/summary.json").read_text())["loaders"][0]
    rows, plant = main["transforms"], plants_of.measured(log)["transform"]
    assert [row["name"] for row in rows] == ["RandomCrop", "HorizontalFlip", "Planted"]
    assert rows[2]["s_per_sample"] == pytest.approx(plant.wall / 24, rel=0.05)
    assert main["work"]["transform"]["blocked"] == pytest.approx(plant.blocked, rel=0.05)


def test_images_and_what_was_applied_are_those_of_an_unwatched_loop(tmp_path):
    def run():
        images = Images(chain_of(plants_of.NoPlant(), save_applied_params=True))
        found = []
        for batch in DataLoader(images, 1):
            found.append((batch.numpy().tobytes(), tuple(images.applied)))
        return found

    plain = run()
    with mr.watching(run=tmp_path / "run"):
        assert run() == plain
    assert {name for _, names in plain for name in names} >= {"RandomCrop", "HorizontalFlip"}
