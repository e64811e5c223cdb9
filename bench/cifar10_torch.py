"""Trains a CIFAR-10 recipe in PyTorch the usual way, for comparison with `millrace train`: torchvision's ImageFolder
and transforms, a DataLoader, SGD. Reads the settings that both must share (model, batch, augmentation, mean and
std, optimizer) from the recipe's file.

    python3 bench/cifar10_torch.py cifar10-lenet --data DIR [--seed N] [--epochs N]

DIR holds train/CLASS/*.jpg and test/CLASS/*.jpg. Prints one JSON object per epoch: train loss (mean of the steps'
losses, weighted by images), test loss, top-1, seconds. Needs torch, torchvision, Python 3.11.
"""
import argparse
import json
import os
import time
import tomllib

import torch
import torchvision
from torch import nn
from torch.utils.data import DataLoader
from torchvision import datasets, transforms as T

EVALUATION_BATCH = 512  # eval.batch, unless the recipe sets it


def lenet5_cifar():
    return nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(1024, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10))


def vgg_cifar():
    layers, channels = [], 3
    for width, convolutions in (64, 2), (128, 2), (256, 4), (512, 4), (512, 4):
        for _ in range(convolutions):
            layers += [nn.Conv2d(channels, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
            channels = width
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(
        *layers, nn.Flatten(), nn.Linear(512, 256), nn.ReLU(), nn.Dropout(), nn.Linear(256, 128), nn.ReLU(),
        nn.Dropout(), nn.Linear(128, 10))


MODELS = {"lenet5_cifar": lenet5_cifar, "vgg_cifar": vgg_cifar}
AUGMENTATIONS = {
    "random_crop": lambda op: T.RandomCrop(op["size"], padding=op.get("padding", 0)),
    "hflip": lambda op: T.RandomHorizontalFlip(op.get("p", 0.5)),
}


def check(recipe):
    """Rejects recipes that this script would not follow."""
    known = {"epochs", "optimizer", "lr", "momentum", "weight_decay", "nesterov"}
    strange = set(recipe["train"]) - known
    if strange or recipe["train"].get("optimizer", "sgd") != "sgd":
        raise SystemExit(f"this script trains by SGD with {sorted(known)} alone, not with {sorted(strange)}")
    if recipe["model"]["name"] not in MODELS:
        raise SystemExit(f"model {recipe['model']['name']}: only {sorted(MODELS)} are here")


def evaluate(model, loader):
    model.eval()
    loss = right = count = 0
    with torch.inference_mode():
        for images, labels in loader:
            logits = model(images)
            loss += nn.functional.cross_entropy(logits, labels, reduction="sum").item()
            right += (logits.argmax(1) == labels).sum().item()
            count += len(labels)
    return loss / count, right / count


def train_epoch(model, optimizer, loader):
    model.train()
    loss_sum, count = torch.zeros((), dtype=torch.float64), 0
    for images, labels in loader:
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        loss_sum += loss.detach().double() * len(labels)
        count += len(labels)
    return loss_sum.item() / count


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", help="name of a shipped recipe, or a file")
    parser.add_argument("--data", required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, help="instead of the recipe's")
    parser.add_argument("--steps", type=int, default=0, help="train on the images of this many steps alone; for a trial")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()

    shipped = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "recipes", args.recipe + ".toml")
    with open(args.recipe if args.recipe.endswith(".toml") else shipped, "rb") as file:
        recipe = tomllib.load(file)
    check(recipe)
    torch.manual_seed(args.seed)
    torch.set_num_threads(args.threads)

    finish = [T.ToTensor(), T.Normalize(recipe["output"]["mean"], recipe["output"]["std"])]
    augment = [AUGMENTATIONS[op["op"]](op) for op in recipe.get("augment", [])]
    train_set = datasets.ImageFolder(os.path.join(args.data, "train"), T.Compose(augment + finish))
    test_set = datasets.ImageFolder(os.path.join(args.data, "test"), T.Compose(finish))
    batch = recipe["loader"]["batch"]
    if args.steps:
        first = torch.randperm(len(train_set))[: args.steps * batch].tolist()
        train_set = torch.utils.data.Subset(train_set, first)
    train_loader = DataLoader(train_set, batch_size=batch, shuffle=True, num_workers=args.workers,
                              persistent_workers=args.workers > 0)
    test_loader = DataLoader(test_set, batch_size=recipe.get("eval", {}).get("batch", EVALUATION_BATCH),
                             num_workers=args.workers)

    model = MODELS[recipe["model"]["name"]]()
    options = recipe["train"]
    optimizer = torch.optim.SGD(model.parameters(), lr=options["lr"], momentum=options.get("momentum", 0.9),
                                weight_decay=options.get("weight_decay", 0), nesterov=options.get("nesterov", False))
    for epoch in range(1, (args.epochs or options["epochs"]) + 1):
        begin = time.perf_counter()
        train_loss = train_epoch(model, optimizer, train_loader)
        train_s = time.perf_counter() - begin
        test_loss, top1 = evaluate(model, test_loader)
        print(json.dumps({
            "epoch": epoch, "recipe": args.recipe, "seed": args.seed, "torch": torch.__version__,
            "torchvision": torchvision.__version__, "train_loss": train_loss, "test_loss": test_loss, "top1": top1,
            "train_s": train_s, "seconds": time.perf_counter() - begin}), flush=True)


if __name__ == "__main__":
    main()
