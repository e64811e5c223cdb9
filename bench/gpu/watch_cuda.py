#!/usr/bin/env python3
"""Watches PyTorch loops on a GPU whose waits are planted, and compares what watch says with what was planted. Needs
pymillrace, torch and a device.

    python3 bench/gpu/watch_cuda.py

A data set sleeps per batch and the device multiplies matrices for a time measured beforehand, so the time for which the
device has nothing to do is known. Also: batches, losses and a captured graph are those of the same loop without watch,
and the cost of watching per step, from loops in turns. Prints one JSON document; exits with 1 if a case is wrong."""
import contextlib
import json
import math
import os
import statistics
import sys
import tempfile
import time

import torch
from torch.utils.data import DataLoader, Dataset

import pymillrace as mr

DEVICE = "cuda"
STEPS = 60
TOLERANCE_S = 0.5e-3  # per step: launches, Python, the timer
COST_STEPS = (1000, 5000)  # a short and a long loop: their difference is free of what begins and ends a record
COST_TURNS = 5


class Slow(Dataset):
    """One batch per index; each takes so many seconds."""

    def __init__(self, seconds, steps=STEPS):
        self.seconds, self.steps = seconds, steps

    def __len__(self):
        return self.steps

    def __getitem__(self, index):
        if self.seconds:
            time.sleep(self.seconds)
        return torch.full((16,), index / self.steps)


class Work:
    """Work of the device whose duration is known."""

    def __init__(self):
        # Large enough that the device works much longer on a product than the host launches it.
        self.factor = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
        self.one_s = min(self.time(200) for _ in range(5)) / 200

    def run(self, count):
        for _ in range(count):
            torch.mm(self.factor, self.factor)

    def time(self, count):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        self.run(count)
        torch.cuda.synchronize()
        return time.perf_counter() - begin

    def count_of(self, seconds):
        return round(seconds / self.one_s)


def model():
    torch.manual_seed(1)
    net = torch.nn.Linear(16, 4).to(DEVICE)
    return net, torch.optim.SGD(net.parameters(), 1e-3)


def train(loader, work, each, ends, graphs=False):
    """Trains. `each`: matrix products per step; `ends`: every step ends when the device is done. Returns the losses."""
    net, optimizer = model()
    losses, graph, static, out = [], None, torch.zeros(1, 16, device=DEVICE), None
    # From pageable memory, a copy would wait for the work before it, and nothing be queued behind a batch. Pinning may
    # wait as well. The device's queue holds work of fewer steps than these blocks.
    pinned = [torch.empty(1, 16, pin_memory=DEVICE == "cuda") for _ in range(16)]
    for step, batch in enumerate(loader):
        work.run(each)
        static.copy_(pinned[step % len(pinned)].copy_(batch), non_blocking=True)
        if graphs and step == 2:
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                out = net(static).square().sum()
        if graph is not None:
            graph.replay()
            losses.append(out.detach().clone())
        loss = net(static).square().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item() if ends else loss.detach())
    losses = [float(loss) for loss in losses]  # waits for the device
    if not all(map(math.isfinite, losses)):
        raise SystemExit("error: the loop diverges, so its losses prove nothing")
    return losses


def watched(name, work, planted_s, device_s, ends, **more):
    """Returns the summary of a watched loop, and the seconds per step of the same loop without watch. Raises SystemExit
    if watching changes its losses."""
    each = work.count_of(device_s)
    begin = time.perf_counter()
    plain = train(DataLoader(Slow(planted_s)), work, each, ends, **more)
    plain_s = (time.perf_counter() - begin) / STEPS
    with tempfile.TemporaryDirectory() as folder:
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere), mr.watching(run=folder + "/run"):
            losses = train(DataLoader(Slow(planted_s)), work, each, ends, **more)
        with open(folder + "/run/summary.json") as file:
            summary = json.load(file)
    if losses != plain:
        raise SystemExit(f"error: {name}: the losses are not those of the loop without watch")
    return summary, plain_s


def case(name, work, planted_s, device_s, ends, low_s, high_s, bounds, **more):
    """Returns what was found beside what was planted: seconds per step for which the device waited for a batch."""
    summary, plain_s = watched(name, work, planted_s, device_s, ends, **more)
    gap = summary["device_gap_load_s"] / STEPS
    right = low_s - TOLERANCE_S <= gap <= high_s + TOLERANCE_S and summary["bound"] in bounds
    return {"case": name, "data_set_ms": 1e3 * planted_s, "device_ms": 1e3 * device_s,
            "step_ms": 1e3 * plain_s, "device_waits_ms": 1e3 * gap,
            "expected_ms": [1e3 * low_s, 1e3 * high_s], "measured_waits": summary["device_gaps"],
            "lost": summary["device_gaps_lost"], "bound": summary["bound"], "verdict": summary["verdict"],
            "advice": summary["advice"], "right": right}


def cost():
    """Returns what watching adds to a short step, in µs of wall time: the median over turns, and each turn."""
    def loop(steps):
        net, optimizer = model()
        begin = time.perf_counter()
        for batch in DataLoader(Slow(0, steps)):
            net(batch.cuda()).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        torch.cuda.synchronize()
        return 1e6 * (time.perf_counter() - begin)

    def watched_loop(steps):
        with tempfile.TemporaryDirectory() as folder, open(os.devnull, "w") as nowhere, \
                contextlib.redirect_stderr(nowhere), mr.watching(run=folder + "/run"):
            return loop(steps)

    short, long = COST_STEPS
    loop(short)
    plain, added = [], []
    for _ in range(COST_TURNS):
        plain.append((loop(long) - loop(short)) / (long - short))
        added.append((watched_loop(long) - watched_loop(short)) / (long - short) - plain[-1])
    return {"step_us": statistics.median(plain), "added_us": statistics.median(added), "turns_us": sorted(added)}


def main():
    work = Work()
    found = [
        # The device works beside the sleep, and then waits for the rest of it.
        case("slow data set", work, 8e-3, 2e-3, False, 6e-3, 8e-3, {"dataset"}),
        # Work of many steps is queued: the device never waits, though the host does.
        case("slow data set behind a queue", work, 4e-3, 12e-3, False, 0, 0.1e-3, {"device"}),
        # Nothing is queued when the loop asks for the batch.
        case("slow data set, loss.item()", work, 4e-3, 12e-3, True, 4e-3, 4e-3, {"dataset"}),
        case("slow device, loss.item()", work, 0, 8e-3, True, 0, 0.3e-3, {"device"}),
        case("graph captured in the loop", work, 2e-3, 1e-3, True, 2e-3, 2e-3, {"dataset"}, graphs=True)]
    print(json.dumps({"torch": torch.__version__, "device": torch.cuda.get_device_name(), "watch": found,
                      "cost": cost()}))
    return 0 if all(one["right"] for one in found) else 1


if __name__ == "__main__":
    sys.exit(main())
