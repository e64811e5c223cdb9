"""Loaders with the structure of those of frameworks, as small as they can be."""
import queue
import threading
from itertools import count

import torch
from torch.utils.data import DataLoader, dataloader


class Endless:
    """A sampler that begins again and again."""

    def __init__(self, sampler):
        self.sampler = sampler

    def __iter__(self):
        while True:
            yield from iter(self.sampler)


class KeptIterator(DataLoader):
    """Keeps one iterator for all epochs, and makes another by torch's own method, as Ultralytics' loader does."""

    def __init__(self, *given, **named):
        super().__init__(*given, **named)
        object.__setattr__(self, "batch_sampler", Endless(self.batch_sampler))
        self.iterator = super().__iter__()

    def __len__(self):
        return len(self.batch_sampler.sampler)

    def __iter__(self):
        for _ in range(len(self)):
            yield next(self.iterator)

    def reset(self):
        self.iterator = self._get_iterator()


def init_fake(worker):
    torch.utils.data.get_worker_info().dataset.worker = worker


class Fake:
    """Attributes that torch's iterators ask of a loader."""
    _IterableDataset_len_called, _auto_collation, collate_fn, drop_last = None, False, staticmethod(lambda one: one), False
    _index_sampler, generator, prefetch_factor, in_order = count(), None, 2, True
    dataset_kind = _dataset_kind = dataloader._DatasetKind.Iterable

    def __init__(self, own, workers):
        self.own, self.num_workers, self.dataset, self.default, self.worker = own, workers, self, own, 0
        self.worker_init_fn, self.pin_memory, self.pin_memory_device = init_fake, False, ""
        self.timeout, self.persistent_workers = 0, False

    def __iter__(self):
        return iter(self.own.batches(self.worker, max(1, self.num_workers)))

    @property
    def multiprocessing_context(self):
        return (None, torch.multiprocessing)[self.num_workers > 0]


class OwnLoader:
    """No DataLoader, but with its iterators, as fastai's loader is."""

    def __init__(self, dataset, batch, workers):
        self.dataset, self.batch, self.fake = dataset, batch, Fake(self, workers)

    def batches(self, worker, workers):
        for begin in range(worker * self.batch, len(self.dataset), workers * self.batch):
            yield torch.stack([self.dataset[at] for at in range(begin, begin + self.batch)])

    def __iter__(self):
        kinds = (dataloader._MultiProcessingDataLoaderIter, dataloader._SingleProcessDataLoaderIter)
        yield from kinds[self.fake.num_workers == 0](self.fake)


class Ahead:
    """Takes what another iterator gives in a thread of its own, ahead of the loop."""

    def __init__(self, source, size, daemon=True):
        self.source, self.queue, self.daemon = source, queue.Queue(size), daemon

    def fill(self):
        for one in self.source:
            self.queue.put(one)
        self.queue.put(None)

    def __iter__(self):
        thread = threading.Thread(target=self.fill, daemon=self.daemon)
        thread.start()
        while (one := self.queue.get()) is not None:
            yield one
        thread.join()


class ThreadLoader(DataLoader):
    """Is asked for its iterator in the loop's thread, and for batches in another, as MONAI's ThreadDataLoader is."""

    def __iter__(self):
        yield from Ahead(super().__iter__(), 1)
