"""Masks of image folders: they follow the images' pixels, and are part of batches in every form."""
import copy
import os
import pickle
import struct
import tarfile
import zlib

import numpy as np
import pymillrace as mr
import pytest
import tiny_jpeg
from conftest import needs_torch

WIDTH, HEIGHT, COUNT = 120, 96, 24
GEOMETRY = [mr.Resize((192, 240)), mr.HFlip(), mr.RandomCrop((160, 200))]


def png(ids):
    """Returns a palette PNG of class ids."""
    height, width = ids.shape
    rows = b"".join(b"\0" + row.tobytes() for row in ids)
    chunks = [(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)), (b"PLTE", bytes(768)),
              (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in chunks)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Images with a bright rectangle on black, whose masks have class 200 there and class 3 elsewhere."""
    folder, draw = tmp_path_factory.mktemp("masked"), np.random.default_rng(3)
    for number in range(COUNT):
        levels = np.zeros((HEIGHT, WIDTH), np.uint8)
        left, top = draw.integers([4, 4], [70, 40])
        levels[top:top + draw.integers(20, 48), left:left + draw.integers(20, 48)] = 255
        image = folder / f"images/train/{number % 2}/{number}.jpg"
        mask = folder / f"masks/train/{number % 2}/{number}.png"
        image.parent.mkdir(parents=True, exist_ok=True)
        mask.parent.mkdir(parents=True, exist_ok=True)
        image.write_bytes(tiny_jpeg.encode(levels))
        mask.write_bytes(png(np.where(levels > 0, 200, 3).astype(np.uint8)))
    return folder


def make(folder, *overrides, chain=GEOMETRY, **options):
    data = mr.Folder(folder / "images", masks=folder / "masks")
    return mr.Loader(data, chain, "output.dtype=u8", *overrides, **{"batch": 8, "numpy": True, **options})


def test_masks_follow_the_images(folder):
    for batch in make(folder):
        assert batch.masks.dtype == np.uint8 and batch.masks.shape == (len(batch.samples), 160, 200)
        bright, inside = batch.images[:, 0] > 127, batch.masks == 200
        assert set(np.unique(batch.masks)) == {3, 200}
        # A resized image fades over two pixels where its mask has an edge.
        assert (bright != inside).mean() < 0.02 < inside.mean()


def test_archives_and_manifests_have_masks_too(folder, tmp_path):
    names = [path.relative_to(folder / "images")
             for path in sorted((folder / "images/train").rglob("*.jpg"), key=os.fspath)]
    masks = [(folder / "masks" / name).with_suffix(".png") for name in names]
    with tarfile.open(tmp_path / "train.tar", "w") as archive:
        for index, (name, mask) in enumerate(zip(names, masks)):
            archive.add(folder / "images" / name, f"{index:06}.jpg")
            archive.add(mask, f"{index:06}.seg.png")
    rows = [f"{folder / 'images' / name},{mask}\n" for name, mask in zip(names, masks)]
    (tmp_path / "set.csv").write_text("path,mask\n" + "".join(rows))
    for data in (mr.Tar(tmp_path / "train.tar", masks="seg.png"), mr.Manifest(tmp_path / "set.csv", masks="mask")):
        loader = mr.Loader(data, GEOMETRY, "output.dtype=u8", batch=8, numpy=True)
        for batch, expected in zip(loader, make(folder), strict=True):
            assert (batch.images == expected.images).all() and (batch.masks == expected.masks).all()


def test_places_outside_of_an_image_have_the_fill(folder):
    chain = [mr.Pad(40)]
    assert all((batch.masks[:, 0] == 255).all() for batch in make(folder, chain=chain))
    assert all((batch.masks[:, 0] == 9).all() for batch in make(folder, "targets.mask_fill=9", chain=chain))


def masks_of(loader):
    return [batch.masks.tobytes() for batch in loader]


def test_bytes_do_not_depend_on_workers_ranks_or_the_point_of_resumption(folder):
    expected = masks_of(make(folder, "loader.workers=0"))
    for words in (["loader.workers=1"], ["loader.workers=3", "loader.grain=2", "loader.io_threads=2"]):
        assert masks_of(make(folder, *words)) == expected
    with pytest.warns(RuntimeWarning, match="kept in memory"):
        assert masks_of(make(folder, "data.cache=ram")) == expected
    loader, rest = make(folder), make(folder, "loader.workers=1")
    next(iter(loader))
    rest.load_state_dict(loader.state_dict())
    assert masks_of(rest) == expected[1:]
    ranks = [make(folder, rank=rank, world_size=2, batch=4) for rank in range(2)]
    assert [b"".join(parts) for parts in zip(*(masks_of(loader) for loader in ranks))] == expected
    with pytest.raises(mr.UsageError, match="its batches would differ"):
        make(folder, "targets.mask_fill=0").load_state_dict(loader.state_dict())


def test_batches_outlive_the_loader_and_can_be_pickled(folder):
    batch = next(iter(make(folder)))
    before = batch.masks.copy()
    for other in (batch, copy.deepcopy(batch), pickle.loads(pickle.dumps(batch))):
        assert np.array_equal(other.masks, before)


@needs_torch
def test_masks_are_views_of_the_batch(folder):
    import torch

    batch = next(iter(make(folder, numpy=False)))
    masks, again = batch.masks, batch.masks
    assert masks.dtype == torch.uint8 and masks.data_ptr() == again.data_ptr()
    assert torch.equal(masks, torch.from_numpy(next(iter(make(folder))).masks))


def test_what_is_wrong_is_said_in_one_line(folder, tmp_path):
    with pytest.raises(mr.UsageError, match="this data set has no masks"):
        next(iter(mr.Loader(mr.Folder(folder / "images"), GEOMETRY, batch=8))).masks
    with pytest.raises(mr.UsageError, match="elastic moves pixels in a way that the masks of .* cannot follow"):
        make(folder, chain=[mr.ElasticTransform()])
    with pytest.raises(mr.DataError, match="no image has a mask"):
        mr.Loader(mr.Folder(folder / "images", masks=tmp_path), GEOMETRY, batch=8)


def test_masks_count_as_memory(folder):
    have = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    fits = f"loader.prefetch={have * 9 // 10 // (3 * 4096 ** 2)}"
    mr.Loader(mr.Folder(folder / "images"), [mr.Resize((4096, 4096))], "output.dtype=u8", fits, batch=1)
    with pytest.raises(mr.UsageError, match="images and masks of 4096 x 4096 take"):
        make(folder, fits, chain=[mr.Resize((4096, 4096))], batch=1)
