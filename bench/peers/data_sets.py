"""Prepared data as arrays and file names, the same for every peer. Needs only NumPy."""
import os

import numpy as np

# Repetitions of W4's files per epoch: the sample is small, and the ends of epochs are not to be measured.
REPEATS = 8


def mnist(task):
    """Returns images [60000, 28, 28] and labels, as bytes."""
    images = np.fromfile(task.path("mnist", "train-images-idx3-ubyte"), np.uint8, offset=16)
    return images.reshape(-1, 28, 28), np.fromfile(task.path("mnist", "train-labels-idx1-ubyte"), np.uint8, offset=8)


def cifar(task):
    """Returns images [50000, 32, 32, 3] and labels, as bytes, from the files that our own reader reads."""
    records = np.concatenate([np.fromfile(task.path("cifar-bin", f"data_batch_{k}.bin"), np.uint8).reshape(-1, 3073)
                              for k in range(1, 6)])
    return np.ascontiguousarray(records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)), records[:, 0].copy()


def cifar_files(task):
    """Returns paths and labels of the JPEG files."""
    root = task.path("cifar-jpeg", "train")
    classes = sorted(os.listdir(root))
    return [(os.path.join(root, c, f), k) for k, c in enumerate(classes) for f in sorted(os.listdir(os.path.join(root, c)))]


def imagenet_files(task):
    root = task.path("imagenet")
    return [(os.path.join(root, f), 0) for f in sorted(os.listdir(root))] * REPEATS


def jpeg_files(task):
    return cifar_files(task) if task.work.name == "w3" else imagenet_files(task)


def normalisation(work):
    """Returns factor and offset per plane, from bytes to the model's input."""
    mean, std = np.array(work.mean, np.float32), np.array(work.std, np.float32)
    return 1 / (255 * std), -mean / std
