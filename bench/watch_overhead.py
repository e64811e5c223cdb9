#!/usr/bin/env python3
"""Measures what watching costs: watch_overhead.py [--pairs N] [--steps N] [--step-ms MS] [--recorder]

Trains with and without watching, in pairs whose order alternates. Each step computes for MS of CPU time, and so does
the worker for each batch. Counts the CPU time of the trainer's thread, and of all threads of the worker, from the sixth
step to the last: start-up, opening and closing the records are left out, writing them once per 256 steps is not.
A step that takes DISTURBED times the median step of its run is left out, with and without watching: the clock of a
virtual machine also counts time that its host takes away, and one such moment weighs more than a run's recording.
Many short runs (--pairs 250 --steps 40) say more than few long ones where the machine's speed drifts.
Prints the median over the pairs of the CPU time that watching adds per step, with its 95% interval by order statistics.
A row compares two runs without watching in the same way: unless its interval holds 0, the method is biased. Run it on
an idle machine: programs that share caches and cores make code that runs once per step slower.

--recorder times the recorder's own code alone, in loops without work between the steps.
The fastest of many blocks hardly depends on other programs, but its caches are warmer than those of a training loop.
"""
import argparse
import contextlib
import os
import statistics
import tempfile
from multiprocessing.sharedctypes import RawArray
from pathlib import Path
from time import process_time_ns, thread_time_ns

import torch
from torch.utils.data import DataLoader, Dataset

import pymillrace as mr

from median_interval import median_interval


def compute(ns):
    begin = thread_time_ns()
    while thread_time_ns() - begin < ns:
        pass


class Samples(Dataset):
    """Samples of 12 floats. The first of each batch costs what the batch is to cost."""

    def __init__(self, steps, batch, ns):
        self.steps, self.batch, self.ns = steps, batch, ns
        self.value = torch.zeros(12)
        self.begun = RawArray("q", steps)  # CPU time of the process that makes it at the begin of each batch

    def __len__(self):
        return self.steps * self.batch

    def __getitem__(self, index):
        if index % self.batch == 0:
            self.begun[index // self.batch] = process_time_ns()
            compute(self.ns)
        return self.value, index


WARM_UP = 5  # steps that are not counted
DISTURBED = 1.5


def per_step(marks):
    """Returns the mean time from one mark to the next, without disturbed steps, in ns."""
    steps = [end - begin for begin, end in zip(marks[WARM_UP:], marks[WARM_UP + 1:])]
    kept = [step for step in steps if step < DISTURBED * statistics.median(steps)]
    return sum(kept) / len(kept)


def epoch(loader, ns):
    """Trains for an epoch. Returns the CPU time per counted step of this thread and of the worker, in ns."""
    model = torch.nn.Linear(12, 2)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    marks = []
    for values, _ in loader:
        marks.append(thread_time_ns())
        model(values).sum().backward()
        compute(ns)
        optimizer.step()
        optimizer.zero_grad()
    inline = loader.num_workers == 0
    return per_step(marks), 0 if inline else per_step(loader.dataset.begun)


def cpu_ns(arguments, workers, watched):
    """Returns the CPU time per step of the trainer's thread and of its worker."""
    ns = int(arguments.step_ms * 1e6)
    loader = DataLoader(Samples(arguments.steps, 16, ns), batch_size=16, num_workers=workers)
    if not watched:
        return epoch(loader, ns)
    with tempfile.TemporaryDirectory() as run, open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):
        with mr.watching(run=f"{run}/run"):
            return epoch(loader, ns)


def show(name, differences, step):
    middle, low, high = median_interval(differences)
    print(f"{name:<28}{1e-3 * middle:7.1f} µs per step [{1e-3 * low:.1f}, {1e-3 * high:.1f}]  "
          f"{100 * middle / step:5.2f}%  upper bound {100 * high / step:5.2f}%", flush=True)


class Fetcher:
    """A fetcher whose work takes no time."""

    def __init__(self):
        self.collate_fn = lambda samples: samples

    def fetch(self, index):
        return self.collate_fn(index)


def recorder(blocks, steps=256):
    """Returns the µs of CPU time per step that the recorder's own code takes, for each of some blocks."""
    from pymillrace.watcher.session import Session
    from pymillrace.watcher.worker import FetchTimer

    batch, fetcher, timer = [torch.zeros(16, 12), torch.zeros(16)], Fetcher(), FetchTimer(0, None, 0)
    timer.recorder.next_batch = 0
    timer.install(fetcher)
    index, found = list(range(16)), []
    with tempfile.TemporaryDirectory() as run:
        session = Session(Path(run) / "run")
        session.open()
        loader = session.loader("bench", "DataLoader", [], given=False)
        generation = loader.iter_begins(None)
        loader.recorder.probe = timer.recorder
        loader.iter_ended()
        marks, steps_of = session.marks, loader.recorder
        for _ in range(blocks):
            begin = thread_time_ns()
            for _ in range(steps):
                steps_of.begin(generation, None)
                fetcher.fetch(index)
                due = steps_of.end(timer.recorder.next_batch - 1, batch, None)
                if due:
                    loader.after_next(batch, due)
                marks.before_forward()
                marks.before_step()
                marks.after_step()
            found.append(1e-3 * (thread_time_ns() - begin) / steps)
        session.close()
    return found


def recorder_with_worker(blocks, steps=256):
    """Returns the µs of CPU time per step, for each of some blocks: of the trainer's thread, and of the worker.

    Both take turns in this thread.
    """
    from pymillrace._watch import FetchProbe, Receipts, RecordFile, SendProbe, ThreadClock
    from pymillrace.watcher.clocks import SCHEDSTAT
    from pymillrace.watcher.session import Session

    batch, trainer, worker = [torch.zeros(16, 12), torch.zeros(16)], [], []
    with tempfile.TemporaryDirectory() as run:
        file = RecordFile(f"{run}/records".encode(), 4096, 0, True)
        session = Session(Path(run) / "run")
        session.open()
        loader = session.loader("bench", "DataLoader", [], given=False)
        generation = loader.iter_begins(None)
        recorder = loader.recorder
        recorder.records, recorder.started = file, 1
        loader.iter_ended()
        receipts, marks = Receipts(ThreadClock(), False), session.marks
        probe, sender = FetchProbe(0, generation, SCHEDSTAT, file), SendProbe(SCHEDSTAT, file)
        for block in range(blocks):
            begin = thread_time_ns()
            for number in range(block * steps, (block + 1) * steps):
                probe.next_batch = number
                probe.begin()
                probe.collate()
                probe.end()
                probe.keep(16)
                sender.begin(number)
                sender.pickled()
                sender.sent()
            middle = thread_time_ns()
            for number in range(block * steps, (block + 1) * steps):
                recorder.begin(generation, receipts)
                receipts.reads()
                receipts.received()
                receipts.rebuilt(number)
                due = recorder.end(number, batch, receipts)
                if due:
                    loader.after_next(batch, due)
                marks.before_forward()
                marks.before_step()
                marks.after_step()
            trainer.append(1e-3 * (thread_time_ns() - middle) / steps)
            worker.append(1e-3 * (middle - begin) / steps)
        session.close()
    return trainer, worker


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--step-ms", type=float, default=2.0)
    parser.add_argument("--recorder", action="store_true", help="time the recorder's own code alone")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.recorder:
        rows = zip(("trainer, num_workers=0", "trainer, num_workers=1", "worker, num_workers=1"),
                   (recorder(60), *recorder_with_worker(60)))
        for name, found in rows:
            print(f"recorder, {name}: fastest block {min(found):.1f}, median {statistics.median(found):.1f} µs of CPU per "
                  "step")
        return
    for workers in (0, 1):
        trainer, worker, control = [], [], []
        for pair in range(arguments.pairs + 1):
            order = (False, True) if pair % 2 else (True, False)
            found = {watched: cpu_ns(arguments, workers, watched) for watched in order}
            again = cpu_ns(arguments, workers, False)
            if pair > 0:  # the first pair warms up
                trainer.append(found[True][0] - found[False][0])
                worker.append(found[True][1] - found[False][1])
                control.append(again[0] - found[False][0])
        # Without workers the trainer also makes the batch.
        step = arguments.step_ms * 1e6 * (1 if workers else 2)
        show(f"trainer, num_workers={workers}", trainer, step)
        show("  two runs without watching", control, step)
        if workers:
            show(f"worker, num_workers={workers}", worker, step)


if __name__ == "__main__":
    main()
