#!/usr/bin/env python3
"""Compares decoding JPEGs to RGB with other libraries, one thread each:

    python bench/decode_peers.py FOLDER [--build build] [--rounds 5] [--most 250]

Needs those of Pillow, opencv-python, torchvision, simplejpeg and kornia-rs that are to be compared. Files are in memory.
In each round all libraries decode all files, in random order, and build/decode_bench runs beside them, whose row
"tjDecompress2" is libjpeg-turbo 2.1 without Python. Prints medians of the rounds' CPU time per image, and the rate of
millrace's decoder (build/decode_bench, "ours, whole") over each. Every library's pixels are compared with Pillow's before:
a mean difference above 2 levels ends the program, as another IDCT or upsampling gives less."""
import argparse
import importlib
import os
import pathlib
import random
import re
import statistics
import subprocess
import sys
import time

import numpy as np

MOST_DIFFERENCE = 2.0  # levels, mean over an image


def peers():
    """Returns a function from bytes to an array, per library that can be imported, and its version."""
    found = {}

    def add(name, module, make):
        try:
            imported = importlib.import_module(module)
        except ImportError as error:
            print(f"without {name}: {error}", file=sys.stderr)
            return
        for part, decode in make(imported).items():
            found[f"{name} {getattr(imported, '__version__', '')}{part}".strip()] = decode

    def pillow(image):
        import io
        return {"": lambda data: np.asarray(image.open(io.BytesIO(data)).convert("RGB"))}

    def opencv(cv2):
        cv2.setNumThreads(0)
        return {"": lambda data: cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR_RGB)}

    def torchvision(module):
        import torch
        from torchvision.io import ImageReadMode, decode_jpeg
        torch.set_num_threads(1)
        return {"": lambda data: decode_jpeg(torch.frombuffer(bytearray(data), dtype=torch.uint8),
                                             mode=ImageReadMode.RGB).permute(1, 2, 0).numpy()}

    def kornia(module):
        return {" (zune-jpeg)": lambda data: np.asarray(module.io.decode_image_jpeg(data)),
                " (libjpeg-turbo)": lambda data: np.asarray(module.io.decode_image_jpegturbo(data, "rgb"))}

    add("Pillow", "PIL.Image", pillow)
    add("OpenCV", "cv2", opencv)
    add("torchvision", "torchvision", torchvision)
    add("simplejpeg", "simplejpeg", lambda module: {"": lambda data: module.decode_jpeg(data, "RGB")})
    add("kornia-rs", "kornia_rs", kornia)
    return found


def check(found, files):
    """Drops what cannot decode a file, and ends the program where pixels differ."""
    reference = next((decode for name, decode in found.items() if name.startswith("Pillow")), None)
    if reference is None:
        raise SystemExit("error: Pillow is missing, with whose pixels all others are compared")
    for name, decode in list(found.items()):
        for data in files:
            try:
                pixels = decode(data)
            except Exception as error:
                print(f"without {name}: {type(error).__name__}: {error}", file=sys.stderr)
                del found[name]
                break
            wanted = reference(data)
            if pixels.shape[2:] == (1,):  # kornia-rs leaves gray pictures gray
                pixels = np.repeat(pixels, 3, 2)
            if pixels.shape != wanted.shape or np.abs(pixels.astype(int) - wanted).mean() > MOST_DIFFERENCE:
                raise SystemExit(f"error: {name}: these are not Pillow's pixels")


def ours(program, folder, most):
    """Returns the CPU seconds per image of tjDecompress2 and of millrace. The program compares their pixels."""
    done = subprocess.run([program, folder, "1", str(most)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"error: {program}: {done.stderr.strip() or done.stdout.strip()}")
    return [1e-6 * float(re.search(name + r"\s+([\d.]+)", done.stdout)[1])
            for name in ("libjpeg-turbo, whole", "ours, whole")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--build", default=str(pathlib.Path(__file__).parents[1] / "build"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--most", type=int, default=250)
    arguments = parser.parse_args()
    # The same files as decode_bench takes.
    paths = sorted(path for path in pathlib.Path(arguments.folder).rglob("*") if path.is_file())
    files = [path.read_bytes() for path in paths[::max(1, len(paths) // arguments.most)][:arguments.most]]
    found = peers()
    check(found, files)
    times = {name: [] for name in found}
    turbo, mine = [], []
    for _ in range(arguments.rounds):
        for name in random.sample([*found, ""], len(found) + 1):
            if not name:
                one, other = ours(f"{arguments.build}/decode_bench", arguments.folder, arguments.most)
                turbo.append(one)
                mine.append(other)
                continue
            decode, begin = found[name], time.thread_time()
            for data in files:
                decode(data)
            times[name].append((time.thread_time() - begin) / len(files))
    times = {"millrace": mine, "tjDecompress2": turbo, **times}
    print(f"{len(files)} images, {arguments.rounds} rounds, MILLRACE_SIMD={os.environ.get('MILLRACE_SIMD', '')}\n"
          f"{'':34}{'µs CPU':>10}{'images/CPU s':>14}{'millrace over it':>18}")
    for name, one in sorted(times.items(), key=lambda item: statistics.median(item[1])):
        ratios = sorted(a / b for a, b in zip(one, mine))
        print(f"{name:34}{1e6 * statistics.median(one):10.0f}{1 / statistics.median(one):14.0f}"
              f"{statistics.median(ratios):18.2f} [{ratios[0]:.2f}, {ratios[-1]:.2f}]")


if __name__ == "__main__":
    main()
