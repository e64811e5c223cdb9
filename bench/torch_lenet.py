"""Runs recipe mnist-lenet in PyTorch the usual way: torchvision's MNIST and RandomAffine on PIL images, a DataLoader,
LeNet-5, SGD. Prints one JSON object per epoch: seconds, and load and update per step. Needs torch and torchvision.
`--data` is the folder for torchvision's MNIST, or one with the IDX files themselves."""
import argparse
import json
import os
import shutil
import tempfile
import time

import torch
from torch import nn
from torch.utils.data import DataLoader
from torchvision import datasets, transforms as T

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--data", required=True)
parser.add_argument("--workers", type=int, default=0)
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--threads", type=int, default=1)
parser.add_argument("--device", default="cpu", help="cpu or cuda; on cuda every step ends when the device is done")
args = parser.parse_args()

torch.manual_seed(0)
torch.set_num_threads(args.threads)


def mnist(transform, train):
    if not os.path.isdir(os.path.join(args.data, "MNIST")):  # bare IDX files: makes the folders that torchvision
                                                             # expects
        args.root = getattr(args, "root", None) or tempfile.mkdtemp()
        raw = os.path.join(args.root, "MNIST", "raw")
        os.makedirs(raw, exist_ok=True)
        for name in os.listdir(args.data):
            target = os.path.join(raw, name)
            if "ubyte" in name and not os.path.exists(target):
                shutil.copy(os.path.join(args.data, name), target)
                if name.endswith(".gz"):
                    import gzip
                    with gzip.open(target) as packed, open(target[:-3], "wb") as plain:
                        plain.write(packed.read())
        return datasets.MNIST(args.root, train=train, transform=transform)
    return datasets.MNIST(args.data, train=train, transform=transform)


normalize = T.Normalize((0.1307,), (0.3081,))
augment = T.Compose([T.RandomAffine(15, translate=(0.1, 0.1), scale=(0.8, 1.2)), T.ToTensor(), normalize])
loader = DataLoader(mnist(augment, True), batch_size=64, shuffle=True, num_workers=args.workers,
                    persistent_workers=args.workers > 0)
model = nn.Sequential(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(),
                      nn.MaxPool2d(2), nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(),
                      nn.Linear(84, 10)).to(args.device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
loss_of = nn.CrossEntropyLoss()
clock = time.perf_counter

for epoch in range(args.epochs):
    load = update = 0.0
    steps = 0
    begin = mark = clock()
    for images, labels in loader:
        arrived = clock()
        load += arrived - mark
        optimizer.zero_grad()
        loss_of(model(images.to(args.device)), labels.to(args.device)).backward()
        optimizer.step()
        if args.device != "cpu":
            torch.cuda.synchronize()
        mark = clock()
        update += mark - arrived
        steps += 1
    print(json.dumps({"epoch": epoch + 1, "s": clock() - begin, "load_ms": 1e3 * load / steps,
                      "update_ms": 1e3 * update / steps}), flush=True)

test = DataLoader(mnist(T.Compose([T.ToTensor(), normalize]), False), batch_size=512)
with torch.no_grad():
    right = sum((model(images.to(args.device)).argmax(1).cpu() == labels).sum().item() for images, labels in test)
print(json.dumps({"top1": right / 10000}))
