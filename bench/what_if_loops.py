#!/usr/bin/env python3
"""Checks `pymillrace what-if` on three real training loops: how far are its predictions from the runs that follow?

    what_if_loops.py DATA [--loops mnist,cifar,imagenet] [--steps N] [--blocks N] [--run DIR] [--json FILE]

DATA holds mnist/*.gz (IDX files), cifar10-jpeg.tar.xz (train/CLASS/*.jpg) and imagenet-sample-250.tar (JPEG files).
Each loop is a script of a torch DataLoader with torchvision's transforms, one worker and prefetch_factor=2. One run
predicts num_workers=0 and 2, and prefetch_factor=1 and 4. `what-if --verify` then runs these changes in random order,
with a run without changes before and after each, and compares the ratios. Needs torch, torchvision, and an idle machine.
"""
import argparse
import gzip
import json
import statistics
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

LOOPS = ("mnist", "cifar", "imagenet")
CHANGES = ("num_workers=0", "num_workers=2", "prefetch_factor=1", "prefetch_factor=4")
CIFAR_IMAGES = 5000  # of 50,000


def unpack(data, folder):
    """Unpacks the JPEG files that the loops read."""
    with tarfile.open(data / "imagenet-sample-250.tar") as archive:
        archive.extractall(folder / "imagenet/all", filter="data")
    with tarfile.open(data / "cifar10-jpeg.tar.xz") as archive:
        count = 0
        for member in archive:
            if member.name.endswith(".jpg"):
                archive.extract(member, folder / "cifar", filter="data")
                count += 1
                if count == CIFAR_IMAGES:
                    break


# --- the loops

def images_of(folder, chain):
    """Returns a data set of all JPEG files under a folder."""
    import torch
    from PIL import Image

    files = sorted(path for path in Path(folder).rglob("*") if path.suffix.lower() in (".jpg", ".jpeg"))

    class Images(torch.utils.data.Dataset):
        def __init__(self):
            self.files, self.transform = files, chain

        def __len__(self):
            return len(self.files)

        def __getitem__(self, index):
            with Image.open(self.files[index]) as image:
                return self.transform(image.convert("RGB")), index % 10

    return Images()


def digits_of(data, chain):
    """Returns the training images of MNIST as a data set."""
    import torch
    from PIL import Image

    pixels = gzip.open(Path(data) / "mnist/train-images-idx3-ubyte.gz").read()[16:]

    class Digits(torch.utils.data.Dataset):
        def __init__(self):
            self.pixels, self.transform = pixels, chain

        def __len__(self):
            return len(self.pixels) // 784

        def __getitem__(self, index):
            image = Image.frombytes("L", (28, 28), self.pixels[784 * index:784 * (index + 1)])
            return self.transform(image), index % 10

    return Digits()


def make(name, data, folder):
    """Returns a data set, its batch size, and a model."""
    import torch
    from torchvision import transforms as of

    def network(channels, width, stride):
        return torch.nn.Sequential(torch.nn.Conv2d(channels, width, 5, stride=stride), torch.nn.ReLU(),
                                   torch.nn.Conv2d(width, 2 * width, 5, stride=2), torch.nn.ReLU(),
                                   torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten(), torch.nn.Linear(32 * width, 10))

    if name == "mnist":
        chain = of.Compose([of.RandomAffine(15, (0.1, 0.1), (0.9, 1.1)), of.ToTensor()])
        return digits_of(data, chain), 128, network(1, 16, 1)
    if name == "cifar":
        chain = of.Compose([of.RandomCrop(32, 4), of.RandomHorizontalFlip(), of.ToTensor()])
        return images_of(f"{folder}/cifar", chain), 128, network(3, 16, 1)
    chain = of.Compose([of.RandomResizedCrop(224), of.RandomHorizontalFlip(), of.ToTensor()])
    return images_of(f"{folder}/imagenet", chain), 16, network(3, 16, 4)


def train(name, data, folder):
    """Trains until it is ended."""
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(1)
    samples, batch, model = make(name, data, folder)
    loader = torch.utils.data.DataLoader(samples, batch_size=batch, num_workers=1, prefetch_factor=2, drop_last=True,
                                         sampler=torch.utils.data.RandomSampler(samples, True, 1_000_000))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for images, labels in loader:
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


# --- the check

def verify(name, arguments, folder, run):
    words = [sys.executable, "-m", "pymillrace", "what-if", "--verify", "--steps", str(arguments.steps), "--blocks",
             str(arguments.blocks), "--run", str(run / name)]
    for change in CHANGES:
        words += ["--change", change]
    done = subprocess.run([*words, "--", sys.executable, __file__, arguments.data, "--train", name, "--folder",
                           str(folder)], stdout=subprocess.DEVNULL)
    if done.returncode != 0:
        raise SystemExit(f"{name}: what-if --verify ended with exit code {done.returncode}")
    return json.loads((run / name / "verification.json").read_text())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--loops", type=lambda text: text.split(","), default=list(LOOPS))
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--blocks", type=int, default=2)
    parser.add_argument("--folder", help="where the JPEG files are, or are unpacked to")
    parser.add_argument("--run", help="keep the records of all runs in this folder")
    parser.add_argument("--json", help="also write the results to a file")
    parser.add_argument("--train", choices=LOOPS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.train:
        train(arguments.train, arguments.data, arguments.folder)
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder, run = (Path(given or f"{temporary}/{name}") for given, name in ((arguments.folder, "images"),
                                                                              (arguments.run, "runs")))
        if not folder.exists():
            unpack(Path(arguments.data), folder)
        results = {}
        print("| loop | change | predicted | measured | error |\n| --- | --- | --- | --- | --- |")
        for name in arguments.loops:
            results[name] = verify(name, arguments, folder, run)
            for one in results[name]["outcomes"]:
                measured = "void" if one["measured"] is None else f"{one['measured']:.2f} | {one['error']:+.1%}"
                print(f"| {name} | `{one['change']}` | {one['predicted']:.2f} | {measured} |", flush=True)
            print(f"{name}: {results[name]['void_runs']} of {results[name]['runs']} runs are void", file=sys.stderr)
    errors = [abs(one["error"]) for result in results.values() for one in result["outcomes"]
              if one["error"] is not None]
    if errors:
        print(f"\n{len(errors)} changes: median error {statistics.median(errors):.1%}, worst {max(errors):.1%}")
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
