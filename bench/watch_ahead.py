#!/usr/bin/env python3
"""Loops ahead of which a thread takes the batches: do predictions of num_workers come true?

Each of six loops is watched with 0, 1 and 2 workers. Prints every predicted ratio of images/s between two of them, its
90% interval and the measured one, and how many intervals held. A batch of two images takes 20 or 8 ms to load and
10 ms to train on; both sleep or compute. torch and pymillrace are found through PYTHONPATH.
"""
import contextlib
import io
import itertools
import json
import queue
import tempfile
import threading
import time
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset

import pymillrace as mr

WORKERS, IMAGES, BATCH, UPDATE_S = (0, 1, 2), 400, 2, 0.010
LOADS_S = (0.010, 0.004)  # per image
layer, rows = torch.nn.Linear(256, 256), torch.rand(256, 256)


def compute(seconds):
    """Computes in Python, with the interpreter's lock."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def multiply(seconds):
    """Computes in torch, without the lock."""
    end = time.thread_time() + seconds
    with torch.no_grad():
        while time.thread_time() < end:
            layer(rows)


class Images(Dataset):
    def __init__(self, load, seconds):
        self.load, self.seconds = load, seconds

    def __len__(self):
        return IMAGES

    def __getitem__(self, index):
        self.load(self.seconds)
        return torch.full((8,), float(index))


def ahead(loader):
    """Yields the batches that a thread puts into a queue for one batch."""
    batches = queue.Queue(1)

    def fill():
        for batch in loader:
            batches.put(batch)
        batches.put(None)

    threading.Thread(target=fill, daemon=True).start()
    while (batch := batches.get()) is not None:
        yield batch


def watched(load, load_s, update, workers):
    """Returns the summary of a loop."""
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with tempfile.TemporaryDirectory() as folder:
        with contextlib.redirect_stderr(io.StringIO()), mr.watching(run=Path(folder) / "run"):
            for batch in ahead(DataLoader(Images(load, load_s), BATCH, num_workers=workers)):
                update(UPDATE_S)
                model(batch).sum().backward()
                optimizer.step()
        return json.loads((Path(folder) / "run/summary.json").read_text())


def main():
    torch.set_num_threads(1)
    held = count = 0
    print("| load | update | workers | predicted | 90% | measured |\n| --- | --- | --- | --- | --- | --- |")
    for (load, update), load_s in itertools.product(((time.sleep, time.sleep), (time.sleep, multiply),
                                                     (compute, multiply)), LOADS_S):
        runs = {workers: watched(load, load_s, update, workers) for workers in WORKERS}
        for one, other in itertools.permutations(WORKERS, 2):
            predicted = next(row for row in runs[one]["what_if"]["rows"] if row["overrides"] == {"num_workers": other})
            measured = runs[other]["what_if"]["images_per_s"] / runs[one]["what_if"]["images_per_s"]
            inside = predicted["low"] <= measured <= predicted["high"]
            held, count = held + inside, count + 1
            print(f"| {load.__name__} {1e3 * BATCH * load_s:.0f} ms | {update.__name__} {1e3 * UPDATE_S:.0f} ms | "
                  f"{one} to {other} | {predicted['ratio']:.2f} | {predicted['low']:.2f} to {predicted['high']:.2f} | "
                  f"{measured:.2f}{'' if inside else ', outside'} |")
    print(f"{held} of {count} within")


if __name__ == "__main__":
    main()
