"""Writes FFCV's data sets from the prepared data; stores JPEGs unchanged. Called by table.py if FFCV is installed.

    prepare_ffcv.py DATA
"""
import os
import sys

import numpy as np
from ffcv.fields import IntField, NDArrayField, RGBImageField
from ffcv.writer import DatasetWriter

from data_sets import REPEATS, cifar, cifar_files, imagenet_files, mnist
from feed import Task
from ffcv_fields import StoredJpeg


class Samples:
    def __init__(self, sources, labels, load=lambda source: source):
        self.sources, self.labels, self.load = sources, labels, load

    def __len__(self):
        return len(self.sources)

    def __getitem__(self, index):
        return self.load(self.sources[index]), int(self.labels[index])


def contents(path):
    with open(path, "rb") as file:
        return file.read()


def write(path, field, samples, page=1 << 21):
    if os.path.exists(path):
        return
    writer = DatasetWriter(path + ".part", {"image": field, "label": IntField()}, page_size=page, num_workers=1)
    writer.from_indexed_dataset(samples)
    os.rename(path + ".part", path)


def main():
    task = Task(None, sys.argv[1], {})
    os.makedirs(task.path("ffcv"), exist_ok=True)
    write(task.path("ffcv", "mnist.beton"), NDArrayField(np.dtype("uint8"), (28, 28)), Samples(*mnist(task)))
    write(task.path("ffcv", "cifar-raw.beton"), RGBImageField(write_mode="raw"), Samples(*cifar(task)))
    write(task.path("ffcv", "cifar-jpeg.beton"), StoredJpeg(), Samples(*zip(*cifar_files(task)), contents))
    files = imagenet_files(task)
    files = files[:len(files) // REPEATS]
    write(task.path("ffcv", "imagenet.beton"), StoredJpeg(), Samples(*zip(*files), contents), page=1 << 23)


main()
