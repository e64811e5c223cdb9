#!/usr/bin/env python3
"""Measures what watching costs: watch_overhead.py [--rounds N] [--blocks N] [--turn N] [--step-ms MS] [--seed N]
                                                 [--compile [BACKEND] | --recorder]

In each round three processes, forked from this one, train in turns of N steps, more or less by a quarter: one is
watched, one is not, and one that is not is the control. Their order is drawn for every block of three turns, so all of
them have the same minute. A step computes for MS of CPU time in the trainer, and so does the worker for each batch;
with num_workers=0 both halves of a step take MS together. A batch is 16 samples, whose data set has a chain of three
transforms. It is a NumPy array, which goes through the pipe: torch's way of handing tensors over takes 0.35 ms of CPU
time on either side, which varies by more than what is to be measured. Watching treats both alike.

The cost is the CPU time of the trainer's process, and of the worker's with all threads, per step: the watched one's
mean of a round less the mean of the two others. Left out are the first steps of a process and of each turn, and steps
that take DISTURBED times the median step of the round, watched or not: the clock of a virtual machine also counts time
that its host takes away. Prints the mean over the rounds with Student's 95% interval, also as a share of MS. A round is
one value because a process has a memory layout of its own, which makes all its steps a little faster or slower.
Time passes between two turns, so work that watching does once per second is spread over fewer steps than in a training
that runs alone; with turns of 400 steps the difference is small.

The control is compared with the other process that is not watched, in the same way. Where its interval holds no 0, the
measurement does not count, and the exit code is 1; the controls' intervals hold 95% of the time all together. Nor does
it count if batches are not those of the data set, or if the watched steps and their records differ in number.

--compile trains a model that torch.compile compiles in each process, among the first steps, which do not count. Its
backend is inductor, which needs a C++ compiler, unless another one is named.

Run it on an idle machine: programs that share caches and cores make code that runs once per step slower.
--recorder times the recorder's own code alone, in loops without work between the steps. The fastest of many blocks
hardly depends on other programs, but its caches are warmer than those of a training loop.
"""
import argparse
import contextlib
import json
import multiprocessing
import os
import random
import statistics
import tempfile
from dataclasses import dataclass, field
from multiprocessing.sharedctypes import RawArray
from time import process_time_ns, thread_time_ns

# Set before torch is imported: Inductor's compile threads do not survive fork().
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

import pymillrace as mr

import watch_recorder
from mean_interval import mean_interval

BATCH = 16  # samples
WARM_UP = 80  # steps of a process that are not counted: Python adapts its code to them
TURN = 16  # steps
VARIES = 0.25  # lengths of turns, since the recorder does some work in every so many steps
SKIPPED = 4  # first steps of a turn, whose batches were made while another process computed
DISTURBED = 1.5
CONTROLS = 3  # trainer without workers, trainer, worker
WATCHED, PLAIN, CONTROL = range(3)

FACTOR = torch.full((64, 64), 1 / 64)
PRODUCT = torch.empty_like(FACTOR)
NEAR = 60_000  # ns, within which a computation ends by looking at the clock


def compute(ns):
    """Multiplies matrices for so much CPU time. Looking at the clock all the time would keep the kernel busy instead."""
    end = thread_time_ns() + ns
    while end - thread_time_ns() > NEAR:
        torch.mm(FACTOR, FACTOR, out=PRODUCT)
    while thread_time_ns() < end:
        pass


class Chain:
    """A Compose."""

    def __init__(self, *transforms):
        self.transforms = transforms

    def __call__(self, value):
        for transform in self.transforms:
            value = transform(value)
        return value


def same(value):
    return value


def collate(samples):
    return np.stack([value for value, _ in samples]), np.array([index for _, index in samples])


class Samples(Dataset):
    """Samples of 12 floats. The first of each batch costs what the batch is to cost."""

    def __init__(self, steps, ns):
        self.steps, self.ns = steps, ns
        self.value, self.transform = np.zeros(12, np.float32), Chain(same, same, same)
        self.begun = RawArray("q", steps)  # CPU time of the worker when it begins each batch

    def __len__(self):
        return self.steps * BATCH

    def __getitem__(self, index):
        if index % BATCH == 0:
            if get_worker_info() is not None:
                self.begun[index // BATCH] = process_time_ns()
            compute(self.ns)
        return self.transform(self.value), index


@dataclass
class Process:
    """One of the three, as the others see it."""
    kind: int
    loader: DataLoader
    backend: str | None  # of torch.compile
    spent: object = None  # CPU time of the trainer per step

    def train(self, turns):
        """Trains for as many steps as each turn says. Raises if the batches are not those of the data set."""
        model = torch.nn.Linear(12, 2)
        if self.backend is not None:
            model = torch.compile(model, backend=self.backend)
        optimizer = torch.optim.SGD(model.parameters(), 1e-3)
        data, step, batches = self.loader.dataset, 0, iter(self.loader)
        found = np.zeros((data.steps, BATCH), np.int64)
        for count in iter(turns.recv, 0):
            before = process_time_ns()
            for _ in range(count):
                values, indices = next(batches)
                found[step] = indices
                model(torch.from_numpy(values)).sum().backward()
                compute(data.ns)
                optimizer.step()
                optimizer.zero_grad()
                now = process_time_ns()
                self.spent[step] = now - before
                before, step = now, step + 1
            turns.send("")
        if next(batches, None) is not None or not np.array_equal(found.ravel(), np.arange(len(data))):
            raise ValueError("the batches are not those of the data set")

    def run(self, turns):
        """Runs in a process of its own. Answers each turn, and the end, with nothing or an error."""
        try:
            if self.kind == WATCHED:
                self.watch(turns)
            else:
                self.train(turns)
            turns.send("")
        except Exception as error:
            turns.send(f"{type(error).__name__}: {error}")
            raise

    def watch(self, turns):
        with tempfile.TemporaryDirectory() as run:
            with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere), mr.watching(run=f"{run}/run"):
                self.train(turns)
            with open(f"{run}/run/summary.json") as file:
                records = json.load(file)["loaders"][0]["batches"]
        if (records["recorded"], records["missing"]) != (self.loader.dataset.steps, 0):
            raise ValueError(f"{self.loader.dataset.steps} steps were watched, but the run has {records}")

    def of_worker(self):
        begun = self.loader.dataset.begun
        return [after - before for before, after in zip(begun, begun[1:])]


@dataclass
class Cost:
    """Results of the trainers or of the workers, per round, in ns per step."""
    added: list = field(default_factory=list)
    control: list = field(default_factory=list)
    plain: list = field(default_factory=list)
    left_out: list = field(default_factory=lambda: [0, 0, 0])
    counted: int = 0  # per process

    def add(self, steps, counted):
        """Adds a round, from each process's CPU time per step."""
        limit = DISTURBED * statistics.median(one[step] for one in steps for step in counted)
        means = []
        for kind, one in enumerate(steps):
            kept = [one[step] for step in counted if one[step] < limit]
            self.left_out[kind] += len(counted) - len(kept)
            means.append(statistics.fmean(kept))
        self.counted += len(counted)
        self.plain.append((means[PLAIN] + means[CONTROL]) / 2)
        self.added.append(means[WATCHED] - self.plain[-1])
        self.control.append(means[CONTROL] - means[PLAIN])

    def show(self, name, step):
        """Prints the results. Returns whether the control's interval holds 0."""
        def line(text, mean, low, high):
            print(f"{text:<28}{1e-3 * mean:6.1f} µs per step [{1e-3 * low:.1f}, {1e-3 * high:.1f}]  "
                  f"{100 * mean / step:5.2f}%  upper bound {100 * high / step:5.2f}%", flush=True)

        line(name, *mean_interval(self.added))
        line("  control", *mean_interval(self.control))
        others = (self.left_out[PLAIN] + self.left_out[CONTROL]) / 2
        print(f"  {len(self.added)} rounds of {self.counted // len(self.added)} steps, which take "
              f"{1e-6 * statistics.median(self.plain):.2f} ms of CPU; left out: "
              f"{100 * self.left_out[WATCHED] / self.counted:.2f}% watched, {100 * others / self.counted:.2f}% not")
        _, low, high = mean_interval(self.control, 1 - 0.05 / CONTROLS)
        return low <= 0 <= high


def prepare(backend):
    """Imports what torch imports at its first step, so that the processes do not. They compute in one thread each."""
    torch.set_num_threads(1)
    model = torch.nn.Linear(12, 2)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    for values, _ in DataLoader(Samples(1, 0), batch_size=BATCH, collate_fn=collate):
        model(torch.from_numpy(values)).sum().backward()
        optimizer.step()
    if backend is not None:
        with torch.no_grad():  # a compiled backward pass starts threads, after which torch refuses to be forked
            torch.compile(torch.nn.ReLU(), backend=backend)(torch.from_numpy(values))


def take_turn(end, steps):
    """Lets a process train for so many steps; 0 ends it."""
    end.send(steps)
    try:
        answer = end.recv()
    except EOFError:
        answer = "a process has died"
    if answer:
        raise SystemExit(f"error: {answer}")


def run_round(arguments, workers, numbers):
    """Runs three processes in turns. Returns them, and the numbers of the steps that count."""
    shortest, longest = (round(arguments.turn * factor) for factor in (1 - VARIES, 1 + VARIES))
    lengths = [WARM_UP, *(numbers.randint(shortest, longest) for _ in range(arguments.blocks))]
    counted, begin = [], 0
    for turn, length in enumerate(lengths):
        counted += range(begin + SKIPPED, begin + length) if turn > 0 else []
        begin += length
    processes, ends = [], []
    for kind in (WATCHED, PLAIN, CONTROL):
        data = Samples(begin, int(arguments.step_ms * 1e6 * (1 if workers else 0.5)))
        processes.append(Process(kind, DataLoader(data, batch_size=BATCH, num_workers=workers, collate_fn=collate,
                                                  multiprocessing_context="fork" if workers else None),
                                 arguments.compile, RawArray("q", begin)))
    started, context = [], multiprocessing.get_context("fork")
    for kind in numbers.sample(range(3), 3):  # whichever is forked first has an advantage, if any
        here, there = context.Pipe()
        started.append(context.Process(target=processes[kind].run, args=(there,)))
        started[-1].start()
        there.close()
        ends.append(here)
    try:
        for length in (*lengths, 0):
            for end in numbers.sample(ends, 3):
                take_turn(end, length)
    except BaseException:
        for one in started:
            one.terminate()
        raise
    finally:
        for one in started:
            one.join()
    return processes, counted


def measure(arguments, workers, numbers):
    """Runs the rounds. Returns the costs of the trainer and of the worker."""
    trainer, worker = Cost(), Cost()
    prepare(arguments.compile)
    for _ in range(arguments.rounds):
        processes, counted = run_round(arguments, workers, numbers)
        trainer.add([one.spent for one in processes], counted)
        if workers:  # it does not begin another batch after the last
            worker.add([one.of_worker() for one in processes], counted[:-1])
    return trainer, worker


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=24)
    parser.add_argument("--blocks", type=int, default=24, help="turns of each process in a round")
    parser.add_argument("--turn", type=int, default=TURN, metavar="N", help="steps of a turn on average")
    parser.add_argument("--step-ms", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--compile", nargs="?", const="inductor", metavar="BACKEND", help="train a compiled model")
    parser.add_argument("--recorder", action="store_true", help="time the recorder's own code alone")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.recorder:
        watch_recorder.show()
        return
    numbers, valid = random.Random(arguments.seed), True
    for workers in (0, 1):
        trainer, worker = measure(arguments, workers, numbers)
        valid &= trainer.show(f"trainer, num_workers={workers}", arguments.step_ms * 1e6)
        if workers:
            valid &= worker.show(f"worker, num_workers={workers}", arguments.step_ms * 1e6)
    if not valid:
        raise SystemExit("error: a control's interval holds no 0: this measurement does not count")


if __name__ == "__main__":
    main()
