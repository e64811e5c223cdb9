#!/usr/bin/env python3
"""Measures what packed images cost to load, beside the files that FFCV's writer makes of the same images.

    pack_table.py PROGRAM PHOTOS WORK [--ffcv PYTHON] [--rounds N] [--epochs N]

Packs the JPEGs of the folder PHOTOS into WORK (kept and used again): as they are, at a short side of 256 as JPEGs of
quality 90, and both as raw pixels. FFCV gets the same pixels: the stored JPEGs, images that Pillow has resized and its
writer compresses at quality 90, and raw ones. Random resized crops of 224 with flip and normalisation, f32 planes, one
worker or thread, from the page cache. Each measurement is a process of its own; they take turns, in an order that
alternates. CPU time is that of the process tree over EPOCHS epochs after the first one. Prints medians as a table.
"""
import argparse
import io
import json
import os
import statistics
import subprocess
import sys

WAYS = {"original JPEGs": [], "short side 256, JPEG": ["--short-side", "256"], "raw": ["--format", "raw"],
        "raw, short side 256": ["--format", "raw", "--short-side", "256"]}
MEAN, STD, BATCH = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225), 32


def photos(folder):
    return sorted(os.path.join(at, name) for at, _, names in os.walk(folder) for name in names)


def name_of(way):
    return "".join(c if c.isalnum() else "-" for c in way)


def cpu_of(command):
    """Runs a command. Returns its CPU seconds and its output."""
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    text = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        sys.exit(f"failed: {' '.join(command)}")
    return usage.ru_utime + usage.ru_stime, text


class Millrace:
    name = "millrace"

    def __init__(self, arguments):
        self.arguments = arguments

    def target(self, way):
        return os.path.join(self.arguments.work, "millrace-" + name_of(way))

    def write(self, way):
        if not os.path.exists(self.target(way)):
            command = [self.arguments.program, "data", "pack", self.arguments.photos, self.target(way), *WAYS[way]]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def bytes(self, way):
        return sum(os.path.getsize(os.path.join(self.target(way), name)) for name in os.listdir(self.target(way)))

    def measure(self, way):
        """Returns the CPU seconds of EPOCHS epochs and their images: a long run less a short one."""
        runs = []
        for epochs in (1, 1 + self.arguments.epochs):
            spent, text = cpu_of([self.arguments.program, "bench", "imagenet-rrc", "data.reader=tar",
                                  f"data.path={self.target(way)}", "data.index=require", "loader.workers=1",
                                  f"loader.batch={BATCH}", f"bench.epochs={epochs}", "--json", "-q"])
            runs.append((spent, json.loads(text)["images"]))
        return runs[1][0] - runs[0][0], runs[1][1] - runs[0][1]


class Ffcv:
    name = "FFCV"

    def __init__(self, arguments):
        self.arguments = arguments

    def target(self, way):
        return os.path.join(self.arguments.work, f"ffcv-{name_of(way)}.beton")

    def write(self, way):
        if not os.path.exists(self.target(way)):
            subprocess.run([self.arguments.ffcv, __file__, "--write", way, self.arguments.photos, self.target(way)],
                           check=True, stdout=subprocess.DEVNULL)

    def bytes(self, way):
        return os.path.getsize(self.target(way))

    def measure(self, way):
        _, text = cpu_of([self.arguments.ffcv, __file__, "--read", self.target(way), str(self.arguments.epochs)])
        spent, images = text.split()[-2:]
        return float(spent), int(images)


def write_ffcv(way, folder, target):
    import numpy as np
    from ffcv.fields import IntField, RGBImageField
    from ffcv.writer import DatasetWriter
    from ffcv_fields import StoredJpeg
    from PIL import Image

    class Samples:
        def __init__(self):
            self.files = photos(folder)

        def __len__(self):
            return len(self.files)

        def __getitem__(self, index):
            with open(self.files[index], "rb") as file:
                jpeg = file.read()
            if not WAYS[way]:
                return jpeg, 0
            image = Image.open(io.BytesIO(jpeg)).convert("RGB")
            scale = 256 / min(image.size) if "--short-side" in WAYS[way] else 1
            if scale < 1:
                image = image.resize([round(scale * side) for side in image.size], Image.BILINEAR)
            return np.asarray(image), 0

    field = StoredJpeg() if not WAYS[way] else \
        RGBImageField(write_mode="raw" if "raw" in WAYS[way] else "jpg", jpeg_quality=90)
    writer = DatasetWriter(target + ".part", {"image": field, "label": IntField()}, page_size=1 << 24, num_workers=1)
    writer.from_indexed_dataset(Samples())
    os.rename(target + ".part", target)


def read_ffcv(path, epochs):
    import numpy as np
    import torch
    from ffcv.fields import RGBImageField
    from ffcv.fields.decoders import IntDecoder
    from ffcv.fields.rgb_image import RandomResizedCropRGBImageDecoder
    from ffcv.loader import Loader, OrderOption
    from ffcv.transforms import NormalizeImage, RandomHorizontalFlip, Squeeze, ToTensor, ToTorchImage
    torch.set_num_threads(1)
    image = [RandomResizedCropRGBImageDecoder((224, 224)), RandomHorizontalFlip(),
             NormalizeImage(255 * np.array(MEAN), 255 * np.array(STD), np.float32), ToTensor(),
             ToTorchImage(channels_last=False)]
    loader = Loader(path, batch_size=BATCH, num_workers=1, os_cache=True, order=OrderOption.RANDOM, seed=1,
                    drop_last=False, custom_fields={"image": RGBImageField},
                    pipelines={"image": image, "label": [IntDecoder(), ToTensor(), Squeeze()]})
    for _ in loader:
        pass
    before, images = sum(os.times()[:4]), 0
    for _ in range(epochs):
        for batch, _ in loader:
            images += len(batch)
            assert batch.shape[1:] == (3, 224, 224) and batch.dtype == torch.float32
    print(sum(os.times()[:4]) - before, images)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("photos")
    parser.add_argument("work")
    parser.add_argument("--ffcv", help="a Python that has ffcv, torch and Pillow; without it, millrace alone")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=8)
    arguments = parser.parse_args()
    os.makedirs(arguments.work, exist_ok=True)
    sides = [Millrace(arguments), *([Ffcv(arguments)] if arguments.ffcv else [])]
    turns = [(side, way) for way in WAYS for side in sides]
    for side, way in turns:
        side.write(way)
    spent = {turn: [] for turn in turns}
    for number in range(arguments.rounds):
        for side, way in turns if number % 2 == 0 else turns[::-1]:
            seconds, images = side.measure(way)
            spent[side, way].append(1e6 * seconds / images)
            print(f"round {number + 1}: {side.name}, {way}: {spent[side, way][-1]:,.0f} µs", file=sys.stderr,
                  flush=True)
    print("| | CPU µs per image (range) | images per CPU second | of the original's | MB |")
    print("| --- | --- | --- | --- | --- |")
    for side in sides:
        first = statistics.median(spent[side, next(iter(WAYS))])
        for way in WAYS:
            times = spent[side, way]
            middle = statistics.median(times)
            print(f"| {side.name}: {way} | {middle:,.0f} ({min(times):,.0f} to {max(times):,.0f}) | "
                  f"{1e6 / middle:,.0f} | {first / middle:.1f} | {side.bytes(way) / 1e6:.1f} |")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--write"]:
        write_ffcv(*sys.argv[2:])
    elif sys.argv[1:2] == ["--read"]:
        read_ffcv(sys.argv[2], int(sys.argv[3]))
    else:
        main()
