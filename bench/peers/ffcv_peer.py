"""Peer: FFCV with one thread, on data sets in its own format, which prepare_ffcv.py writes."""
import numpy as np
import torch
from ffcv.fields import NDArrayField, RGBImageField
from ffcv.fields.decoders import IntDecoder, NDArrayDecoder, SimpleRGBImageDecoder
from ffcv.fields.rgb_image import RandomResizedCropRGBImageDecoder
from ffcv.loader import Loader, OrderOption
from ffcv.reader import Reader
from ffcv.transforms import (NormalizeImage, RandomHorizontalFlip, RandomTranslate, Squeeze, ToTensor,
                             ToTorchImage)

from data_sets import REPEATS

FILES = {"w2": "cifar-raw.beton", "w3": "cifar-jpeg.beton", "w4": "imagenet.beton", "w6": "mnist.beton"}


def operations(task):
    work = task.work
    if work.name == "w6":
        return [NDArrayDecoder(), ToTensor()]
    if work.name == "w4":
        first = [RandomResizedCropRGBImageDecoder((224, 224)), RandomHorizontalFlip()]
    else:
        first = [SimpleRGBImageDecoder(), RandomTranslate(padding=4), RandomHorizontalFlip()]
    # A look-up table from byte to float; then planes, as a copy or as a view.
    return [*first, NormalizeImage(255 * np.array(work.mean), 255 * np.array(work.std), np.float32), ToTensor(),
            ToTorchImage(channels_last=task.options.get("view", False))]


def loader(task):
    torch.set_num_threads(1)
    work = task.work
    path = task.path("ffcv", FILES[work.name])
    made = Loader(path, batch_size=work.batch, num_workers=1, os_cache=True, order=OrderOption.RANDOM, seed=1,
                  drop_last=False, indices=np.tile(np.arange(count_of(path)), REPEATS) if work.name == "w4" else None,
                  custom_fields={"image": NDArrayField if work.name == "w6" else RGBImageField},
                  pipelines={"image": operations(task), "label": [IntDecoder(), ToTensor(), Squeeze()]})
    while True:
        yield from made


def count_of(path):
    return int(Reader(path, {"image": RGBImageField}).num_samples)
