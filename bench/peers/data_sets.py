"""The prepared data as arrays and file names, the same for every peer. No library but NumPy."""
import os

import numpy as np

# W4's files an epoch: the sample is small, and a loader's ends of epochs are not what is measured.
REPEATS = 8


def mnist(task):
    """Images [60000, 28, 28] and labels, bytes."""
    images = np.fromfile(task.path("mnist", "train-images-idx3-ubyte"), np.uint8, offset=16)
    return images.reshape(-1, 28, 28), np.fromfile(task.path("mnist", "train-labels-idx1-ubyte"), np.uint8, offset=8)


def cifar(task):
    """Images [50000, 32, 32, 3] and labels, bytes, from the files that our own reader takes."""
    records = np.concatenate([np.fromfile(task.path("cifar-bin", f"data_batch_{k}.bin"), np.uint8).reshape(-1, 3073)
                              for k in range(1, 6)])
    return np.ascontiguousarray(records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)), records[:, 0].copy()


def cifar_files(task):
    """Paths and labels of the JPEG files."""
    root = task.path("cifar-jpeg", "train")
    classes = sorted(os.listdir(root))
    return [(os.path.join(root, c, f), k) for k, c in enumerate(classes) for f in sorted(os.listdir(os.path.join(root, c)))]


def imagenet_files(task):
    root = task.path("imagenet")
    return [(os.path.join(root, f), 0) for f in sorted(os.listdir(root))] * REPEATS


def jpeg_files(task):
    return cifar_files(task) if task.work.name == "w3" else imagenet_files(task)


def normalisation(work):
    """Factor and offset a plane, from bytes to what the model reads."""
    mean, std = np.array(work.mean, np.float32), np.array(work.std, np.float32)
    return 1 / (255 * std), -mean / std
