"""Tests of progressive resizing: output.sizes and output.milestones."""
import json

import numpy as np
import pytest
from conftest import needs_torch

import pymillrace as mr

SIZES = "output.sizes=[24,40,32]", "output.milestones=[1,2]"
CHAIN = [mr.RandomResizedCrop(64), mr.HFlip(), mr.RandomErasing()]


def loader(data, *words, chain=CHAIN, source=None, **options):
    return mr.Loader(source or mr.Folder(data / "photos"), chain, "seed=3", "decode.scale=exact", *words,
                     **{"batch": 16, "numpy": True, **options})


def content(batch):
    return batch.images.shape, batch.images.tobytes(), batch.labels.tobytes()


def objects(batch):
    masks = batch.instance_masks
    return batch.images.tobytes(), *(part.tobytes() for part in batch.boxes), masks.shape, masks.tobytes()


def epochs(loop, count=4):
    return [[content(batch) for batch in loop] for _ in range(count)]


def of_fixed_sizes(data, sides, **options):
    """Returns the epochs of loaders whose chain has the size of each epoch."""
    found = []
    for epoch, side in enumerate(sides):
        loop = loader(data, **{"chain": [mr.RandomResizedCrop(side), *CHAIN[1:]], **options})
        loop.set_epoch(epoch)
        found += epochs(loop, 1)
    return found


@pytest.mark.parametrize("words", [["loader.workers=0"], ["loader.workers=3", "loader.prefetch=9", "loader.grain=3"],
                                   ["loader.workers=2", "loader.io_threads=2", "loader.prefetch=1"]])
def test_an_epoch_has_the_bytes_of_its_size(data, words):
    loop = loader(data, *SIZES, *words)
    found = epochs(loop)
    assert [epoch[0][0] for epoch in found] == [(16, 3, side, side) for side in (24, 40, 32, 32)]
    assert found == of_fixed_sizes(data, (24, 40, 32, 32))
    fixed = loader(data, *words)
    epochs(fixed)
    assert loop.extra_blocks == fixed.extra_blocks


@pytest.mark.parametrize("op", [mr.Resize((64, 64)), mr.CenterCrop(64), mr.RandomCrop(64, pad_if_needed=True)])
def test_ops_with_a_size_take_it(data, op):
    sized = {mr.Resize: lambda side: mr.Resize((side, side)), mr.CenterCrop: mr.CenterCrop,
             mr.RandomCrop: lambda side: mr.RandomCrop(side, pad_if_needed=True)}[type(op)]
    before = [mr.Resize((70, 90)), mr.VFlip()]
    found = epochs(loader(data, *SIZES, chain=[*before, op, mr.HFlip()]), 2)
    for epoch, side in enumerate((24, 40)):
        fixed = loader(data, chain=[*before, sized(side), mr.HFlip()])
        fixed.set_epoch(epoch)
        assert found[epoch] == epochs(fixed, 1)[0]


def test_ranks_share_each_batch_and_a_state_goes_on(data):
    whole = loader(data, *SIZES, "loader.workers=0")
    ranks = [loader(data, *SIZES, batch=8, rank=rank, world_size=2) for rank in (0, 1)]
    for _ in range(3):
        for batch, one, other in zip(whole, *ranks):
            assert np.array_equal(batch.images, np.concatenate([one.images, other.images]))
    first = loader(data, *SIZES)
    list(first)
    batches = iter(first)
    next(batches)
    state = first.state_dict()
    rest = [content(batch) for batch in batches], *epochs(first, 1)
    again = loader(data, *SIZES, "loader.workers=0")
    again.load_state_dict(state)
    assert tuple(epochs(again, 2)) == rest
    for other in ((), ("output.sizes=[24,40,32]", "output.milestones=[1,3]")):
        with pytest.raises(mr.UsageError, match="belongs to recipe"):
            loader(data, *other).load_state_dict(state)


@pytest.fixture(scope="module")
def outlined(data, tmp_path_factory):
    """The set of boxes, whose objects have outlines: their boxes."""
    folder = tmp_path_factory.mktemp("outlined")
    for source in (data / "boxes").iterdir():
        (folder / source.name).symlink_to(source) if source.name != "annotations" else (folder / source.name).mkdir()
    for source in (data / "boxes/annotations").iterdir():
        annotations = json.loads(source.read_text())
        for one in annotations["annotations"]:
            x, y, width, height = one["bbox"]
            one["segmentation"] = [[x, y, x + width, y, x + width, y + height, x, y + height]]
        (folder / "annotations" / source.name).write_text(json.dumps(annotations))
    return folder


def test_mixed_labels_and_objects_have_the_size(data, outlined):
    chain = [mr.RandomResizedCrop(64), mr.CutMix()]
    for epoch, side in enumerate((24, 40)):
        mixed = loader(data, *SIZES, chain=chain)
        fixed = loader(data, chain=[mr.RandomResizedCrop(side), mr.CutMix()])
        for loop in (mixed, fixed):
            loop.set_epoch(epoch)
        assert epochs(mixed, 1) == epochs(fixed, 1)
        boxes = {"source": mr.Coco(outlined, masks=True), "batch": 4}
        sized = loader(data, *SIZES, chain=[mr.RandomResizedCrop(64, scale=(0.5, 1)), mr.HFlip()], **boxes)
        fixed = loader(data, chain=[mr.RandomResizedCrop(side, scale=(0.5, 1)), mr.HFlip()], **boxes)
        for loop in (sized, fixed):
            loop.set_epoch(epoch)
        found = [objects(batch) for batch in sized]
        assert found == [objects(batch) for batch in fixed] and found[0][-2][1:] == (side, side)


def test_samples_that_fail_leave_no_gap():
    pixels = np.arange(32 * 32, dtype=np.uint32).reshape(32, 32).astype(np.uint8)

    class Source:
        def __len__(self):
            return 32

        def __getitem__(self, index):
            if index % 5 == 3:
                raise ValueError("bad")
            return pixels + np.uint8(index)

    def loop(*words, size):
        return mr.Loader(mr.Samples(Source()), [mr.Resize((size, size))], "loader.on_error=skip", *words, batch=8,
                         numpy=True)

    sized = epochs(loop("output.sizes=[8,16]", "output.milestones=[1]", size=32), 2)
    for epoch, side in enumerate((8, 16)):
        fixed = loop(size=side)
        fixed.set_epoch(epoch)
        assert sized[epoch] == epochs(fixed, 1)[0]


@needs_torch
def test_tensors_and_a_sampler_of_ones_own(data):
    import torch

    loop = loader(data, *SIZES, numpy=False, sampler=range(40))
    kept = [batch for _ in range(3) for batch in loop]
    assert [batch.images.shape[2] for batch in kept] == [24] * 3 + [40] * 3 + [32] * 3
    assert all(torch.isfinite(batch.images).all() for batch in kept)


@pytest.mark.parametrize("words, chain, message", [
    (["output.sizes=[24,32]"], CHAIN, "output.milestones has 0 epochs for 2 sizes"),
    (["output.milestones=[1]"], CHAIN, "output.milestones has 1 epochs for 0 sizes"),
    (["output.sizes=[1,2,3]", "output.milestones=[2,2]"], CHAIN, "output.milestones must increase"),
    (["output.sizes=[24,0]", "output.milestones=[2]"], CHAIN, "output.sizes"),
    (["output.sizes=[24.5]"], CHAIN, "output.sizes"),
    ([f"output.sizes={[24] * 1001}", f"output.milestones={[*range(1, 1001)]}"], CHAIN, "has 1001 sizes"),
    (["output.sizes=[24]"], [], "no op of the chain has a size"),
    (["output.sizes=[24]"], [mr.RandomResizedCrop((64, 32))], r"augment.random_resized_crop.size=\[64,32\]"),
    (["output.sizes=[24]"], [mr.RandomResizedCrop(64), mr.Pad(4)], "with size=24 samples have 32x32, and not 24x24"),
    (["output.sizes=[24]", "loader.mode=cached"], CHAIN, "output.sizes with loader.mode=cached"),
])
def test_bad_schedules_are_refused_at_the_start(data, words, chain, message):
    with pytest.raises(mr.UsageError, match=message):
        loader(data, *words, chain=chain)
