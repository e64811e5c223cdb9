"""Runs one peer, in that peer's Python: makes batches and reports how many images it made. Called by table.py.

    feed.py PEER WORKLOAD DATA --images S L      S images, then L more: CPU seconds for those L (whole batches)
    feed.py PEER WORKLOAD DATA --check N         describes the first N images, then runs a second for the rate
    feed.py --dump FILE WORKLOAD --check N       describes a file written by `millrace bench --dump` the same way
"""
import argparse
import importlib
import importlib.metadata
import json
import multiprocessing
import os
import platform
import resource
import sys
import time
from dataclasses import dataclass

import numpy as np

from workloads import PEERS, WORKS

LIBRARIES = ("torch", "torchvision", "pillow", "pillow-simd", "nvidia-dali-cuda130", "ffcv", "spdl", "grain",
             "albumentations", "opencv-python-headless", "tensorflow-cpu", "numba", "numpy")


@dataclass
class Task:
    """Arguments of a peer's function."""
    work: object
    data: str
    options: dict

    def path(self, *parts):
        return os.path.join(self.data, *parts)


def as_array(batch):
    return batch.numpy() if hasattr(batch, "numpy") else np.asarray(batch)


def describe(images, contiguous):
    """Describes samples: shape and type; mean and spread of each plane; the difference of neighbours, which a filter
    changes."""
    planes = images if images.ndim == 4 else images[:, None]
    planes = planes.astype(np.float32)
    return {
        "shape": list(images.shape[1:]), "dtype": str(images.dtype), "images": len(images), "contiguous": contiguous,
        "mean": [round(float(planes[:, c].mean(dtype=np.float64)), 4) for c in range(planes.shape[1])],
        "std": [round(float(planes[:, c].std(dtype=np.float64)), 4) for c in range(planes.shape[1])],
        "detail": round(float(np.abs(np.diff(planes, axis=3)).mean(dtype=np.float64)), 4),
    }


def check(batches, count):
    kept, contiguous = [], True
    while sum(map(len, kept)) < count:
        array = as_array(next(batches)[0])
        contiguous = contiguous and bool(array.flags["C_CONTIGUOUS"])
        kept.append(array.copy())
    return describe(np.concatenate(kept)[:count], contiguous)


def take(batches, count):
    images = 0
    while images < count:
        images += len(next(batches)[0])
    return images


def cpu_seconds():
    """User and system time of this process with all its threads, and of its worker processes, living or ended."""
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    total = sum(usage.ru_utime + usage.ru_stime for usage in map(resource.getrusage, kinds))
    for worker in multiprocessing.active_children():
        with open(f"/proc/{worker.pid}/stat") as file:
            user, system = file.read().rsplit(")", 1)[1].split()[11:13]
        total += (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
    return total


def window(batches, short, long):
    """Measures a run of short + long minus a run of short in one process, which excludes start-up."""
    take(batches, short)
    begin = cpu_seconds()
    images = take(batches, long)
    return {"images": images, "cpu_s": cpu_seconds() - begin}


def rate(batches, seconds):
    """Images per CPU-second of this process, after a warm-up of equal length. Only estimates how much work fills a
    window."""
    for _ in range(2):
        images, begin = 0, time.process_time()
        while time.process_time() - begin < seconds:
            images += len(next(batches)[0])
    return images / (time.process_time() - begin)


def describe_dump(path, work, count):
    """Describes the bytes of the first epoch's batches, followed by labels; takes images from all over the epoch."""
    size = int(np.prod(work.shape))
    values = np.memmap(path, dtype=np.uint8, mode="r")
    sample = size * np.dtype(work.dtype).itemsize
    images = values[:values.size // sample * sample].view(work.dtype).reshape((-1, *work.shape))
    return describe(images[::max(1, len(images) // count)], True)


def versions():
    found = {"Python": platform.python_version()}
    for name in LIBRARIES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            pass
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="+")
    parser.add_argument("--dump")
    parser.add_argument("--images", type=int, nargs=2)
    parser.add_argument("--check", type=int)
    arguments = parser.parse_args()
    if arguments.dump:
        print(json.dumps({"check": describe_dump(arguments.dump, WORKS[arguments.names[0]], arguments.check)}))
        return
    name, workload, data = arguments.names
    peer = next(p for p in PEERS if p.name == name and workload in p.works)
    function = getattr(importlib.import_module(peer.module), peer.function)
    batches = iter(function(Task(WORKS[workload], data, peer.options)))
    if arguments.check:
        answer = {"check": check(batches, arguments.check), "rate": rate(batches, 0.5), "versions": versions()}
    else:
        answer = window(batches, *arguments.images)
    # Output of the loader at its end must not follow the answer.
    batches.close()
    sys.stdout.write("\n" + json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
