"""Loops with planted delays, which measure themselves. Worker processes import this module."""
import glob
import mmap
import os
import struct
import threading
from time import perf_counter_ns, sleep, thread_time_ns

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset


_schedstat = {}  # an open file per thread; opening one takes long enough to lose the core


def clocks():
    """Returns wall time, CPU time and the time that this thread was ready to run without a core, in ns."""
    thread = threading.get_native_id()
    if thread not in _schedstat:
        _schedstat[thread] = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
    without = int(os.pread(_schedstat[thread], 64, 0).split()[1])
    return perf_counter_ns(), thread_time_ns(), without


SUMS = struct.Struct("<3q")


class Plant:
    """Sleeps or computes for a time, and adds what it measured of itself to a mapped file of its process."""

    def __init__(self, log, place, kind, ms):
        self.log, self.place, self.kind, self.ns = str(log), place, kind, int(ms * 1e6)
        self.process, self.sums = 0, None

    def __getstate__(self):
        return {**self.__dict__, "process": 0, "sums": None}

    def file(self):
        """Returns the sums of this process. Writing them must cost little, as it lies in the planted place."""
        if self.process != os.getpid():
            self.process = os.getpid()
            with open(f"{self.log}.{self.place}.{self.process}", "a+b") as file:
                file.truncate(SUMS.size)
                self.sums = mmap.mmap(file.fileno(), SUMS.size)
        return self.sums

    def __call__(self):
        begin = clocks()
        if self.kind == "blocked":
            sleep(self.ns * 1e-9)
        else:
            while thread_time_ns() - begin[1] < self.ns:
                pass
        spent = [after - before for after, before in zip(clocks(), begin)]
        sums = self.file()
        SUMS.pack_into(sums, 0, *map(sum, zip(SUMS.unpack_from(sums), spent)))


class NoPlant:
    def __call__(self):
        pass


class Measured:
    """Seconds of all calls of the plants in one place."""

    def __init__(self):
        self.wall = self.cpu = self.without_core = 0.0

    @property
    def blocked(self):
        return self.wall - self.cpu - self.without_core


def measured(log):
    """Returns {place: Measured}, as the plants measured themselves."""
    sums = {}
    for name in glob.glob(f"{log}.*.*"):
        one = sums.setdefault(name.split(".")[-2], Measured())
        wall, cpu, without = SUMS.unpack(open(name, "rb").read())
        one.wall, one.cpu = one.wall + wall * 1e-9, one.cpu + cpu * 1e-9
        one.without_core += without * 1e-9
    return sums


class Nothing:
    def __call__(self, value):
        return value


class PlantedTransform:
    def __init__(self, plant):
        self.plant = plant

    def __call__(self, value):
        self.plant()
        return value


class Compose:
    """Same shape as torchvision's."""

    def __init__(self, transforms):
        self.transforms = transforms

    def __call__(self, value):
        for transform in self.transforms:
            value = transform(value)
        return value


class Samples(Dataset):
    def __init__(self, count, plant=NoPlant(), transform=NoPlant()):
        self.count, self.plant = count, plant
        self.transform = Compose([Nothing(), PlantedTransform(transform), Nothing()])

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        self.plant()
        return self.transform(float(index)), index


class Stream(IterableDataset):
    def __init__(self, count, plant):
        self.count, self.plant = count, plant

    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        for index in range(0 if info is None else info.id, self.count, 1 if info is None else info.num_workers):
            self.plant()
            yield float(index)


class Collate:
    def __init__(self, plant):
        self.plant = plant

    def __call__(self, samples):
        self.plant()
        return torch.tensor([sample[0] for sample in samples]).reshape(-1, 1), len(samples)


class RandomSamples(Dataset):
    """Draws from every generator that a worker seeds."""

    def __len__(self):
        return 40

    def __getitem__(self, index):
        import random
        return torch.rand(8) + random.random() + index


def init_that_draws(worker):
    torch.manual_seed(torch.initial_seed() + 17 * worker)


def loader_of(plants, workers, batches=6, batch=3, method="fork", persistent=False):
    options = {"multiprocessing_context": method, "persistent_workers": persistent} if workers else {}
    return DataLoader(Samples(batches * batch, plants.get("dataset", NoPlant()), plants.get("transform", NoPlant())),
                      batch_size=batch, num_workers=workers, collate_fn=Collate(plants.get("collate", NoPlant())),
                      **options)


def train(loader, plants, epochs=1):
    """Runs a training loop with an update in which a plant may lie. Returns the seconds of all updates."""
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    plant = plants.get("update", NoPlant())
    updates = 0
    for _ in range(epochs):
        for images, _ in loader:
            begin = perf_counter_ns()
            loss = model(images).sum()
            plant()
            loss.backward()
            optimizer.step()
            updates += perf_counter_ns() - begin
            optimizer.zero_grad()
    return updates * 1e-9
