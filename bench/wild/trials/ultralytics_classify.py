"""Ultralytics' classification trainer, whose loader keeps one iterator for all epochs."""
from pathlib import Path

import common
import numpy as np
from PIL import Image
from ultralytics.data import ClassificationDataset
from ultralytics.models.yolo.classify import ClassificationTrainer


class Slow(ClassificationDataset):
    def __getitem__(self, index):
        common.planted()
        return super().__getitem__(index)


class Trainer(ClassificationTrainer):
    losses = []

    def build_dataset(self, img_path, mode="train", batch=None):
        kind = Slow if mode == "train" else ClassificationDataset
        return kind(root=img_path, args=self.args, augment=mode == "train", prefix=mode)

    def optimizer_step(self):
        self.losses.append(self.loss.item())
        super().optimizer_step()

    def plot_training_samples(self, batch, ni):
        pass


for part, count in (("train", common.COUNT), ("val", 8)):
    for index in range(count):
        folder = Path("images", part, f"class{index % common.CLASSES}")
        folder.mkdir(parents=True, exist_ok=True)
        pixels = (255 * common.image(index)[0].permute(1, 2, 0).numpy()).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{index}.png")
trainer = Trainer(overrides={
    "model": "yolo11n-cls.yaml", "data": str(Path("images").absolute()), "epochs": 2, "imgsz": 32,
    "batch": common.BATCH, "workers": common.WORKERS, "device": "cpu", "plots": False,
    "project": "out", "seed": 1, "val": False, "warmup_epochs": 0, "nbs": common.BATCH})
trainer.train()
common.keep(trainer.losses)
