"""Makes golden values for tests/augment/masks_golden_test.cpp with torchvision. Run by hand:

    bash tests/golden/run.sh make_masks.py > tests/golden/masks.json

Made with torch 2.11.0, torchvision 0.26.0. Every case is a recipe's chain and what torchvision.transforms.v2 makes of
a mask (tv_tensors.Mask) with fill 255. Torchvision resizes masks by the pixel left and above of each position
(NEAREST), and images by centres; "centres" is the mask resized by centres (NEAREST_EXACT), where that differs.
"""
import json

import numpy as np
import torch
from torchvision import tv_tensors
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional as F

HEIGHT, WIDTH = 42, 54


def drawn():
    """Returns a mask of stripes and a disc, the least piece of which is 6 pixels wide."""
    y, x = np.meshgrid(np.arange(HEIGHT), np.arange(WIDTH), indexing="ij")
    ids = (x // 9 * 3 + y // 6 * 5) % 7
    ids[(x - 31) ** 2 + (y - 18) ** 2 < 11 ** 2] = 20
    return torch.from_numpy(ids.astype(np.uint8))


def hex_of(mask):
    return mask.contiguous().numpy().tobytes().hex()


def resized(mask, size, way):
    return F.resize(mask.as_subclass(torch.Tensor)[None], size, way)[0]


def main():
    cases, mask = [], tv_tensors.Mask(drawn())

    def add(chain, *steps, centres=None):
        result = mask
        for step in steps:
            result = step(result)
        assert isinstance(result, tv_tensors.Mask)
        cases.append({"chain": chain, "output": list(result.shape), "mask": hex_of(result),
                      "centres": None if centres is None else hex_of(centres)})

    def affine(degrees, translate, scale, shear):
        return lambda one: F.affine(one, angle=degrees, translate=list(translate), scale=scale, shear=list(shear),
                                    fill=255)

    def affine_op(degrees, translate, scale, shear):
        return (f"affine{{degrees={degrees},translate=[{translate[0]},{translate[1]}],scale={scale},"
                f"shear=[{shear[0]},{shear[1]}]}}")

    add(["hflip{p=1}"], F.horizontal_flip)
    add(["vflip{p=1}"], F.vertical_flip)
    for top, left, height, width in [(5, 12, 30, 35), (-6, 20, 50, 40)]:
        crop = f"crop{{top={top},left={left},height={height},width={width}}}"
        add([crop], lambda one: F.crop(F.pad(one, [10], fill=255), top + 10, left + 10, height, width))
    for mode in ["constant", "edge", "reflect", "symmetric"]:
        fill = {"fill": 255} if mode == "constant" else {}
        add([f"pad{{padding=[3,1,4,6],padding_mode={mode}}}"],
            lambda one: F.pad(one, [3, 1, 4, 6], padding_mode=mode, **fill))
    exact = InterpolationMode.NEAREST_EXACT
    for size in ([21, 27], [84, 20], [44, 62], [96, 120]):
        add([f"resize{{size=[{size[0]},{size[1]}]}}"], lambda one: F.resize(one, size),
            centres=resized(mask, size, exact))
    # No window of this ratio fits, so that the middle one is taken, whatever is drawn.
    add(["random_resized_crop{size=[48,56],scale=[1,1],ratio=[3,3]}", "hflip{p=1}"],
        lambda one: F.resized_crop(one, 12, 0, 18, 54, [48, 56]), F.horizontal_flip,
        centres=F.horizontal_flip(resized(F.crop(mask, 12, 0, 18, 54), [48, 56], exact)))
    # No scale that puts centres of pixels on the edges between pixels.
    for parameters in [(30.0, (0, 0), 1.0, (0.0, 0.0)), (-12.5, (6, -4), 0.8, (0.0, 0.0)),
                       (0.0, (0, 0), 1.37, (14.0, 0.0)), (75.0, (-9, 5), 0.6, (-8.0, 10.0))]:
        add([affine_op(*parameters)], affine(*parameters))
    for degrees in [90, 180, 13, -37.5]:
        add([f"random_rotation{{degrees=[{degrees},{degrees}]}}"], lambda one: F.rotate(one, degrees, fill=255))

    perspectives = []
    for to in [[[3, 2], [48, 0], [51, 36], [0, 40]], [[12, 10], [42, 5], [36, 30], [6, 40]]]:
        start = [[0, 0], [WIDTH - 1, 0], [WIDTH - 1, HEIGHT - 1], [0, HEIGHT - 1]]
        perspectives.append({"from": start, "to": to, "mask": hex_of(F.perspective(mask, start, to, fill=255))})
    print(json.dumps({"height": HEIGHT, "width": WIDTH, "mask": hex_of(mask), "cases": cases,
                      "perspectives": perspectives}))


if __name__ == "__main__":
    main()
