"""Objects of Python as data sets: mr.Samples."""
import gc
import pathlib
import threading
import time
import weakref

import numpy as np
import pymillrace as mr
import pytest
from batches import hash_of, run_python

CHAIN = [mr.RandomResizedCrop(32), mr.HFlip()]
COUNT = 72  # training samples of the photos


@pytest.fixture(scope="module")
def folder(data):
    return mr.Folder(data / "photos")


@pytest.fixture(scope="module")
def expected(folder):
    """The hash of the folder's batches."""
    return hash_of(make(folder))


@pytest.fixture(scope="module")
def photos(folder):
    """Path and label of each sample, in the folder's order."""
    loader = mr.Loader(folder, [mr.CenterCrop(8)], "loader.shuffle=none", batch=COUNT, numpy=True)
    batch = next(iter(loader))
    return list(zip(batch.names, batch.class_ids.tolist()))


def make(source, *words, chain=CHAIN, **options):
    source = source if isinstance(source, (mr.Samples, mr.Folder)) else mr.Samples(source)
    return mr.Loader(source, chain, *words, **{"batch": 16, "numpy": True, **options})


def taken(batches):
    return [index for batch in batches for index in batch.samples.tolist()]


class Source:
    """Items of a list, with what the test wants to see of the calls."""

    def __init__(self, items):
        self.items, self.threads, self.calls, self.inside, self.most = items, set(), 0, 0, 0

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        self.inside += 1
        self.most = max(self.most, self.inside)
        self.calls += 1
        self.threads.add(threading.get_ident())
        time.sleep(0)  # lets go of the lock
        self.inside -= 1
        item = self.items[index]
        if isinstance(item, Exception):
            raise item
        return item


def read(path):
    return pathlib.Path(path).read_bytes()


@pytest.mark.parametrize("image", [
    str, pathlib.Path, read, lambda path: bytearray(read(path)), lambda path: memoryview(read(path)),
    lambda path: np.fromfile(path, np.uint8), lambda path: {"bytes": None, "path": path},
    lambda path: {"bytes": read(path), "path": None},
], ids=["path", "Path", "bytes", "bytearray", "memoryview", "array", "stored path", "stored bytes"])
def test_each_form_of_an_encoded_image_gives_the_folders_bytes(expected, photos, image):
    assert hash_of(make([(image(path), label) for path, label in photos])) == expected


@pytest.mark.parametrize("keys", [{"image": "photo", "label": "kind"},
                                  {"image": lambda item: item["photo"], "label": lambda item: np.int32(item["kind"])}])
def test_keys_and_functions_name_the_parts_of_an_item(expected, photos, keys):
    items = [{"photo": path, "kind": label} for path, label in photos]
    assert hash_of(make(mr.Samples(items, **keys))) == expected
    rows = [(label, path) for path, label in photos]
    assert hash_of(make(mr.Samples(rows, image=1, label=0))) == expected
    assert all((batch.labels == 0).all() for batch in make([path for path, _ in photos]))


def test_arrays_and_pil_images_keep_their_pixels():
    random = np.random.default_rng(1)
    color = random.integers(0, 256, (24, 20, 3), np.uint8)
    gray = random.integers(0, 256, (24, 20), np.uint8)
    items = [color, color[::-1, ::-1], gray, gray[..., None], np.asfortranarray(color)]
    expected = [color, color[::-1, ::-1], *[np.repeat(gray[..., None], 3, 2)] * 2, color]
    try:
        from PIL import Image
    except ImportError:
        pass  # tests with Pillow run where the frameworks are installed
    else:
        palette = Image.fromarray(color).convert("P")
        items += [Image.fromarray(color), Image.fromarray(gray), palette]
        expected += [color, expected[2], np.asarray(palette.convert("RGB"))]
    batch = next(iter(make(items, "loader.shuffle=none", "output.dtype=u8", "output.layout=hwc", "output.mean=0",
                           "output.std=1", chain=[mr.CenterCrop((24, 20))], batch=len(items))))
    assert all(np.array_equal(*pair) for pair in zip(batch.images, expected))


def test_bytes_are_equal_for_any_workers_threads_ranks_and_resumption(photos):
    words = "sampler.kind=weighted", "model.classes=1000"
    expected = [hash_of([batch]) for batch in make(photos, *words)]
    for speed in (["loader.workers=0"], ["loader.workers=3"], ["loader.io_threads=0"], ["loader.io_threads=3"]):
        assert [hash_of([batch]) for batch in make(photos, *words, *speed)] == expected
    ranks = [list(make(photos, *words, batch=8, rank=rank, world_size=2)) for rank in (0, 1)]
    halves = [tuple(np.concatenate(parts) for parts in zip(*pair)) for pair in zip(*ranks)]
    assert [hash_of([whole]) for whole in halves] == expected
    first = make(photos, *words)
    next(iter(first))
    again = make(photos, *words, "loader.workers=0")
    again.load_state_dict(first.state_dict())
    assert [hash_of([batch]) for batch in again] == expected[1:]


def test_one_thread_fetches_ahead_and_only_as_many_as_fit_the_batches(photos):
    source = Source(photos)
    loader = make(source, "loader.prefetch=2", "loader.workers=2", batch=8)
    source.calls = 0  # the first sample was looked at
    source.threads.clear()
    batches = iter(loader)
    next(batches)
    deadline = time.monotonic() + 20
    while source.calls < 24 and time.monotonic() < deadline:  # two batches ahead of the one that was taken
        time.sleep(0.01)
    time.sleep(0.1)
    assert source.calls == 24
    assert len(source.threads) == 1 and threading.get_ident() not in source.threads


def test_calls_never_overlap(photos):
    items = [ValueError("no") if index % 3 == 0 else item for index, item in enumerate(photos)]
    source = Source(items)
    loader = make(source, "loader.on_error=replace", "loader.workers=3", "loader.io_threads=2")
    assert sum(len(batch.labels) for batch in loader) == COUNT
    assert len(source.threads) > 1 and source.most == 1


def test_what_the_source_raises_is_the_cause_and_fails_its_sample_alone(photos):
    boom = KeyError("lost")
    items = [*photos[:5], boom, *photos[6:]]
    with pytest.raises(mr.DataError, match=r"^sample 5 of Source: KeyError: 'lost' \(test_samples.py:\d+\)") as caught:
        list(make(Source(items)))
    assert caught.value.__cause__ is boom and caught.value.hint.startswith("repair the source")
    loader = make(Source(items), "loader.on_error=skip")
    assert sorted(taken(loader)) == [index for index in range(COUNT) if index != 5]
    assert [failure.sample for failure in loader.failures] == [5] and "KeyError" in loader.failures[0].reason


@pytest.mark.parametrize("item, message", [
    (17, "the image is an object of type int"),
    (None, "the image is an object of type NoneType"),
    ({"photo": b""}, "the image is an object of type dict"),
    ({"bytes": None, "path": None}, "the image is an object of type NoneType"),
    (np.zeros((4, 4, 3), np.uint16), "16 bits per value, and 8 bits are asked for"),
    (np.zeros((4, 4, 3), np.float32), "floats, and 8 bits are asked for"),
    (np.zeros((4, 4, 3), np.int64), "an array of int64 with the shape"),
    (np.zeros((4, 4, 2), np.uint8), "2 channels, and 3 are asked for"),
    (np.zeros((4, 4, 513), np.uint8), "an array of 513 channels"),
        (np.zeros((0, 4, 3), np.uint8), r"the shape \(0, 4, 3\)"),
    (np.zeros((70000, 1), np.uint8), "an array of 1x70000 pixels"),
    (b"", "an empty file"),
    (b"GIF89a", "a GIF image"),
    ("/nowhere/a.jpg", "/nowhere/a.jpg: cannot be read"),
    ("nul\0.jpg", "nul"),
    (("x.jpg", "cat"), "label='cat' is not a whole number"),
    (("x.jpg", -1), "label -1"),
    (("x.jpg", 2**70), "label=.* is more than"),
])
def test_a_sample_of_another_type_is_one_line(item, message):
    with pytest.raises(mr.DataError, match=message) as caught:
        next(iter(make([item], "loader.workers=0", batch=1)))
    assert str(caught.value).startswith("sample 0 of list: ") and "\n" not in str(caught.value)


def test_a_source_that_changes_its_length_is_named(photos):
    items = list(photos)
    loader = make(items)
    del items[60:]
    with pytest.raises(mr.UsageError, match="list has 60 samples, and had 72 when the loader was made"):
        next(iter(loader))
    items += photos[60:]
    batches = iter(make(items, "loader.workers=0", "loader.shuffle=none"))
    next(batches)
    del items[20:]
    with pytest.raises(mr.DataError, match="sample 20 of list: list has 20 samples, and had 72"):
        next(batches)


class NoItems:
    def __len__(self):
        return 3


@pytest.mark.parametrize("samples, words, message", [
    (mr.Samples(iter([])), [], "needs __len__ and __getitem__"),
    (mr.Samples(NoItems()), [], "needs __len__ and __getitem__"),
    (mr.Samples([]), [], "list has no samples"),
    (mr.Samples({"train": []}), [], "choose a split"),
    (mr.Samples([b""], image=1.5), [], "image=1.5 is neither a key nor a function"),
    (mr.Samples([b""], label=True), [], "label=True is neither a key nor a function"),
    (mr.Samples([b""]), ["data.path=x"], "data.path=x beside mr.Samples"),
    (mr.Samples([b""]), ["data.reader=tar"], "data.reader=tar beside mr.Samples"),
    (mr.Samples([b""]), ["data.cache=ram"], "reader samples doesn't say how large list is"),
    (mr.Samples([b"", b""]), ["data.fold=1/2"], "what goes by class needs the number of classes"),
])
def test_bad_arguments_are_named(samples, words, message):
    with pytest.raises(mr.UsageError, match=message):
        make(samples, *words, batch=1)


def test_classes_come_from_the_key_and_limit_the_labels(photos):
    classes = 1 + max(label for _, label in photos)
    word = f"model.classes={classes}"
    assert len(make(photos, word).dataset.classes) == classes
    parts = [make(photos, word, f"data.fold={part}/2", "data.split=test", batch=1) for part in (1, 2)]
    assert sum(len(part.dataset) for part in parts) == COUNT
    for batch in make(photos, word, sampler=mr.MPerClassSampler(2), batch=4):
        assert len(set(batch.class_ids.tolist())) == 2
    with pytest.raises(mr.DataError, match=f"label {classes - 1} of {classes - 1} classes"):
        list(make(photos, f"model.classes={classes - 1}"))
    with pytest.raises(mr.DataError, match="^sample 3 of list: label='cat' is not a whole number"):
        make([*photos[:3], ("x.jpg", "cat")], word, "data.fraction=0.5", batch=1)


def test_profile_says_what_fetching_costs(photos):
    class Slow(Source):
        def __getitem__(self, index):
            time.sleep(0.002)
            return super().__getitem__(index)

    fetch = make(Slow(photos)).profile(8)[0]
    assert fetch.step == "fetch" and fetch.s_per_sample >= 0.002


def test_a_loader_lets_go_of_its_source_and_batches_need_neither(photos):
    source = Source(photos)
    gone = weakref.ref(source)
    batch = next(iter(make(source)))
    del source
    gc.collect()
    assert gone() is None
    assert batch.names[0] == f"sample {batch.samples[0]} of Source"


def test_a_source_that_blocks_keeps_no_process_alive(photos):
    done = run_python("""
    import sys, time
    import pymillrace as mr

    class Blocks(list):
        def __getitem__(self, index):
            if index == 20:
                print("blocks", flush=True)
                time.sleep(1000)
            return super().__getitem__(index)

    loader = mr.Loader(mr.Samples(Blocks([sys.argv[1]] * 40)), [mr.CenterCrop(8)], "loader.shuffle=none", batch=8,
                       numpy=True)
    print(len(next(iter(loader)).labels), flush=True)
    time.sleep(0.5)
    """, photos[0][0])
    assert (done.returncode, sorted(done.stdout.split()), done.stderr) == (0, ["8", "blocks"], "")


@pytest.mark.parametrize("workers", [0, 1])
def test_ctrl_c_in_a_source_is_no_bad_sample(photos, workers):
    done = run_python("""
    import os, signal, sys, threading, time
    import pymillrace as mr

    class Interrupted(list):
        def __getitem__(self, index):
            if index == 20 and not calls:
                calls.append(index)
                signal.raise_signal(signal.SIGINT)
            return super().__getitem__(index)

    calls = []
    loader = mr.Loader(mr.Samples(Interrupted([sys.argv[1]] * 40)), [mr.CenterCrop(8)], f"loader.workers={sys.argv[2]}",
                       "loader.shuffle=none", "loader.on_error=skip", batch=8, numpy=True)
    try:
        for batch in loader:
            time.sleep(0.1)
    except KeyboardInterrupt:
        print("interrupted", loader.failures, flush=True)
    """, photos[0][0], workers)
    assert (done.stdout, done.stderr) == ("interrupted []\n", ""), done.stderr


def test_a_data_frame_is_read_by_rows(expected, photos):
    pandas = pytest.importorskip("pandas", reason="NOT TESTED with pandas: it cannot be imported")
    frame = pandas.DataFrame(photos, columns=["photo", "kind"])
    assert hash_of(make(mr.Samples(frame, image="photo", label="kind"))) == expected


@pytest.fixture
def pyarrow():
    return pytest.importorskip("pyarrow", reason="NOT TESTED with pyarrow: it cannot be imported")


@pytest.fixture
def no_calls(monkeypatch):
    """Fails tests in which Python is asked for a sample."""
    monkeypatch.setattr("pymillrace.samples.Feed.fetch", None)
    monkeypatch.setattr("pymillrace.samples.Feed.label", None)


@pytest.mark.parametrize("image, label", [
    ("binary", "int8"), ("large_binary", "uint8"), ("string", "int16"), ("large_string", "uint16"), ("struct", "int32"),
    ("binary", "uint32"), ("struct", "int64"), ("string", "uint64")])
def test_columns_of_a_table_give_the_folders_bytes_without_python(expected, photos, pyarrow, no_calls, image, label):
    values = [path if "string" in image else read(path) for path, _ in photos]
    if image == "struct":
        values = [{"more": 1.5, "path": path, "bytes": data if at % 2 else None}
                  for at, (data, (path, _)) in enumerate(zip(values, photos))]
    kind = None if image == "struct" else getattr(pyarrow, image)()
    before = pyarrow.table({"photo": pyarrow.array(values[1:4], kind), "kind": pyarrow.array([0] * 3, label)})
    whole = pyarrow.table({"photo": pyarrow.array(values, kind),
                           "kind": pyarrow.array([number for _, number in photos], label)})
    table = pyarrow.concat_tables([before, whole[:40], whole[40:40], whole[40:]])[3:]  # chunks at offsets
    assert table.column("photo").num_chunks > 1
    samples = mr.Samples(table, image="photo", label="kind")
    assert hash_of(make(samples)) == expected
    assert len(make(samples, "data.fold=1/2", "model.classes=100").dataset) == COUNT // 2


def test_a_null_in_a_column_is_one_bad_sample(photos, pyarrow):
    paths = [None if at == 7 else path for at, (path, _) in enumerate(photos)]
    table = pyarrow.table({"photo": paths, "kind": [None if at == 9 else 0 for at in range(COUNT)]})
    loader = make(mr.Samples(table, image="photo", label="kind"), "loader.on_error=skip")
    assert set(range(COUNT)) - set(taken(loader)) == {7, 9}
    assert {(failure.sample, failure.reason) for failure in loader.failures} == {
        (7, "the image is null"), (9, "column kind is null")}


@pytest.mark.parametrize("columns, parts, message", [
    ({"a": [b""]}, {}, "image=None.*name one of the columns a"),
    ({"a": [b""]}, {"image": "b"}, "image='b'.*name one of the columns a"),
    ({"a": [b""]}, {"image": "a", "label": lambda row: 0}, "label=<function"),
    ({"a": [1.5]}, {"image": "a"}, "column a has Arrow's type 'g'.*cast it to binary"),
    ({"a": [b""], "b": ["cat"]}, {"image": "a", "label": "b"}, "column b has Arrow's type 'u'.*cast it to int64"),
    ({"a": [{"path": "x"}]}, {"image": "a"}, r"column a has Arrow's type '\+s'"),
    ({"a": []}, {"image": "a"}, "Table has no samples"),
])
def test_columns_that_hold_no_samples_are_named(pyarrow, columns, parts, message):
    with pytest.raises(mr.UsageError, match=message):
        make(mr.Samples(pyarrow.table(columns), **parts), batch=1)


def test_damaged_columns_are_refused_before_they_are_read(pyarrow):
    offsets = pyarrow.py_buffer(np.array([0, 10**6, 4], np.int32).tobytes())
    broken = pyarrow.Array.from_buffers(pyarrow.binary(), 2, [None, offsets, pyarrow.py_buffer(b"1234")])
    with pytest.raises(mr.DataError, match="column a: .*(?i:offset)"):
        make(mr.Samples(pyarrow.table({"a": broken}), image="a"), batch=1)


def test_a_hugging_face_data_set_gives_its_undecoded_bytes(expected, photos):
    datasets = pytest.importorskip("datasets", reason="NOT TESTED with datasets: it cannot be imported")
    names = [f"kind {index}" for index in range(1 + max(label for _, label in photos))]
    features = datasets.Features({"photo": datasets.Image(), "kind": datasets.ClassLabel(names=names),
                                  "text": datasets.Value("string")})
    columns = {"photo": [{"bytes": read(path), "path": None} for path, _ in photos],
               "kind": [label for _, label in photos], "text": ["a"] * COUNT}
    whole = datasets.Dataset.from_dict(columns, features=features)
    loader = make(whole.with_transform(lambda rows: 1 / 0))
    assert hash_of(loader) == expected
    assert loader.dataset.classes == names and whole.features["photo"].decode
    shuffled = whole.shuffle(seed=2)
    order = list(shuffled["kind"])
    assert len(make(shuffled, "data.fold=1/2", "data.split=test").dataset) == COUNT // 2
    assert [label for batch in make(shuffled, "loader.shuffle=none") for label in batch.labels] == order
    assert all((batch.labels == [order[sample] for sample in batch.samples]).all() for batch in
               make(mr.Samples(shuffled, label=lambda row: row["kind"], image="photo"), batch=32))
    with pytest.raises(mr.UsageError, match="image='picture' is no column"):
        make(mr.Samples(whole, image="picture"))
    with pytest.raises(mr.UsageError, match="0 columns of type Image among kind, text"):
        make(whole.remove_columns("photo"))
    with pytest.raises(mr.UsageError, match="choose a split"):
        make(datasets.DatasetDict(train=whole))
