"""Parquet files by row groups: the bytes are those of the table, and few groups are in memory."""
import gc
import hashlib
import time
import warnings

import numpy as np
import pymillrace as mr
import pytest
import tiny_jpeg

try:
    import pyarrow
    from pyarrow import parquet
except ImportError:
    parquet = None

pytestmark = pytest.mark.skipif(parquet is None, reason="NOT TESTED with pyarrow: it cannot be imported")
COUNT, GROUP = 240, 10
CROP = [mr.RandomCrop((8, 8)), mr.HFlip()]


@pytest.fixture(scope="module")
def table():
    draw = np.random.default_rng(5)
    images = [tiny_jpeg.encode(draw.integers(0, 256, (12, 16)).astype(np.uint8)) for _ in range(COUNT)]
    return pyarrow.table({"jpeg": images, "class": pyarrow.array([at % 7 for at in range(COUNT)], "int16")})


@pytest.fixture(scope="module")
def file(table, tmp_path_factory):
    path = tmp_path_factory.mktemp("parquet") / "photos.parquet"
    parquet.write_table(table, path, row_group_size=GROUP)
    return path


@pytest.fixture
def loads(monkeypatch):
    """The row groups that are read, in order."""
    loads, original = [], parquet.ParquetFile.read_row_group

    def read_row_group(self, number, *arguments, **options):
        loads.append(number)
        return original(self, number, *arguments, **options)

    monkeypatch.setattr(parquet.ParquetFile, "read_row_group", read_row_group)
    return loads


def make(source, *overrides, shuffle="window:40", **options):
    return mr.Loader(source, CROP, f"loader.shuffle={shuffle}", "output.dtype=u8", *overrides,
                     **{"batch": 6, "numpy": True, **options})


def from_file(file, *overrides, **options):
    return make(mr.Parquet(file, image="jpeg", label="class"), *overrides, **options)


def from_table(table, *overrides, **options):
    return make(mr.Samples(table, image="jpeg", label="class"), *overrides, **options)


def hash_of(*loaders, epochs=2):
    state = hashlib.sha256()
    for _ in range(epochs):
        for batches in zip(*loaders):
            for part in (part for one in zip(*((batch.images, batch.labels) for batch in batches)) for part in one):
                state.update(part.tobytes())
    return state.hexdigest()


@pytest.mark.parametrize("shuffle", ["none", "window:7", "window:40", "window:64", "window:1000"])
def test_bytes_are_those_of_the_table_for_any_workers(table, file, shuffle):
    expected = hash_of(from_table(table, shuffle=shuffle))
    for workers in (0, 1, 3):
        assert hash_of(from_file(file, f"loader.workers={workers}", shuffle=shuffle)) == expected


def test_ranks_share_the_batches_and_a_resumption_goes_on(table, file):
    ranks = [from_file(file, rank=rank, world_size=2, batch=3) for rank in range(2)]
    assert hash_of(*ranks) == hash_of(from_table(table))
    expected = [batch.images.copy() for batch in from_table(table)][9:]
    first = from_file(file)
    for _, _ in zip(range(9), first):
        pass
    state = first.state_dict()
    again = from_file(file, "loader.workers=3")
    again.load_state_dict(state)
    rest = [batch.images for batch in again]
    assert len(rest) == len(expected) and all(np.array_equal(one, other) for one, other in zip(rest, expected))


def test_each_group_is_loaded_once_an_epoch(file, loads):
    # Two windows of four groups are in use at most.
    loader = from_file(file, "loader.workers=2", "loader.prefetch=2")
    loads.clear()
    for _ in range(3):
        for _ in loader:
            pass
    assert set(loads) == set(range(COUNT // GROUP))
    assert len(loads) <= 3 * COUNT // GROUP + 4  # the workers go on with the next epoch


def test_a_rank_loads_the_groups_that_hold_rows_of_its_own(file, loads):
    # Each batch is two groups, one for each rank.
    loader = from_file(file, "loader.workers=0", shuffle="none", rank=1, world_size=2, batch=GROUP)
    loads.clear()
    for _ in loader:
        pass
    assert {number % 2 for number in loads} == {1}


def test_few_groups_are_in_memory(tmp_path):
    image = tiny_jpeg.encode(np.zeros((8, 8), np.uint8)) + bytes(100_000)
    parquet.write_table(pyarrow.table({"jpeg": [image] * 400}), tmp_path / "set.parquet", row_group_size=10,
                        use_dictionary=False)
    loader = mr.Loader(mr.Parquet(tmp_path / "set.parquet", image="jpeg"), [mr.CenterCrop(8)],
                       "loader.shuffle=window:20", "loader.prefetch=2", batch=5, numpy=True)
    gc.collect()
    before, most = pyarrow.total_allocated_bytes(), 0
    for _ in range(2):
        for _ in loader:
            most = max(most, pyarrow.total_allocated_bytes() - before)
    # Two windows of two groups of 1 MB, and one that is being made.
    assert 10 * len(image) < most < 7 * 10 * len(image)
    loader.close()
    deadline = time.monotonic() + 5
    while pyarrow.total_allocated_bytes() - before > len(image) and time.monotonic() < deadline:
        time.sleep(0.01)  # a group may be in the making
        loader.close()
    assert pyarrow.total_allocated_bytes() - before < len(image)


def test_files_folders_and_structs(table, file, tmp_path):
    parquet.write_table(table[:100], tmp_path / "0.parquet", row_group_size=30)
    parquet.write_table(table[100:], tmp_path / "1.parquet")
    (tmp_path / "notes.txt").write_text("no data")
    expected = hash_of(from_table(table))
    assert hash_of(from_file(tmp_path)) == expected
    assert hash_of(from_file([tmp_path / "0.parquet", str(tmp_path / "1.parquet")])) == expected
    structs = pyarrow.table({"image": [{"bytes": one, "path": None} for one in table.column("jpeg").to_pylist()]})
    parquet.write_table(structs, tmp_path / "structs.parquet", row_group_size=25)
    loader = make(mr.Parquet(tmp_path / "structs.parquet", image="image"))
    assert np.array_equal(next(iter(loader)).images, next(iter(from_table(table))).images)
    assert not any(batch.labels.any() for batch in loader)


def test_a_damaged_group_is_an_error_of_its_samples(table, tmp_path):
    path = tmp_path / "set.parquet"
    parquet.write_table(table, path, row_group_size=GROUP, compression="zstd", use_dictionary=False)
    begin = parquet.read_metadata(path).row_group(3).column(0).data_page_offset
    data = bytearray(path.read_bytes())
    data[begin:begin + 300] = bytes(300)
    path.write_bytes(data)
    with pytest.raises(mr.DataError, match=r"sample 3\d of .*set\.parquet: "):
        list(from_file(path, shuffle="none"))
    loader = from_file(path, "loader.on_error=skip")
    taken = sorted(sample for batch in loader for sample in batch.samples.tolist())
    assert taken == [at for at in range(COUNT) if not 30 <= at < 40]
    assert len(loader.failures) == 10


def test_a_null_is_one_bad_sample(table, tmp_path):
    images = table.column("jpeg").to_pylist()
    images[17] = None
    parquet.write_table(pyarrow.table({"jpeg": images}), tmp_path / "set.parquet", row_group_size=GROUP)
    loader = make(mr.Parquet(tmp_path / "set.parquet", image="jpeg"), "loader.on_error=skip")
    assert sum(len(batch.samples) for batch in loader) == COUNT - 1
    assert [(failure.sample, failure.reason) for failure in loader.failures] == [(17, "the image is null")]


def test_what_is_wrong_is_said_in_one_line(table, file, tmp_path):
    for overrides in ((), ("sampler.kind=balanced", "sampler.per_class=2", "model.classes=7")):
        with pytest.raises(mr.UsageError, match=r"this order of samples needs all 24 row groups at once "
                                                r"\(set loader\.shuffle=window:40"):
            from_file(file, *overrides, shuffle="global")
    for shuffle in ("none", "window:40"):
        with pytest.raises(mr.UsageError, match="shuffle|needs all 24 row groups"):
            mr.Loader(mr.Parquet(file, image="jpeg"), [mr.CenterCrop(8)], f"loader.shuffle={shuffle}", batch=4,
                      sampler=range(COUNT))
    with pytest.raises(mr.UsageError, match="needs all 24 row groups"):
        mr.Loader(mr.Parquet(file, image="jpeg"), [mr.CenterCrop(8)], batch=4, sampler=range(COUNT))
    with pytest.raises(mr.UsageError, match="choose among rows in memory"):
        from_file(file, "data.fold=1/2", "model.classes=7")
    with pytest.raises(mr.UsageError, match="image='photo' is no column .name one of jpeg, class"):
        make(mr.Parquet(file, image="photo"))
    with pytest.raises(mr.UsageError, match="column class has Arrow's type 's'"):
        make(mr.Parquet(file, image="class"))
    with pytest.raises(mr.UsageError, match="no files"):
        make(mr.Parquet(tmp_path, image="jpeg"))
    with pytest.raises(mr.UsageError, match="none.parquet: No such file"):
        make(mr.Parquet(tmp_path / "none.parquet", image="jpeg"))
    (tmp_path / "text.parquet").write_text("no Parquet file at all")
    with pytest.raises(mr.DataError, match="text.parquet: "):
        make(mr.Parquet(tmp_path / "text.parquet", image="jpeg"))
    parquet.write_table(table[:0], tmp_path / "empty.parquet")
    with pytest.raises(mr.UsageError, match="empty.parquet has no rows"):
        make(mr.Parquet(tmp_path / "empty.parquet", image="jpeg"))
    parquet.write_table(table.set_column(1, "class", pyarrow.array([0] * COUNT)), tmp_path / "other.parquet")
    with pytest.raises(mr.UsageError, match="other.parquet: its columns have other types"):
        from_file([file, tmp_path / "other.parquet"])


def test_a_loader_that_is_left_ends_its_loads(file):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(20):
            loader = from_file(file)
            next(iter(loader))
            del loader
