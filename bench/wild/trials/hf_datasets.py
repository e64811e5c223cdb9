"""Hugging Face's datasets: an IterableDataset of 8 shards in torch's DataLoader."""
import common
import torch
from datasets import IterableDataset
from datasets.iterable_dataset import ExamplesIterable


def rows(shards):
    for shard in shards:
        for index in range(shard, common.COUNT, 8):
            common.planted()
            pixels, label = common.image(index)
            yield index, {"pixels": pixels.numpy(), "label": label}


data = IterableDataset(ExamplesIterable(rows, {"shards": list(range(8))})).with_format("torch")
batches = torch.utils.data.DataLoader(data, batch_size=common.BATCH, num_workers=common.WORKERS)


class Pairs:
    def __iter__(self):
        return ((batch["pixels"], batch["label"]) for batch in batches)


common.train(Pairs(), epochs=2)
