#!/usr/bin/env python3
"""What handing a batch over from a DataLoader's worker takes: hand_over.py [--steps N]

First, a small training on images that compute for 4 ms each in Python, in batches of 4, with 0, 1 and 2 workers: CPU
time per step of the trainer's main thread, of the workers' main threads and of their other threads, which send batches
and hand over their shared memory; and the time for which cores were idle. Then, behind one worker whose samples compute
for 40 ms, the time that rebuilding a batch takes in next() by the number of its tensors: the worker's third thread
waits for the interpreter's lock meanwhile. CPU time comes from /proc/PID/task/TID/schedstat. Run it on an idle machine.
"""
import argparse
import os
import time
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"

import torch
import torch.multiprocessing.reductions as reductions
from torch.utils.data import DataLoader, Dataset

WARM_UP, BATCH, COMPUTES_MS, LONG_MS = 40, 4, 4.0, 40.0


REBUILDS = []  # seconds of each
rebuild = reductions.rebuild_storage_fd


def timed_rebuild(*arguments):
    """Stands for torch's function, which workers pickle by its name."""
    begin = time.perf_counter()
    found = rebuild(*arguments)
    REBUILDS.append(time.perf_counter() - begin)
    return found


class Computes(Dataset):
    """Samples that compute for a time in Python: images with labels, or some number of tensors."""

    def __init__(self, ms, tensors=None):
        self.seconds, self.tensors = 1e-3 * ms, tensors

    def __len__(self):
        return 1_000_000

    def __getitem__(self, index):
        end = time.thread_time() + self.seconds
        while time.thread_time() < end:
            pass
        if self.tensors is None:
            return torch.rand(3, 16, 16), index % 4
        return tuple(torch.zeros(4) for _ in range(self.tensors))


def cpu_ms(process):
    """Returns the CPU time of each thread of a process."""
    return {int(task.name): int((task / "schedstat").read_text().split()[0]) * 1e-6
            for task in Path(f"/proc/{process}/task").iterdir()}


def threads(workers, steps):
    """Prints a row of CPU times per step."""
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1),
                              torch.nn.Flatten(), torch.nn.Linear(8, 4))
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    batches = iter(DataLoader(Computes(COMPUTES_MS), BATCH, num_workers=workers))
    for step in range(WARM_UP + steps):
        if step == WARM_UP:
            processes = [os.getpid(), *(one.pid for one in getattr(batches, "_workers", ()))]
            before, begin = [cpu_ms(one) for one in processes], time.perf_counter()
        images, labels = next(batches)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(images), labels).backward()
        optimizer.step()
    wall = 1e3 * (time.perf_counter() - begin) / steps
    own, trainer, main, others = os.getpid(), 0.0, 0.0, 0.0
    for process, earlier, now in zip(processes, before, map(cpu_ms, processes)):
        for thread, ms in now.items():
            used = (ms - earlier.get(thread, 0.0)) / steps
            if process == own:
                trainer += used
            elif thread == process:
                main += used
            else:
                others += used
    cores = min(len(os.sched_getaffinity(0)), 1 + workers)
    print(f"| {workers} | {wall:.2f} | {trainer:.2f} | {main:.2f} | {others:.2f} | "
          f"{cores * wall - trainer - main - others:.2f} |")


def lock(tensors, steps):
    """Prints how long rebuilding a batch takes."""
    batches = iter(DataLoader(Computes(LONG_MS, tensors), BATCH, num_workers=1))
    for step in range(8 + steps):
        if step == 8:
            REBUILDS.clear()
        next(batches)
        time.sleep(1e-3)
    print(f"| {tensors} | {1e3 * sum(REBUILDS) / steps:.0f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300)
    options = parser.parse_args()
    print("| workers | ms per step | trainer | workers' main threads | their others | idle |\n" + "| --- " * 6 + "|")
    for workers in (0, 1, 2):
        threads(workers, options.steps)
    print("\n| tensors | ms to rebuild a batch |\n| --- | --- |")
    reductions.rebuild_storage_fd = timed_rebuild
    for tensors in (1, 2, 4):
        lock(tensors, options.steps // 6)


if __name__ == "__main__":
    main()
