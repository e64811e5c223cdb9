#!/usr/bin/env python3
"""Times a classification loop with torchvision's loader and with pymillrace's, and nothing else changed:

    classification_loop.py DATA [--pairs N] [--steps N] [--workers N] [--model NAME]

DATA is a folder of class folders with JPEG files. The loop is that of torchvision's reference for classification:
RandomResizedCrop(224), RandomHorizontalFlip, cross entropy, SGD with momentum. Loaders take turns in processes of their
own, in an order that alternates. Prints, per loader, the wall time in which the loop waited for batches (without the
first), the time of the updates, and the CPU time of the process tree per step, then the medians of the pairs' ratios.
Needs torch and torchvision.
"""
import argparse
import itertools
import json
import resource
import statistics
import subprocess
import sys
import time

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
BATCH = 32


def torchvision_loader(data, workers):
    import torch
    from torchvision import datasets, transforms

    chain = transforms.Compose([transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(),
                                transforms.PILToTensor(), transforms.ConvertImageDtype(torch.float),
                                transforms.Normalize(MEAN, STD)])
    return torch.utils.data.DataLoader(datasets.ImageFolder(data, chain), batch_size=BATCH, shuffle=True, drop_last=True,
                                       num_workers=workers, persistent_workers=workers > 0)


def pymillrace_loader(data, workers):
    import pymillrace as mr

    return mr.Loader(mr.Folder(data), [mr.RandomResizedCrop(224), mr.HFlip()], f"loader.workers={workers}",
                     "loader.drop_last=true", batch=BATCH, normalize=mr.IMAGENET)



def loop(name, arguments):
    """Trains and returns seconds per step: waiting for batches, updating."""
    import torch
    import torchvision

    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = {"torchvision": torchvision_loader, "pymillrace": pymillrace_loader}[name](arguments.data, arguments.workers)
    model = torchvision.models.get_model(arguments.model, weights=None, num_classes=1000)
    criterion = torch.nn.CrossEntropyLoss(label_smoothing=0.1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    model.train()
    load = update = 0.0
    batches = itertools.chain.from_iterable(itertools.repeat(loader))
    next(batches)
    for _ in range(arguments.steps):
        begin = time.perf_counter()
        images, target = next(batches)
        there = time.perf_counter()
        loss = criterion(model(images), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        load += there - begin
        update += time.perf_counter() - there
    return {"load_s": load / arguments.steps, "update_s": update / arguments.steps}


def run(name, arguments):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, __file__, *sys.argv[1:], "--only", name], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {**json.loads(done.stdout.splitlines()[-1]), "cpu_s": spent}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--only", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.only:
        print(json.dumps(loop(arguments.only, arguments)))
        return
    results = {"torchvision": [], "pymillrace": []}
    for pair in range(arguments.pairs):
        for name in sorted(results, reverse=pair % 2 == 0):
            results[name].append(run(name, arguments))
    for name, runs in results.items():
        medians = {key: statistics.median(one[key] for one in runs) for key in ("load_s", "update_s", "cpu_s")}
        print(f"{name}: load {1e3 * medians['load_s']:.1f} ms per step, update {1e3 * medians['update_s']:.1f} ms, "
              f"{medians['cpu_s']:.2f} CPU s per run with start-up")
    for key in ("load_s", "cpu_s"):
        ratios = [ours[key] / max(theirs[key], 1e-9) for ours, theirs in zip(results["pymillrace"], results["torchvision"])]
        print(f"{key}, pymillrace / torchvision: median {statistics.median(ratios):.3f} "
              f"({min(ratios):.3f} to {max(ratios):.3f}) of {len(ratios)} pairs")


if __name__ == "__main__":
    main()
