"""Tests pymillrace.Loader: what a training loop sees of it."""
import gc
import itertools
import json
import os
import random
import signal
import subprocess
import threading
import time
import warnings

import numpy as np
import pymillrace as mr
import pytest
from batches import SYNTHETIC, Hash, hash_of, make, run_python
from conftest import needs_torch, timing


# --- a function per batch


def test_a_function_runs_on_the_loops_thread_and_its_time_is_counted():
    threads = set()

    def twice(batch):
        threads.add(threading.get_ident())
        time.sleep(0.002)
        return batch.images * 2, batch.labels

    loader = make("loader.workers=2", function=twice)
    for (images, labels), plain in zip(loader, make("loader.workers=0")):
        assert np.array_equal(images, plain.images * 2)
        assert np.array_equal(labels, plain.labels)
    assert threads == {threading.get_ident()}
    assert 0.002 * len(loader) <= loader.function_s < 60
    assert make().function_s == 0


def test_a_function_takes_the_dictionary_and_may_raise():
    def refuse(batch):
        assert set(batch) == {"x", "y"}
        raise ValueError("no")

    loader = make(keys=("x", "y"), function=refuse)
    with pytest.raises(ValueError, match="no"):
        next(iter(loader))
    assert loader.state_dict()["batch"] == 1


# --- the package


@timing
def test_import_is_quick_and_loads_neither_torch_nor_numpy():
    code = """
        import sys, time
        begin = time.process_time()
        import pymillrace
        pymillrace.Loader
        print(time.process_time() - begin, "torch" in sys.modules, "numpy" in sys.modules)
    """
    seconds, torch, numpy = run_python(code).stdout.split()
    assert float(seconds) <= 0.2
    assert (torch, numpy) == ("False", "False")


def test_a_numpy_loader_imports_no_torch():
    code = """
        import sys
        import pymillrace as mr
        for batch in mr.Loader(*sys.argv[1:], numpy=True): pass
        print("torch" in sys.modules, type(batch[0]).__module__)
    """
    assert run_python(code, *SYNTHETIC).stdout.split() == ["False", "numpy"]


def test_every_public_name_is_there():
    for name in mr.__all__:
        assert name in dir(mr) and getattr(mr, name) is getattr(mr, name)
        assert getattr(getattr(mr, name), "__name__", name) == name
    shown = [name for name in dir(mr) if not name.startswith("__")]
    assert shown == sorted(mr.__all__), "neither imported modules nor what they define"
    with pytest.raises(AttributeError, match="no attribute 'Loadr'"):
        mr.Loadr


# --- batches


@pytest.mark.parametrize("dtype, layout, shape, kind", [
    ("f32", "chw", (64, 3, 20, 30), np.float32),
    ("u8", "hwc", (64, 20, 30, 3), np.uint8),
    ("f16", "chw", (64, 3, 20, 30), np.float16),
])
def test_shapes_and_types(dtype, layout, shape, kind):
    loader = mr.Loader("data.reader=synthetic", "data.synthetic.width=30", "data.synthetic.height=20",
                       "data.synthetic.count=640", f"output.dtype={dtype}", f"output.layout={layout}", numpy=True)
    images, labels = next(iter(loader))
    assert images.shape == shape and images.dtype == kind
    assert labels.shape == (64,) and labels.dtype == np.int64
    assert labels.min() >= 0 and labels.max() < len(loader.dataset.classes)


def test_mixed_labels_are_probabilities():
    loader = make("augment+=mixup")
    batch = next(iter(loader))
    assert batch.labels.shape == (64, 10) and batch.labels.dtype == np.float32
    np.testing.assert_allclose(batch.labels.sum(axis=1), 1, atol=1e-5)
    assert (batch.labels > 0).sum(axis=1).max() == 2
    assert batch.class_ids.dtype == np.int64
    assert (batch.labels[np.arange(64), batch.class_ids] > 0).all()


def test_a_batch_names_its_samples():
    loader = make()
    seen = []
    for batch in loader:
        assert batch.names == [loader.dataset.name(i) for i in batch.samples]
        assert batch.epoch == 0
        seen += batch.samples.tolist()
    assert batch.batch_index == len(loader) - 1
    assert sorted(seen) == list(range(len(loader.dataset)))


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_own_their_memory(workers):
    loader = make(f"loader.workers={workers}")
    copies = []
    kept = []
    for batch in loader:
        kept.append(batch)
        copies.append([array.copy() for array in batch])
    for batch, copy in zip(kept, copies):
        for array, same in zip(batch, copy):
            np.testing.assert_array_equal(array, same)
    assert loader.extra_blocks == len(loader)


@pytest.mark.parametrize("workers", [0, 2])
def test_one_batch_kept_for_epochs_delays_no_other(workers):
    loader = make(f"loader.workers={workers}")
    first = next(iter(loader))
    images = first[0]
    copy = images.copy()
    del first
    gc.collect()
    for _ in range(5):
        for _ in loader:
            pass
    np.testing.assert_array_equal(images, copy)
    assert loader.extra_blocks <= 6, "a kept one and two in the loop, for each of two starts"


def test_an_array_outlives_the_loader():
    loader = make()
    images, _ = next(iter(loader))
    copy = images.copy()
    loader.close()
    del loader
    gc.collect()
    np.testing.assert_array_equal(images, copy)
    images[:] = 0  # arrays are their owner's to write
    assert not images.any() and images.ctypes.data % 64 == 0


@needs_torch
def test_tensors_own_their_memory_and_can_be_written():
    import torch

    loader = make(numpy=False)
    kept = list(loader)
    again = make(numpy=False)
    for batch, other in zip(kept, again):
        assert isinstance(batch[0], torch.Tensor) and batch.labels.dtype == torch.int64
        assert torch.equal(batch[0], other[0]) and torch.equal(batch[1], other[1])
    images = kept[3][0]
    before = kept[4][0].clone()
    images.zero_()
    assert torch.equal(kept[4][0], before)
    assert images.data_ptr() % 64 == 0


@needs_torch
def test_bfloat16_is_a_tensor():
    import torch

    images, _ = next(iter(make("output.dtype=bf16", numpy=False)))
    exact, _ = next(iter(make(numpy=False)))
    assert images.dtype == torch.bfloat16
    assert torch.equal(images, exact.bfloat16())


def test_numpy_has_no_bfloat16():
    with pytest.raises(mr.UsageError, match="bf16"):
        make("output.dtype=bf16")


# --- the bytes


@pytest.mark.parametrize("recipe", [
    ("mnist-lenet", "digits"),
    ("imagenet-rrc", "photos"),
])
def test_hashes_are_the_programs(program, data, recipe):
    words = [recipe[0], f"data.path={data / recipe[1]}", "loader.batch=32", "seed=7", "bench.epochs=2"]
    said = subprocess.run([program, "bench", *words, "--hash", "--json"], capture_output=True, text=True, check=True)
    expected = json.loads(said.stdout)["batch_hash"]
    for workers in (0, 1, 2):
        loader = mr.Loader(*words, f"loader.workers={workers}", numpy=True)
        assert hash_of(itertools.chain(loader, loader)) == expected, workers


# --- epochs


def test_each_for_is_the_next_epoch():
    loader = make()
    epochs = [[batch.samples.tolist() for batch in loader] for _ in range(2)]
    assert epochs[0] != epochs[1]
    assert [len(epoch) for epoch in epochs] == [len(loader)] * 2
    assert loader.epoch == 2


def test_after_break_the_next_epoch_begins_at_its_start():
    whole = make()
    epochs = [hash_of(whole) for _ in range(2)]
    loader = make()
    for batch in loader:
        if batch.batch_index == 5:
            break
    assert loader.epoch == 0
    batches = list(loader)
    assert len(batches) == len(loader) == 16
    assert (batches[0].epoch, batches[0].batch_index) == (1, 0)
    assert hash_of(batches) == epochs[1]


def test_set_epoch_chooses_the_epoch():
    whole = make()
    epochs = [hash_of(whole) for _ in range(3)]
    loader = make()
    loader.set_epoch(2)
    assert hash_of(loader) == epochs[2]
    loader.sampler.set_epoch(1)
    assert hash_of(loader) == epochs[1]
    with pytest.raises(mr.UsageError, match="count from 0"):
        loader.set_epoch(-1)


def test_a_newer_for_ends_an_older_one():
    loader = make()
    old = iter(loader)
    next(old)
    new = iter(loader)
    assert next(new).batch_index == 0
    assert list(old) == []
    assert next(new).batch_index == 1


def test_an_epoch_begins_with_its_first_batch():
    """Lightning calls iter() before it sets the epoch, and more often than it iterates."""
    loader = make()
    iter(loader)
    batches = iter(loader)
    loader.sampler.set_epoch(0)
    assert [(batch.epoch, batch.batch_index) for batch in batches] == [(0, i) for i in range(len(loader))]
    batches = iter(loader)
    loader.set_epoch(4)
    assert next(batches).epoch == 4
    state = {**loader.state_dict(), "epoch": 7, "batch": 3}
    batches = iter(loader)
    loader.load_state_dict(state)
    loader.set_epoch(7)
    first = next(batches)
    assert (first.epoch, first.batch_index) == (7, 3)


# --- resumption


@pytest.mark.parametrize("stop", [(0, 3), (1, 0), (1, 15)])
def test_a_state_continues_with_other_workers(stop):
    epoch, batch = stop
    loader = make("loader.workers=1")
    loader.set_epoch(epoch)
    iterator = iter(loader)
    for _ in range(batch):
        next(iterator)
    state = json.loads(json.dumps(loader.state_dict()))
    rest = hash_of(iterator)
    for workers in (0, 2):
        other = make(f"loader.workers={workers}")
        other.load_state_dict(state)
        assert other.epoch == epoch and len(other) == len(loader)
        other.set_epoch(epoch)  # as training loops do; keeps the position
        assert hash_of(other) == rest
        assert other.epoch == epoch + 1


def test_after_an_epoch_a_state_is_the_next_ones_start():
    loader = make()
    for batch in loader:
        inside = loader.state_dict()
    after = loader.state_dict()
    assert (after["epoch"], after["batch"]) == (1, 0)
    assert inside == after
    assert loader.state_dict(trained=len(loader) - 2)["batch"] == len(loader) - 2
    other = make()
    other.load_state_dict(after)
    assert hash_of(other) == hash_of(loader)


def test_set_epoch_to_another_one_drops_the_position():
    loader = make()
    next(iter(loader))
    state = loader.state_dict()
    other = make()
    other.load_state_dict(state)
    other.set_epoch(3)
    first = next(iter(other))
    assert (first.epoch, first.batch_index) == (3, 0)


def test_a_framework_that_fetches_ahead_says_what_it_trained_on():
    loader = make()
    iterator = iter(loader)
    batches = [next(iterator) for _ in range(5)]
    other = make()
    other.load_state_dict(loader.state_dict(trained=3))
    assert next(iter(other)).samples.tolist() == batches[3].samples.tolist()
    with pytest.raises(mr.UsageError, match="trained=6: 5 batches"):
        loader.state_dict(trained=6)


def test_a_position_costs_nothing_wherever_it_lies():
    """The 960 samples before it would take 19 s to read; a state has no list of them."""
    slow = ("data.storage.latency=20", "loader.io_threads=1", "loader.workers=1", "loader.batch=8")
    loader = make(*slow)
    state = {**loader.state_dict(), "epoch": 1_000_000, "batch": 120}
    begin = time.monotonic()
    loader.load_state_dict(state)
    batch = next(iter(loader))
    assert (batch.epoch, batch.batch_index) == (1_000_000, 120) and time.monotonic() - begin < 5
    state = loader.state_dict()
    assert set(state) == {"version", "recipe", "epoch", "batch"} and len(json.dumps(state)) < 120
    loader.close()


@pytest.mark.parametrize("overrides", [
    ("seed=1",),
    ("loader.batch=32",),
    ("data.synthetic.count=999",),
    ("augment.random_affine.degrees=3",),
    ("output.mean=0.5",),
])
def test_a_state_of_another_recipe_is_rejected(overrides):
    with pytest.raises(mr.UsageError, match="belongs to recipe"):
        make(*overrides).load_state_dict(make().state_dict())


@pytest.mark.parametrize("state, message", [
    ({}, "not the state of a pymillrace.Loader"),
    ({"version": 2}, "version 2"),
    ({"batch": 16}, "names batch 16"),
    ({"epoch": -1}, "names batch"),
])
def test_a_damaged_state_is_rejected(state, message):
    loader = make()
    with pytest.raises(mr.UsageError, match=message):
        loader.load_state_dict({**loader.state_dict(), **state} if state else {})


def test_killed_at_any_batch_a_run_resumes_with_the_same_bytes(tmp_path):
    whole = make("data.synthetic.count=640")
    expected = [Hash().add(batch).text() for _ in range(3) for batch in whole]
    code = """
        import json, os, signal, sys
        sys.path.insert(0, sys.argv[4])
        import pymillrace as mr
        from batches import Hash, SYNTHETIC
        folder, workers, kill_at = sys.argv[1], sys.argv[2], int(sys.argv[3])
        loader = mr.Loader(*SYNTHETIC, "data.synthetic.count=640", "loader.workers=" + workers, numpy=True)
        if os.path.exists(folder + "/state"):
            loader.load_state_dict(json.load(open(folder + "/state")))
        log = open(folder + "/log", "a")
        for epoch in range(loader.epoch, 3):
            loader.set_epoch(epoch)
            for batch in loader:
                kill_at -= 1
                if kill_at == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                print(Hash().add(batch).text(), file=log, flush=True)
                with open(folder + "/next", "w") as file:
                    json.dump(loader.state_dict(), file)
                os.replace(folder + "/next", folder + "/state")
    """
    chance = random.Random(5)
    here = os.path.dirname(__file__)
    kills = [chance.randint(1, 5) for _ in range(5)]
    for number, kill in enumerate(kills):
        assert run_python(code, tmp_path, number % 3, kill, here).returncode == -signal.SIGKILL
    last = run_python(code, tmp_path, 2, 0, here)
    assert last.returncode == 0, last.stderr
    assert (tmp_path / "log").read_text().split() == expected


# --- what frameworks ask for


def test_batches_can_be_dictionaries():
    loader = make(keys=("pixel_values", "labels"))
    batch = next(iter(loader))
    assert list(batch) == ["pixel_values", "labels"]
    assert batch["pixel_values"].shape == (64, 1, 32, 32)
    with pytest.raises(mr.UsageError, match="give two"):
        make(keys="image")


def test_a_batch_survives_being_rebuilt():
    batch = next(iter(make()))
    moved = type(batch)(array for array in batch)
    assert moved.images is batch.images and moved.labels is batch.labels


def test_what_frameworks_read():
    loader = make("loader.drop_last=true", "loader.workers=1")
    assert (len(loader), loader.batch_size, loader.num_workers, loader.drop_last) == (15, 64, 1, True)
    assert len(loader.dataset) == 1000 and loader.dataset.split == "train"
    with pytest.raises(mr.UsageError, match="no sample 1000"):
        loader.dataset.name(1000)
    assert "15 batches of 64" in repr(loader)


# --- bad input


@pytest.mark.parametrize("words, kind, message", [
    (("mnist-lenett",), mr.UsageError, "did you mean mnist-lenet"),
    (("mnist-lenet", "loader.worker=2"), mr.UsageError, "did you mean loader.workers"),
    (("mnist-lenet", "loader.workers=many"), mr.UsageError, "loader.workers"),
    (("mnist-lenet", "imagenet-rrc"), mr.UsageError, "two recipes"),
    (("mnist-lenet", 2), mr.UsageError, "neither a recipe nor an override"),
    (("mnist-lenet", "data.path=/nowhere"), mr.DataError, "/nowhere"),
])
def test_bad_input_is_an_exception_of_its_kind(words, kind, message):
    with pytest.raises(kind, match=message) as caught:
        mr.Loader(*words, numpy=True)
    assert isinstance(caught.value, mr.Error)
    assert "\n" not in str(caught.value)


def test_a_sample_that_fails_is_named(program, data, tmp_path):
    subprocess.run(["cp", "-r", str(data / "photos"), str(tmp_path / "photos")], check=True)
    bad = sorted((tmp_path / "photos" / "train").rglob("*.jpg"))[3]
    bad.write_bytes(bad.read_bytes()[:100])
    words = ("imagenet-rrc", f"data.path={tmp_path / 'photos'}", "loader.batch=16", "loader.shuffle=none")
    loader = mr.Loader(*words, numpy=True)
    with pytest.raises(mr.DataError, match=bad.name):
        list(loader)
    skipping = mr.Loader(*words, "loader.on_error=skip", numpy=True)
    counts = [len(batch[1]) for batch in skipping]
    assert sum(counts) == len(skipping.dataset) - 1
    assert [failure.name for failure in skipping.failures] == [str(bad)]
    assert skipping.failures[0].epoch == 0 and skipping.failures[0].reason


def test_plugins_of_a_recipe_file_must_be_asked_for(tmp_path):
    recipe = tmp_path / "theirs.toml"
    recipe.write_text('[plugins]\npath = "/tmp/their.so"\n[data]\nreader = "synthetic"\n')
    with pytest.raises(mr.UsageError, match="this call does not ask for"):
        mr.Loader(str(recipe), numpy=True)


def test_remarks_become_warnings():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        make("data.cache=ram")
    assert any("data.cache=ram" in str(one.message) for one in caught)
