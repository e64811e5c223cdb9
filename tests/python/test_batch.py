"""Batches that are copied and pickled."""
import copy
import json
import pickle
import subprocess
import sys

import numpy as np
import pymillrace as mr
import pytest
from batches import SYNTHETIC, make
from conftest import needs_torch

ATTRIBUTES = ("images", "labels", "class_ids", "samples", "warps", "names", "epoch", "batch_index")
WAYS = {"pickle": lambda batch: pickle.loads(pickle.dumps(batch)), "deepcopy": copy.deepcopy, "copy": copy.copy,
        "pickle of a deepcopy": lambda batch: pickle.loads(pickle.dumps(copy.deepcopy(batch)))}


def second(**options):
    """Returns the second batch of a loader that is gone."""
    batches = iter(make(warps=True, **options))
    next(batches)
    return next(batches)


def same(batch, other):
    assert type(other) is mr.Batch and len(other) == 2
    for name in ATTRIBUTES:
        np.testing.assert_array_equal(getattr(batch, name), getattr(other, name), name)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("numpy", [True, pytest.param(False, marks=needs_torch)])
def test_a_batch_is_copied_with_all_that_is_known_of_it(way, numpy):
    batch = second(numpy=numpy)
    other = WAYS[way](batch)
    same(batch, other)
    assert (other.images is batch.images) == (way == "copy")
    other.images[:] = 0
    assert bool((batch.images == 0).all()) == (way == "copy")


@needs_torch
def test_a_batch_of_bfloat16_is_pickled():
    batch = next(iter(make("output.dtype=bf16", numpy=False)))
    assert pickle.loads(pickle.dumps(batch)).images.equal(batch.images)


def test_a_pickled_batch_needs_neither_loader_nor_data(tmp_path):
    batch = second()
    (tmp_path / "batch").write_bytes(pickle.dumps(batch))
    code = """
        import json, pickle, sys
        batch = pickle.load(open(sys.argv[1], "rb"))
        assert "pymillrace._core" not in sys.modules
        print(json.dumps([batch.names, batch.samples.tolist(), batch.epoch, batch.batch_index]))
    """
    done = subprocess.run([sys.executable, "-c", "if True:" + code, tmp_path / "batch"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [batch.names, batch.samples.tolist(), 0, 1]


def test_refusals_are_copied_too():
    batch = pickle.loads(pickle.dumps(next(iter(make("augment+=mixup")))))
    np.testing.assert_array_equal(batch.labels.sum(1), 1)
    with pytest.raises(mr.UsageError, match="does not record warps"):
        batch.warps
    with pytest.raises(mr.UsageError, match="no targets"):
        batch.targets


def test_a_rebuilt_batch_is_copied_as_the_tuple_that_it_is():
    batch = second()
    rebuilt = type(batch)(array for array in batch)
    for way in WAYS.values():
        np.testing.assert_array_equal(way(rebuilt).images, batch.images)
        with pytest.raises(AttributeError):
            way(rebuilt).samples


def test_an_error_is_pickled():
    with pytest.raises(mr.UsageError) as caught:
        mr.Loader(*SYNTHETIC, "loader.worker=2", numpy=True)
    other = pickle.loads(pickle.dumps(caught.value))
    assert (str(other), other.hint, type(other)) == (str(caught.value), caught.value.hint, mr.UsageError)
