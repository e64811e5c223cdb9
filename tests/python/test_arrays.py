"""What the arrays of a batch are to NumPy, PyTorch and other users of DLPack, as JAX is."""
import gc
import threading

import numpy as np
import pytest

import pymillrace as mr
from conftest import needs_torch

WORDS = ["mnist-lenet", "data.reader=synthetic", "data.synthetic.channels=1", "data.synthetic.count=64",
         "loader.batch=16", "loader.workers=1"]


@pytest.mark.parametrize("dtype, kind", (("f32", np.float32), ("f16", np.float16), ("u8", np.uint8)))
def test_numpy_arrays_are_plain_and_writable_views_of_one_batch(dtype, kind):
    batch = next(iter(mr.Loader(*WORDS, f"output.dtype={dtype}", numpy=True, warps=True)))
    for array in (batch.images, batch.labels, batch.class_ids, batch.samples, batch.warps):
        assert type(array) is np.ndarray and array.flags.c_contiguous and array.flags.aligned
        assert array.flags.writeable and not array.flags.owndata and array.base is batch._raw
    assert batch.images.dtype == kind and batch.labels.dtype == batch.samples.dtype == np.int64
    assert batch.images.ctypes.data % 64 == 0 and np.shares_memory(batch.labels, batch.class_ids)


def test_other_libraries_take_arrays_by_dlpack():
    batch = next(iter(mr.Loader(*WORDS, numpy=True)))
    other = np.from_dlpack(batch.images)
    expected = batch.images.copy()
    assert np.shares_memory(other, batch.images)
    del batch
    gc.collect()
    assert (other == expected).all()


def test_jax_takes_them_without_a_copy():
    jax = pytest.importorskip("jax", reason="NOT TESTED: JAX is missing")
    batch = next(iter(mr.Loader(*WORDS, numpy=True)))
    images, labels = jax.dlpack.from_dlpack(batch.images), jax.numpy.asarray(batch.labels)
    assert images.unsafe_buffer_pointer() == batch.images.ctypes.data
    expected = batch.images.copy()
    del batch
    gc.collect()
    assert (np.asarray(images) == expected).all()

    def loss(weights):
        scores = jax.nn.log_softmax(images.reshape(16, -1) @ weights)
        return -scores[jax.numpy.arange(16), labels].mean()

    gradient = jax.jit(jax.grad(loss))(jax.numpy.zeros((32 * 32, 10)))
    assert gradient.shape == (32 * 32, 10) and abs(gradient).max() > 0


def test_a_slice_of_an_array_keeps_its_batch():
    batch = next(iter(mr.Loader(*WORDS, numpy=True)))
    labels = batch.labels[3:5]
    expected = labels.copy()
    del batch
    gc.collect()
    assert (labels == expected).all()


@needs_torch
def test_a_tensor_may_be_released_by_any_thread():
    loader = mr.Loader(*WORDS)
    for _ in range(8):
        held = list(loader)
        threads = [threading.Thread(target=held.pop) for _ in range(len(held))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert loader.extra_blocks <= 2 * len(loader)


@needs_torch
def test_a_tensor_is_as_torch_makes_them():
    import torch

    batch = next(iter(mr.Loader(*WORDS)))
    images, labels = batch
    assert batch.class_ids.data_ptr() == labels.data_ptr(), "tensors are views of one block, not copies"
    assert type(images) is torch.Tensor and images.is_contiguous() and not images.requires_grad
    assert images.data_ptr() % 64 == 0 and images.stride() == torch.empty(images.shape).stride()
    images.requires_grad_(True).sum().backward()
    assert (images.grad == 1).all() and labels.dtype == torch.int64
    images.detach().resize_(4, 4)
    again = torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(labels))
    assert again.data_ptr() == labels.data_ptr()
