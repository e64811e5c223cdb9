#!/usr/bin/env python3
"""Sorts photographs by kind, and makes more kinds of them: photo_kinds.py PHOTOS OUT

PHOTOS is a folder whose JPEG files lie at any depth. Makes OUT/KIND/train with a folder per class, which is what a
file's name begins with, up to "_". Kinds: `all`; `444` and `420`, the files of one sampling alone; and of every fifth
file `512-q75` to `1024-q95`, resized to that shorter side (bicubic) and encoded with 4:2:0 at that quality.
Needs pillow.
"""
import argparse
import io
import pathlib

from PIL import Image

SAMPLINGS = {(1, 1): "444", (2, 2): "420"}


def put(out, kind, name, data):
    folder = out / kind / "train" / name.split("_")[0]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)


def resized(image, side, quality):
    """Returns a JPEG file whose picture has the given shorter side."""
    factor = side / min(image.size)
    file = io.BytesIO()
    image.resize([round(factor * one) for one in image.size], Image.BICUBIC).save(
        file, "JPEG", quality=quality, subsampling="4:2:0")
    return file.getvalue()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    arguments = parser.parse_args()
    files = sorted(file for file in arguments.photos.rglob("*") if file.suffix.lower() in (".jpg", ".jpeg"))
    for number, file in enumerate(files):
        image, data = Image.open(file), file.read_bytes()
        put(arguments.out, "all", file.name, data)
        layers = getattr(image, "layer", [])  # number, and horizontal and vertical sampling of each
        if len(layers) == 3 and (kind := SAMPLINGS.get(layers[0][1:3])):
            put(arguments.out, kind, file.name, data)
        if number % 5 == 0:
            for side in (512, 1024):
                for quality in (75, 85, 95):
                    put(arguments.out, f"{side}-q{quality}", file.name, resized(image.convert("RGB"), side, quality))
    for kind in sorted(arguments.out.iterdir()):
        print(f"{kind.name}: {sum(one.is_file() for one in kind.rglob('*'))} files")


if __name__ == "__main__":
    main()
