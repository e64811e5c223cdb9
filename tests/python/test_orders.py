"""Tests of samplers of the user's own: any iterable of indices."""
import itertools
import random
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest
from conftest import needs_torch

import pymillrace as mr

COUNT, BATCH = 640, 16


class Seeded:
    """Draws with repetition, `lengths` samples by turns, as the epoch says."""

    def __init__(self, *lengths, with_length=True):
        self.lengths, self.epoch, self.epochs = lengths, 0, []
        if with_length:
            self.__class__ = type("Seeded", (Seeded,), {"__len__": lambda self: self.length()})

    def length(self):
        return self.lengths[self.epoch % len(self.lengths)]

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        self.epochs.append(self.epoch)
        draw = random.Random(self.epoch)
        return (draw.randrange(COUNT) for _ in range(self.length()))


def indices_of(sampler, epoch):
    sampler.set_epoch(epoch)
    return list(sampler)


def loader(data, sampler, *words, **options):
    return mr.Loader(mr.Idx(data / "digits"), [mr.RandomAffine(10)], "seed=3", *words, batch=BATCH, numpy=True,
                     sampler=sampler, **options)


def taken(batches):
    return [index for batch in batches for index in batch.samples.tolist()]


def pixels(batches):
    return [batch.images.tobytes() for batch in batches]


@pytest.mark.parametrize("kind", [list, tuple, np.array, lambda order: np.array(order, np.int32),
                                  lambda order: [np.int16(one) for one in order], range])
def test_batches_follow_the_order(data, kind):
    order = range(40, 140) if kind is range else [5, 639, 5, 0] + random.Random(1).sample(range(COUNT), 96)
    loop = loader(data, range(40, 140) if kind is range else kind(order))
    assert len(loop) == 7
    batches = list(loop)
    assert taken(batches) == list(order)
    assert [len(batch.images) for batch in batches] == [16] * 6 + [4]
    assert len(loader(data, kind(order) if kind is not range else order, "loader.drop_last=true")) == 6


@needs_torch
def test_samplers_of_torch_are_taken(data):
    import torch
    from torch.utils.data import RandomSampler, SubsetRandomSampler, WeightedRandomSampler

    weights = np.zeros(COUNT)
    weights[[3, 7]] = 1
    for sampler, allowed, count in ((RandomSampler(range(COUNT)), set(range(COUNT)), COUNT),
                                    (SubsetRandomSampler(range(50, 90)), set(range(50, 90)), 40),
                                    (WeightedRandomSampler(weights, 200), {3, 7}, 200),
                                    (torch.arange(64), set(range(64)), 64)):
        loop = loader(data, sampler)
        found = taken(loop)
        assert len(found) == count and set(found) == allowed and len(loop) == -(-count // BATCH)
    # The draws come at positions of the loop, and so from the same place of the global generator in every run.
    runs = []
    for words in (["loader.workers=0", "loader.prefetch=2"], ["loader.workers=3", "loader.prefetch=2"]):
        torch.manual_seed(4)
        loop = loader(data, RandomSampler(range(COUNT)), *words)
        runs.append([taken(loop) for _ in range(2)])
    assert runs[0] == runs[1] and runs[0][0] != runs[0][1]


def test_bytes_are_equal_for_any_workers_and_ranks(data):
    found = [[pixels(loop) for _ in range(3)] for loop in
             (loader(data, Seeded(500), f"loader.workers={workers}", f"loader.prefetch={prefetch}", grain)
              for workers, prefetch, grain in ((0, 4, "loader.grain=0"), (1, 1, "loader.grain=0"),
                                               (3, 64, "loader.grain=1")))]
    assert found[0] == found[1] == found[2]
    ranks = [loader(data, Seeded(500), rank=rank, world_size=2) for rank in (0, 1)]
    whole = loader(data, Seeded(500), "loader.batch_per_rank=32")
    for _ in range(2):
        assert [b"".join(pixels(pair)) for pair in zip(*ranks)] == pixels(whole)


def test_the_sampler_is_iterated_once_per_epoch_and_told_which(data):
    sampler = Seeded(100)
    loop = loader(data, sampler, "loader.prefetch=2")
    orders = [taken(loop) for _ in range(3)]
    assert sampler.epochs == [0, 1, 2, 3]  # the last one was taken ahead
    assert orders == [indices_of(Seeded(100), epoch) for epoch in range(3)]
    loop.set_epoch(7)
    assert taken(loop) == indices_of(Seeded(100), 7)


def test_repetitions_are_augmented_in_another_way(data):
    batch = next(iter(loader(data, [9] * 32)))
    assert len({image.tobytes() for image in batch.images}) > BATCH // 2


@pytest.mark.parametrize("with_length", [True, False])
def test_epochs_may_have_other_lengths(data, with_length):
    lengths = 100, 100, 37, 16, 200
    loop = loader(data, Seeded(*lengths, with_length=with_length))
    for epoch in range(8):
        assert taken(loop) == indices_of(Seeded(*lengths), epoch)
        assert loop.epoch == epoch + 1 and len(loop) == -(-lengths[epoch % 5] // BATCH)


def test_the_next_epoch_is_made_ahead(data):
    """At the end of an epoch, samples of the next one have been fetched: not so if that has another length."""
    images = [np.full((8, 8), index, np.uint8) for index in range(64)]
    fetched = []

    class Source:
        def __len__(self):
            return len(images)

        def __getitem__(self, index):
            fetched.append(index)
            return images[index]

    def fetched_at_the_end(*lengths):
        fetched.clear()
        loop = mr.Loader(mr.Samples(Source()), [], batch=8, numpy=True, sampler=Short(*lengths))
        before = len(fetched)
        list(loop)
        deadline = time.monotonic() + 20
        while len(fetched) - before < lengths[0] + 4 * 8 and time.monotonic() < deadline and lengths[0] == lengths[1]:
            time.sleep(0.01)
        return len(fetched) - before

    class Short(Seeded):
        def __init__(self, *lengths):
            super().__init__(*lengths, with_length=False)

        def __iter__(self):
            return iter(range(self.length()))

    assert fetched_at_the_end(48, 48) == 48 + 4 * 8
    assert fetched_at_the_end(48, 40) == 48


@pytest.mark.parametrize("batches", [1, 5, 7])
def test_a_state_goes_on_in_the_middle(data, batches):
    first = loader(data, Seeded(100))
    list(first)
    loop = iter(first)
    head = pixels(itertools.islice(loop, batches))
    state, rest, later = first.state_dict(), pixels(loop), pixels(first)
    assert (state["epoch"], state["batch"]) == ((1, batches) if batches < 7 else (2, 0))
    again = loader(data, Seeded(100, with_length=False), "loader.workers=0")
    again.load_state_dict(state)
    assert again.state_dict() == state
    found = pixels(again)
    assert (found, pixels(again)) == ((rest, later) if batches < 7 else (later, found[:0] or pixels_of_epoch(data, 3)))
    whole = loader(data, Seeded(100))
    whole.set_epoch(1)
    assert head + rest == pixels(whole)


def pixels_of_epoch(data, epoch):
    loop = loader(data, Seeded(100))
    loop.set_epoch(epoch)
    return pixels(loop)


def test_a_state_refuses_another_order(data):
    first = loader(data, Seeded(100))
    next(iter(first))
    state = first.state_dict()
    for other in (Seeded(99), list(range(100))):
        again = loader(data, other)
        again.load_state_dict(state)
        with pytest.raises(mr.UsageError, match="another order for epoch 0 than where the state was taken"):
            next(iter(again))
    with pytest.raises(mr.UsageError, match="belongs to recipe"):
        loader(data, None).load_state_dict(state)
    for bad in ({**state, "order": 3}, {**state, "order": None}, {**state, "batch": 0}):
        with pytest.raises(mr.UsageError, match="of a loader's state"):
            loader(data, Seeded(100)).load_state_dict(bad)
    again = loader(data, Seeded(100))
    again.load_state_dict({**state, "batch": 10**9})
    with pytest.raises(mr.UsageError, match="names batch 1000000000 of epoch 0: an epoch has 7"):
        next(iter(again))


def test_failing_samples_are_replaced_out_of_the_order(data):
    class Source:
        def __len__(self):
            return 64

        def __getitem__(self, index):
            if index == 5:
                raise ValueError("bad")
            return np.zeros((8, 8), np.uint8)

    def samples(on_error):
        return taken(mr.Loader(mr.Samples(Source()), [], f"loader.on_error={on_error}", batch=8, numpy=True,
                               sampler=[3, 5, 5, 7] * 4))

    assert samples("skip") == [3, 7] * 4
    found = samples("replace")
    assert len(found) >= 15 and set(found) == {3, 7}


class Failing:
    """Raises in its third epoch."""

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        yield from range(32)
        if self.epoch == 2:
            raise ValueError("no more\nsecond line")


def test_what_a_sampler_raises_comes_at_the_start_of_its_epoch(data):
    loop = loader(data, Failing())
    assert len(list(loop)) == len(list(loop)) == 2
    for _ in range(2):
        with pytest.raises(mr.UsageError, match="in epoch 2, the sampler raised ValueError: no more$") as caught:
            list(loop)
        assert isinstance(caught.value.__cause__, ValueError)
    loop.set_epoch(3)
    assert len(list(loop)) == 2


class Endless:
    def __iter__(self):
        return itertools.repeat(1)


class Lying:
    def __init__(self, says, gives):
        self.says, self.gives = says, gives

    def __len__(self):
        return self.says

    def __iter__(self):
        return iter([0] * self.gives) if self.gives else itertools.repeat(0)


@pytest.mark.parametrize("sampler, message", [
    ([1] * 40 + [640], "index 40 of epoch 0 is 640, and the data set has 640 samples"),
    ([1] * 40 + [-1], "index 40 of epoch 0 is -1"),
    ([0] * 70000 + [2**70], "index 70000 of epoch 0 is 1180591620717411303424"),
    ([1, 2.0] * 16, "index 1 of epoch 0 is 2.0, which is not a sample index"),
    ([0, "1"] * 16, "index 1 of epoch 0 is '1'"),
    ([[0, 1], [2, 3]] * 16, r"index 0 of epoch 0 is \[0, 1\].*\n?.*the loader makes the batches"),
    (np.ones(640, bool), "index 0 of epoch 0 is True"),
    (np.ones((32, 8), int), r"index 0 of epoch 0 is \[1, 1"),
    ([], "gave no index for epoch 0"),
    ([1, 2], "a batch of 16 is larger than an epoch of 2 samples"),
    (Endless(), "more than 10000000 indices for epoch 0, and has no __len__"),
    (Lying(100, 99), "gave 99 indices for epoch 0, and its __len__ says 100"),
    (Lying(100, 0), "gave more indices for epoch 0, and its __len__ says 100"),
    (Lying(2**40, 0), "the sampler has 1099511627776 indices"),
])
def test_bad_indices_are_named(data, sampler, message):
    begin = time.monotonic()
    with pytest.raises(mr.UsageError, match=message):
        list(loader(data, sampler))
    assert time.monotonic() - begin < 20


class Distributed(list):
    num_replicas = 4


@pytest.mark.parametrize("sampler, message", [
    (3, "sampler=3 does not give sample indices"),
    ("shuffle", "sampler='shuffle' does not give sample indices"),
    (iter([1, 2]), "can be iterated over once"),
    (Distributed([1] * 16), "divides samples among 4 ranks, as the loader does"),
])
def test_bad_samplers_are_refused_at_the_start(data, sampler, message):
    with pytest.raises(mr.UsageError, match=message):
        loader(data, sampler)


@pytest.mark.parametrize("word", ["sampler.kind=repeat", "sampler.samples=64", "loader.shuffle=none"])
def test_keys_that_have_no_effect_are_refused(data, word):
    with pytest.raises(mr.UsageError, match=f"{word.split('=')[0]} has no effect beside a sampler in Python"):
        loader(data, range(64), word)


@needs_torch
def test_ranks_compare_their_orders(data, tmp_path):
    code = """
        import sys, torch
        import pymillrace as mr
        rank, file, folder = int(sys.argv[1]), sys.argv[2], sys.argv[3]
        torch.distributed.init_process_group("gloo", init_method="file://" + file, rank=rank, world_size=2)

        class Sampler:
            def set_epoch(self, epoch):
                self.epoch = epoch

            def __iter__(self):
                if self.epoch == 4 and rank == 1:
                    raise ValueError
                return iter(range(64 if self.epoch < 2 else 64 + rank if self.epoch == 2 else 64))

        class Apart(Sampler):
            def __iter__(self):
                return iter(range(rank, rank + 64))

        def lines(sampler, epochs):
            loader = mr.Loader(mr.Idx(folder), [], batch=16, sampler=sampler)
            for epoch in epochs:
                loader.set_epoch(epoch)
                try:
                    print(epoch, sum(len(batch.images) for batch in loader))
                except mr.UsageError as error:
                    print(epoch, error.what)

        lines(Sampler(), [0, 1, 2, 3, 4])
        lines(Apart(), [0])
    """
    both = [subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), str(rank), str(tmp_path / "meet"), str(data / "digits")],
        stdout=subprocess.PIPE, text=True) for rank in range(2)]
    found = [one.communicate(timeout=120)[0].splitlines() for one in both]
    other = "the sampler of rank 1 gave another order for epoch"
    common = ["0 32", "1 32", f"2 {other} 2 than that of rank 0: 65 indices, and not 64", "3 32"]
    last = f"0 {other} 0 than that of rank 0"
    assert found[0] == [*common, "4 the sampler of rank 1 failed in epoch 4", last]
    assert found[1] == [*common, "4 in epoch 4, the sampler raised ValueError: ", last]
