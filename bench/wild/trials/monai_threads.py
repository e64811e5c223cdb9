"""MONAI's ThreadDataLoader: a thread of its own takes the batches of a DataLoader."""
import common
from monai.data import Dataset, ThreadDataLoader


def load(index):
    common.planted()
    return common.image(index)


data = Dataset(list(range(common.COUNT)), transform=load)
common.train(ThreadDataLoader(data, batch_size=common.BATCH, num_workers=common.WORKERS), epochs=2)
