"""What-if row "replaced by millrace": what a run keeps for it, what follows from a measurement, and why there is none."""
import json

import pytest

pytest.importorskip("torch", reason="NOT TESTED with PyTorch: it cannot be imported", exc_type=ImportError)

import pymillrace as mr
import torch
from torch.utils.data import DataLoader, Dataset, Subset

from pymillrace._predict import MAX_COOLING, MAX_CROWDING
from pymillrace.watcher import command, counterpart, replacement

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
                "receive": nothing, "hand": nothing, "fetch": {**nothing, "cpu": fetch_s},
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
    assert found == {"words": WORDS, "samples": [str(file) for file in files], "reason": None}
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
    assert len(counterpart.counterpart_of(many)["samples"]) == 64
    part = Subset(many, range(5, 9))
    assert counterpart.counterpart_of(part) == {"words": WORDS, "samples": [str(file) for file in files[5:9]], "reason": None}


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

    reason = counterpart.counterpart_of(Odd.__new__(Odd))["reason"]
    assert reason == "Odd cannot be examined: ValueError: no"
