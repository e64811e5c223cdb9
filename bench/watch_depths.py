#!/usr/bin/env python3
"""Measures what a watched step costs in outline and in detail: watch_depths.py [--rounds N] [--steps N] [--step-ms MS]

In each round one process trains from two loaders, of which one is watched. The loader of each step is drawn, so that
both have the same minutes, memory and caches, in which processes differ by more than a step costs. A step computes for
MS of CPU time, as in watch_overhead.py.

The cost is the CPU time of the trainer's thread per step: of a round the median of the watched steps of a depth less
the median of the steps of the other loader. Prints the mean over the rounds with Student's 95% interval. Two loaders
that are not watched are the control. Hooks of optimizers, which torch calls at every step, cost both loaders the same
and are no part of it; nor is what happens once per second.
"""
import argparse
import multiprocessing
import os
import random
import statistics
import tempfile
from time import thread_time_ns

import torch
from torch.nn.modules import module
from torch.utils.data import DataLoader

import pymillrace as mr

import watch_overhead
from mean_interval import mean_interval

WARM_UP = 80  # steps that are not counted: Python adapts its code to them, and the first 64 are in detail
PLAIN, OUTLINE, DETAIL = range(3)


def train(loaders, numbers, count):
    """Trains for so many steps of each loader at most. Returns (depth, ns) of each; the first loader is not watched."""
    model = torch.nn.Linear(12, 2)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    batches, left, found = [iter(one) for one in loaders], [count, count], []
    while min(left) > 0:
        which = numbers.randrange(2)
        left[which] -= 1
        begin = thread_time_ns()
        values, _ = next(batches[which])
        in_detail = len(module._global_forward_pre_hooks) > 0  # the hook that such a step arms
        model(torch.from_numpy(values)).sum().backward()
        watch_overhead.compute(loaders[which].dataset.ns)
        optimizer.step()
        optimizer.zero_grad()
        found.append((which + in_detail, thread_time_ns() - begin))
    return found[2 * WARM_UP:]


def run(arguments, workers, watched, seed, results):
    """Runs a round in a process of its own. Sends the medians of its steps by depth; None where it has no such step."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    data = [watch_overhead.Samples(WARM_UP + arguments.steps,
                                   int(arguments.step_ms * 1e6 * (1 if workers else 0.5))) for _ in range(2)]
    loaders = [DataLoader(one, batch_size=watch_overhead.BATCH, num_workers=workers, collate_fn=watch_overhead.collate,
                          multiprocessing_context="fork" if workers else None) for one in data]
    with tempfile.TemporaryDirectory() as folder:
        given = [loaders[0], mr.watch(loaders[1], run=f"{folder}/run") if watched else loaders[1]]
        found = train(given, random.Random(seed), WARM_UP + arguments.steps)
        by_depth = [[ns for depth, ns in found if depth == one] for one in (PLAIN, OUTLINE, DETAIL)]
        results.send([statistics.median(one) if one else None for one in by_depth])


def measure(arguments, workers, watched):
    """Returns what the steps of the second loader cost more in each round: in outline, in detail."""
    added, context = [[], []], multiprocessing.get_context("fork")
    for seed in range(arguments.rounds):
        here, there = context.Pipe()
        process = context.Process(target=run, args=(arguments, workers, watched, seed, there))
        process.start()
        there.close()
        try:
            plain, outline, detail = here.recv()
        except EOFError:
            raise SystemExit("error: a process has died") from None
        process.join()
        if plain is None or outline is None:
            raise SystemExit(f"error: no step in outline among --steps {arguments.steps}; give more")
        added[0].append(outline - plain)
        if detail is not None:
            added[1].append(detail - plain)
    return added


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=16)
    parser.add_argument("--steps", type=int, default=1000, help="of each loader in a round")
    parser.add_argument("--step-ms", type=float, default=2.0)
    arguments = parser.parse_args()
    watch_overhead.prepare(None)
    for workers in (0, 1):
        (outline, detail), (control, _) = (measure(arguments, workers, watched) for watched in (True, False))
        for name, found in (("in outline", outline), ("in detail", detail), ("control", control)):
            mean, low, high = mean_interval(found)
            print(f"num_workers={workers}, {name:<12}{1e-3 * mean:6.1f} µs per step [{1e-3 * low:.1f}, {1e-3 * high:.1f}]",
                  flush=True)


if __name__ == "__main__":
    main()
