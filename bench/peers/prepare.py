"""Unpacks or generates the data of all workloads into one folder; keeps existing data. Called by table.py.

    prepare.py DATA --source FOLDER      FOLDER: mnist/*.gz, cifar10-jpeg.tar.xz, imagenet-sample-250.tar
    prepare.py DATA --millrace PROGRAM   generated: digits for MNIST, pieces of drawn photos for the others

    mnist/          IDX files                       cifar-bin/      CIFAR-10's binary files, from the JPEGs
    cifar-jpeg/     train/CLASS/*.jpg, test/...     cifar-tar/      the training JPEGs as a WebDataset shard
    imagenet/       JPEGs, no folders               origin.txt      the table's note on the data's origin
"""
import argparse
import glob
import gzip
import io
import os
import shutil
import subprocess
import tarfile
import tempfile

import numpy as np
from PIL import Image

GENERATED_CIFAR = {"train": 10_000, "test": 1_000}
GENERATED_IMAGENET = 250


def made(data, name):
    """Returns None if `name` exists, else a folder that becomes `name` when it is complete."""
    path = os.path.join(data, name)
    return None if os.path.isdir(path) else Unfinished(path)


class Unfinished:
    def __init__(self, path):
        self.path = path

    def __enter__(self):
        shutil.rmtree(self.path + ".part", ignore_errors=True)
        os.makedirs(self.path + ".part")
        return self.path + ".part"

    def __exit__(self, kind, *_):
        if kind is None:
            os.rename(self.path + ".part", self.path)


def unpack(data, source):
    if folder := made(data, "mnist"):
        with folder as path:
            for archive in glob.glob(os.path.join(source, "mnist", "*.gz")):
                with gzip.open(archive) as packed, open(os.path.join(path, os.path.basename(archive)[:-3]), "wb") as file:
                    shutil.copyfileobj(packed, file)
    for name, archive in (("cifar-jpeg", "cifar10-jpeg.tar.xz"), ("imagenet", "imagenet-sample-250.tar")):
        if folder := made(data, name):
            with folder as path, tarfile.open(os.path.join(source, archive)) as packed:
                packed.extractall(path, filter="data")


def generate(data, millrace):
    if folder := made(data, "mnist"):
        with folder as path:
            subprocess.run([millrace, "data", "make", "digits", path], check=True, stdout=subprocess.DEVNULL)
    if all(os.path.isdir(os.path.join(data, name)) for name in ("cifar-jpeg", "imagenet")):
        return
    with tempfile.TemporaryDirectory() as drawn:
        subprocess.run([millrace, "data", "make", "photos", drawn, "--count", "64", "--force"], check=True,
                       stdout=subprocess.DEVNULL)
        photos = [Image.open(path).convert("RGB") for path in sorted(glob.glob(os.path.join(drawn, "*", "*", "*.jpg")))]
    random = np.random.default_rng(1)

    def piece(size, shrink):
        photo = photos[random.integers(len(photos))]
        w, h = (min(side, shrink * want) for side, want in zip(photo.size, size))
        x, y = random.integers(0, photo.width - w + 1), random.integers(0, photo.height - h + 1)
        return photo.crop((x, y, x + w, y + h)).resize(size, Image.LANCZOS)

    if folder := made(data, "imagenet"):
        with folder as path:
            for k in range(GENERATED_IMAGENET):
                size = (500, 375) if k % 3 else (375, 500)
                piece(size, 2).save(os.path.join(path, f"{k:04}.JPEG"), quality=90)
    if folder := made(data, "cifar-jpeg"):
        with folder as path:
            for split, count in GENERATED_CIFAR.items():
                for k in range(count):
                    os.makedirs(os.path.join(path, split, f"class{k % 10}"), exist_ok=True)
                    piece((32, 32), 8).save(os.path.join(path, split, f"class{k % 10}", f"{k:06}.jpg"), quality=90)


def labelled(data, split):
    root = os.path.join(data, "cifar-jpeg", split)
    for label, name in enumerate(sorted(os.listdir(root))):
        for file in sorted(os.listdir(os.path.join(root, name))):
            yield os.path.join(root, name, file), label


def write_cifar_bin(data):
    """Writes records of a label and 32x32 pixels in planes: five files for training and one for test."""
    def records(split):
        for path, label in labelled(data, split):
            with Image.open(path) as image:
                yield np.concatenate([[label], np.asarray(image.convert("RGB")).transpose(2, 0, 1).ravel()]).astype(np.uint8)

    if folder := made(data, "cifar-bin"):
        with folder as path:
            for k, part in enumerate(np.array_split(np.stack(list(records("train"))), 5), 1):
                part.tofile(os.path.join(path, f"data_batch_{k}.bin"))
            np.stack(list(records("test"))).tofile(os.path.join(path, "test_batch.bin"))
            with open(os.path.join(path, "batches.meta.txt"), "w") as names:
                names.writelines(f"{name}\n" for name in sorted(os.listdir(os.path.join(data, "cifar-jpeg", "train"))))


def write_cifar_tar(data):
    """Writes a shuffled shard of KEY.jpg, KEY.cls, for readers that read it in order."""
    def add(shard, name, content):
        member = tarfile.TarInfo(name)
        member.size = len(content)
        shard.addfile(member, io.BytesIO(content))

    if folder := made(data, "cifar-tar"):
        with folder as path:
            os.makedirs(os.path.join(path, "train"))
            samples = list(labelled(data, "train"))
            with tarfile.open(os.path.join(path, "train", "shard-000000.tar"), "w", format=tarfile.USTAR_FORMAT) as shard:
                for key, i in enumerate(np.random.default_rng(1).permutation(len(samples))):
                    with open(samples[i][0], "rb") as file:
                        add(shard, f"{key:06}.jpg", file.read())
                    add(shard, f"{key:06}.cls", str(samples[i][1]).encode())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--source")
    parser.add_argument("--millrace")
    arguments = parser.parse_args()
    os.makedirs(arguments.data, exist_ok=True)
    origin = os.path.join(arguments.data, "origin.txt")
    if not os.path.exists(origin):
        if arguments.source:
            unpack(arguments.data, arguments.source)
        else:
            generate(arguments.data, arguments.millrace)
        with open(origin, "w") as file:
            file.write("MNIST, CIFAR-10 as JPEG, 250 JPEGs of ImageNet" if arguments.source else
                       "generated: drawn digits and photos in the shapes of MNIST, CIFAR-10 and ImageNet")
    write_cifar_bin(arguments.data)
    write_cifar_tar(arguments.data)


main()
