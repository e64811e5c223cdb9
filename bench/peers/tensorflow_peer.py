"""Peer: tf.data with one thread for the map; batches as NumPy arrays. W1's warp takes whole batches, the rest single
images."""
import math

import numpy as np
import tensorflow as tf

from data_sets import cifar, jpeg_files, mnist, normalisation


def to_planes(images, work):
    factor, offset = normalisation(work)
    return tf.transpose(tf.cast(images, tf.float32) * factor + offset, [2, 0, 1])


def warp(images, labels, work):
    count = tf.shape(images)[0]
    angle = tf.random.uniform([count], -15 * math.pi / 180, 15 * math.pi / 180)
    shrink = 1 / tf.random.uniform([count], 0.8, 1.2)
    centre = 13.5
    x = centre + tf.round(tf.random.uniform([count], -2.8, 2.8))
    y = centre + tf.round(tf.random.uniform([count], -2.8, 2.8))
    cos, sin, zero = tf.cos(angle) * shrink, tf.sin(angle) * shrink, tf.zeros([count])
    maps = tf.stack([cos, sin, centre - cos * x - sin * y, -sin, cos, centre + sin * x - cos * y, zero, zero], 1)
    warped = tf.raw_ops.ImageProjectiveTransformV3(images=images, transforms=maps, output_shape=[28, 28],
                                                   fill_value=0.0, interpolation="NEAREST", fill_mode="CONSTANT")
    factor, offset = normalisation(work)
    return tf.reshape(tf.cast(warped, tf.float32) * factor + offset, [count, 1, 28, 28]), labels


def padded_crop(image, work):
    image = tf.image.random_crop(tf.pad(image, [[4, 4], [4, 4], [0, 0]]), [32, 32, 3])
    return to_planes(tf.image.random_flip_left_right(image), work)


def resized_crop(path, work):
    jpeg = tf.io.read_file(path)
    corner, size, _ = tf.image.sample_distorted_bounding_box(
        tf.io.extract_jpeg_shape(jpeg), tf.zeros([1, 0, 4]), min_object_covered=0.0, area_range=[0.08, 1.0],
        aspect_ratio_range=[3 / 4, 4 / 3], max_attempts=10, use_image_if_no_bounding_boxes=True)
    # Decodes only the crop; the other DCT is the default.
    image = tf.io.decode_and_crop_jpeg(jpeg, tf.concat([corner[:2], size[:2]], 0), channels=3,
                                       dct_method="INTEGER_ACCURATE")
    image = tf.image.resize(image, [224, 224], antialias=True)
    return to_planes(tf.image.random_flip_left_right(image), work)


def build(task):
    work = task.work
    slices = tf.data.Dataset.from_tensor_slices
    if work.name in ("w1", "w6"):
        images, labels = mnist(task)
        images = images[..., None] if work.name == "w1" else images
        made = slices((images, labels)).shuffle(len(images)).batch(work.batch)
        return made.map(lambda x, y: warp(x, y, work), num_parallel_calls=1) if work.name == "w1" else made
    if work.name == "w2":
        images, labels = cifar(task)
        made, load = slices((images, labels)), lambda x, y: (padded_crop(x, work), y)
    else:
        paths, labels = zip(*jpeg_files(task))
        made = slices((list(paths), np.array(labels)))
        if work.name == "w3":
            def load(path, label):
                return padded_crop(tf.io.decode_jpeg(tf.io.read_file(path), channels=3,
                                                     dct_method="INTEGER_ACCURATE"), work), label
        else:
            def load(path, label):
                return resized_crop(path, work), label
    return made.shuffle(len(labels)).map(load, num_parallel_calls=1).batch(work.batch)


def dataset(task):
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    options = tf.data.Options()
    options.threading.private_threadpool_size = 1
    made = build(task).prefetch(2).with_options(options)
    while True:
        yield from made.as_numpy_iterator()
