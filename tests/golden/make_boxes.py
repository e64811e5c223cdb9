"""Makes golden values for tests/augment/boxes_golden_test.cpp with torchvision. Run by hand:

    python tests/golden/make_boxes.py > tests/golden/boxes.json

Made with torch 2.11.0, torchvision 0.26.0. Every case is a recipe's chain, the size of the image, and where
torchvision.transforms.v2 moves boxes (left, top, right, bottom, clamped after each step) and key points.
"""
import json

import torch
from torchvision import tv_tensors
from torchvision.transforms.v2 import functional as F

BOXES = [[10, 8, 40, 30], [0, 0, 90, 70], [60.5, 40.25, 88, 69.5], [30, 20, 31, 21], [2, 50, 12, 66]]
POINTS = [[12, 9], [45.5, 35.25], [88, 3], [5, 66], [70, 50]]
HEIGHT, WIDTH = 70, 90


def mirrored(flip):
    """Returns a flip that takes key points for positions, as all other functions do, and not for indices of pixels."""
    def step(one):
        if isinstance(one, tv_tensors.BoundingBoxes):
            return flip(one)
        return tv_tensors.wrap(flip(tv_tensors.wrap(one - 0.5, like=one)) + 0.5, like=one)
    return step


def main():
    cases = []
    hflip, vflip = mirrored(F.horizontal_flip), mirrored(F.vertical_flip)

    def add(chain, *steps):
        canvas = (HEIGHT, WIDTH)
        boxes = tv_tensors.BoundingBoxes(torch.tensor(BOXES, dtype=torch.float64), format="XYXY", canvas_size=canvas)
        points = tv_tensors.KeyPoints(torch.tensor(POINTS, dtype=torch.float64), canvas_size=canvas)
        for step in steps:
            boxes, points = F.clamp_bounding_boxes(step(boxes), clamping_mode="hard"), step(points)
        cases.append({"chain": chain, "output": list(boxes.canvas_size), "boxes": boxes.tolist(),
                      "points": points.tolist()})

    def affine(degrees, translate, scale, shear):
        return lambda one: F.affine(one, angle=degrees, translate=list(translate), scale=scale, shear=list(shear))

    def affine_op(degrees, translate, scale, shear):
        return (f"affine{{degrees={degrees},translate=[{translate[0]},{translate[1]}],scale={scale},"
                f"shear=[{shear[0]},{shear[1]}]}}")

    add(["hflip{p=1}"], hflip)
    add(["vflip{p=1}"], vflip)
    for size in ([35, 45], [140, 33], [71, 97]):
        add([f"resize{{size=[{size[0]},{size[1]}]}}"], lambda one: F.resize(one, size))
    for top, left, height, width in [(5, 12, 40, 50), (-6, 30, 80, 70)]:
        crop = f"crop{{top={top},left={left},height={height},width={width}}}"
        add([crop], lambda one: F.crop(one, top, left, height, width))
        add([crop, "resize{size=[64,64]}"], lambda one: F.resized_crop(one, top, left, height, width, [64, 64]))
    add(["pad{padding=[3,1,4,6]}"], lambda one: F.pad(one, [3, 1, 4, 6]))
    # No window of this ratio fits, so that the middle one is taken, whatever is drawn.
    add(["random_resized_crop{size=[48,56],scale=[1,1],ratio=[3,3]}"],
        lambda one: F.resized_crop(one, 20, 0, 30, 90, [48, 56]))
    for parameters in [(30.0, (0, 0), 1.0, (0.0, 0.0)), (-12.5, (6, -4), 0.8, (0.0, 0.0)),
                       (0.0, (0, 0), 1.3, (14.0, 0.0)), (75.0, (-9, 5), 0.6, (-8.0, 10.0))]:
        add([affine_op(*parameters)], affine(*parameters))
    add(["random_affine{degrees=[20,20],scale=[0.9,0.9],shear=[5,5]}"], affine(20.0, (0, 0), 0.9, (5.0, 0.0)))
    add(["random_rotation{degrees=[-35,-35]}"], lambda one: F.rotate(one, -35.0))
    parameters = (17.0, (3, 2), 1.1, (0.0, 6.0))
    add(["resize{size=[140,180]}", "crop{top=20,left=10,height=100,width=150}", "hflip{p=1}", affine_op(*parameters),
         "pad{padding=4}", "vflip{p=1}"],
        lambda one: F.resize(one, [140, 180]), lambda one: F.crop(one, 20, 10, 100, 150), hflip,
        affine(*parameters), lambda one: F.pad(one, [4]), vflip)
    print(json.dumps({"height": HEIGHT, "width": WIDTH, "boxes": BOXES, "points": POINTS, "cases": cases}))


if __name__ == "__main__":
    main()
