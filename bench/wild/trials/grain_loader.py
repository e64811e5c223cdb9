"""Grain: a data set of its own in its own process, without a DataLoader of torch's."""
import common
import grain.python as grain
import torch


def loaded(index):
    common.planted()
    pixels, label = common.image(index)
    return pixels.numpy(), label


data = grain.MapDataset.range(common.COUNT).map(loaded).batch(common.BATCH)


class Tensors:
    def __iter__(self):
        return ((torch.from_numpy(pixels), labels) for pixels, labels in data)


common.train(Tensors(), epochs=2)
