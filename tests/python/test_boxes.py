"""Boxes and key points of COCO and YOLO sets: they follow planted rectangles, and come in the forms that detectors take."""
import copy
import json
import pickle
import shutil

import numpy as np
import pymillrace as mr
import pytest
import tiny_jpeg
from conftest import needs_torch

WIDTH, HEIGHT, COUNT = 120, 96, 24
GEOMETRY = [mr.Resize((192, 240)), mr.HFlip(), mr.RandomCrop((160, 200))]


def outline_of(box, as_runs):
    """Returns the outline of all pixels of a box: a polygon, or runs down the columns."""
    left, top, width, height = box
    if not as_runs:
        return [[left, top, left + width, top, left + width, top + height, left, top + height]]
    between = [HEIGHT - height, height] * (width - 1)
    behind = HEIGHT - top - height + HEIGHT * (WIDTH - left - width)
    return {"size": [HEIGHT, WIDTH], "counts": [left * HEIGHT + top, height, *between, behind]}


@pytest.fixture(scope="module")
def coco(tmp_path_factory):
    """A COCO set of bright rectangles on black, 0 to 2 per image, with a key point at the middle of each left edge."""
    folder, draw = tmp_path_factory.mktemp("coco"), np.random.default_rng(3)
    images, annotations = [], []
    for number in range(COUNT):
        levels = np.zeros((HEIGHT, WIDTH), np.uint8)
        for half in range(number % 3):
            left, top = draw.integers([60 * half + 4, 4], [60 * half + 24, 40])
            width, height = draw.integers(16, 32), draw.integers(16, 48)
            levels[top:top + height, left:left + width] = 255
            box, middle = [int(one) for one in (left, top, width, height)], float(top + height / 2)
            annotations.append({"image_id": 100 + number, "category_id": 7 + half, "bbox": box,
                                "keypoints": [box[0], middle, 2, box[0] + box[2], middle, 1],
                                "segmentation": outline_of(box, half)})
        (folder / f"{number}.jpg").write_bytes(tiny_jpeg.encode(levels))
        images.append({"id": 100 + number, "file_name": f"{number}.jpg", "width": WIDTH, "height": HEIGHT})
    categories = [{"id": 7, "name": "left"}, {"id": 8, "name": "right"}]
    text = json.dumps({"images": images, "annotations": annotations, "categories": categories})
    (folder / "train.json").write_text(text)
    return folder


def make(coco, *overrides, chain=GEOMETRY, **options):
    words = ["output.dtype=u8", *overrides]
    return mr.Loader(mr.Coco(coco / "train.json"), chain, *words, **{"batch": 8, "numpy": True, **options})


def test_boxes_follow_planted_rectangles(coco):
    seen = flipped = 0
    for batch in make(coco, warps=True):
        boxes = batch.boxes
        assert boxes.values.dtype == np.float32 and boxes.offsets.dtype == boxes.class_ids.dtype == np.int64
        assert len(boxes.offsets) == len(batch.samples) + 1 and boxes.offsets[-1] == len(boxes.values)
        assert batch.image_ids == [100 + sample for sample in batch.samples]
        for i, (image, sample) in enumerate(zip(batch.images, batch.samples)):
            for row in range(boxes.offsets[i], boxes.offsets[i + 1]):
                left, top, right, bottom = boxes.values[row]
                inner = image[0, int(top) + 3:int(bottom) - 2, int(left) + 3:int(right) - 2]
                assert inner.min(initial=255) > 200, (sample, boxes.values[row])
                x = max(int(left) - 4, 0)
                assert left < 4 or image[0, int(top + bottom) // 2, x] < 60, "nothing bright is left of the box"
                first, second = batch.key_points[row]
                flipped += bool(first[0] > second[0] > 0)
                seen += 1
    assert seen > COUNT / 2 and flipped > 0


def test_masks_of_objects_fill_their_boxes(coco):
    seen, data = 0, mr.Coco(coco / "train.json", masks=True)
    for batch in mr.Loader(data, GEOMETRY, "output.dtype=u8", batch=8, numpy=True):
        masks = batch.instance_masks
        assert masks.dtype == np.uint8 and masks.shape == (len(batch.boxes.values), *batch.images.shape[2:])
        for mask, box in zip(masks, batch.boxes.values):
            expected = np.zeros_like(mask)
            left, top, right, bottom = (int(one) for one in box.round())
            expected[top:bottom, left:right] = 1
            assert np.array_equal(mask, expected), box
            seen += 1
        again = pickle.loads(pickle.dumps(batch))
        assert np.array_equal(again.instance_masks, masks)
    assert seen > COUNT / 2
    with pytest.raises(mr.UsageError, match="has no masks of objects"):
        next(iter(make(coco))).instance_masks


def values_of(loader):
    return [array.tobytes() for batch in loader for array in (*batch.boxes, batch.key_points, batch.images)]


@pytest.fixture(scope="module")
def yolo(coco, tmp_path_factory):
    """The set of the fixture coco in YOLO's layout; images without a rectangle have no label file."""
    folder = tmp_path_factory.mktemp("yolo")
    for inner in ("images/train", "labels/train"):
        (folder / inner).mkdir(parents=True)
    found = json.loads((coco / "train.json").read_text())
    for image in found["images"]:
        name = f"{image['id']}"
        (folder / f"images/train/{name}.jpg").write_bytes((coco / image["file_name"]).read_bytes())
        lines = []
        for one in found["annotations"]:
            left, top, width, height = one["bbox"]
            x, y = (left + width / 2) / WIDTH, (top + height / 2) / HEIGHT
            if one["image_id"] == image["id"]:
                lines.append(f"{one['category_id'] - 7} {x} {y} {width / WIDTH} {height / HEIGHT}\n")
        if lines:
            (folder / f"labels/train/{name}.txt").write_text("".join(lines))
    (folder / "classes.txt").write_text("left\nright\n")
    return folder


def test_a_yolo_set_gives_the_boxes_of_its_twin_in_cocos_format(coco, yolo):
    loader, seen = mr.Loader(mr.Yolo(yolo), GEOMETRY, "output.dtype=u8", batch=8, numpy=True), 0
    assert loader.dataset.classes == ["left", "right"]
    for batch, twin in zip(loader, make(coco)):
        assert np.array_equal(batch.images, twin.images)
        assert np.allclose(batch.boxes.values, twin.boxes.values, atol=1e-3)
        assert all(np.array_equal(a, b) for a, b in zip(batch.boxes[1:], twin.boxes[1:]))
        assert batch.image_ids == batch.samples.tolist()
        seen += len(batch.boxes.values)
    assert seen > COUNT / 2


def test_key_points_of_a_yolo_set_are_those_of_its_twin(coco, yolo, tmp_path):
    shutil.copytree(yolo, tmp_path / "set")
    (tmp_path / "set/data.yaml").write_text("path: /nowhere\nnames:\n  0: left\n  1: right\n"
                                            "kpt_shape: [2, 3]\nflip_idx: [1, 0]\n")
    found = json.loads((coco / "train.json").read_text())
    for file in (tmp_path / "set/labels/train").iterdir():
        points = [one["keypoints"] for one in found["annotations"] if one["image_id"] == int(file.stem)]
        lines = [f"{line} " + " ".join(f"{x / WIDTH} {y / HEIGHT} {seen}" for x, y, seen in (kp[:3], kp[3:]))
                 for line, kp in zip(file.read_text().splitlines(), points)]
        file.write_text("\n".join(lines))
    loader, known = mr.Loader(mr.Yolo(tmp_path / "set"), GEOMETRY, "output.dtype=u8", batch=8, numpy=True), 0
    for batch, twin in zip(loader, make(coco, "targets.flip_pairs=0-1")):
        assert batch.key_points.shape == twin.key_points.shape
        assert np.allclose(batch.key_points, twin.key_points, atol=1e-3)
        known += (batch.key_points[..., 2] > 0).sum()
    assert known > COUNT / 2


def test_the_recipe_of_mosaics_loads_boxes_in_fractions(data):
    loader = mr.Loader("coco-mosaic-640", f"data.path={data / 'boxes'}", "loader.batch=4", numpy=True)
    batch = next(iter(loader))
    assert batch.images.shape == (4, 3, 640, 640) and batch.images.dtype == np.uint8
    assert len(batch.boxes.values) > 4 and 0 < batch.boxes.values.min() and batch.boxes.values.max() <= 1


def test_bytes_do_not_depend_on_workers_ranks_or_the_point_of_resumption(coco):
    expected = values_of(make(coco, "loader.workers=0"))
    for words in (["loader.workers=1"], ["loader.workers=3", "loader.grain=2", "loader.io_threads=2"]):
        assert values_of(make(coco, *words)) == expected
    loader = make(coco)
    rest = make(coco, "loader.workers=1")
    next(iter(loader))
    rest.load_state_dict(loader.state_dict())
    assert values_of(rest) == expected[len(expected) // 3:]
    ranks = [make(coco, rank=rank, world_size=2, batch=4) for rank in range(2)]
    whole = {int(sample): boxes for batch in make(coco) for sample, boxes in rows_of(batch)}
    parts = {int(sample): boxes for loader in ranks for batch in loader for sample, boxes in rows_of(batch)}
    assert whole == parts and len(whole) == COUNT


def rows_of(batch):
    """Yields each sample of a batch with its boxes."""
    values, offsets = batch.boxes.values, batch.boxes.offsets
    for i, sample in enumerate(batch.samples):
        yield sample, values[offsets[i]:offsets[i + 1]].tolist()


def test_batches_outlive_the_loader_and_can_be_pickled(coco):
    batch = next(iter(make(coco)))
    before = [array.copy() for array in (*batch.boxes, batch.key_points)]
    for other in (batch, copy.deepcopy(batch), pickle.loads(pickle.dumps(batch))):
        assert all(np.array_equal(a, b) for a, b in zip((*other.boxes, other.key_points), before))
        assert other.image_ids == batch.image_ids


def test_filters_and_formats_are_part_of_a_loaders_identity(coco):
    loader = make(coco, "targets.format=cxcywh", "targets.relative=true", "targets.min_visibility=0.9")
    values = np.concatenate([batch.boxes.values for batch in loader])
    assert 0 < len(values) < COUNT and (0 < values).all() and (values < 1).all()
    with pytest.raises(mr.UsageError, match="its batches would differ"):
        loader.load_state_dict(make(coco).state_dict())


@needs_torch
def test_torchvisions_form(coco):
    import torch

    loader = make(coco, "data.instance_masks=true", numpy=False, collate="torchvision")
    for (images, targets), batch in zip(loader, make(coco, "data.instance_masks=true")):
        assert len(images) == len(targets) == len(batch.samples)
        for i, (image, target) in enumerate(zip(images, targets)):
            rows = slice(*batch.boxes.offsets[i:i + 2])
            assert torch.equal(image, torch.from_numpy(batch.images[i]))
            assert target["boxes"].dtype == torch.float32 and target["labels"].dtype == torch.int64
            assert target["boxes"].tolist() == batch.boxes.values[rows].tolist()
            assert target["labels"].tolist() == (batch.boxes.class_ids[rows] + 1).tolist()
            assert target["keypoints"].tolist() == batch.key_points[rows].tolist()
            assert torch.equal(target["masks"], torch.from_numpy(batch.instance_masks[rows]))
            assert target["image_id"] == batch.image_ids[i]


@pytest.mark.parametrize("numpy", [True, pytest.param(False, marks=needs_torch)])
def test_ultralytics_form(coco, numpy):
    for shaped, batch in zip(make(coco, numpy=numpy, collate="ultralytics"), make(coco)):
        boxes = batch.boxes
        left, top, right, bottom = boxes.values.T / np.array([200, 160, 200, 160], np.float32)[:, None]
        expected = np.stack([(left + right) / 2, (top + bottom) / 2, right - left, bottom - top], 1)
        assert np.allclose(np.asarray(shaped["bboxes"]), expected, atol=1e-6)
        assert np.asarray(shaped["cls"])[:, 0].tolist() == boxes.class_ids.tolist()
        index = np.repeat(np.arange(len(batch.samples)), np.diff(boxes.offsets))
        assert np.asarray(shaped["batch_idx"]).tolist() == index.tolist()
        assert np.array_equal(np.asarray(shaped["img"]), batch.images)


def test_boxes_of_mixed_samples_name_their_images(coco):
    chain = [mr.Resize((160, 200)), mr.HFlip()]
    for batch in make(coco, "data.instance_masks=true", chain=[*chain, mr.Mosaic(p=0.8)], batch=COUNT):
        boxes, places = batch.boxes, np.repeat(np.arange(COUNT), np.diff(batch.boxes.offsets))
        assert (boxes.weights == 1).all() and set(boxes.samples) <= set(batch.samples)
        assert (boxes.samples != batch.samples[places]).sum() > 10
        for (left, top, right, bottom), place, mask in zip(boxes.values.astype(int), places, batch.instance_masks):
            if min(right - left, bottom - top) > 6:
                inside = np.s_[top + 2:bottom - 2, left + 2:right - 2]
                assert batch.images[place].mean(0)[inside].min() > 150, "a bright rectangle"
                assert mask[inside].all() and mask[:max(0, top - 1)].sum() == 0
        assert (copy.deepcopy(batch).boxes.samples == boxes.samples).all()
    for batch in make(coco, "data.instance_masks=true", chain=[*chain, mr.CopyPaste(0.8)], batch=COUNT):
        boxes, places = batch.boxes, np.repeat(np.arange(COUNT), np.diff(batch.boxes.offsets))
        pasted = boxes.samples != batch.samples[places]
        assert pasted.sum() > 10 and (boxes.samples[pasted] == batch.samples[places[pasted] ^ 1]).all()
        for place, mask in zip(places, batch.instance_masks):
            assert mask.any() and batch.images[place].mean(0)[mask == 1].mean() > 150, "bright rectangles"
    batch = next(iter(make(coco, chain=[*chain, mr.MixUp()], batch=COUNT)))
    assert len(batch.boxes.values) == 2 * COUNT and (batch.boxes.weights < 1).all()
    shown = [set(batch.boxes.samples[begin:end]) for begin, end in zip(batch.boxes.offsets, batch.boxes.offsets[1:])]
    assert shown[0::2] == shown[1::2], "both of a pair have the boxes of both"


def test_misuse_is_one_clear_line(coco, yolo, data):
    with pytest.raises(mr.UsageError, match="elastic moves pixels in a way that the boxes of .* cannot follow"):
        make(coco, chain=[mr.ElasticTransform()])
    with pytest.raises(mr.UsageError, match="cutmix"):
        make(coco, "augment+=cutmix")
    with pytest.raises(mr.UsageError, match="copy_paste pastes objects by their masks, and .* has none"):
        make(coco, chain=[mr.CopyPaste()])
    with pytest.raises(mr.UsageError, match="collate='coco' is no form of batches .choose one of torchvision"):
        make(coco, collate="coco")
    with pytest.raises(mr.UsageError, match="keys="):
        make(coco, collate="torchvision", keys=("image", "label"))
    with pytest.raises(mr.UsageError, match="targets.flip_pairs names key point 2, and an object has 2"):
        make(coco, "targets.flip_pairs=0-2")
    with pytest.raises(mr.DataError, match="no images and labels of split 'test'"):
        mr.Loader(mr.Yolo(yolo, split="test"), GEOMETRY, batch=8)
    batch = next(iter(mr.Loader(mr.Folder(data / "photos"), [mr.RandomResizedCrop(16)], batch=4, numpy=True)))
    with pytest.raises(mr.UsageError, match="no boxes"):
        batch.boxes
