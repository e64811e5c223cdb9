"""Data and losses of the trials: images that take WILD_DELAY_MS to load, and losses in the file WILD_LOSSES.

With WILD_KIND=cpu the images compute for that time, else they sleep. WILD_COUNT is their number.
"""
import json
import os
import time

import torch
from torch.utils.data import Dataset

COUNT, SIDE, CLASSES, BATCH = int(os.environ.get("WILD_COUNT", "96")), 16, 4, 4
WORKERS = int(os.environ.get("WILD_WORKERS", "0"))
COMPUTES = os.environ.get("WILD_KIND") == "cpu"
DELAY_S = 1e-3 * float(os.environ.get("WILD_DELAY_MS", "0"))


def planted():
    """Waits, as storage does, or computes."""
    if COMPUTES:
        end = time.thread_time() + DELAY_S
        while time.thread_time() < end:
            pass
    elif DELAY_S:
        time.sleep(DELAY_S)


def image(index):
    """Returns image and label of a sample: the same in every process."""
    generator = torch.Generator().manual_seed(int(index))
    return torch.rand(3, SIDE, SIDE, generator=generator), index % CLASSES


class Images(Dataset):
    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        planted()
        return image(index)


def model():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1),
                               torch.nn.Flatten(), torch.nn.Linear(8, CLASSES))


def keep(losses):
    """Writes the losses of a training."""
    with open(os.environ["WILD_LOSSES"], "w", encoding="utf-8") as file:
        json.dump([float(one) for one in losses], file)


def train(batches, epochs=1):
    """Trains as tutorials do."""
    net, losses = model(), []
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for _ in range(epochs):
        for images, labels in batches:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(net(images), torch.as_tensor(labels))
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    keep(losses)
