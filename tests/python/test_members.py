"""Other members of archives than images: batches have their bytes, by name."""
import copy
import io
import pickle
import tarfile
import warnings

import numpy as np
import pymillrace as mr
import pytest
import tiny_jpeg

COUNT = 30
CROP = [mr.RandomCrop((16, 16))]


def caption(index):
    return None if index % 5 == 4 else f"Bild {index}: größer als {index - 1}" if index else ""


@pytest.fixture(scope="module")
def archives(tmp_path_factory):
    """Two archives of images with captions and metadata."""
    folder = tmp_path_factory.mktemp("captioned")
    image = tiny_jpeg.encode(np.arange(24 * 32, dtype=np.uint8).reshape(24, 32))
    for shard in range(2):
        with tarfile.open(folder / f"{shard}.tar", "w") as archive:
            for index in range(shard * COUNT // 2, (shard + 1) * COUNT // 2):
                text = caption(index)
                members = {"jpg": image, "json": f'{{"number": {index}}}'.encode(),
                           **({} if text is None else {"txt": text.encode()})}
                for name, data in sorted(members.items()):
                    info = tarfile.TarInfo(f"{index:06}.{name}")
                    info.size = len(data)
                    archive.addfile(info, io.BytesIO(data))
    return folder


def make(archives, *overrides, chain=CROP, members=("txt", "json"), **options):
    return mr.Loader(mr.Tar(archives, members=members), chain, *overrides, **{"batch": 8, "numpy": True, **options})


def expect_members(batch):
    samples = batch.samples.tolist()
    assert list(batch.members) == ["txt", "json"] and len(batch.members["txt"]) == len(samples)
    for index, raw, text, data in zip(samples, batch.members["txt"], batch.members.text("txt"), batch.members["json"]):
        assert text == caption(index) and (raw is None) == (text is None)
        assert data == b'{"number": %d}' % index


def test_batches_have_the_members_of_their_samples(archives):
    seen = []
    for workers in (0, 2):
        for batch in make(archives, f"loader.workers={workers}"):
            expect_members(batch)
            seen += batch.samples.tolist()
    assert seen[:COUNT] == seen[COUNT:] and sorted(seen[:COUNT]) == list(range(COUNT))


def test_they_are_kept_copied_and_pickled(archives):
    batches = list(make(archives))
    for batch in batches:
        for one in (batch, copy.copy(batch), copy.deepcopy(batch), pickle.loads(pickle.dumps(batch))):
            expect_members(one)


def test_a_function_can_hand_them_out(archives):
    loader = make(archives, function=lambda batch: (batch.images, batch.members.text("txt")))
    assert all(len(images) == len(texts) for images, texts in loader)


def test_text_that_is_none_names_its_sample(tmp_path):
    image = tiny_jpeg.encode(np.zeros((8, 8), np.uint8))
    with tarfile.open(tmp_path / "set.tar", "w") as archive:
        for name, data in (("cat.jpg", image), ("cat.txt", b"caf\xe9")):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    batch = next(iter(mr.Loader(mr.Tar(tmp_path, members="txt"), [mr.CenterCrop(8)], batch=1, numpy=True)))
    assert batch.members["txt"] == [b"caf\xe9"]
    with pytest.raises(mr.DataError, match=r"set\.tar member cat\.jpg: its member \.txt is not UTF-8 at byte 3"):
        batch.members.text("txt")
    with pytest.raises(mr.UsageError, match="this loader hands out no members"):
        next(iter(mr.Loader(mr.Tar(tmp_path), [mr.CenterCrop(8)], batch=1, numpy=True))).members


def test_what_is_wrong_is_said_in_one_line(archives):
    with pytest.raises(KeyError, match="cls"):
        next(iter(make(archives))).members["cls"]
    with pytest.raises(mr.UsageError, match=r"data\.members=txt,: a name is empty"):
        make(archives, members="txt,")
    mixed = next(iter(make(archives, "model.classes=2", chain=[*CROP, mr.MixUp()])))
    for batch in (mixed, copy.deepcopy(mixed)):
        with pytest.raises(mr.UsageError, match="an op mixes samples, and their members stay apart"):
            batch.members["txt"]


def test_a_name_that_no_sample_has_is_warned_of(archives):
    with pytest.warns(RuntimeWarning, match="data.members=txtt: none of the 30 samples that were read first"):
        list(make(archives, members=("txtt", "txt")))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        list(make(archives))
