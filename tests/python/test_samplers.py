"""Tests of the samplers of mr.Loader."""
import collections

import numpy as np
import pytest

import pymillrace as mr


def loader(data, *words, **options):
    return mr.Loader(mr.Idx(data / "digits"), [mr.RandomAffine(10)], "seed=3", *words, batch=16, numpy=True, **options)


def taken(batches):
    return [index for batch in batches for index in batch.samples.tolist()]


@pytest.mark.parametrize("sampler, words", [
    (mr.WeightedRandomSampler(), ["sampler.kind=weighted"]),
    (mr.WeightedRandomSampler(num_samples=64), ["sampler.kind=weighted", "sampler.samples=64"]),
    (mr.MPerClassSampler(2), ["sampler.kind=balanced", "sampler.per_class=2"]),
    (mr.RASampler(), ["sampler.kind=repeat"]),
])
def test_classes_stand_for_keys(data, sampler, words):
    by_class, by_words = list(loader(data, sampler=sampler)), list(loader(data, *words))
    assert len(by_class) == len(by_words)
    assert all(np.array_equal(a.images, b.images) for a, b in zip(by_class, by_words))
    assert taken(by_class) != taken(loader(data))


def test_samples_are_drawn_by_weights(data):
    weights = np.zeros(640)
    weights[[5, 17]] = 1, 3
    counts = collections.Counter(taken(loader(data, sampler=mr.WeightedRandomSampler(weights, 4000))))
    assert set(counts) == {5, 17} and abs(counts[5] - 1000) < 110  # 4 standard deviations
    once = taken(loader(data, sampler=mr.WeightedRandomSampler(weights + 1, 320, replacement=False)))
    assert len(set(once)) == 320


def test_a_batch_has_as_many_samples_of_each_of_its_classes(data):
    for batch in loader(data, sampler=mr.MPerClassSampler(4)):
        assert sorted(collections.Counter(batch.class_ids.tolist()).values()) == [4] * 4


def test_repetitions_differ(data):
    batch = next(iter(loader(data, sampler=mr.RASampler(2))))
    assert batch.samples[0] == batch.samples[1] and not np.array_equal(batch.images[0], batch.images[1])


def test_ranks_share_each_batch(data):
    sampler = mr.WeightedRandomSampler()
    ranks = [list(loader(data, sampler=sampler, rank=rank, world_size=2)) for rank in (0, 1)]
    words = [f"loader.batch_per_rank={32}"]
    assert [taken(pair) for pair in zip(*ranks)] == [taken([batch]) for batch in loader(data, *words, sampler=sampler)]


def test_a_state_goes_on_in_the_middle_and_belongs_to_its_weights(data):
    weights = [1 + index % 3 for index in range(640)]
    first = loader(data, sampler=mr.WeightedRandomSampler(weights))
    batches = iter(first)
    next(batches)
    state = first.state_dict()
    rest = taken(batches)
    again = loader(data, "loader.workers=0", sampler=mr.WeightedRandomSampler(weights))
    again.load_state_dict(state)
    assert taken(again) == rest
    weights[7] = 9
    with pytest.raises(mr.UsageError):
        loader(data, sampler=mr.WeightedRandomSampler(weights)).load_state_dict(state)


@pytest.mark.parametrize("sampler, message", [
    (mr.WeightedRandomSampler([1, 2]), "2 weights for 640 samples"),
    (mr.WeightedRandomSampler("many"), "are not numbers"),
    (mr.WeightedRandomSampler([float("nan")] * 640), "sample 0 has weight nan"),
    (mr.WeightedRandomSampler(replacement=1), "neither True nor False"),
    (mr.WeightedRandomSampler(num_samples=0), "num_samples"),
    (mr.MPerClassSampler(5), "loader.batch=16 is not a multiple of sampler.per_class=5"),
    (mr.RASampler(0), "num_repeats"),
])
def test_bad_input_is_named(data, sampler, message):
    with pytest.raises(mr.UsageError, match=message):
        loader(data, sampler=sampler)


def test_folds_are_parts_of_the_training_split(data):
    parts = [mr.Loader(mr.Idx(data / "digits", split), [], f"data.fold={part}/5", batch=8, numpy=True)
             for part in range(1, 6) for split in ("train", "test")]
    assert sum(len(one.dataset) for one in parts[1::2]) == 640
    assert all(len(train.dataset) + len(test.dataset) == 640 for train, test in zip(parts[::2], parts[1::2]))
    names = [{one.dataset.name(index) for index in range(len(one.dataset))} for one in parts]
    assert set.union(*names[1::2]) == names[0] | names[1] and not names[0] & names[1]
