"""Loops of Lightning, timm and the Hugging Face Trainer are watched with one added line."""
import json

import pytest

pytest.importorskip("torch", reason="NOT TESTED with PyTorch: it cannot be imported", exc_type=ImportError)

import torch
from torch.utils.data import DataLoader, Dataset

import pymillrace as mr


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


@pytest.mark.parametrize("workers", (0, 1))
def test_lightning(tmp_path, workers):
    lightning = pytest.importorskip("lightning", reason="NOT TESTED: lightning is missing")

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

    trainer = lightning.Trainer(max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False,
                                enable_progress_bar=False, enable_model_summary=False, default_root_dir=tmp_path)
    train, val = DataLoader(Pairs(), 4, num_workers=workers), DataLoader(Pairs(), 12)
    with mr.watching(run=tmp_path / "run"):  # the added line
        trainer.fit(Model(), train, val)
    summary = check(tmp_path / "run", 2 * 6, workers)
    assert len(summary["loaders"]) == 2 and summary["spans"]["evaluate"] > 0


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


def test_hugging_face_trainer(tmp_path):
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

    options = transformers.TrainingArguments(output_dir=str(tmp_path / "out"), per_device_train_batch_size=4,
                                             num_train_epochs=2, report_to=[], save_strategy="no", use_cpu=True,
                                             dataloader_num_workers=1, disable_tqdm=True)
    trainer = transformers.Trainer(Model(), options, train_dataset=Rows())
    with mr.watching(run=tmp_path / "run"):  # the added line
        trainer.train()
    check(tmp_path / "run", 2 * 6, 1)
