"""Makes golden values for tests/augment/mosaic_golden_test.cpp with Ultralytics. Run by hand:

    python tests/golden/make_mosaic.py > tests/golden/mosaic.json

Made with ultralytics 8.4.190, numpy 2.2.6. Every case is a mosaic of four images of the output's size that meet where
they are told to, and what RandomPerspective without any motion then keeps of the canvas: its middle. "boxes" have the
index of their image, their index in it, and the edges. Boxes that are cut to nothing are left out; Ultralytics' own
filter of small ones is not applied.
"""
import json
import random

import numpy as np
from ultralytics.data.augment import Mosaic, RandomPerspective
from ultralytics.utils.instance import Instances

SIDE = 32
BOXES = [[[3, 4, 12, 11], [20, 22, 31, 30]], [[0, 0, 32, 32]], [], [[14, 2, 18, 29], [1, 25, 6, 31], [27, 3, 30, 9]]]


class DataSet:
    """The four images, as Ultralytics' ops ask for them."""

    cache = "ram"

    @staticmethod
    def get_image_and_label(number):
        return labels_of(number)


def image_of(number):
    y, x = np.meshgrid(np.arange(SIDE), np.arange(SIDE), indexing="ij")
    return ((x * 7 + y * 13 + number * 61) % 251).astype(np.uint8)[..., None]


def labels_of(number):
    boxes = np.array(BOXES[number], np.float32).reshape(-1, 4)
    which = np.array([[number, place] for place in range(len(boxes))], np.float32).reshape(-1, 2)
    return {"img": image_of(number), "cls": which, "resized_shape": (SIDE, SIDE), "im_file": "", "ori_shape": (SIDE, SIDE),
            "instances": Instances(boxes, np.zeros((0, 1000, 2), np.float32), bbox_format="xyxy", normalized=False)}


def mosaic_of(first, center):
    """Returns what a mosaic of images first, first + 1, ... shows, where four meet at `center` of each side."""
    labels = labels_of(first)
    mosaic = Mosaic(DataSet(), imgsz=SIDE)
    mosaic.get_indexes = lambda: [(first + turn) % 4 for turn in (1, 2, 3)]
    random.uniform = lambda low, high: low + int(center * SIDE)
    params = mosaic.get_params(labels)
    labels = mosaic.apply_instances(mosaic.apply_image(labels, params), params)
    random.uniform = lambda low, high: (low + high) / 2
    crop = RandomPerspective(translate=0, scale=0, size=(SIDE, SIDE))
    params = crop.get_params(labels)
    boxes = np.clip(crop.apply_bboxes(labels["instances"].bboxes, params["M"]), 0, SIDE)
    seen = (boxes[:, 2] > boxes[:, 0]) & (boxes[:, 3] > boxes[:, 1])
    named = np.hstack([labels["cls"], boxes])[seen]
    return crop.apply_image(labels, params)["img"], named


def main():
    cases = []
    for center in (0.25, 0.4, 0.5, 0.71):
        for first in range(4):
            image, boxes = mosaic_of(first, center)
            cases.append({"center": center, "first": first, "image": image.tobytes().hex(), "boxes": boxes.tolist()})
    print(json.dumps({"side": SIDE, "annotations": BOXES, "cases": cases}, indent=0))


if __name__ == "__main__":
    main()
