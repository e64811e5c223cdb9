"""Predictions from records, their verification, statistics and traces. Not public: pymillrace.watcher uses it.

Classes and functions are those of the room predict, and of measure/trace_events.h.
"""
import collections.abc
from typing import Any

USUAL_TENSORS: int
MODEL_ERROR: float
MAX_COOLING: float
MAX_CROWDING: float

class Demand:
    """Work of one thread: seconds on a core and seconds blocked. Each of `threads` threads takes the CPU seconds."""

    def __init__(self, cpu_s: float = 0.0, blocked_s: float = 0.0, threads: float = 1.0) -> None: ...
    @property
    def cpu_s(self) -> float: ...
    @property
    def blocked_s(self) -> float: ...
    @property
    def threads(self) -> float: ...
    @property
    def seconds(self) -> float: ...
    def replace(self, **changes: Any) -> Demand:
        """Returns a copy with other values."""

def mean_of(demands: list[Demand]) -> Demand:
    """Returns the mean of demands of single threads. At least one."""

class DataLoaderInput:
    """A loop behind a DataLoader, and its demands."""

    def __init__(self, workers: int, prefetch: int, batch: int, cores: int, fetch: list[Demand],
                 send: Demand = ..., receive: Demand = ..., hand: Demand = ..., update: Demand = ..., steps: int = 200,
                 spins: bool = True, pause_s: float = 0.0, ahead: int = 0, tensors: int = 0,
                 tensor_wait_s: float = 0.0) -> None: ...
    @property
    def workers(self) -> int: ...
    @property
    def prefetch(self) -> int: ...
    @property
    def batch(self) -> int: ...
    @property
    def cores(self) -> int: ...
    @property
    def fetch(self) -> list[Demand]: ...
    @property
    def send(self) -> Demand: ...
    @property
    def receive(self) -> Demand: ...
    @property
    def tensors(self) -> int: ...
    @property
    def tensor_wait_s(self) -> float: ...
    @property
    def hand(self) -> Demand: ...
    @property
    def update(self) -> Demand: ...
    @property
    def steps(self) -> int: ...
    @property
    def spins(self) -> bool: ...
    @property
    def pause_s(self) -> float: ...
    @property
    def ahead(self) -> int: ...
    def replace(self, **changes: Any) -> DataLoaderInput:
        """Returns a copy with other values."""

class DataLoaderOutput:
    """Result of a replay. Seconds are per step."""

    @property
    def images_per_s(self) -> float: ...
    @property
    def load_s(self) -> float: ...
    @property
    def update_s(self) -> float: ...
    @property
    def busy_cores(self) -> float: ...

def replay(input: DataLoaderInput) -> DataLoaderOutput:
    """Runs the simulation. Raises ValueError for input without cores, samples, demands or outstanding batches."""

def usual_pause(fetch: Demand, tensors: int) -> float:
    """Returns the seconds for which a worker in Python pauses between two batches of so many tensors; 0: unknown."""

def without_spinning(measured: DataLoaderInput, update_s: float) -> DataLoaderInput:
    """Returns the input with as much CPU time per update as makes the replay's update take `update_s` seconds."""

class Paging:
    """CPU seconds per batch that shared memory takes: in the worker, and in the trainer."""

    def __init__(self, make_s: float = 0.0, take_s: float = 0.0) -> None: ...
    @property
    def make_s(self) -> float: ...
    @property
    def take_s(self) -> float: ...

class DataLoaderChange:
    """A change to try. Without an argument it is storage twice as fast."""

    @property
    def argument(self) -> str: ...
    @property
    def value(self) -> int: ...
    @property
    def input(self) -> DataLoaderInput: ...
    @property
    def loading_only(self) -> bool: ...

def with_workers(input: DataLoaderInput, workers: int, paging: Paging) -> DataLoaderInput:
    """Returns the loop with another number of workers. Only batches of workers lie in shared memory."""

class Doubts:
    """Uncertainty of a run's demands."""

    def __init__(self, fetch: float = 0.0, update: float = 0.0, spinning: float = 1.0) -> None: ...
    @property
    def fetch(self) -> float: ...
    @property
    def update(self) -> float: ...
    @property
    def spinning(self) -> float: ...

class DataLoaderRatios:
    """Ratios to one run."""

    def __init__(self, input: DataLoaderInput, measured: float, doubts: Doubts) -> None:
        """`input`: of the run. `measured`: its images/s; 0: unknown."""
    def with_interval(self, changed: DataLoaderInput) -> tuple[float, float, float]:
        """Returns the ratio of a changed input, and the ends of its 90% interval."""

class RecordedRun:
    """Facts of a recorded run beside its demands."""

    def __init__(self, images_per_s: float, blocked_in_dataset: float, update_s: float = 0.0,
                 fetch_error: float = 0.0, update_error: float = 0.0, shards: int = 0) -> None: ...
    @property
    def images_per_s(self) -> float: ...
    @property
    def blocked_in_dataset(self) -> float: ...
    @property
    def update_s(self) -> float: ...
    @property
    def fetch_error(self) -> float: ...
    @property
    def update_error(self) -> float: ...
    @property
    def shards(self) -> int: ...

class PredictedRatio:
    """A change's images/s over the run's, its 90% interval, and the images/s of the loader alone."""

    @property
    def ratio(self) -> float: ...
    @property
    def low(self) -> float: ...
    @property
    def high(self) -> float: ...
    @property
    def loader_images_per_s(self) -> float: ...

class DataLoaderPredictor:
    """Predicts changes to one recorded loop. Raises ValueError where a replay has no work that takes time."""

    def __init__(self, measured: DataLoaderInput, run: RecordedRun) -> None: ...
    @property
    def input(self) -> DataLoaderInput: ...
    @property
    def doubts(self) -> Doubts: ...
    @property
    def images_per_s(self) -> float: ...
    @property
    def loader_images_per_s(self) -> float: ...
    def changes(self, paging: Paging) -> list[DataLoaderChange]:
        """Returns the changes that are tried."""
    def predict(self, change: DataLoaderChange) -> PredictedRatio:
        """Returns the change's rate relative to the run, by replays."""

def verification_order(changes: int, blocks: int, seed: int) -> list[list[int]]:
    """Returns the order of the changes in each block."""

class Verification:
    """Runs blocks of changes between baselines, and takes the ratios of the valid ones."""

    def __init__(self, order: list[list[int]],
                 run: collections.abc.Callable[[int | None], tuple[float, float, bool]]) -> None:
        """Runs all of it. `run` returns images/s, the share of the cores that others took, and whether it failed."""
    @property
    def is_void(self) -> bool: ...
    def ratio(self, change: int) -> float | None: ...
    def interval(self, change: int) -> tuple[float, float] | None: ...
    def valid_blocks(self, change: int) -> int: ...

def t_quantile(freedom: float, confidence: float) -> float:
    """Returns Student's two-sided quantile."""

class Score:
    """Accuracy over the changes that count."""

    @property
    def counted(self) -> int: ...
    @property
    def with_interval(self) -> int: ...
    @property
    def held(self) -> int: ...
    @property
    def median_error(self) -> float: ...
    @property
    def worst_error(self) -> float: ...
    @property
    def skill(self) -> float: ...

def score_of(predictions: list[tuple[float, float, float, float]]) -> Score:
    """Returns the score of changes, each with the predicted ratio, the measured one, and the interval (NaN: none)."""

class TraceEvents:
    """The text of a trace in the Trace Event Format (measure/trace_events.h). Times are ns of one clock."""

    def __init__(self, origin_ns: int) -> None: ...
    def name_process(self, process: int, name: str) -> None:
        """Names a process. `name` is a JSON string, quotes included."""
    def name_track(self, process: int, thread: int, name: str) -> None:
        """Names a track. `name` is a JSON string, quotes included."""
    def slice(self, process: int, thread: int, name: str, begin: int, end: int, arguments: str) -> None:
        """Adds a slice. `arguments`: members of a JSON object."""
    def finish(self) -> str:
        """Ends the trace and returns its text."""
