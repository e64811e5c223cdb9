"""A data set with a loader inside, as TorchIO's Queue, which has the workers: the loop's own loader has none."""
import common
from torch.utils.data import DataLoader, Dataset


class Queue(Dataset):
    def __init__(self):
        self.inner = DataLoader(common.Images(), batch_size=1, num_workers=common.WORKERS)
        self.batches = iter(self.inner)

    def __len__(self):
        return common.COUNT

    def __getitem__(self, index):
        try:
            images, labels = next(self.batches)
        except StopIteration:
            self.batches = iter(self.inner)
            images, labels = next(self.batches)
        return images[0], labels[0]


common.train(DataLoader(Queue(), batch_size=common.BATCH), epochs=2)
