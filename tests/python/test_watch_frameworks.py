"""Loops of Lightning, timm and the Hugging Face Trainer are watched with one added line."""
import csv
import json
import re
import statistics
import time
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="NOT TESTED with PyTorch: it cannot be imported", exc_type=ImportError)

import torch
from torch.utils.data import DataLoader, Dataset

import pymillrace as mr
from conftest import timing
from pymillrace.watcher import log


class Pairs(Dataset):
    def __len__(self):
        return 24

    def __getitem__(self, index):
        return torch.full((4,), float(index)), torch.tensor(index % 2)


def check(run, steps, workers):
    """Checks that the loop's loader is the main one, seen inside, and that the update was recognised."""
    summary = json.loads((run / "summary.json").read_text())
    main = next(one for one in summary["loaders"] if one["name"] == summary["loader"])
    assert summary["steps"] == main["batches"]["recorded"] == steps and main["batches"]["missing"] == 0
    assert main["workers"] == workers and summary["spans"]["update"] > 0
    assert summary["error"] is None and not summary["interrupted"]
    return summary


def block_of_the_documents(word):
    """Returns the Python block of the page on watch that has a word in it."""
    text = (Path(__file__).resolve().parents[2] / "docs/how-to/watch.md").read_text()
    return next(one for one in re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL) if word in one)


def lightning_model(lightning):
    class Model(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 2)

        def training_step(self, batch, _):
            return torch.nn.functional.cross_entropy(self.layer(batch[0]), batch[1])

        def validation_step(self, batch, _):
            self.layer(batch[0])

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.1)

    return Model()


OPTIONS = {"max_epochs": 2, "accelerator": "cpu", "logger": False, "enable_checkpointing": False,
           "enable_progress_bar": False, "enable_model_summary": False}


@pytest.mark.parametrize("workers", (0, 1))
def test_lightning(tmp_path, workers):
    lightning = pytest.importorskip("lightning", reason="NOT TESTED: lightning is missing")
    trainer = lightning.Trainer(**OPTIONS, default_root_dir=tmp_path)
    train, val = DataLoader(Pairs(), 4, num_workers=workers), DataLoader(Pairs(), 12)
    with mr.watching(run=tmp_path / "run"):  # the added line
        trainer.fit(lightning_model(lightning), train, val)
    summary = check(tmp_path / "run", 2 * 6, workers)
    assert len(summary["loaders"]) == 2 and summary["spans"]["evaluate"] > 0


def test_the_documents_callback_of_lightning_logs_the_figures(tmp_path, monkeypatch):
    lightning = pytest.importorskip("lightning", reason="NOT TESTED: lightning is missing")
    made = []

    class Trainer(lightning.Trainer):
        def __init__(self, **more):
            super().__init__(**OPTIONS, **more)
            made.append(self)

    monkeypatch.setattr(lightning, "Trainer", Trainer)
    monkeypatch.setattr(log, "INTERVAL_S", 0.0)
    monkeypatch.chdir(tmp_path)
    exec(block_of_the_documents("lightning.Callback"),
         {"mr": mr, "model": lightning_model(lightning), "loader": DataLoader(Pairs(), 4)})
    assert {"millrace/load_share", "millrace/step_ms"} <= made[0].callback_metrics.keys()
    assert 0 <= made[0].callback_metrics["millrace/load_share"] <= 1


def test_timm(tmp_path):
    data = pytest.importorskip("timm.data", reason="NOT TESTED: timm is missing")
    image = pytest.importorskip("PIL.Image", reason="NOT TESTED: Pillow is missing")
    for index in range(8):
        folder = tmp_path / f"photos/class{index % 2}"
        folder.mkdir(parents=True, exist_ok=True)
        image.new("RGB", (40, 40), (index, 0, 0)).save(folder / f"{index}.png")
    loader = data.create_loader(data.create_dataset("", root=str(tmp_path / "photos")), (3, 32, 32), 4, is_training=True,
                                num_workers=1, use_prefetcher=False, persistent_workers=False)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 32 * 32, 2))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for images, labels in mr.watch(loader, run=tmp_path / "run"):  # the added call
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
    mr.watcher.api._sessions[str(tmp_path / "run")].close()
    summary = check(tmp_path / "run", 2, 1)
    names = [row["name"] for row in summary["loaders"][0]["transforms"]]
    assert "RandomResizedCropAndInterpolation" in names


@pytest.mark.parametrize("workers", (0, 1))
def test_a_loader_that_accelerate_has_prepared(tmp_path, workers):
    accelerate = pytest.importorskip("accelerate", reason="NOT TESTED: accelerate is missing")
    accelerator = accelerate.Accelerator(cpu=True)
    layer = torch.nn.Linear(4, 2)
    layer, optimizer, loader = accelerator.prepare(layer, torch.optim.SGD(layer.parameters(), 0.1),
                                                   DataLoader(Pairs(), batch_size=4, num_workers=workers))
    for images, labels in mr.watch(loader, run=tmp_path / "run"):
        accelerator.backward(torch.nn.functional.cross_entropy(layer(images), labels))
        optimizer.step()
    mr.watcher.api._sessions[str(tmp_path / "run")].close()
    summary = check(tmp_path / "run", 6, workers)
    assert summary["loaders"][0]["updates"] == 5  # it takes a batch ahead: the last one's comes after the iteration


class Slow(Pairs):
    def __getitem__(self, index):
        time.sleep(0.003)
        return super().__getitem__(index)


class SlowLayer(torch.nn.Linear):
    def forward(self, values):
        time.sleep(0.02)
        return super().forward(values)


def with_accelerate():
    accelerate = pytest.importorskip("accelerate", reason="NOT TESTED: accelerate is missing")
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
    layer = SlowLayer(4, 2)
    layer, optimizer, loader = accelerator.prepare(layer, torch.optim.SGD(layer.parameters(), 0.1), DataLoader(Slow(), 4))
    for images, labels in loader:
        with accelerator.accumulate(layer):
            accelerator.backward(torch.nn.functional.cross_entropy(layer(images), labels))
            optimizer.step()
            optimizer.zero_grad()


def with_schedule_free():
    schedulefree = pytest.importorskip("schedulefree", reason="NOT TESTED: schedulefree is missing")
    layer = SlowLayer(4, 2)
    optimizer = schedulefree.AdamWScheduleFree(layer.parameters(), lr=0.1)
    optimizer.train()
    for images, labels in DataLoader(Slow(), 4):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(layer(images), labels).backward()
        optimizer.step()
    optimizer.eval()


def with_lightning():
    lightning = pytest.importorskip("lightning", reason="NOT TESTED: lightning is missing")
    model = lightning_model(lightning)
    model.layer = SlowLayer(4, 2)
    lightning.Trainer(**OPTIONS | {"max_epochs": 1}).fit(model, DataLoader(Slow(), 4))


@timing
@pytest.mark.parametrize("train", (with_accelerate, with_schedule_free, with_lightning))
def test_frameworks_that_hide_the_optimizer_keep_load_and_update(tmp_path, train):
    with mr.watching(run=tmp_path / "run"):
        train()
    check(tmp_path / "run", 6, 0)
    with open(tmp_path / "run/steps.csv", encoding="utf-8") as file:
        rows = [{key: float(row[key]) for key in ("load_s", "update_s")} for row in csv.DictReader(file)]
    assert statistics.median(row["load_s"] for row in rows) == pytest.approx(4 * 0.003, rel=0.25)
    assert 0.02 <= statistics.median(row["update_s"] for row in rows) <= 0.04  # with backward and step


def hugging_face_trainer(folder):
    transformers = pytest.importorskip("transformers", reason="NOT TESTED: transformers is missing")
    pytest.importorskip("accelerate", reason="NOT TESTED: accelerate is missing")

    class Rows(Pairs):
        def __getitem__(self, index):
            values, label = super().__getitem__(index)
            return {"values": values, "labels": label}

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 2)

        def forward(self, values, labels):
            logits = self.layer(values)
            return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}

    options = transformers.TrainingArguments(output_dir=str(folder / "out"), per_device_train_batch_size=4,
                                             num_train_epochs=2, report_to=[], save_strategy="no", use_cpu=True,
                                             dataloader_num_workers=1, disable_tqdm=True)
    return transformers.Trainer(Model(), options, train_dataset=Rows())


def test_hugging_face_trainer(tmp_path):
    trainer = hugging_face_trainer(tmp_path)
    with mr.watching(run=tmp_path / "run"):  # the added line
        trainer.train()
    check(tmp_path / "run", 2 * 6, 1)


def test_the_documents_callback_of_the_hugging_face_trainer_logs_the_figures(tmp_path, monkeypatch):
    trainer = hugging_face_trainer(tmp_path)
    monkeypatch.setattr(log, "INTERVAL_S", 0.0)
    monkeypatch.chdir(tmp_path)
    exec(block_of_the_documents("transformers.TrainerCallback"), {"mr": mr, "trainer": trainer})
    logged = [one for one in trainer.state.log_history if "millrace/load_share" in one]
    assert len(logged) == 2 and 0 <= logged[0]["millrace/load_share"] <= 1 and logged[0]["millrace/step_ms"] > 0
