"""Writes lenet_losses.json: the losses over 21 steps of LeNet and the smaller models, by PyTorch's own layers and SGD
(contract Faithful training).

Weights, images and labels come from the integer formula of tests/torch/formula.h, so that only the losses are
stored. Run it with PyTorch 2.11 on a CPU; the tests only read its result.

    python tests/golden/make_lenet_losses.py
"""
import json
import pathlib

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

EPOCHS, SAMPLES, BATCH, CLASSES = 7, 160, 64, 10  # 3 batches per epoch, the last one short


def formula(count, salt, scale):
    """Returns `count` floats in [-scale / 2, scale / 2), exact in both languages for scale = 2^n."""
    i = np.arange(count, dtype=np.uint64)
    h = (i + np.uint64(salt * 0x10001)) * np.uint64(0x9E3779B1) & np.uint64(0xFFFFFFFF)
    h = (h ^ (h >> np.uint64(15))) * np.uint64(0x85EBCA77) & np.uint64(0xFFFFFFFF)
    h ^= h >> np.uint64(13)
    return torch.from_numpy((h >> np.uint64(8)).astype(np.float32) * np.float32(2**-24)).sub(0.5) * scale


class LeNet(nn.Module):
    def __init__(self, kernel, padding1, padding2, channels, features):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 6, kernel, padding=padding1)
        self.conv2 = nn.Conv2d(6, 16, kernel, padding=padding2)
        self.fc1 = nn.Linear(features, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, CLASSES)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = F.relu(self.fc1(torch.flatten(x, 1)))
        return self.fc3(F.relu(self.fc2(x)))


class SimpleConv(nn.Module):
    def __init__(self, channels, pixels):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 6, 3, padding=1)
        self.fc1 = nn.Linear(6 * pixels, 128)
        self.fc2 = nn.Linear(128, CLASSES)

    def forward(self, x):
        return self.fc2(F.relu(self.fc1(torch.flatten(F.relu(self.conv1(x)), 1))))


class Mlp(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.fc1 = nn.Linear(features, 128)
        self.fc2 = nn.Linear(128, CLASSES)

    def forward(self, x):
        return self.fc2(F.relu(self.fc1(torch.flatten(x, 1))))


MAKERS = {
    "lenet5": lambda channels: LeNet(5, 2, 0, channels, 400),
    "lenet5_plain": lambda channels: LeNet(3, 0, 0, channels, 400),
    "lenet5_cifar": lambda channels: LeNet(3, 1, 1, channels, 1024),
    "mlp": lambda channels: Mlp(channels * 28 * 28),
    "simple_conv": lambda channels: SimpleConv(channels, 28 * 28),
}
LENET = dict(side=28, lr=0.05, momentum=0.9, weight_decay=0.0, nesterov=False)
CASES = [
    dict(LENET, model="lenet5", channels=1),
    dict(LENET, model="lenet5", channels=3, weight_decay=5e-4, nesterov=True),
    dict(LENET, model="lenet5_plain", channels=1, weight_decay=5e-4),
    dict(LENET, model="lenet5_cifar", channels=3, side=32, momentum=0.0, weight_decay=5e-4),
    # Weights of this size make larger logits with more features; with these rates rounding stays small.
    dict(LENET, model="mlp", channels=1, lr=0.005),
    dict(LENET, model="simple_conv", channels=1, lr=0.001, weight_decay=5e-4),
]


def run(case):
    channels, side = case["channels"], case["side"]
    net = MAKERS[case["model"]](channels)
    with torch.no_grad():
        for salt, (_, p) in enumerate(sorted(net.named_parameters())):
            p.copy_(formula(p.numel(), salt, 0.25).view_as(p))
    sample = channels * side * side
    images = torch.stack([formula(sample, 1000 + i, 2.0) for i in range(SAMPLES)]).view(-1, channels, side, side)
    labels = torch.arange(SAMPLES) * 7 % CLASSES
    sgd = torch.optim.SGD(net.parameters(), lr=case["lr"], momentum=case["momentum"], weight_decay=case["weight_decay"],
                          nesterov=case["nesterov"])
    losses = []
    for _ in range(EPOCHS):
        for x, y in zip(images.split(BATCH), labels.split(BATCH)):
            sgd.zero_grad()
            loss = F.cross_entropy(net(x), y)
            loss.backward()
            sgd.step()
            losses.append(loss.item())
    with torch.no_grad():
        logits = net(images).double()
    return dict(model=case["model"], channels=channels, side=side, lr=case["lr"], momentum=case["momentum"],
                weight_decay=case["weight_decay"], nesterov=case["nesterov"],
                losses=[float(f"{v:.9g}") for v in losses],
                evaluation=dict(loss_sum=F.cross_entropy(logits, labels, reduction="sum").item(),
                                top1=int((logits.argmax(1) == labels).sum()),
                                top5=int((logits.topk(5).indices == labels[:, None]).sum())))


if __name__ == "__main__":
    torch.set_num_threads(1)
    out = pathlib.Path(__file__).with_name("lenet_losses.json")
    result = dict(torch=torch.__version__, epochs=EPOCHS, samples=SAMPLES, batch=BATCH, classes=CLASSES, cases=[run(c) for c in CASES])
    out.write_text(json.dumps(result, indent=1) + "\n")
    print("wrote", out)
