#!/usr/bin/env python3
"""Do augmentations in Python scale with workers where Python has no lock?

    python3.13t bench/free_threaded.py [--rounds N] [--images N]

Run by a free-threaded Python, for which the package was built. Each round starts a process per row, with the lock
(PYTHON_GIL=1) and without, and with one and with two workers, in random order. It makes batches of images of 224x224x3
by a chain of one function: `loop`, a loop in Python over the rows, and `numpy`, a few NumPy calls for the whole image.
All rows of a function have to give the same bytes. Prints medians over the rounds of images/s and of the process's CPU
time per image.
"""
import argparse
import hashlib
import json
import os
import random
import statistics
import subprocess
import sys
import time

import numpy as np

WORKERS = (1, 2)


def loop(image, rng):
    shift = int(rng.integers(1, 8))
    for y in range(image.shape[0]):
        row = image[y]
        row[:-shift] = row[shift:]
        row[row > 240] = 240


def whole(image, rng):
    light = image.astype(np.float32) * rng.uniform(0.6, 1.4)
    return np.clip(light + 8 * np.sin(light / 32), 0, 255).astype(np.uint8)


FUNCTIONS = {"loop": loop, "numpy": whole}


def measure(name, workers, images):
    """Prints images/s, CPU time per image and a digest of all batches, as JSON."""
    import pymillrace as mr

    mr.augmentation(name="changed")(FUNCTIONS[name])
    loader = mr.Loader("overhead", "data.reader=synthetic", "data.synthetic.width=224", "data.synthetic.height=224",
                       f"data.synthetic.count={images}", "loader.batch=32", f"loader.workers={workers}",
                       "augment+=changed", numpy=True)
    iterator = iter(loader)
    digest = hashlib.sha256(next(iterator).images.tobytes())
    count, wall, cpu, batches = 0, time.perf_counter(), time.process_time(), []
    for batch in iterator:
        batches.append(batch.images)
        count += len(batch.images)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    for one in batches:
        digest.update(one.tobytes())
    print(json.dumps([count / wall, 1e6 * cpu / count, digest.hexdigest(), sys._is_gil_enabled()]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--images", type=int, default=1024)
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        measure(arguments.measure[0], int(arguments.measure[1]), arguments.images)
        return
    if "t" not in sys.abiflags:
        raise SystemExit("error: this Python has a lock\n  run it by a free-threaded one, such as python3.13t")
    rows = [(name, lock, workers) for name in FUNCTIONS for lock in (True, False) for workers in WORKERS]
    found = {row: [] for row in rows}
    digests = {name: set() for name in FUNCTIONS}
    for _ in range(arguments.rounds):
        for row in random.sample(rows, len(rows)):
            name, lock, workers = row
            words = [sys.executable, __file__, "--images", str(arguments.images), "--measure", name, str(workers)]
            environment = {**os.environ, "PYTHON_GIL": str(int(lock))}
            done = subprocess.run(words, env=environment, check=True, stdout=subprocess.PIPE)
            rate, cpu, digest, has_lock = json.loads(done.stdout)
            if has_lock != lock:
                raise SystemExit(f"PYTHON_GIL={int(lock)} had no effect: a module needs the lock")
            found[row].append((rate, cpu))
            digests[name].add(digest)
    if any(len(one) > 1 for one in digests.values()):
        raise SystemExit("the rows of a function give other bytes")
    print("| function | lock | images/s with 1 and 2 workers | factor | CPU time per image |")
    print("| --- | --- | --- | --- | --- |")
    for name in FUNCTIONS:
        for lock in (True, False):
            rates, times = ([statistics.median(one[i] for one in found[name, lock, workers]) for workers in WORKERS]
                            for i in (0, 1))
            factors = sorted(b[0] / a[0] for a, b in zip(*(found[name, lock, workers] for workers in WORKERS)))
            print(f"| {name} | {'yes' if lock else 'no'} | {rates[0]:,.0f}, {rates[1]:,.0f} | "
                  f"{statistics.median(factors):.2f} ({factors[0]:.2f} to {factors[-1]:.2f}) | "
                  f"{times[0]:.0f}, {times[1]:.0f} us |")


if __name__ == "__main__":
    main()
