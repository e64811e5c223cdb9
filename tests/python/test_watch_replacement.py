"""What-if row "replaced by millrace": what a run keeps for it, what follows from a measurement, and why there is none."""
import dataclasses
import json
import sys
import types

import pytest

pytest.importorskip("torch", reason="NOT TESTED with PyTorch: it cannot be imported", exc_type=ImportError)

import pymillrace as mr
import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, SequentialSampler, Subset, default_collate

from pymillrace import builtin_ops
from pymillrace._predict import MAX_COOLING, MAX_CROWDING
from pymillrace.errors import DataError
from pymillrace.watcher import command, counterpart, recorded as records, replacement, replacement_code
from pymillrace.watcher.words import parse

from torchvision_stand_in import stand_in, transform  # noqa: F401

pytestmark = pytest.mark.usefixtures("stand_in")


class Resize:
    """A class of a name that torchvision also has."""

    def __call__(self, value):
        return value


def compose(*parts):
    return transform("Compose", transforms=list(parts))


CROP = {"size": (48, 48), "scale": (0.5, 1.0), "ratio": (0.75, 1.5), "interpolation": "bilinear", "antialias": True}
KNOWN = (transform("RandomResizedCrop", **CROP), transform("RandomHorizontalFlip", p=0.25), transform("ToTensor"),
         transform("Normalize", mean=[0.5, 0.5, 0.5], std=[0.25, 0.25, 0.25]))
WORDS = ["augment+=random_resized_crop{size=[48,48],scale=[0.5,1.0],ratio=[0.75,1.5],interpolation=bilinear,antialias=true}",
         "augment+=hflip{p=0.25}", "output.mean=[0.5,0.5,0.5]", "output.std=[0.25,0.25,0.25]"]


class Photos(Dataset):
    """As torchvision's ImageFolder: a list of paths and classes."""

    def __init__(self, files, chain, **attributes):
        self.samples = [(str(file), 0) for file in files]
        self.transform = chain
        self.__dict__.update(attributes)

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        return self.transform(torch.zeros(3, 8, 8)), 0


@pytest.fixture(scope="module")
def files(data):
    return sorted((data / "photos").rglob("*.jpg"))[:24]


def watched(tmp_path, dataset, **options):
    run = tmp_path / "run"
    with mr.watching(run=run):
        loader = DataLoader(dataset, batch_size=4, **options)
        for _ in range(20 // len(loader) + 1):  # predictions need 20 steps
            for _ in loader:
                pass
    return run, json.loads((run / "summary.json").read_text())


def recorded(fetch_s, update_s, batch=10, workers=0, reason=None):
    """A summary with the input of a prediction."""
    nothing = {"cpu": 0.0, "blocked": 0.0, "threads": 1}
    work = {place: {"cpu": 1.0, "blocked": 0.0} for place in ("dataset", "transform", "collate")}
    return {"loader": "a.py:1", "loaders": [{"name": "a.py:1", "work": work, "counterpart":
                                             {"words": WORDS, "samples": [__file__], "reason": reason}}],
            "what_if": {"images_per_s": 100.0, "doubts": {}, "settings": {
                "num_workers": workers, "prefetch_factor": None, "batch": batch, "cores": 2, "send": nothing,
                "receive": nothing, "tensors": 0, "tensor_wait": 0.0, "hand": nothing, "fetch": {**nothing, "cpu": fetch_s},
                "update": {**nothing, "blocked": update_s}}}}


def test_the_rate_follows_from_the_measured_cpu_per_image():
    asked = []

    def measure(*arguments):
        asked.append(arguments)
        return 0.002

    row = replacement.row(recorded(fetch_s=0.1, update_s=0.012), measure)
    assert asked == [(WORDS, [__file__], 10)]
    # Ten images take 100 + 12 ms now. Afterwards one worker needs 20 ms for them, and two need 10 ms.
    assert row["loader_workers"] == 2 and row["reason"] is None
    assert row["ratio"] == pytest.approx(112 / 12.02, rel=0.01)
    assert row["images_per_s"] == pytest.approx(100 * row["ratio"])
    assert row["low"] < row["ratio"] < row["high"]
    assert row["loader_images_per_s"] == pytest.approx(1000, rel=0.02)
    slower = replacement.row(recorded(fetch_s=0.1, update_s=0.012), lambda *_: 0.040)
    # 400 ms of CPU time per batch on two cores, which slow each other down; one was busy for 100 ms of 112.
    assert slower["ratio"] == pytest.approx(112 / 200 * (MAX_COOLING**(12 / 112) / MAX_CROWDING)**0.5, rel=0.02)
    bound = replacement.row(recorded(fetch_s=0.1, update_s=0.500), lambda *_: 0.002)
    assert bound["loader_workers"] == 1 and bound["ratio"] == pytest.approx(600 / 500, rel=0.01)


def test_workers_share_the_cores_with_the_update():
    summary = recorded(fetch_s=0.1, update_s=0.0)
    summary["what_if"]["settings"]["update"] = {"cpu": 0.010, "blocked": 0.0, "threads": 1}
    row = replacement.row(summary, lambda *_: 0.002)
    # 20 ms of loading and 10 ms of update per batch fill two cores for 15 ms, and slow each other down.
    assert row["ratio"] == pytest.approx(110 / 15.01 / MAX_CROWDING**0.5, rel=0.02)


def test_the_wait_for_tensors_goes_with_the_workers_that_caused_it():
    summary = recorded(fetch_s=0.002, update_s=0.010, workers=8)
    summary["what_if"]["settings"] |= {"tensor_wait": 0.010, "prefetch_factor": 2}
    row = replacement.row(summary, lambda *_: 0.0001)
    assert row["ratio"] == pytest.approx(20 / 10.02, rel=0.02)


def test_the_lock_that_sending_many_tensors_takes_goes_with_the_workers():
    summary = recorded(fetch_s=0.020, update_s=0.001, workers=1)
    few = replacement.row(summary, lambda *_: 0.0001)
    summary["what_if"]["settings"] |= {"tensors": 32, "prefetch_factor": 2}
    many = replacement.row(summary, lambda *_: 0.0001)
    assert many["ratio"] / few["ratio"] == pytest.approx((20 + 0.3 + 0.6 + 32 * 0.3) / (20 + 0.3 + 1.2), rel=0.02)
    assert many["low"] <= few["ratio"]


def test_waiting_for_storage_stays():
    summary = recorded(fetch_s=0.0, update_s=0.001)
    summary["what_if"]["settings"]["fetch"]["blocked"] = 0.1
    summary["loaders"][0]["work"]["dataset"]["blocked"] = 3.0
    summary["loaders"][0]["work"]["collate"]["blocked"] = 1.0
    row = replacement.row(summary, lambda *_: 1e-9)
    assert row["loader_images_per_s"] == pytest.approx(10 / 0.075 * row["loader_workers"], rel=0.02)


def test_a_run_keeps_the_chain_and_files_and_what_if_measures_them(tmp_path, files, capsys):
    run, summary = watched(tmp_path, Photos(files, compose(*KNOWN)))
    found = summary["loaders"][0]["counterpart"]
    assert found == {"words": WORDS, "samples": [str(file) for file in files], "reason": None, "source": None,
                     "no_source": "the data set is Photos, not torchvision's ImageFolder"}
    assert summary["what_if"]["settings"]["hand"]["cpu"] > 0
    capsys.readouterr()
    assert command.show(run) == 0
    text = capsys.readouterr().out.splitlines()
    row, = [line for line in text if line.startswith("replaced by millrace  ")]
    assert float(row.split()[3].replace(",", "")) > 0
    assert any(line.startswith("replaced by millrace: with loader.workers=") and "measured on 24 of its files" in line
               for line in text)


def test_at_most_64_files_are_kept_spread_over_the_set(tmp_path, files):
    many = Photos(files * 6, compose(*KNOWN))  # 144
    assert len(counterpart.counterpart_of(DataLoader(many))["samples"]) == 64
    found = counterpart.counterpart_of(DataLoader(Subset(many, range(5, 9))))
    assert (found["words"], found["samples"], found["reason"]) == (WORDS, [str(file) for file in files[5:9]], None)


@pytest.mark.parametrize("chain, attributes, reason", [
    (compose(KNOWN[0], transform("RandomChoice")), {}, "torchvision's RandomChoice has no counterpart"),
    (compose(KNOWN[0], Resize()), {}, "the transform Resize is not torchvision's"),
    (compose(*KNOWN), {"target_transform": abs}, "target_transform has no counterpart"),
    (compose(*KNOWN), {"samples": [3] * 12}, "Photos has no list of image files"),
    (compose(*KNOWN), {"samples": [("nowhere.jpg", 0)] * 12}, "Photos has no list of image files"),
    (compose(*KNOWN), {"other_transform": compose(KNOWN[0])}, "Photos holds 2 transforms"),
])
def test_without_a_counterpart_the_row_says_why(tmp_path, files, capsys, chain, attributes, reason):
    run, summary = watched(tmp_path, Photos(files, chain, **attributes))
    assert summary["loaders"][0]["counterpart"]["reason"].startswith(reason)

    def never(*_):
        raise AssertionError("there is nothing to measure")

    assert replacement.row(summary, never)["reason"].startswith(reason)
    capsys.readouterr()
    assert command.show(run) == 0
    assert f"\nreplaced by millrace: not predicted: {reason}" in capsys.readouterr().out


def test_files_that_cannot_be_measured_are_named(tmp_path, files):
    damaged = tmp_path / "damaged.jpg"
    damaged.write_bytes(b"no image")
    for path, reason in ((damaged, "damaged.jpg"), (tmp_path / "gone.jpg", "1 of its 1 sampled files are gone")):
        summary = recorded(fetch_s=0.1, update_s=0.01)
        summary["loaders"][0]["counterpart"]["samples"] = [str(path)]
        assert reason in replacement.row(summary)["reason"]
    summary["loaders"][0]["counterpart"] = None
    assert "earlier version" in replacement.row(summary)["reason"]


def test_a_data_set_that_raises_does_not_disturb_the_loop(tmp_path):
    class Odd(Photos):
        @property
        def __dict__(self):
            raise ValueError("no")

    reason = counterpart.counterpart_of(types.SimpleNamespace(dataset=Odd.__new__(Odd)))["reason"]
    assert reason == "Odd cannot be examined: ValueError: no"


# The code that replaces a loader


@pytest.fixture
def image_folder(monkeypatch, data):
    """torchvision's ImageFolder, and the folder of photos that it reads."""
    module = types.ModuleType("torchvision.datasets.folder")
    module.default_loader = lambda path: path

    class ImageFolder(Photos):
        def __init__(self, root, chain, loader=module.default_loader):
            super().__init__(sorted(root.rglob("*.jpg")), chain, root=str(root), loader=loader)

    module.ImageFolder = ImageFolder
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return lambda chain=compose(*KNOWN), **options: ImageFolder(data / "photos/train", chain, **options)


def shown(run, capsys, *words):
    capsys.readouterr()
    code = command.main(["what-if", *words, str(run)] if words else ["what-if", str(run), "--show-code"])
    return code, capsys.readouterr()


@pytest.mark.parametrize("shuffle, drop_last", ((True, False), (False, True)))
def test_the_code_reads_the_same_images_in_the_same_way(tmp_path, capsys, image_folder, shuffle, drop_last):
    data = image_folder()
    run, summary = watched(tmp_path, data, shuffle=shuffle, drop_last=drop_last)
    code, said = shown(run, capsys)
    assert (code, said.err) == (0, "")
    assert shown(run, capsys, "--show-code")[1].out == said.out
    names = {}
    exec(compile(said.out, "shown", "exec"), names)  # asserts the number of images
    loader = names["loader"]
    assert loader.dataset.path == data.root and loader.dataset.classes == sorted({path.split("/")[-2] for path, _ in data.samples})
    batches = list(loader)
    whole = len(data) // 4 + (len(data) % 4 > 0 and not drop_last)
    assert len(batches) == whole and batches[0].images.shape == (4, 3, 48, 48)
    samples = [int(one) for batch in batches for one in batch.samples]
    assert len(set(samples)) == min(len(data), 4 * whole) and (samples == sorted(samples)) == (not shuffle)
    assert batches[0].images.min() >= -2 and batches[0].images.max() <= 2  # (0 to 1 less 0.5) / 0.25
    assert f"# In place of the DataLoader that {summary['loader']} iterates over:" in said.out


def ops():
    """Returns each of the built-in ops, as it is by default and with values of its own."""
    for name in builtin_ops.__all__:
        of_class = getattr(builtin_ops, name)
        if of_class is builtin_ops.RandomApply:
            yield of_class((builtin_ops.HFlip(0.25), builtin_ops.ColorJitter(hue=(-0.1, 0.1))), p=0.75)
            continue
        given = [(8, 8) if "Sequence" in str(each.type) else 8 for each in dataclasses.fields(of_class)
                 if each.default is dataclasses.MISSING]
        yield of_class(*given)


@pytest.mark.parametrize("op", list(ops()), ids=lambda op: type(op).__name__)
def test_an_op_is_written_as_it_was(op):
    written = replacement_code._written(replacement_code._op(*parse(op.override())[1]))
    assert eval(written, {"mr": mr}).override() == op.override()


@pytest.mark.parametrize("word, text", (("augment+=hflip{probability=1}", "hflip has the parameter probability"),
                                        ("augment+=random_resized_crop{}", "random_resized_crop has no size"),
                                        ("augment+=random_apply{transforms=[1]}", "has the parameter transforms")))
def test_a_record_with_values_that_no_op_has_gives_no_code(word, text):
    with pytest.raises(DataError, match=text):
        replacement_code._op(*parse(word)[1])


@pytest.mark.parametrize("word, text", (("output.mean=0.5", "output.mean alone"), ("output.std=[1,2]", "output.std alone")))
def test_a_record_with_half_a_normalisation_gives_no_code(word, text):
    source = {"folder": "/a", "images": 1, "batch": 2, "shuffle": True, "drop_last": False}
    with pytest.raises(DataError, match=text):
        replacement_code.code("a.py:1", {"words": [word], "source": source}, 1)


@pytest.mark.parametrize("options, reason", (
    ({"collate_fn": lambda samples: default_collate(samples)}, "collate_fn"), ({"batch_size": None}, "batch_sampler"),
    ({"sampler": [1, 2, 3]}, "sampler of its own")))
def test_without_code_the_reason_is_said(tmp_path, capsys, image_folder, options, reason):
    data = image_folder()
    assert reason in counterpart.counterpart_of(DataLoader(data, **options))["no_source"]
    batches = BatchSampler(SequentialSampler(data), 4, False)
    assert counterpart.counterpart_of(DataLoader(data, batch_sampler=batches))["no_source"] is None
    assert "loader= of its own" in counterpart.counterpart_of(DataLoader(image_folder(loader=abs)))["no_source"]
    run, _ = watched(tmp_path, Photos([path for path, _ in data.samples], compose(*KNOWN)))
    code, said = shown(run, capsys)
    assert (code, said.out) == (2, "") and "the data set is Photos, not torchvision's ImageFolder" in said.err


def test_a_hostile_folder_and_name_stay_a_string_and_a_comment():
    source = {"folder": "/a'),\nimport os\nmr.Folder('", "images": 1, "batch": 2, "shuffle": True, "drop_last": False}
    lines = replacement_code.code("a.py:1\nimport os", {"words": WORDS, "source": source}, 1)
    assert len([line for line in lines if "import os" in line]) == 2
    names = {"mr": types.SimpleNamespace(Folder=lambda path: path)}
    assert eval(lines[4].strip().rstrip(","), names) == source["folder"]
    assert lines[0].startswith("# ") and "\\nimport os" in printed(lines[0])


def printed(line):
    from pymillrace.watcher.printable import printable

    return printable(line)


# The advice


@pytest.mark.parametrize("source, text", (
    ({"folder": "/photos"}, "; its code: pymillrace what-if runs/a --show-code"),
    (None, "; no code can be shown: the data set is Photos")))
def test_the_best_row_is_the_advice_also_if_it_is_the_replacement(source, text):
    """A directory is quoted as a shell needs it."""
    summary = recorded(fetch_s=0.1, update_s=0.012)
    summary["loaders"][0]["counterpart"] |= {"source": source, "no_source": None if source else "the data set is Photos"}
    workers = {"change": "num_workers=2", "overrides": {"num_workers": 2}, "loading_only": False, "ratio": 1.5, "low": 1.4,
               "high": 1.6, "images_per_s": 150.0}
    summary["what_if"] |= {"rows": [workers]}
    summary["advice"] = "advice: try num_workers=2: 150 images/s predicted (140 to 160), 100 now; ToTensor is the slowest"
    row = replacement.row(summary, lambda *_: 0.002)
    assert row["low"] > 3
    said = replacement.advice(summary, row, "runs/a")
    assert said.startswith("advice: replace the loader by millrace's: ") and text in said
    assert source is None or "what-if 'a b' --show-code" in replacement.advice(summary, row, "a b")
    assert said.endswith("; without it try num_workers=2: 150 images/s predicted (140 to 160), 100 now")
    assert replacement.advice(summary, {**row, "low": 1.42}, "runs/a") == summary["advice"]
    for other in ("advice: other programs use 50% of the 2 cores", "advice: try torch.set_num_threads(1)"):
        assert replacement.advice({**summary, "advice": other}, row, "runs/a") == other
    summary["what_if"]["rows"] = []
    for other in ("advice: make the transforms cheaper", "advice: the loader keeps up; a faster model would help",
                  "advice: without workers the loop waits for all of load"):
        assert text in replacement.advice({**summary, "advice": other}, row, "runs/a")
        assert replacement.advice({**summary, "advice": other}, {**row, "low": 1.04}, "runs/a") == other
    assert replacement.advice({**summary, "advice": "advice: x"}, row, "runs/a") == "advice: x"


def test_a_loop_with_millraces_own_loader_is_recorded(tmp_path, data):
    loader = mr.Loader(mr.Folder(data / "photos/train"), [mr.Resize((8, 8))], batch=2)
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), 1e-6)
    with mr.watching(run=tmp_path / "run"):
        for _ in range(40 // len(loader) + 1):
            for batch in loader:
                images, labels = batch
                model(images.mean().reshape(1)).sum().backward()
                optimizer.step()
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    assert summary["loaders"][0]["kind"] == "mr.Loader" and summary["loaders"][0]["updates"] == summary["steps"] > 40
    assert "loader.profile()" in summary["advice"] and "cannot see inside" not in summary["verdict"] + summary["advice"]
