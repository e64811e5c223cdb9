"""Peer: NVIDIA DALI on the CPU with one thread; batches come through its own iterator for PyTorch.

Arrays come from a Python generator of whole batches; files from DALI's readers, which shuffle within a window.
"""
import numpy as np
from nvidia.dali import fn, pipeline_def, types
from nvidia.dali.plugin.pytorch import DALIGenericIterator

from data_sets import cifar, imagenet_files, mnist


def shuffled_batches(images, labels, batch):
    random = np.random.default_rng(1)
    while True:
        order = random.permutation(len(images))
        for begin in range(0, len(order) - batch + 1, batch):
            chosen = order[begin:begin + batch]
            yield images[chosen], labels[chosen, None]


def arrays(images, labels, batch):
    return fn.external_source(source=shuffled_batches(images, labels, batch), num_outputs=2, batch=True,
                              layout=["HWC" if images.ndim == 4 else "HW", None])


def store(images, work, **options):
    return fn.crop_mirror_normalize(images, dtype=types.FLOAT, output_layout="CHW", mean=[255 * m for m in work.mean],
                                    std=[255 * s for s in work.std], **options)


def affine(images):
    centre = (14.0, 14.0)
    scale = fn.random.uniform(range=[0.8, 1.2])
    turned = fn.transforms.rotation(angle=fn.random.uniform(range=[-15.0, 15.0]), center=centre)
    scaled = fn.transforms.scale(turned, scale=fn.stack(scale, scale), center=centre)
    # Whole pixels, as in torchvision's translation.
    shift = fn.cast(fn.random.uniform(range=[-2.8, 2.8], shape=2), dtype=types.INT32)
    moved = fn.transforms.translation(scaled, offset=fn.cast(shift, dtype=types.FLOAT))
    return fn.warp_affine(images, matrix=moved, inverse_map=False, fill_value=0, interp_type=types.INTERP_NN)


def padded_crop(images):
    corner = fn.random.uniform(values=[float(v) for v in range(-4, 5)], shape=2)
    return fn.slice(images, start=fn.cast(corner, dtype=types.INT32), shape=[32, 32], axes=[0, 1],
                    out_of_bounds_policy="pad", fill_values=0)


def jpegs_of_cifar(task):
    if not task.options.get("tar"):
        return fn.readers.file(file_root=task.path("cifar-jpeg", "train"), random_shuffle=True, initial_fill=4096)
    shard = task.path("cifar-tar", "train", "shard-000000.tar")
    jpegs, labels = fn.readers.webdataset(paths=[shard], ext=["jpg", "cls"], random_shuffle=True, initial_fill=4096)
    return jpegs, labels


def graph(task):
    """Defines the outputs of one batch: images and labels."""
    work = task.work
    if work.name == "w1":
        images, labels = mnist(task)
        images, labels = arrays(images[..., None], labels, work.batch)
        return store(affine(images), work), labels
    if work.name == "w6":
        return arrays(*mnist(task), work.batch)
    flip = fn.random.coin_flip()
    if work.name == "w2":
        images, labels = arrays(*cifar(task), work.batch)
        return store(padded_crop(images), work, mirror=flip), labels
    if work.name == "w3":
        jpegs, labels = jpegs_of_cifar(task)
        return store(padded_crop(fn.decoders.image(jpegs, device="cpu")), work, mirror=flip), labels
    paths, labels = map(list, zip(*imagenet_files(task)))
    jpegs, labels = fn.readers.file(files=paths, labels=labels, random_shuffle=True, initial_fill=1024)
    # Decodes only the crop.
    images = fn.decoders.image_random_crop(jpegs, device="cpu", random_area=[0.08, 1.0],
                                           random_aspect_ratio=[3 / 4, 4 / 3])
    images = fn.resize(images, size=[224, 224], interp_type=types.INTERP_LINEAR,
                       antialias=task.options.get("antialias", True))
    return store(images, work, mirror=flip), labels


def pipeline(task):
    @pipeline_def(batch_size=task.work.batch, num_threads=1, device_id=None, prefetch_queue_depth=2)
    def define():
        return tuple(graph(task))

    made = define()
    made.build()
    for outputs in DALIGenericIterator([made], ["images", "labels"], size=-1, auto_reset=False):
        yield outputs[0]["images"], outputs[0]["labels"]
