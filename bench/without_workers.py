#!/usr/bin/env python3
"""What differs between a training loop with two workers and without? Two tables, on cores that nobody else uses.

    without_workers.py [--rounds N] [--cores N]

The first runs a loop on generated JPEG files with two workers and without, in turns, each in a process of its own that
is watched: with one thread of LibTorch and with a thread per core, each with the C library's allocator as it is and
told to keep its memory, and with threads that sleep while they wait for each other. It shows images/s, the CPU time of
a batch and of an update (of each thread), page faults per update, and the predicted and the measured ratio of a run
without workers. The second times the update alone and beside processes that compute all the time.
"""
import argparse
import io
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

STEPS, WARM_UP, BATCH, SIDE = 100, 10, 16, 224
KEEPS = {"MALLOC_TRIM_THRESHOLD_": "1000000000", "MALLOC_MMAP_THRESHOLD_": "1000000000"}
SETTINGS = {"as it is": {}, "allocator keeps": KEEPS, "threads sleep": {"OMP_WAIT_POLICY": "PASSIVE"}}


def network():
    import torch

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 16, 5, stride=4), torch.nn.ReLU(),
                                torch.nn.Conv2d(16, 32, 5, stride=2), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(4),
                                torch.nn.Flatten(), torch.nn.Linear(512, 10))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)

    def update(images, labels):
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return update


def photos():
    """Returns a data set of 16 JPEG files, over and over."""
    import numpy as np
    import torch
    from PIL import Image

    files = []
    for seed in range(16):
        file, noise = io.BytesIO(), np.random.default_rng(seed).integers(0, 256, (12, 16, 3), np.uint8)
        Image.fromarray(noise).resize((500, 375)).save(file, "jpeg", quality=90)
        files.append(file.getvalue())

    class Photos(torch.utils.data.Dataset):
        def __len__(self):
            return BATCH * (STEPS + WARM_UP)

        def __getitem__(self, index):
            image = Image.open(io.BytesIO(files[index % len(files)])).convert("RGB").resize((SIDE, SIDE))
            return torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous().float().div(255), index % 10

    return Photos()


def train(workers, threads, run):
    """Trains while it is watched. Prints the page faults per update."""
    import torch

    import pymillrace as mr

    torch.set_num_threads(threads)
    update, faults = network(), []
    with mr.watching(run=run):
        for images, labels in torch.utils.data.DataLoader(photos(), batch_size=BATCH, num_workers=workers):
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            update(images, labels)
            faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    print(statistics.median(faults[WARM_UP:]))


def watched(workers, threads, setting):
    """Returns the predictions of a run and its page faults per update."""
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, __file__, "--train", str(workers), str(threads), folder + "/run"]
        done = subprocess.run(words, env={**os.environ, **setting}, capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(done.stderr)
        what_if = json.loads(Path(folder, "run/summary.json").read_text())["what_if"]
    return what_if, float(done.stdout.splitlines()[-1])


def compare(name, threads, rounds):
    """Prints a row per round and number of workers."""
    for _ in range(rounds):
        two, none = (watched(workers, threads, SETTINGS[name]) for workers in (2, 0))
        row = next(row for row in two[0]["rows"] if row["change"] == "num_workers=0")
        for workers, (found, faults) in ((2, two), (0, none)):
            fetch, update = found["settings"]["fetch"], found["settings"]["update"]
            spinning = found["doubts"]["spinning"]
            print(f"| {name} | {threads} | {workers} | {found['images_per_s']:.0f} | {1e3 * fetch['cpu']:.1f} | "
                  f"{1e3 * spinning * update['cpu']:.1f} | {1e3 * update['cpu']:.1f} | {faults:.0f} | ", end="")
            measured = none[0]["images_per_s"] / two[0]["images_per_s"]
            print("| |" if workers == 0 else
                  f"{row['ratio']:.2f} ({row['low']:.2f} to {row['high']:.2f}) | {measured:.2f} |", flush=True)


def time_updates(threads, seconds=2.0):
    """Returns the ms per update of a loop without loading, alone and beside busy processes of each number."""
    import torch

    torch.set_num_threads(threads)
    update, images, labels = network(), torch.rand(BATCH, 3, SIDE, SIDE), torch.zeros(BATCH, dtype=torch.long)

    def per_update():
        begin, steps = time.monotonic(), 0
        while steps < 3 or time.monotonic() - begin < seconds:
            update(images, labels)
            steps += 1
        return 1e3 * (time.monotonic() - begin) / steps

    per_update()
    found = [per_update()]
    for busy in (1, 2):
        others = [subprocess.Popen([sys.executable, "-c", "while True: sum(range(20000))"]) for _ in range(busy)]
        time.sleep(0.5)
        found.append(per_update())
        for one in others:
            one.kill()
            one.wait()
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cores", type=int, default=2, help="cores that are used")
    parser.add_argument("--train", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.train:
        workers, threads, run = arguments.train
        train(int(workers), int(threads), run)
        return
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:arguments.cores])
    print("| setting | threads | workers | images/s | batch, ms | update, ms | without spinning | faults | predicted | "
          "measured |\n" + "| --- " * 10 + "|")
    for name in SETTINGS:
        for threads in (1, arguments.cores):
            compare(name, threads, arguments.rounds)
    print("\n| threads | update alone, ms | beside 1 process | beside 2 |\n| --- | --- | --- | --- |")
    for threads in (1, arguments.cores):
        print(f"| {threads} | " + " | ".join(f"{ms:.1f}" for ms in time_updates(threads)) + " |", flush=True)


if __name__ == "__main__":
    main()
