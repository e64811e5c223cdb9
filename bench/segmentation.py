#!/usr/bin/env python3
"""Compares loaders of images with masks for segmentation: images per CPU-second, in turns.

    segmentation.py DATA [--turns N] [--images N] [--workers N] [--only NAME,...]

DATA is a folder of class folders with JPEG files (`millrace data make photos`), for which masks are drawn: smooth
regions of 6 classes by brightness, as palette PNG. Workloads: `crop`, a random crop to 512 x 512 of what is padded
where it is smaller, and a flip; `resized`, a random resized crop to 512 x 512, and a flip. At the end, images are
normalised float32, and masks uint8. Ours: mr.Folder(..., masks=...). Theirs: torch's DataLoader with Pillow and
torchvision.transforms.v2, on Pillow's images (`pil`) and on tensors (`tensor`), with masks as tv_tensors.Mask.

First, samples of ours are compared with what torchvision makes of the same files with the same draws, which
batch.warps tells. Then the ways take turns in an order that alternates. CPU seconds are those of the process and its
workers, without the first batches of a turn. Prints each way's median over the turns with its range, and that of ours
beside it in the same turn. Needs numpy, pillow, torch and torchvision.
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
from torchvision import tv_tensors
from torchvision.transforms import InterpolationMode, v2
from torchvision.transforms.v2 import functional as F
from turns import in_turns, print_rates, rate_of

SIDE, BATCH, CLASSES = 512, 16, 6
NONE = 255
WARM_UP = 24  # batches
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
FILL = {tv_tensors.Mask: NONE, "others": 0}
WORKLOADS = ("crop", "resized")
WAYS = ("ours", "pil", "tensor")


def draw_masks(folder, to):
    """Writes a mask for each image. Returns the pairs of files, in the order of the images' names."""
    pairs = []
    for path in sorted(pathlib.Path(folder).rglob("*.jpg")):
        gray = Image.open(path).convert("L")
        smooth = gray.resize((8, 6), Image.Resampling.BOX).resize(gray.size, Image.Resampling.BICUBIC)
        mask = Image.fromarray((np.asarray(smooth) * (CLASSES / 256)).astype(np.uint8))
        mask.putpalette(bytes(range(256)) * 3)
        file = (to / path.relative_to(folder)).with_suffix(".png")
        file.parent.mkdir(parents=True, exist_ok=True)
        mask.save(file)
        pairs.append((path, file))
    return pairs


class Files(torch.utils.data.Dataset):
    """The pairs of files through transforms of torchvision's, as Pillow's images or as tensors."""

    def __init__(self, pairs, workload, on_tensors):
        first = [v2.RandomCrop(SIDE, pad_if_needed=True, fill=FILL)] if workload == "crop" else \
            [v2.RandomResizedCrop(SIDE, antialias=True)]
        self.pairs, self.on_tensors = pairs, on_tensors
        self.chain = v2.Compose([*first, v2.RandomHorizontalFlip(), v2.ToImage(),
                                 v2.ToDtype({tv_tensors.Image: torch.float32, "others": None}, scale=True),
                                 v2.Normalize(MEAN, STD)])

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, index):
        image, mask = map(Image.open, self.pairs[index])
        image = image.convert("RGB")
        image = F.to_image(image) if self.on_tensors else image
        return self.chain(image, tv_tensors.Mask(torch.from_numpy(np.array(mask))))


def ours(folder, masks, workload, workers, *words, **options):
    first = mr.RandomCrop(SIDE, pad_if_needed=True) if workload == "crop" else mr.RandomResizedCrop(SIDE)
    return mr.Loader(mr.Folder(folder, masks=masks), [first, mr.HFlip()], f"loader.workers={workers}",
                     "loader.drop_last=true", *words, batch=BATCH, **options)


def window_of(warp):
    """Returns left, top, width and height of the part of the image that a sample shows, and whether it is flipped."""
    scale = 1 / warp[[0, 1], [0, 1]]
    start = (-0.5 - warp[[0, 1], [2, 2]]) * scale + 0.5
    span = SIDE * scale
    flipped = bool(span[0] < 0)
    left = start[0] + span[0] if flipped else start[0]
    return *(int(round(float(one))) for one in (left, start[1], abs(span[0]), span[1])), flipped


def check(folder, masks, workload, count=48):
    """Compares images and masks with torchvision's. Returns the share of masks' pixels that differ."""
    loader = ours(folder, masks, workload, 1, "output.dtype=u8", "output.normalize=loader", warps=True, numpy=True)
    off = total = 0
    for batch in itertools.islice(loader, count // BATCH):
        for image, mask, warp, name in zip(batch.images, batch.masks, batch.warps.astype(np.float64), batch.names):
            left, top, width, height, flipped = window_of(warp)
            source = F.to_image(Image.open(name).convert("RGB"))
            ids = torch.from_numpy(np.array(Image.open((masks / pathlib.Path(name).relative_to(folder))
                                                       .with_suffix(".png"))))[None]
            if workload == "crop":
                room = [SIDE, SIDE, SIDE, SIDE]
                cut = [F.crop(F.pad(one, room, fill=fill), top + SIDE, left + SIDE, SIDE, SIDE)
                       for one, fill in ((source, 0), (ids, NONE))]
            else:
                cut = [F.resized_crop(one, top, left, height, width, [SIDE, SIDE], way, antialias=True) for one, way in
                       ((source, InterpolationMode.BILINEAR), (ids, InterpolationMode.NEAREST_EXACT))]
            expected, ids = (F.horizontal_flip(one).numpy() if flipped else one.numpy() for one in cut)
            levels = np.abs(expected.astype(int) - image).max()
            if levels > (0 if workload == "crop" else 1):
                sys.exit(f"{workload}: an image of {name} differs by {levels} levels")
            off += int((ids[0] != mask).sum())
            total += mask.size
    if off > total // 2000 or not total:
        sys.exit(f"{workload}: {off} of {total} pixels of masks differ")
    return off / total


def turn(way, folder, masks, pairs, workload, arguments):
    """Loads batches. Returns images per CPU-second."""
    if way == "ours":
        loader = ours(folder, masks, workload, arguments.workers, normalize=mr.IMAGENET)
    else:
        files = Files(pairs, workload, way == "tensor")
        loader = torch.utils.data.DataLoader(files, BATCH, shuffle=True, drop_last=True, num_workers=arguments.workers,
                                             persistent_workers=True)
    batches = itertools.chain.from_iterable(itertools.repeat(loader))

    def check_batch(batch):
        ids = batch.masks if way == "ours" else batch[1]
        images = batch.images if way == "ours" else batch[0]
        assert ids.shape == (BATCH, SIDE, SIDE) and ids.dtype == torch.uint8
        assert images.shape == (BATCH, 3, SIDE, SIDE) and images.dtype == torch.float32
    return rate_of(batches, BATCH, arguments.images, WARM_UP, check_batch)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--images", type=int, default=1024, help="per way and turn")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--only", type=lambda text: text.split(","), default=WORKLOADS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print("| workload | way | images per CPU-second | ours / this way |")
    print("| --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as there:
        masks = pathlib.Path(there)
        split = arguments.data / "train"
        pairs = draw_masks(split, masks / "train")
        sizes = [sum(path.stat().st_size for path in paths) / len(pairs) for paths in zip(*pairs)]
        shares = {}
        for workload in arguments.only:
            shares[workload] = check(arguments.data, masks, workload)
            print_rates(workload, in_turns(WAYS, arguments.turns, lambda way: turn(way, arguments.data, masks, pairs,
                                                                                   workload, arguments)))
    different = ", ".join(f"{name} {share:.1e}" for name, share in shares.items())
    print(f"\n{len(pairs)} images of {sizes[0] / 1e3:.0f} kB and masks of {sizes[1] / 1e3:.1f} kB on average; share of "
          f"the masks' pixels that differ: {different}")


if __name__ == "__main__":
    main()
