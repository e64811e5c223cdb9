"""The arrays of a batch are found in whatever holds them."""
from collections import UserDict, namedtuple
from collections.abc import Mapping
from types import SimpleNamespace

import numpy as np
import torch

from pymillrace.watcher import batch_arrays
from pymillrace.watcher.batch_arrays import arrays_in, bytes_of, descriptors_of, tensors_of

Pair = namedtuple("Pair", "image label")
ONE = torch.zeros(3)


def sizes(batch):
    return sorted(map(bytes_of, arrays_in(batch)))


def test_containers_and_objects_are_looked_into():
    image, label = torch.zeros(2, 3), np.zeros(5, dtype=np.uint8)
    for batch in ([image, label], (image, [label]), {"x": image, "y": {"z": label}}, Pair(image, label),
                  UserDict(x=image, y=label), SimpleNamespace(_store=SimpleNamespace(x=image), name="graph", y=label),
                  [{"x": image}, {"y": label}, 1, "text", None, int]):
        assert sizes(batch) == [5, 24], batch
    assert sizes("text") == sizes(7) == sizes(None) == sizes(torch) == []


def test_a_mapping_has_attributes_too():
    class Store(dict):
        pass

    store = Store(x=ONE)
    store.slices = {"x": torch.zeros(1)}
    assert sizes(store) == [4, 12]


def test_an_object_counts_once_and_a_cycle_ends():
    batch = SimpleNamespace(x=ONE, again=ONE)
    batch.itself = [batch]
    assert sizes([batch, batch]) == [12]


def test_a_tensor_without_memory_is_not_handed_over():
    sparse = torch.eye(4).to_sparse()
    arrays = list(arrays_in([torch.zeros(0), sparse, ONE, np.zeros(3)]))
    assert len(arrays) == 4 and bytes_of(sparse) == 0
    assert tensors_of(arrays) == [ONE]


def test_tensors_whose_memory_has_a_name_need_no_descriptor(monkeypatch):
    assert descriptors_of([ONE, ONE]) == 2
    monkeypatch.setattr(torch.multiprocessing, "get_sharing_strategy", lambda: "file_system")
    assert descriptors_of([ONE, ONE]) == 0


def test_what_does_not_tell_its_parts_has_none():
    class Torn(Mapping):
        def __getitem__(self, key):
            raise OSError("closed")

        def __iter__(self):
            return iter("x")

        def __len__(self):
            return 1

    assert sizes([Torn(), ONE]) == [12]


def test_a_batch_of_very_many_objects_is_looked_into_in_part(monkeypatch):
    monkeypatch.setattr(batch_arrays, "MOST_VISITED", 100)
    assert len(list(arrays_in([torch.zeros(1) for _ in range(1000)]))) == 99  # beside the list
