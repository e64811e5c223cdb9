"""Peer: SPDL's pipeline with one thread, around torchvision's decoder and transforms."""
import random

import torch
from spdl.pipeline import PipelineBuilder
from torchvision.transforms import v2

from data_sets import jpeg_files
from torchvision_peer import augmentation, decode


def pipeline(task):
    torch.set_num_threads(1)
    work, files = task.work, jpeg_files(task)
    transform = v2.Compose([*augmentation(work.name, v2), v2.ToDtype(torch.float32, scale=True),
                            v2.Normalize(work.mean, work.std)])

    def load(item):
        return transform(decode(item[0])), item[1]

    def collate(samples):
        images, labels = zip(*samples)
        return torch.stack(images), torch.tensor(labels)

    def endless():
        while True:
            random.shuffle(files)
            yield from files

    made = (PipelineBuilder().add_source(endless()).pipe(load, concurrency=1).aggregate(work.batch)
            .pipe(collate).add_sink(3).build(num_threads=1))
    with made.auto_stop():
        yield from made
