#!/usr/bin/env python3
"""Compares loaders of images with boxes for detection: images per CPU-second, in turns.

    detection.py DATA [--turns N] [--images N] [--workers N] [--only NAME,...] [--costs]

DATA is a folder of class folders with JPEG files (`millrace data make photos`), for which boxes are drawn with the
sizes and counts of COCO's: 7 per image on average, 41% of them smaller than 32 x 32 pixels, 24% larger than 96 x 96.
Workloads:

- `resize`: to 640 x 640 and a flip; normalised float32 and boxes in pixels. Theirs: torch's DataLoader with Pillow and
  torchvision.transforms.v2, on Pillow's images (`pil`) and on tensors (`tensor`), with SanitizeBoundingBoxes.
- `mosaic`: 640 x 640 of four images, with a scale of 0.5 to 1.5, moves of 10%, a flip, and changes of hue, saturation
  and brightness; uint8 and relative boxes. Theirs: Ultralytics' YOLODataset with its default augmentations, which draws
  the affine map once for all four (`ultralytics`), and its collate in torch's DataLoader.

First, samples of `resize` are compared with torchvision's of the same files, and boxes of `mosaic` must lie in their
images. Then the ways take turns in an order that alternates. CPU seconds are those of the process and its workers,
without the first batches of a turn. Prints each way's median over the turns with its range, and that of ours beside it
in the same turn. Needs numpy, pillow, torch, torchvision and, for `mosaic`, ultralytics.
"""
import argparse
import itertools
import pathlib
import sys
import tempfile

import numpy as np
import pymillrace as mr
import torch
from PIL import Image
from segmentation import MEAN, STD
from torchvision import tv_tensors
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as F
from turns import in_turns, print_rates, rate_of, spread

SIDE, BATCH, CLASSES = 640, 16, 80
WARM_UP = 24  # batches
WAYS = {"resize": ("ours", "pil", "tensor"), "mosaic": ("ours", "ultralytics")}


def draw_boxes(folder, to):
    """Writes the set with boxes as Ultralytics reads it, and returns the files of its images."""
    draw, files = np.random.default_rng(1), []
    for name in ("images", "labels"):
        (to / name / "train").mkdir(parents=True)
    for number, path in enumerate(sorted((folder / "train").rglob("*.jpg"))):
        width, height = Image.open(path).size
        lines = []
        for _ in range(min(60, draw.geometric(1 / 7))):
            least, most = ((8, 32), (32, 96), (96, min(width, height)))[draw.choice(3, p=(0.41, 0.35, 0.24))]
            side, aspect = draw.uniform(least, most), np.exp(draw.uniform(-0.5, 0.5))
            w, h = min(side * aspect, width) / width, min(side / aspect, height) / height
            x, y = draw.uniform(w / 2, 1 - w / 2), draw.uniform(h / 2, 1 - h / 2)
            lines.append(f"{draw.integers(CLASSES)} {x:.6f} {y:.6f} {w:.6f} {h:.6f}\n")
        files.append(to / "images" / "train" / f"{number:05}.jpg")
        files[-1].write_bytes(path.read_bytes())
        (to / "labels" / "train" / f"{number:05}.txt").write_text("".join(lines))
    return files


def boxes_of(file):
    """Returns classes and boxes (centre, width, height, relative) of an image."""
    text = (file.parents[2] / "labels" / "train" / file.name).with_suffix(".txt").read_text()
    rows = np.array(text.split(), np.float32).reshape(-1, 5)
    return rows[:, 0].astype(np.int64), rows[:, 1:]


def in_pixels(boxes, width, height):
    x, y, w, h = boxes.T
    return np.stack([(x - w / 2) * width, (y - h / 2) * height, (x + w / 2) * width, (y + h / 2) * height], 1)


class Files(torch.utils.data.Dataset):
    """The images and boxes through transforms of torchvision's, as Pillow's images or as tensors."""

    def __init__(self, files, on_tensors):
        self.files, self.on_tensors = files, on_tensors
        self.chain = v2.Compose([v2.Resize((SIDE, SIDE)), v2.RandomHorizontalFlip(), v2.ToImage(),
                                 v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD),
                                 v2.SanitizeBoundingBoxes()])
        self.targets = [boxes_of(file) for file in files]  # as readers of COCO files keep them

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        image = Image.open(self.files[index]).convert("RGB")
        labels, boxes = self.targets[index]
        boxes = tv_tensors.BoundingBoxes(torch.from_numpy(in_pixels(boxes, *image.size)), format="XYXY",
                                         canvas_size=image.size[::-1])
        return self.chain(F.to_image(image) if self.on_tensors else image,
                          {"boxes": boxes, "labels": torch.from_numpy(labels)})


def ours(folder, workload, workers, *words, steps=None, **options):
    chains = {
        "resize": [mr.Resize((SIDE, SIDE)), mr.HFlip()],
        "mosaic": [mr.Resize(SIDE - 1, max_size=SIDE), mr.CenterCrop(SIDE, fill=114),
                   mr.RandomAffine(0, translate=(0.1, 0.1), scale=(0.5, 1.5), interpolation="bilinear", fill=114),
                   mr.RandomHSV(), mr.HFlip(), mr.Mosaic()],
    }
    return mr.Loader(mr.Yolo(folder), chains[workload][:steps], f"loader.workers={workers}", "loader.drop_last=true",
                     *words, batch=BATCH, **options)


def check(folder, workload):
    """Compares images and boxes with torchvision's, or boxes with their images. Returns the largest differences."""
    if workload == "mosaic":
        for batch in itertools.islice(ours(folder, workload, 1, "output.dtype=u8", collate="ultralytics"), 4):
            boxes, areas = batch["bboxes"], batch["bboxes"][:, 2:].prod(1)
            ends = torch.cat([boxes[:, :2] - boxes[:, 2:] / 2, boxes[:, :2] + boxes[:, 2:] / 2])
            assert ends.min() >= -1e-6 and ends.max() <= 1 + 1e-6 and areas.min() * SIDE * SIDE >= 0.999
            assert len(boxes) > BATCH
        return "boxes inside"
    levels = pixels = 0.0
    loader = ours(folder, workload, 1, "output.dtype=u8", "output.normalize=loader", warps=True, numpy=True)
    for batch in itertools.islice(loader, 3):
        ends = batch.boxes.offsets.tolist()
        for image, warp, name, begin, end in zip(batch.images, batch.warps, batch.names, ends, ends[1:]):
            source, boxes = Image.open(name).convert("RGB"), boxes_of(pathlib.Path(name))[1]
            expected = F.resize(F.to_image(source), [SIDE, SIDE], antialias=True)
            boxes = in_pixels(boxes, SIDE, SIDE)
            if warp[0, 0] < 0:
                expected, boxes = F.horizontal_flip(expected), np.stack(
                    [SIDE - boxes[:, 2], boxes[:, 1], SIDE - boxes[:, 0], boxes[:, 3]], 1)
            levels = max(levels, np.abs(expected.numpy().astype(int) - image).max())
            pixels = max(pixels, np.abs(batch.boxes.values[begin:end] - boxes).max())
    if levels > 1 or pixels > 1e-3:
        sys.exit(f"{workload}: images differ by {levels} levels, boxes by {pixels} pixels")
    return f"images differ by {levels} level, boxes by {pixels:.1e} pixels"


def ultralytics_set(folder):
    from ultralytics.cfg import get_cfg
    from ultralytics.data.build import build_yolo_dataset
    data = {"names": {number: str(number) for number in range(CLASSES)}, "nc": CLASSES, "channels": 3}
    return build_yolo_dataset(get_cfg(), str(folder / "images" / "train"), BATCH, data)


def batches_of(way, folder, files, workload, workers):
    """Returns an endless iterator of images and the number of their boxes."""
    def forever(loader, shape):
        while True:
            for batch in loader:
                yield shape(batch)
    if way == "ours" and workload == "resize":
        return forever(ours(folder, workload, workers, normalize=mr.IMAGENET, collate="torchvision"),
                       lambda batch: (batch[0], len(batch[1])))
    if way == "ours":
        return forever(ours(folder, workload, workers, "output.dtype=u8", collate="ultralytics"),
                       lambda batch: (batch["img"], len(batch["bboxes"])))
    made = dict(batch_size=BATCH, shuffle=True, drop_last=True, num_workers=workers, persistent_workers=True)
    if way == "ultralytics":
        held = ultralytics_set(folder)
        return forever(torch.utils.data.DataLoader(held, collate_fn=held.collate_fn, **made),
                       lambda batch: (batch["img"], len(batch["bboxes"])))
    held = Files(files, way == "tensor")
    return forever(torch.utils.data.DataLoader(held, collate_fn=lambda items: tuple(zip(*items)), **made),
                   lambda batch: (batch[0], len(batch[1])))


def turn(way, folder, files, workload, arguments):
    """Loads batches. Returns images per CPU-second."""
    kind = torch.float32 if workload == "resize" else torch.uint8

    def check_batch(batch):
        images, objects = batch
        assert len(images) == BATCH and images[0].shape == (3, SIDE, SIDE) and images[0].dtype == kind and objects > 0
    return rate_of(batches_of(way, folder, files, workload, arguments.workers), BATCH, arguments.images, WARM_UP,
                   check_batch)


def print_costs(folder, arguments):
    """Prints the CPU time per image of the first steps of `mosaic`, and of all."""
    steps = {"decoding and resizing": 2, "and the affine map": 3, "and colours and a flip": 5, "and the mosaic": 6}

    def ms(name):
        loader = ours(folder, "mosaic", arguments.workers, "output.dtype=u8", steps=steps[name])
        batches = itertools.chain.from_iterable(itertools.repeat(loader))
        return 1e3 / rate_of(batches, BATCH, arguments.images, WARM_UP, len)
    print("\n| steps of `mosaic` | CPU ms per image |\n| --- | --- |")
    for name, found in in_turns(list(steps), arguments.turns, ms).items():
        print(f"| {name} | {spread(found, 2)} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--images", type=int, default=512, help="per way and turn")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--costs", action="store_true", help="also print what each step of `mosaic` takes in ours")
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(WAYS))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as there:
        folder = pathlib.Path(there)
        files = draw_boxes(arguments.data, folder)
        checks = {workload: check(folder, workload) for workload in arguments.only}
        print("| workload | way | images per CPU-second | ours / this way |")
        print("| --- | --- | --- | --- |", flush=True)
        for workload in arguments.only:
            print_rates(workload, in_turns(WAYS[workload], arguments.turns,
                                           lambda way: turn(way, folder, files, workload, arguments)))
        if arguments.costs:
            print_costs(folder, arguments)
        size = sum(file.stat().st_size for file in files) / len(files)
        mean = sum(len(boxes_of(file)[0]) for file in files) / len(files)
    print(f"\n{len(files)} images of {size / 1e3:.0f} kB with {mean:.1f} boxes on average; "
          + "; ".join(f"{name}: {found}" for name, found in checks.items()))


if __name__ == "__main__":
    main()
