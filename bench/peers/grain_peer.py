"""Peer: Grain in its own process with one thread. PIL decodes W4's pictures; W6 needs nothing."""
import math

import grain.python as grain
import numpy as np
from PIL import Image

from data_sets import imagenet_files, mnist, normalisation


def draw_crop(width, height, random):
    """Tries a crop of 8-100% of the area with sides 3:4 to 4:3 up to ten times, then takes the middle, as
    RandomResizedCrop."""
    for _ in range(10):
        area = width * height * random.uniform(0.08, 1.0)
        ratio = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            x, y = random.integers(0, width - w + 1), random.integers(0, height - h + 1)
            return x, y, x + w, y + h
    w, h = min(width, round(height * 4 / 3)), min(height, round(width * 4 / 3))
    x, y = (width - w) // 2, (height - h) // 2
    return x, y, x + w, y + h


class ResizedCrop(grain.RandomMapTransform):
    def __init__(self, work):
        self.factor, self.offset = normalisation(work)

    def random_map(self, item, rng):
        with Image.open(item[0]) as image:
            image = image.convert("RGB")
        image = image.crop(draw_crop(*image.size, rng)).resize((224, 224), Image.BILINEAR)
        if rng.random() < 0.5:
            image = image.transpose(Image.FLIP_LEFT_RIGHT)
        pixels = np.asarray(image, np.float32) * self.factor + self.offset
        return np.ascontiguousarray(pixels.transpose(2, 0, 1)), item[1]


def dataset(task):
    work = task.work
    if work.name == "w6":
        images, labels = mnist(task)
        made = grain.MapDataset.range(len(images)).seed(1).shuffle().map(lambda i: (images[i], labels[i]))
    else:
        made = grain.MapDataset.source(imagenet_files(task)).seed(1).shuffle().random_map(ResizedCrop(work))
    made = made.repeat().to_iter_dataset(grain.ReadOptions(num_threads=0, prefetch_buffer_size=0))
    yield from made.batch(work.batch)
