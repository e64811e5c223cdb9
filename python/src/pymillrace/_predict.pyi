"""Replay of a DataLoader, verification of predictions, and their statistics. Not public: pymillrace.watcher uses it."""
import collections.abc
from typing import Any

def replay(setup: Any) -> tuple[float, float, float]:
    """Returns images/s, and seconds of load and of update per step, of a watcher.replay.Setup."""

def work_share(setup: Any, update_s: float) -> float:
    """Returns the share of the update's CPU time with which the replay's update takes `update_s` seconds."""

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
