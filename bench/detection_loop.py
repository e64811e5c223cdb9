#!/usr/bin/env python3
"""Trains a small detector with pymillrace's loader or with torchvision's, and nothing else changed:

    detection_loop.py DATA [--loader pymillrace|torchvision] [--epochs N]

DATA is the set that `millrace data make boxes DATA` generates. The detector is torchvision's FCOS on a small
convolutional network, from random weights, at 160x120 pixels. Prints the loss of each epoch, the mean average precision
(COCO's) on the part `test`, and the CPU time per image of loading alone, in one worker thread (pymillrace) or in the
loop's (torchvision). Needs torch and torchvision.
"""
import argparse
import json
import pathlib
import time

import pymillrace as mr
import torch
from mean_average_precision import mean_average_precision
from torch import nn
from torchvision.models.detection import FCOS
from torchvision.models.detection.anchor_utils import AnchorGenerator

CLASSES = 3
HEIGHT, WIDTH = SIZE = (120, 160)
BATCH = 8


def pymillrace_loader(data, split):
    chain = [mr.Resize(SIZE), mr.HFlip()] if split == "train" else [mr.Resize(SIZE)]
    words = ["loader.workers=1", f"data.split={split}"]
    return mr.Loader(mr.Coco(data), chain, *words, batch=BATCH, normalize=mr.IMAGENET, collate="torchvision")


class CocoSet(torch.utils.data.Dataset):
    """Images and boxes of a COCO set, as torchvision's CocoDetection has them, which needs pycocotools."""

    def __init__(self, data, split, transform):
        self.folder, self.transform = pathlib.Path(data) / "images" / split, transform
        content = json.loads((pathlib.Path(data) / f"annotations/instances_{split}.json").read_text())
        self.images, self.annotations = content["images"], {image["id"]: [] for image in content["images"]}
        for annotation in content["annotations"]:
            self.annotations[annotation["image_id"]].append(annotation)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        from PIL import Image
        from torchvision import tv_tensors

        entry = self.images[index]
        image = Image.open(self.folder / entry["file_name"]).convert("RGB")
        annotations = self.annotations[entry["id"]]
        boxes = torch.tensor([one["bbox"] for one in annotations], dtype=torch.float32).reshape(-1, 4)
        boxes[:, 2:] += boxes[:, :2]
        boxes = tv_tensors.BoundingBoxes(boxes, format="XYXY", canvas_size=(image.height, image.width))
        labels = torch.tensor([one["category_id"] for one in annotations], dtype=torch.int64)
        return self.transform(image, {"boxes": boxes, "labels": labels, "image_id": entry["id"]})


def torchvision_loader(data, split):
    from torchvision.transforms import v2

    flip = [v2.RandomHorizontalFlip()] if split == "train" else []
    mean, deviation = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    chain = v2.Compose([v2.ToImage(), v2.Resize(SIZE), *flip, v2.ToDtype(torch.float32, scale=True),
                        v2.Normalize(mean, deviation)])
    return torch.utils.data.DataLoader(CocoSet(data, split, chain), batch_size=BATCH, shuffle=split == "train",
                                       collate_fn=lambda samples: tuple(map(list, zip(*samples))))


LOADERS = {"pymillrace": pymillrace_loader, "torchvision": torchvision_loader}


def detector():
    """Returns FCOS on one map of features, each of 8x8 pixels."""
    layers = []
    for channels, following, stride in ((3, 16, 2), (16, 32, 2), (32, 64, 2), (64, 64, 1), (64, 64, 1)):
        layers += [nn.Conv2d(channels, following, 3, stride, 1, bias=False), nn.BatchNorm2d(following), nn.ReLU()]
    backbone = nn.Sequential(*layers)
    backbone.out_channels = 64
    return FCOS(backbone, CLASSES + 1, HEIGHT, WIDTH, image_mean=[0.0] * 3, image_std=[1.0] * 3,
                anchor_generator=AnchorGenerator(((8,),), ((1.0,),)), score_thresh=0.05)


def train(model, loader, epochs, rate=2e-3):
    """Yields the mean loss of each epoch."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=epochs * len(loader))
    for _ in range(epochs):
        model.train()
        total = 0.0
        for images, targets in loader:
            loss = sum(model(images, targets).values())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.item()
        yield total / len(loader)


@torch.no_grad()
def evaluate(model, loader):
    """Returns the mean average precision over IoU 0.50 to 0.95, and at 0.50."""
    model.eval()
    objects, detections = [], []
    for images, targets in loader:
        objects += targets
        detections += model(images)
    return mean_average_precision(objects, detections), mean_average_precision(objects, detections, [0.5])


def loading_ms(loader, epochs=3):
    """Returns the CPU time per image of an epoch without training, in milliseconds: the smallest of a few."""
    times = []
    for _ in range(epochs):
        begin = time.process_time()
        count = sum(len(images) for images, _ in loader)
        times.append((time.process_time() - begin) / count)
    return 1e3 * min(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--loader", choices=LOADERS, default="pymillrace")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.manual_seed(arguments.seed)
    torch.set_num_threads(1)
    model, begin = detector(), time.perf_counter()
    loader = LOADERS[arguments.loader](arguments.data, "train")
    for epoch, loss in enumerate(train(model, loader, arguments.epochs)):
        print(f"epoch {epoch}: loss {loss:.4f}, {time.perf_counter() - begin:.0f} s", flush=True)
    mean, at_half = evaluate(model, LOADERS[arguments.loader](arguments.data, "test"))
    print(f"{arguments.loader}: mAP {mean:.3f}, at IoU 0.5 {at_half:.3f}, after {time.perf_counter() - begin:.0f} s, "
          f"{time.process_time():.0f} CPU s; loading alone takes {loading_ms(loader):.2f} ms of CPU time per image")


if __name__ == "__main__":
    main()
