"""Loader(device=...) with a stand-in for a device, whose copies happen when the test says so.

The stand-in reads a copy's source at the end of the copy, by its address: a block that was given back too early, or
that another batch was written to, would change what arrives.
"""
import ctypes
import gc
import json

import pytest

torch = pytest.importorskip("torch", reason="NOT TESTED with PyTorch: it cannot be imported", exc_type=ImportError)

import pymillrace as mr
from pymillrace import device as devices

WORDS = ["mnist-lenet", "data.reader=synthetic", "data.synthetic.channels=1", "data.synthetic.count=320",
         "loader.batch=16", "loader.workers=2"]
BATCHES = 20


class Event:
    """The end of a copy, and of all copies before it."""

    def __init__(self, device, moves):
        self.device, self.moves, self.done = device, moves, False

    def complete(self):
        for event in self.device.events[:self.device.events.index(self) + 1]:
            if not event.done:
                event.done = True
                for to, source, size in event.moves:
                    assert self.device.is_locked(source, size), "the source was unlocked before its copy ended"
                    ctypes.memmove(to.data_ptr(), source, size)

    def query(self):
        if self.device.broken:
            raise RuntimeError("the device is lost")
        return self.done

    def synchronize(self):
        self.device.waits += 1
        self.complete()


class StandIn:
    """A device in whose memory arrays are zero until their copy is complete."""

    def __init__(self):
        self.locked, self.events, self.waits, self.broken, self.late = {}, [], 0, False, 10**9
        self.unlocked_during_copies = 0
        lock = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint)(self.lock)
        unlock = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(self.unlock)
        for one in (lock, unlock):  # the loader of a failed test may live until the interpreter ends
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(one))
        self.locks = tuple(ctypes.cast(one, ctypes.c_void_p).value for one in (lock, unlock))

    def lock(self, memory, size, flags):
        assert flags == 1 and memory % 4096 == 0 and size % 4096 == 0
        self.locked[memory] = size
        return 0

    def unlock(self, memory):
        size = self.locked.pop(memory)
        self.unlocked_during_copies += any(memory <= source < memory + size for event in self.events if not event.done
                                           for _, source, _ in event.moves)
        return 0

    def is_locked(self, at, size=1):
        return any(memory <= at and at + size <= memory + bytes for memory, bytes in self.locked.items())

    def current(self):
        return torch.no_grad()  # some context

    def copy(self, arrays):
        there = [torch.zeros_like(array) for array in arrays]
        self.events.append(Event(self, [(to, array.data_ptr(), array.nbytes) for to, array in zip(there, arrays)]))
        for event in self.events[:-self.late]:
            event.complete()
        return there, self.events[-1]

    def hand_out(self, arrays, event):
        pass  # the test completes a copy before it looks


@pytest.fixture
def device(monkeypatch):
    one = StandIn()
    monkeypatch.setattr(devices, "open_device", lambda name: one)
    return one


def copies_of(words=WORDS):
    return [(images.clone(), labels.clone()) for images, labels in mr.Loader(*words)]


def same(one, other):
    return len(one) == len(other) and all(torch.equal(a, b) for x, y in zip(one, other) for a, b in zip(x, y))


@pytest.mark.parametrize("late", (1, 3, 10**9))
def test_a_block_is_used_again_only_after_its_copy(device, late):
    device.late = late  # copies lag that far behind; with the largest, until somebody waits for them
    loader = mr.Loader(*WORDS, device="cuda")
    found = list(loader)
    device.events[-1].complete()
    assert same(found, copies_of())
    assert (device.waits > 0) == (late > devices.MOST)
    assert loader.extra_blocks <= devices.MOST + devices.AHEAD + 2, "blocks are given back once they were copied"
    slots = 4  # loader.prefetch
    assert len(device.locked) == slots + loader.extra_blocks


def test_nobody_gets_locked_memory(device):
    device.late = 1
    loader = mr.Loader(*WORDS, device="cuda", warps=True)
    for batch in loader:
        arrays = [*batch, batch.images, batch.labels, batch.class_ids, batch.samples, batch.warps]
        assert not any(device.is_locked(array.data_ptr()) for array in arrays)
    plain = mr.Loader(*WORDS, warps=True)
    for batch, other in zip(mr.Loader(*WORDS, device="cuda", warps=True), plain):
        assert torch.equal(batch.samples, other.samples) and torch.equal(batch.class_ids, other.class_ids)
        assert torch.equal(batch.warps, other.warps) and batch.names == other.names
        assert (batch.epoch, batch.batch_index) == (other.epoch, other.batch_index)


@pytest.mark.parametrize("end", ("close", "forget"))
def test_the_end_waits_for_copies_that_are_under_way(device, end):
    loader = mr.Loader(*WORDS, device="cuda")
    batches = iter(loader)
    first = next(batches)
    assert device.waits == 0 and not device.events[0].done and not first.images.any()
    if end == "close":
        loader.close()
        assert all(event.done for event in device.events) and device.waits > 0
    del loader, batches
    gc.collect()
    assert all(event.done for event in device.events) and device.unlocked_during_copies == 0
    assert device.locked == {}, "all is unlocked and given back"
    assert same([first], copies_of()[:1])


def test_a_state_counts_what_was_handed_out_not_what_was_copied(device):
    loader = mr.Loader(*WORDS, device="cuda")
    batches = iter(loader)
    for _ in range(3):
        next(batches)
    state = loader.state_dict()
    assert state["batch"] == 3 and len(device.events) == 3 + devices.AHEAD
    other = mr.Loader(*WORDS, device="cuda")
    other.load_state_dict(state)
    rest = list(other)
    device.events[-1].complete()
    assert same(rest, copies_of()[3:]) and other.state_dict()["epoch"] == 1


def test_after_break_the_next_epoch_begins_at_its_start(device):
    loader = mr.Loader(*WORDS, device="cuda")
    for _ in loader:
        break
    batches = list(loader)
    assert [(batch.epoch, batch.batch_index) for batch in batches] == [(1, i) for i in range(BATCHES)]


def test_what_a_failing_device_may_still_read_is_never_given_back(device):
    loader = mr.Loader(*WORDS, device="cuda")
    batches = iter(loader)
    next(batches)
    device.broken = True
    with pytest.raises(RuntimeError, match="the device is lost"):
        next(batches)
    kept = {source for event in device.events for _, source, _ in event.moves}
    loader.close()
    del loader, batches
    gc.collect()
    assert kept and all(device.is_locked(source) for source in kept)
    devices._abandoned.clear()
    assert device.locked == {}


def test_keys_and_functions_get_the_copies(device):
    device.late = 1
    loader = mr.Loader(*WORDS, device="cuda", keys=("image", "label"), function=lambda batch: batch["image"].shape)
    assert list(loader) == [copies_of()[0][0].shape] * BATCHES


def test_targets_say_the_same_as_without_a_device(device, data, tmp_path):
    photos = sorted((data / "photos").rglob("*.jpg"))[:8]
    manifest = tmp_path / "list.jsonl"
    manifest.write_text("\n".join(json.dumps({"path": str(photo), "target": i}) for i, photo in enumerate(photos)))
    made = dict(batch=4, device="cuda")
    batch = next(iter(mr.Loader(mr.Manifest(manifest), [mr.RandomResizedCrop(16)], **made)))
    assert batch.targets.tolist() == batch.samples.tolist()
    batch = next(iter(mr.Loader(mr.Manifest(manifest), [mr.RandomResizedCrop(16)], "augment+=mixup", **made)))
    with pytest.raises(mr.UsageError, match="mixes samples"):
        batch.targets
    batch = next(iter(mr.Loader(mr.Folder(data / "photos"), [mr.RandomResizedCrop(16)], **made)))
    with pytest.raises(mr.UsageError, match="no targets"):
        batch.targets


def test_memory_that_cannot_be_locked_is_an_error(monkeypatch):
    one = StandIn()
    refuses = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint)(lambda *_: 2)
    one.locks = (ctypes.cast(refuses, ctypes.c_void_p).value, one.locks[1])
    monkeypatch.setattr(devices, "open_device", lambda name: one)
    with pytest.raises(mr.RunError, match="no page-locked memory for batches: .* error 2"):
        next(iter(mr.Loader(*WORDS, device="cuda")))


@pytest.mark.parametrize("options, message", (
    ({"device": "cpu"}, "CUDA devices only"),
    ({"device": "gpu0"}, "is not a device"),
    ({"device": "cuda", "numpy": True}, "arrays on a device are PyTorch's"),
))
def test_other_devices_are_refused(options, message):
    with pytest.raises(mr.UsageError, match=message):
        mr.Loader(*WORDS, **options)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a device")
def test_without_a_device_there_is_one_line():
    with pytest.raises(mr.UsageError, match="PyTorch finds no CUDA device here"):
        mr.Loader(*WORDS, device="cuda")
