#!/usr/bin/env python3
"""Compares the cost per pixel of augmentations with torchvision.transforms.v2 on 8-bit tensors: both on one thread,
224x224 RGB, in one run:

    python bench/augmentations.py build/augmentation_bench

Each turn measures all of millrace's, then all of torchvision's; the table shows the medians of the turns' CPU time.
Both sides' times include creating the result's memory: a copy of the picture here, a new tensor there. Units that
are tables only create the table; applying it is part of a pass that is made anyway, so these have no ratio.
"""
import argparse
import json
import statistics
import subprocess
import time

import torch
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as F

SIDE = 224
TURNS = 3
TABLES = ("invert", "posterize", "solarize", "brightness")


def picture():
    generator = torch.Generator().manual_seed(1)
    i = torch.arange(SIDE * SIDE * 3)
    levels = i // 3 % SIDE // 2 + i // (SIDE * 3) // 3 + i % 3 * 9 + torch.randint(0, 20, (len(i),), generator=generator)
    return (levels % 256).to(torch.uint8).view(SIDE, SIDE, 3).permute(2, 0, 1).contiguous()


def counterparts():
    """Pairs each unit, named as in augmentation_bench, with torchvision's equivalent."""
    image = picture()
    pair = torch.rand(2, 3, SIDE, SIDE)
    labels = torch.tensor([1, 2])
    erase, erase_noise = v2.RandomErasing(p=1, value=0), v2.RandomErasing(p=1, value="random")
    unit_image = image.to(torch.float32) / 255
    return {
        "invert{p=1}": lambda: F.invert(image),
        "posterize{p=1}": lambda: F.posterize(image, 4),
        "solarize{p=1}": lambda: F.solarize(image, 128),
        "brightness{factor=1.4}": lambda: F.adjust_brightness(image, 1.4),
        "autocontrast{p=1}": lambda: F.autocontrast(image),
        "equalize{p=1}": lambda: F.equalize(image),
        "contrast{factor=1.4}": lambda: F.adjust_contrast(image, 1.4),
        "saturation{factor=1.4}": lambda: F.adjust_saturation(image, 1.4),
        "hue{turn=0.1}": lambda: F.adjust_hue(image, 0.1),
        "grayscale{p=1}": lambda: F.rgb_to_grayscale(image, 3).contiguous(),
        "color_jitter{brightness=0.4,contrast=0.4,saturation=0.4,hue=0.1}":
            lambda jitter=v2.ColorJitter(0.4, 0.4, 0.4, 0.1): jitter(image),
        "sharpness{p=1}": lambda: F.adjust_sharpness(image, 2.0),
        "gaussian_blur{kernel_size=5}": lambda: F.gaussian_blur(image, [5, 5], [1.0, 1.0]),
        "gaussian_blur{kernel_size=23}": lambda: F.gaussian_blur(image, [23, 23], [1.0, 1.0]),
        "gaussian_noise": lambda: F.gaussian_noise(image),
        "random_erasing{p=1}": lambda: erase(image),
        "random_erasing{p=1,mode=random}": lambda: erase_noise(unit_image),  # floats: 8-bit noise is meaningless
        "elastic": lambda elastic=v2.ElasticTransform(): elastic(image),
        "mixup": lambda mix=v2.MixUp(num_classes=1000): mix(pair, labels),
        "cutmix": lambda mix=v2.CutMix(num_classes=1000): mix(pair, labels),
    }


def time_torch(function):
    """CPU microseconds per call."""
    for _ in range(3):
        function()
    calls, start = 0, time.process_time()
    while time.process_time() - start < 0.15:
        function()
        calls += 1
    return (time.process_time() - start) / calls * 1e6


def time_ours(bench):
    text = subprocess.run([bench, "--benchmark_format=json", "--benchmark_min_time=0.15"], check=True,
                          capture_output=True, text=True).stdout
    return {item["name"]: item["cpu_time"] / 1e3 for item in json.loads(text)["benchmarks"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bench", help="build/augmentation_bench")
    bench = parser.parse_args().bench
    torch.set_num_threads(1)
    functions = counterparts()
    ours, theirs = [], []
    for _ in range(TURNS):
        ours.append(time_ours(bench))
        theirs.append({unit: time_torch(function) for unit, function in functions.items()})
    print("| unit | millrace, us | ns a pixel | torchvision, us | ns a pixel | ratio |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for unit in functions:
        a = statistics.median(turn[unit] for turn in ours)
        b = statistics.median(turn[unit] for turn in theirs)
        pixels = SIDE * SIDE * (2 if unit in ("mixup", "cutmix") else 1) / 1e3
        ours_a_pixel, ratio = (f"{a / pixels:.2f}", f"{b / a:.0f}")
        if unit.startswith(TABLES):
            ours_a_pixel, ratio = "table", ""
        print(f"| {unit} | {a:.2f} | {ours_a_pixel} | {b:.0f} | {b / pixels:.1f} | {ratio} |")


if __name__ == "__main__":
    main()
