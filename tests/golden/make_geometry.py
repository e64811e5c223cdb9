"""Makes golden values for tests/augment/geometry_test.cpp with torchvision. Run by hand:

    python tests/golden/make_geometry.py > tests/golden/geometry.json

Made with torch 2.11.0, torchvision 0.26.0, NumPy 2.2.6. Every case is a recipe's chain, the size of the picture,
and torchvision's uint8 result.
"""
import json

import numpy as np
import torch
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional as F

NEAREST, BILINEAR = InterpolationMode.NEAREST, InterpolationMode.BILINEAR


def picture(height, width, channels):
    """Returns a smooth picture with an edge, from whole numbers, so that C++ makes the same one."""
    y, x, c = np.meshgrid(np.arange(height), np.arange(width), np.arange(channels), indexing="ij")
    return ((x * 7 + y * 11 + c * 40 + (x // 9 + y // 6) % 2 * 60) % 256).astype(np.uint8)


def tensor(height, width, channels):
    return torch.from_numpy(picture(height, width, channels)).permute(2, 0, 1)


def main():
    cases = []

    def add(chain, height, width, channels, result, tolerance=0):
        cases.append({"chain": chain, "height": height, "width": width, "channels": channels,
                      "out": list(result.shape[1:]), "tolerance": tolerance,
                      "pixels": result.permute(1, 2, 0).contiguous().numpy().tobytes().hex()})

    for size in [(9, 14), (20, 30), (5, 40)]:
        image = tensor(18, 25, 3)
        add([f"center_crop{{size=[{size[0]},{size[1]}]}}"], 18, 25, 3, F.center_crop(image, list(size)))
    for h, w, s in [(17, 26, 8), (18, 25, 9), (17, 25, 12)]:
        add([f"center_crop{{size={s}}}"], h, w, 1, F.center_crop(tensor(h, w, 1), [s, s]))
    image = tensor(12, 15, 3)
    add(["crop{top=3,left=5,height=6,width=7}"], 12, 15, 3, F.crop(image, 3, 5, 6, 7))
    add(["crop{top=-2,left=9,height=9,width=10}"], 12, 15, 3, F.crop(image, -2, 9, 9, 10))
    for mode in ["constant", "edge", "reflect", "symmetric"]:
        fill = dict(fill=[7.0, 80.0, 200.0]) if mode == "constant" else {}
        add([f"pad{{padding=[3,1,4,6],padding_mode={mode},fill=[7,80,200]}}"], 12, 15, 3,
            F.pad(image, [3, 1, 4, 6], padding_mode=mode, **fill))
    add(["hflip{p=1}"], 12, 15, 3, F.horizontal_flip(image))
    add(["vflip{p=1}"], 12, 15, 3, F.vertical_flip(image))

    for h, w, channels, size in [(31, 44, 3, [13, 17]), (31, 44, 1, [31, 15]), (20, 15, 3, [41, 33]),
                                 (64, 48, 3, [8, 6]), (30, 30, 3, [30, 11])]:
        image = tensor(h, w, channels)
        text = f"size=[{size[0]},{size[1]}]"
        add([f"resize{{{text}}}"], h, w, channels, F.resize(image, size, BILINEAR, antialias=True), 1)
        add([f"resize{{{text},antialias=false}}"], h, w, channels,
            F.resize(image, size, BILINEAR, antialias=False), 1)
        add([f"resize{{{text},interpolation=nearest}}"], h, w, channels,
            F.resize(image, size, InterpolationMode.NEAREST_EXACT))
    for h, w, size, most in [(31, 44, 16, None), (44, 31, 20, None), (33, 33, 12, None), (20, 61, 18, 40)]:
        add([f"resize{{size={size},max_size={most or 0}}}"], h, w, 3,
            F.resize(tensor(h, w, 3), [size], BILINEAR, max_size=most, antialias=True), 1)
    # random_resized_crop after its window is drawn, written as a crop.
    for (top, left, height, width), size in [((3, 5, 20, 31), (12, 14)), ((0, 0, 9, 7), (16, 16))]:
        image = tensor(31, 44, 3)
        add([f"crop{{top={top},left={left},height={height},width={width}}}",
             f"resize{{size=[{size[0]},{size[1]}]}}"], 31, 44, 3,
            F.resized_crop(image, top, left, height, width, list(size), BILINEAR, antialias=True), 1)
    # Even sides: on odd ones right angles put centres on the edges between pixels.
    for degrees in [0, 13, 90, 180, -90, -37.5, 270]:
        for name, way, tolerance in [("nearest", NEAREST, 0), ("bilinear", BILINEAR, 1)]:
            add([f"random_rotation{{degrees=[{degrees},{degrees}],interpolation={name}}}"], 22, 34, 1,
                F.rotate(tensor(22, 34, 1), degrees, way), tolerance)

    perspectives = []
    for to in [[[2, 1], [30, 0], [31, 18], [0, 20]], [[8, 6], [25, 3], [20, 15], [4, 20]]]:
        start = [[0, 0], [33, 0], [33, 20], [0, 20]]
        image = tensor(21, 34, 1)
        perspectives.append({
            "from": start, "to": to,
            "nearest": F.perspective(image, start, to, NEAREST).numpy().tobytes().hex(),
            "bilinear": F.perspective(image, start, to, BILINEAR).numpy().tobytes().hex()})
    print(json.dumps({"cases": cases, "perspectives": perspectives}))


if __name__ == "__main__":
    main()
