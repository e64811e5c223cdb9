"""Input and result of the replay of a training loop behind a DataLoader, which predict/data_loader_replay.h runs."""
from __future__ import annotations

from dataclasses import dataclass, replace



@dataclass(frozen=True)
class Demand:
    """Work of one thread: seconds on a core and seconds blocked. Each of `threads` threads takes the CPU seconds."""
    cpu: float = 0.0
    blocked: float = 0.0
    threads: int = 1

    @property
    def seconds(self) -> float:
        return self.cpu + self.blocked


NOTHING = Demand()


@dataclass(frozen=True)
class Setup:
    """A loop and its demands."""
    workers: int
    prefetch: int  # per worker
    batch: int  # samples
    cores: int
    fetch: tuple[Demand, ...]  # per batch, in turn: data set, transforms, collate
    send: Demand = NOTHING  # per batch, in the worker's feeder thread
    receive: Demand = NOTHING  # per batch, in next()
    hand: Demand = NOTHING  # per batch, in next(), also without workers
    update: Demand = NOTHING  # per step: the body of the loop
    steps: int = 200  # counted steps, rounded up to whole rounds over the workers
    spins: bool = True  # whether threads of a pool spin while they wait for each other


@dataclass(frozen=True)
class Rates:
    """Result of a replay. Seconds are per step."""
    images_per_s: float
    load_s: float
    update_s: float


def load() -> None:
    """Loads the library that runs replays.

    Call it before another thread replays: one that loads a library while the process forks leaves the child a locked
    dynamic linker.
    """
    from .. import _predict  # noqa: F401


def replay(setup: Setup) -> Rates:
    """Runs the simulation. Raises ValueError for input without cores, samples, demands or outstanding batches."""
    from .. import _predict  # a watched script loads it when predictions are made

    return Rates(*_predict.replay(setup))


def without_spinning(setup: Setup, seconds: float) -> Setup:
    """Returns the setup with as much CPU time per update as makes the replay's update take `seconds`.

    Threads of a pool beside workers compute while they wait for each other, and what was measured holds that too.
    """
    from .. import _predict

    share = _predict.work_share(setup, seconds)
    return replace(setup, update=replace(setup.update, cpu=share * setup.update.cpu))
