"""Peer: PyTorch's DataLoader with torchvision, the usual way, on tensors, and as a careful user writes it by hand.

Uses no worker process unless asked: pinned to one core, a worker only adds transport.
"""
import math

import torch
import torch.nn.functional as F
from PIL import Image
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler
from torchvision import io, transforms
from torchvision.transforms import v2

from data_sets import cifar, jpeg_files, mnist

AFFINE = {"degrees": 15, "translate": (0.1, 0.1), "scale": (0.8, 1.2)}


def for_ever(loader):
    while True:
        yield from loader


class Samples(Dataset):
    """Applies `load` to each of `sources`, then `transform`."""

    def __init__(self, sources, labels, load, transform):
        self.sources, self.labels, self.load, self.transform = sources, labels, load, transform

    def __len__(self):
        return len(self.sources)

    def __getitem__(self, index):
        return self.transform(self.load(self.sources[index])), self.labels[index]


def shuffled(task, dataset):
    torch.set_num_threads(1)
    workers = task.options.get("workers", 0)
    return for_ever(DataLoader(dataset, batch_size=task.work.batch, shuffle=True, num_workers=workers,
                               persistent_workers=workers > 0))


def open_rgb(path):
    with Image.open(path) as image:
        return image.convert("RGB")


def augmentation(name, of):
    """Returns a workload's random part from torchvision's first or second set of transforms."""
    if name == "w1":
        return [of.RandomAffine(**AFFINE)]
    if name == "w4":
        return [of.RandomResizedCrop(224), of.RandomHorizontalFlip()]
    return [of.RandomCrop(32, padding=4), of.RandomHorizontalFlip()]


def pil(task):
    work = task.work
    transform = transforms.Compose([*augmentation(work.name, transforms), transforms.ToTensor(),
                                    transforms.Normalize(work.mean, work.std)])
    if work.name in ("w1", "w2"):
        images, labels = mnist(task) if work.name == "w1" else cifar(task)
        return shuffled(task, Samples(images, labels.tolist(), Image.fromarray, transform))
    paths, labels = zip(*jpeg_files(task))
    return shuffled(task, Samples(paths, labels, open_rgb, transform))


def tensors(task):
    """Applies decode_jpeg to files, then transforms v2 to bytes."""
    work = task.work
    transform = v2.Compose([*augmentation(work.name, v2), v2.ToDtype(torch.float32, scale=True),
                            v2.Normalize(work.mean, work.std)])
    if work.name == "w2":
        images, labels = cifar(task)
        planes = torch.from_numpy(images).permute(0, 3, 1, 2).contiguous()
        return shuffled(task, Samples(planes, labels.tolist(), lambda image: image, transform))
    paths, labels = zip(*jpeg_files(task))
    return shuffled(task, Samples(paths, labels, decode, transform))


def decode(path):
    return io.decode_jpeg(io.read_file(path), mode=io.ImageReadMode.RGB)


class Warped(Dataset):
    """Warps a whole batch at a time: `index` is a list. Draws as RandomAffine does, and inverts by hand."""

    def __init__(self, images, labels, mean, std):
        self.images = torch.from_numpy(images)[:, None]
        self.labels = torch.from_numpy(labels).long()
        self.factor, self.offset = 1 / (255 * std), -mean / std

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        count = len(index)
        angle = torch.empty(count).uniform_(-15, 15) * (math.pi / 180)
        shrink = 1 / torch.empty(count).uniform_(0.8, 1.2)
        # affine_grid's unit is half an image.
        x, y = torch.empty(2, count).uniform_(-2.8, 2.8).round() / 14
        cos, sin = angle.cos() * shrink, angle.sin() * shrink
        rows = [torch.stack([cos, sin, -cos * x - sin * y], 1), torch.stack([-sin, cos, sin * x - cos * y], 1)]
        grid = F.affine_grid(torch.stack(rows, 1), [count, 1, 28, 28], align_corners=False)
        warped = F.grid_sample(self.images[index].float(), grid, mode="nearest", align_corners=False)
        return warped.mul_(self.factor).add_(self.offset), self.labels[index]


def grid_sample(task):
    torch.set_num_threads(1)
    dataset = Warped(*mnist(task), task.work.mean[0], task.work.std[0])
    batches = BatchSampler(RandomSampler(dataset), task.work.batch, drop_last=False)
    return for_ever(DataLoader(dataset, sampler=batches, batch_size=None))


def nothing(task):
    images, labels = mnist(task)
    return shuffled(task, Samples(torch.from_numpy(images), labels.tolist(), lambda image: image, lambda image: image))
