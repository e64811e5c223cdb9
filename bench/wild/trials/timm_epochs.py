"""timm's loader with one iterator for all epochs (use_multi_epochs_loader)."""
from pathlib import Path

import common
import numpy as np
from PIL import Image
from timm.data import ImageDataset, create_loader


class Slow(ImageDataset):
    def __getitem__(self, index):
        common.planted()
        return super().__getitem__(index)


for index in range(common.COUNT):
    folder = Path("images", f"class{index % common.CLASSES}")
    folder.mkdir(parents=True, exist_ok=True)
    pixels = (255 * common.image(index)[0].permute(1, 2, 0).numpy()).astype(np.uint8)
    Image.fromarray(pixels).save(folder / f"{index:04d}.png")
loader = create_loader(Slow("images"), (3, 16, 16), common.BATCH, use_prefetcher=False, num_workers=common.WORKERS,
                       persistent_workers=False, use_multi_epochs_loader=True)
common.train(loader, epochs=2)
