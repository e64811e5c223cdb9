#!/usr/bin/env python3
"""Measures what it costs to receive the tensors of a batch from a worker: watch_tensors.py [--tensors N ...]
[--workers N ...] [--steps N] [--sleep-ms MS] [--fetch-ms MS] [--update-ms MS]

Every tensor of a batch lies in shared memory of its own. The worker's main thread makes the batch, which sleeps and
computes in four parts. A feeder thread of the worker sends it. next() of the trainer asks a third thread of the worker
for the file descriptor of each tensor, one after the other. Then the trainer computes.

Prints per step: its length; CPU time of these threads, from /proc/PID/task/TID/schedstat; and for how long next() asks
for descriptors beyond its own CPU time: for the other thread's work, and for a core. Checked is that the batches come
in order and whole.
"""
import argparse
import multiprocessing.resource_sharer as resource_sharer
import os
import warnings
from pathlib import Path
from time import perf_counter, sleep, thread_time

import torch
from torch.utils.data import DataLoader, Dataset

from watch_ahead import compute

PARTS = 4
ROLES = ("fetch", "feeder", "server")  # a worker's threads in the order of their numbers
asked = [0.0, 0.0]  # seconds that next() asked for descriptors, and its CPU seconds


class Batches(Dataset):
    def __init__(self, tensors, sleep_s, fetch_s):
        self.tensors, self.sleep_s, self.fetch_s = tensors, sleep_s, fetch_s

    def __len__(self):
        return 1 << 20

    def __getitem__(self, index):
        for _ in range(PARTS):
            sleep(self.sleep_s / PARTS)
            compute(self.fetch_s / PARTS)
        return [torch.full((100,), index) for _ in range(self.tensors)]


def timed(detach):
    def timed_detach(descriptor):
        begin = perf_counter(), thread_time()
        try:
            return detach(descriptor)
        finally:
            asked[0] += perf_counter() - begin[0]
            asked[1] += thread_time() - begin[1]
    return timed_detach


def cpu_by_role(workers):
    """Returns the CPU seconds of the workers' threads by role."""
    sums = dict.fromkeys(ROLES, 0.0)
    for worker in workers:
        tasks = sorted(Path(f"/proc/{worker.pid}/task").iterdir(), key=lambda one: int(one.name))
        for role, task in zip(ROLES, tasks):
            sums[role] += 1e-9 * int((task / "schedstat").read_text().split()[0])
    return sums


def measure(tensors, workers, options):
    """Returns a row: seconds per step."""
    data = Batches(tensors, 1e-3 * options.sleep_ms, 1e-3 * options.fetch_ms)
    batches = iter(DataLoader(data, batch_size=None, num_workers=workers, multiprocessing_context="fork"))
    warm_up = 4 * workers
    for step in range(warm_up + options.steps):
        if step == warm_up:
            before, begin, next_cpu = cpu_by_role(batches._workers), perf_counter(), 0.0
            asked[:] = 0.0, 0.0
        cpu = thread_time()
        batch = next(batches)
        if step >= warm_up:
            next_cpu += thread_time() - cpu
        assert len(batch) == tensors and all(one.eq(step).all() for one in batch)
        compute(1e-3 * options.update_ms)
    length, waited = perf_counter() - begin, asked[0] - asked[1]
    after = cpu_by_role(batches._workers)
    del batches
    found = [length, next_cpu, *(after[role] - before[role] for role in ROLES[1:]), waited]
    return [one / options.steps for one in found]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tensors", type=int, nargs="+", default=[1, 2, 5, 11, 24], metavar="N")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4, 8, 14], metavar="N")
    parser.add_argument("--steps", type=int, default=200, metavar="N")
    parser.add_argument("--sleep-ms", type=float, default=32.0, metavar="MS")
    parser.add_argument("--fetch-ms", type=float, default=2.0, metavar="MS")
    parser.add_argument("--update-ms", type=float, default=1.0, metavar="MS")
    options = parser.parse_args()
    warnings.filterwarnings("ignore", message="This DataLoader will create")
    torch.set_num_threads(1)
    resource_sharer.DupFd.detach = timed(resource_sharer.DupFd.detach)
    print(f"ms per step of {options.steps}; torch {torch.__version__}, {os.cpu_count()} cores\n")
    print("| tensors | workers | step | CPU: next() | feeder | server | next() waits | per tensor |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for tensors in options.tensors:
        for workers in options.workers:
            *row, waited = (1e3 * one for one in measure(tensors, workers, options))
            print(f"| {tensors} | {workers} | " + " | ".join(f"{one:.2f}" for one in row) +
                  f" | {waited:.2f} | {waited / tensors:.2f} |", flush=True)


if __name__ == "__main__":
    main()
