"""Loaders beside, inside and around others: alternating, in a data set, wrapped, over a generator."""
import time

import pytest

torch = pytest.importorskip("torch", reason="NOT TESTED with PyTorch: it cannot be imported", exc_type=ImportError)
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset

import pymillrace as mr
from conftest import timing
from test_watch_loaders import Slow, summary_of

MODEL = torch.nn.Linear(1, 1)
LOAD, UPDATE = 0.004, 0.006  # seconds per batch and per step


def step(optimizer, batch):
    MODEL(batch).sum().backward()
    time.sleep(UPDATE)
    optimizer.step()


def by_steps(summary):
    return sorted((one["steps"], one["epochs"]) for one in summary["loaders"])


@timing
def test_waiting_for_a_loader_that_alternates_is_update(tmp_path):
    optimizer = torch.optim.SGD(MODEL.parameters(), 1e-3)
    one, other = (DataLoader(Slow(120, LOAD / 2), batch_size=2) for _ in range(2))
    with mr.watching(run=tmp_path / "run"):
        for batch, _ in zip(one, other):
            step(optimizer, batch)
    summary = summary_of(tmp_path / "run")
    assert by_steps(summary) == [(60, 1), (60, 1)]
    assert summary["load_s"] == pytest.approx(60 * LOAD, rel=0.3)
    assert summary["update_s"] == pytest.approx(60 * (LOAD + UPDATE), rel=0.3)
    assert summary["other_s"] < 0.2 * summary["update_s"] and summary["workers_needed"] < 2
    assert "alternates between it and another loader" in summary["verdict"]
    assert summary["images_per_s"] == pytest.approx(2 / (2 * LOAD + UPDATE), rel=0.3)


def test_a_loader_that_is_begun_anew_in_the_loop_of_another_is_one(tmp_path):
    """As in FixMatch: the smaller set is gone through several times, from a second line."""
    optimizer = torch.optim.SGD(MODEL.parameters(), 1e-3)
    small, large = DataLoader(Slow(20), batch_size=2), DataLoader(Slow(120), batch_size=2)
    with mr.watching(run=tmp_path / "run"):
        batches, others = iter(small), iter(large)
        for _ in range(60):
            try:
                batch = next(batches)
            except StopIteration:
                batches = iter(small)
                batch = next(batches)
            next(others)
            step(optimizer, batch)
    assert by_steps(summary_of(tmp_path / "run")) == [(60, 1), (60, 6)]


def test_an_evaluation_is_no_turn(tmp_path):
    optimizer = torch.optim.SGD(MODEL.parameters(), 1e-3)
    train, test = DataLoader(Slow(60), batch_size=2), DataLoader(Slow(2, 0.01), batch_size=2)
    with mr.watching(run=tmp_path / "run"):
        for batch in train:
            step(optimizer, batch)
            for other in test:
                MODEL(other)
    summary = summary_of(tmp_path / "run")
    assert summary["spans"]["evaluate"] >= 29 * 0.02 and "another loader" not in summary["verdict"]


class Nested(Dataset):
    """As TorchIO's Queue: samples from a loader of its own, which is begun with it or later."""

    def __init__(self, count, at_once):
        self.count, self.inner, self.batches = count, DataLoader(Slow(10**6, LOAD), batch_size=1), None
        if at_once:
            self.batches = iter(self.inner)

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if self.batches is None:
            self.batches = iter(self.inner)
        return next(self.batches)[0]


@timing
@pytest.mark.parametrize("at_once", (True, False))
def test_a_loader_inside_of_a_data_set_belongs_to_the_outer_one(tmp_path, at_once):
    optimizer = torch.optim.SGD(MODEL.parameters(), 1e-3)
    with mr.watching(run=tmp_path / "run"):
        outer = DataLoader(Nested(60, at_once), batch_size=2)
        for batch in outer:
            step(optimizer, batch)
    summary = summary_of(tmp_path / "run")
    main = next(one for one in summary["loaders"] if one["name"] == summary["loader"])
    assert main["dataset"] == "Nested" and summary["steps"] == 30 and summary["images"] == 60
    assert summary["load_s"] == pytest.approx(30 * 2 * LOAD, rel=0.3)
    assert summary["update_s"] == pytest.approx(30 * UPDATE, rel=0.4)
    assert sorted(one["steps"] for one in summary["loaders"]) in ([30], [0, 30])


class Graphs:
    """A batch without arrays at its top, as PyTorch Geometric's."""


def test_a_batch_that_tells_no_length_has_as_many_samples_as_its_loader_asks_for(tmp_path):
    optimizer = torch.optim.SGD(MODEL.parameters(), 1e-3)
    with mr.watching(run=tmp_path / "run"):
        for _ in DataLoader(Slow(120), batch_size=4, collate_fn=lambda samples: Graphs()):
            step(optimizer, torch.ones(1))
    assert summary_of(tmp_path / "run")["images"] == 120


# Stand-ins


@pytest.mark.parametrize("takes", (lambda loader: [next(loader) for _ in range(24)], list))
def test_a_loader_that_is_an_iterator_stays_one(tmp_path, takes):
    with mr.watching(run=tmp_path / "run"):
        loader = mr.watch(iter([torch.ones(2)] * 24))  # in the run around it
        assert len(takes(loader)) == 24
        with pytest.raises(StopIteration):
            next(loader)
    assert [(one["kind"], one["steps"]) for one in summary_of(tmp_path / "run")["loaders"]] == [("list_iterator", 24)]


class Wrapped(DataLoader):
    """As Ray's _WrappedDataLoader: the attributes of another loader, and that one."""

    def __init__(self, loader):
        self.__dict__.update(loader.__dict__)
        self._dataloader = loader

    def __iter__(self):
        for batch in iter(self._dataloader):
            yield batch


@pytest.mark.parametrize("way", ("wrapper", "before"))
def test_a_loader_that_a_framework_wraps_is_recorded(tmp_path, way):
    data, run = Slow(40), tmp_path / "run"
    if way == "wrapper":
        loader = mr.watch(Wrapped(DataLoader(data, batch_size=2)), run=run)
    else:  # the given loader is gone when the framework's own begins
        mr.watch(DataLoader(data, batch_size=2), run=run)
        sampler = DistributedSampler(data, num_replicas=2, rank=0)
        loader = Wrapped(DataLoader(data, batch_size=2, sampler=sampler))
    steps = sum(1 for _ in loader)
    mr.watcher.api._sessions[str(run)].close()
    assert [one["steps"] for one in summary_of(run)["loaders"]] == [steps] == [20 if way == "wrapper" else 10]


class FromGenerator(IterableDataset):
    """As Keras's data set for a PyDataset, whose generator takes what threads put into a queue."""

    def __init__(self, generator):
        self.generator = generator

    def __iter__(self):
        yield from self.generator


def test_workers_are_not_offered_to_a_data_set_that_reads_from_a_generator(tmp_path):
    def slow():
        for _ in range(60):
            time.sleep(LOAD)
            yield torch.ones(1)

    optimizer = torch.optim.SGD(MODEL.parameters(), 1e-3)
    with mr.watching(run=tmp_path / "run"):
        for batch in DataLoader(FromGenerator(slow()), batch_size=None):
            MODEL(batch).sum().backward()
            optimizer.step()
    summary = summary_of(tmp_path / "run")
    assert summary["steps"] == 60 and summary["bound"] == "dataset" and summary["what_if"] is None
    assert summary["workers_needed"] is None and "workers needed" not in summary["verdict"]
    assert summary["advice"].startswith("advice: make the generator that the data set reads from faster")
