"""Targets that a manifest lists: numbers as an array, anything else as Python objects; boxes and points that follow."""
import json
import pathlib
import re

import numpy as np
import pymillrace as mr
import pytest
import tiny_jpeg
from conftest import needs_torch


def write(folder, data, targets, ending="jsonl"):
    """Writes a manifest with a target per photo; returns its file."""
    files = sorted((data / "photos").rglob("*.jpg"))[: len(targets)]
    rows = [json.dumps({"path": str(file), "target": target}) for file, target in zip(files, targets)]
    manifest = folder / f"list.{ending}"
    manifest.write_text("\n".join(rows))
    return manifest


def make(manifest, *overrides, **options):
    return mr.Loader(mr.Manifest(manifest), [mr.RandomResizedCrop(16)], *overrides, **{"batch": 4, "numpy": True, **options})


@pytest.mark.parametrize("workers", [0, 2])
def test_vectors_are_an_array_that_follows_the_samples(data, tmp_path, workers):
    rows = [[i, -i, i / 2] for i in range(10)]
    loader = make(write(tmp_path, data, rows), f"loader.workers={workers}")
    seen = 0
    for _ in range(2):
        for batch in loader:
            assert batch.targets.dtype == np.float32 and batch.targets.shape == (len(batch.samples), 3)
            assert batch.targets.tolist() == [rows[i] for i in batch.samples]
            assert (batch.labels == 0).all()
            seen += len(batch.targets)
    assert seen == 20
    kept = batch.targets
    del batch, loader
    kept += 1  # the array owns its memory


@needs_torch
def test_torch_gets_a_tensor_and_plain_numbers_have_one_axis(data, tmp_path):
    import torch

    batch = next(iter(make(write(tmp_path, data, [0.5 * i for i in range(8)]), numpy=False)))
    assert batch.targets.dtype == torch.float32 and batch.targets.shape == (4,)
    assert batch.targets.tolist() == [0.5 * int(i) for i in batch.samples]


def test_other_values_are_python_objects(data, tmp_path):
    rows = [{"boxes": [[1, 2, 3, 4]] * i, "text": "é"} for i in range(5)] + [None, [1, 2], "x", 3, True]
    for batch in make(write(tmp_path, data, rows)):
        assert batch.targets == [rows[i] for i in batch.samples]


def test_targets_of_mixed_samples_are_refused(data, tmp_path):
    batch = next(iter(make(write(tmp_path, data, [float(i) for i in range(8)]), "loader.batch=4", "augment+=mixup")))
    with pytest.raises(mr.UsageError, match="mixes samples"):
        batch.targets


def test_a_number_beyond_float32_is_named_with_its_row(data, tmp_path):
    with pytest.raises(mr.DataError, match="list.jsonl.*2.*too large for float32"):
        make(write(tmp_path, data, [1.0, 1e39]))


def test_csv_columns_hold_them_too(data, tmp_path):
    files = sorted((data / "photos").rglob("*.jpg"))[:4]
    manifest = tmp_path / "list.csv"
    manifest.write_text("path,label,target\n" + "".join(f'{file},cat,"[{i},7]"\n' for i, file in enumerate(files)))
    loader = make(manifest)
    batch = next(iter(loader))
    assert loader.dataset.classes == ["cat"]
    assert batch.targets.tolist() == [[i, 7] for i in batch.samples]


def test_a_replaced_sample_brings_its_own_target(data, tmp_path):
    manifest = write(tmp_path, data, list(range(8)))
    lines = manifest.read_text().splitlines()
    (tmp_path / "bad.jpg").write_bytes(b"no image")
    lines[3] = json.dumps({"path": str(tmp_path / "bad.jpg"), "target": 3})
    manifest.write_text("\n".join(lines))
    for mode in ("replace", "skip"):
        for batch in make(manifest, f"loader.on_error={mode}"):
            assert batch.targets.tolist() == batch.samples.tolist() and 3 not in batch.targets


def test_without_targets_there_is_a_clear_error_and_the_fingerprint_knows_them(data, tmp_path):
    with pytest.raises(mr.UsageError, match="no targets.*target"):
        next(iter(mr.Loader(mr.Folder(data / "photos"), [mr.RandomResizedCrop(16)], batch=4, numpy=True))).targets
    one = make(write(tmp_path, data, [1, 2, 3, 4])).state_dict()
    other = make(write(tmp_path, data, [1, 2, 3, 5]))
    with pytest.raises(mr.UsageError, match="its batches would differ"):
        other.load_state_dict(one)


def test_a_damaged_target_names_its_line(data, tmp_path):
    manifest = tmp_path / "list.csv"
    manifest.write_text("path,target\na.jpg,1\nb.jpg,cat\n")
    with pytest.raises(mr.DataError, match="list.csv:3: the target is not JSON: 'cat'"):
        make(manifest)


# --- the document's example, on images with planted dots

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/how-to/python.md"
WIDTH, HEIGHT, RADIUS = 120, 96, 2.0


def example():
    """Returns the functions that the page defines to move points and boxes."""
    block, = re.findall(r"^```python file=points.py\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    names = {}
    exec(compile(block, "points.py", "exec"), names)
    return names


def photo_of(dots):
    """Returns a JPEG file's bytes with a bright dot at each position."""
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    levels = np.zeros((HEIGHT, WIDTH))
    for dot in dots:
        levels = np.maximum(levels, 255 * np.exp(-((x - dot[0]) ** 2 + (y - dot[1]) ** 2) / (2 * RADIUS**2)))
    return tiny_jpeg.encode(np.rint(levels).astype(np.uint8))


def disc_around(dot):
    """Returns the mask of the pixels within 4 of a position."""
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    return (x - dot[0]) ** 2 + (y - dot[1]) ** 2 <= 16


def test_key_points_boxes_and_masks_of_the_manifest_follow_the_images(tmp_path):
    functions, draw, rows = example(), np.random.default_rng(3), []
    for number in range(24):
        dots = np.stack([draw.uniform([12, 12], [50, HEIGHT - 12]), draw.uniform([70, 12], [WIDTH - 12, HEIGHT - 12])])
        (tmp_path / f"{number}.jpg").write_bytes(photo_of(dots))
        rows.append(json.dumps({"path": f"{number}.jpg", "target": {"points": dots.tolist(), "box": [*dots.min(0), *dots.max(0)]}}))
    (tmp_path / "list.jsonl").write_text("\n".join(rows))
    chain = [mr.Resize((192, 240)), mr.HFlip(), mr.RandomRotation(20, "bilinear"), mr.RandomCrop((160, 200))]
    found = boxes = 0
    for batch in mr.Loader(mr.Manifest(tmp_path / "list.jsonl"), chain, "output.dtype=u8", batch=8, numpy=True, warps=True):
        for image, target, warp in zip(batch.images, batch.targets, batch.warps):
            points = functions["move_points"](np.array(target["points"]), warp)
            for dot, point in zip(target["points"], points):
                left, top = np.floor(point).astype(int) - 9
                if left < 0 or top < 0 or left + 19 > 200 or top + 19 > 160:
                    continue  # a crop has cut the dot
                window = image[0, top:top + 19, left:left + 19].astype(float)
                y, x = np.mgrid[:19, :19]
                centre = np.array([(window * x).sum(), (window * y).sum()]) / window.sum() + [left, top]
                assert np.hypot(*(centre - point)) < 0.5, (point, centre)
                mask = functions["move_mask"](disc_around(dot), warp, 200, 160)
                assert np.hypot(*(np.argwhere(mask).mean(0)[::-1] - centre)) < 0.5
                found += 1
            box = functions["move_box"](np.array(target["box"]), warp, 200, 160)
            inside = np.clip(points, [0, 0], [199, 159])
            assert (inside.min(0) >= box[:2] - 1e-3).all() and (inside.max(0) <= box[2:] + 1e-3).all()
            boxes += (0 <= box).all() and (box <= [199, 159, 199, 159]).all()
    assert found > 16 and boxes == 24
