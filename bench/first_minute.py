#!/usr/bin/env python3
"""Trains a small network on a folder of images as torchvision's tutorials do, for a recording of what `watch` says.

Nothing in it knows of pymillrace. docs/results/2026-11-29-first-minute.md has the commands.
"""
import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader
from torchvision import datasets, models, transforms


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("images", help="folder with a folder of images per class")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--workers", type=int, default=0)
    arguments = parser.parse_args()

    torch.manual_seed(0)
    transform = transforms.Compose([
        transforms.RandomResizedCrop(64),
        transforms.RandomHorizontalFlip(),
        transforms.ToTensor(),
        transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    ])
    data = datasets.ImageFolder(arguments.images, transform)
    loader = DataLoader(data, batch_size=32, shuffle=True, num_workers=arguments.workers)
    model = models.mobilenet_v3_small(num_classes=len(data.classes))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(arguments.epochs):
        total = 0.0
        for images, labels in loader:
            loss = criterion(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(images)
        print(f"epoch {epoch + 1}: loss {total / len(data):.3f}", flush=True)


if __name__ == "__main__":
    main()
