#!/usr/bin/env python3
"""Measures what watching costs: watch_overhead.py [--pairs N] [--steps N] [--step-ms MS] [--recorder]

Trains with and without watching, in pairs whose order alternates. Each step computes for MS of CPU time, and so does
the worker for each batch. Prints the CPU time that watching adds per step to the trainer and to the worker, with the
upper end of the 95% interval over the pairs. Run it on an idle machine: programs that share caches and cores make code
that runs once per step several times slower.

--recorder times the recorder's own code alone, in a loop without work between the steps, as it runs with num_workers=0.
The fastest of many blocks hardly depends on other programs, but its caches are warmer than those of a training loop.
"""
import argparse
import math
import resource
import statistics
import tempfile
from time import perf_counter_ns, process_time, thread_time_ns

from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset

import pymillrace as mr


def compute(ns):
    begin = thread_time_ns()
    while thread_time_ns() - begin < ns:
        pass


class Samples(Dataset):
    """Samples of 12 floats. The first of each batch costs what the batch is to cost."""

    def __init__(self, steps, batch, ns):
        self.steps, self.batch, self.ns = steps, batch, ns
        self.value = torch.zeros(12)

    def __len__(self):
        return self.steps * self.batch

    def __getitem__(self, index):
        if index % self.batch == 0:
            compute(self.ns)
        return self.value, index


def epoch(loader, ns):
    model = torch.nn.Linear(12, 2)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    for values, _ in loader:
        model(values).sum().backward()
        compute(ns)
        optimizer.step()
        optimizer.zero_grad()


def cpu_seconds(arguments, workers, watched):
    """Returns the CPU seconds per step of the trainer's process and of its worker."""
    ns = int(arguments.step_ms * 1e6)
    loader = DataLoader(Samples(arguments.steps, 16, ns), batch_size=16, num_workers=workers)
    children = sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
    begin = process_time()
    if watched:
        with tempfile.TemporaryDirectory() as run, mr.watching(run=f"{run}/run"):
            epoch(loader, ns)
            trainer = process_time() - begin
    else:
        epoch(loader, ns)
        trainer = process_time() - begin
    children = sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2]) - children
    return trainer / arguments.steps, children / arguments.steps


def show(name, differences, step):
    mean = statistics.mean(differences)
    half = 2.1 * statistics.stdev(differences) / math.sqrt(len(differences))  # t of about 20 pairs
    print(f"{name:<28} {1e6 * mean:7.1f} µs per step  {100 * mean / step:5.2f}%  "
          f"upper bound {100 * (mean + half) / step:5.2f}%", flush=True)


class Fetcher:
    """A fetcher whose work takes no time."""

    def __init__(self):
        self.collate_fn = lambda samples: samples

    def fetch(self, index):
        return self.collate_fn(index)


def recorder(blocks, steps=256):
    """Returns the µs of CPU time per step that the recorder's own code takes, for each of some blocks."""
    from pymillrace.watcher.breakdown import Wait
    from pymillrace.watcher.session import Session
    from pymillrace.watcher.worker import InlineProbe

    batch, fetcher, probe = [torch.zeros(16, 12), torch.zeros(16)], Fetcher(), InlineProbe(None)
    probe.install(fetcher)
    index, found = list(range(16)), []
    with tempfile.TemporaryDirectory() as run:
        session = Session(Path(run) / "run")
        session.open()
        loader = session.loader("bench", "DataLoader", [], given=False)
        generation = loader.iter_begins(None)
        loader.latest = probe.latest
        loader.iter_ended()
        for _ in range(blocks):
            begin = thread_time_ns()
            for _ in range(steps):
                asked = perf_counter_ns()
                loader.next_begins(generation, asked)
                fetcher.fetch(index)
                wait = Wait(generation, probe.next_batch - 1, asked, 0, 0, 0, -1, perf_counter_ns())
                loader.next_ended(wait, batch)
                session.hooks._before_forward()
                session.hooks._before_step()
                session.hooks._after_step()
            found.append(1e-3 * (thread_time_ns() - begin) / steps)
        session.close()
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--step-ms", type=float, default=2.0)
    parser.add_argument("--recorder", action="store_true", help="time the recorder's own code alone")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.recorder:
        found = recorder(60)
        print(f"recorder: fastest block {min(found):.1f}, median {statistics.median(found):.1f} µs of CPU per step")
        return
    for workers in (0, 1):
        trainer, worker = [], []
        for pair in range(arguments.pairs + 1):
            order = (False, True) if pair % 2 else (True, False)
            found = {watched: cpu_seconds(arguments, workers, watched) for watched in order}
            if pair > 0:  # the first pair warms up
                trainer.append(found[True][0] - found[False][0])
                worker.append(found[True][1] - found[False][1])
        # Without workers the trainer also makes the batch.
        step = arguments.step_ms * 1e-3 * (1 if workers else 2)
        show(f"trainer, num_workers={workers}", trainer, step)
        if workers:
            show(f"worker, num_workers={workers}", worker, step)


if __name__ == "__main__":
    main()
