"""Load, update, wait and rate of a recorded loop, with intervals for what its steps vary."""
from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from .._watch import FIRST_STEPS, STEPS_FOR_VERDICT
from ..errors import DataError
from . import recorded
from .batch_means import Estimate, ratio
from .closing import MOST_ROWS
from .fields import HINT, MOST_SECONDS, Field
from .ranks import MOST_RANKS
from .records import NotARecord, open_record
from .run_directory import file_name

MOST_BYTES = 1 << 28  # of a table; its steps beyond MOST_ROWS are left out
MOST_IMAGES = 1 << 40  # per step
DIRECTORY_HINT = "give the directory of a run of pymillrace watch"


@dataclass(frozen=True)
class Steps:
    """Steps of one rank in one loader's loop, without the first ones: they wait for workers to start, and compile."""
    rank: int
    load: list[float]  # seconds, as `update`
    update: list[float]
    images: list[float]
    count: int  # of all steps

    @property
    def are_enough(self) -> bool:
        return self.count >= STEPS_FOR_VERDICT and sum(self.load) + sum(self.update) > 0

    def _both(self) -> list[float]:
        return [load + update for load, update in zip(self.load, self.update)]

    def share(self) -> Estimate:
        """Load per load + update."""
        return ratio(self.load, self._both())

    def wait(self) -> Estimate:
        """Seconds of load per step."""
        return ratio(self.load, [1.0] * len(self.load))

    def work(self) -> Estimate:
        """Seconds of update per step."""
        return ratio(self.update, [1.0] * len(self.update))

    def rate(self) -> Estimate:
        """Images per second of load + update."""
        return ratio(self.images, self._both())


@dataclass(frozen=True)
class Run:
    """Records of a run's main loader."""
    directory: Path
    summary: Field
    ranks: list[Steps]
    missing: list[int]  # ranks without a table

    @property
    def name(self) -> str:
        return self.summary["loader"].text()


def read(directory: Path) -> Run:
    """Reads a run. Raises OSError if it has no summary, and DataError if it is damaged or no run of watch."""
    summary = recorded.read_summary(directory / "summary.json")
    if summary["command"].value != "watch":
        raise DataError(f"{directory} is no run of pymillrace watch", DIRECTORY_HINT)
    ranks, missing = [], []
    for rank in range(summary["world_size"].whole(1, MOST_RANKS)):
        file = directory / file_name("steps", "csv", rank)
        try:
            ranks.append(_steps(file, rank))
        except FileNotFoundError:
            if rank == 0:
                raise DataError(f"{file} is missing", DIRECTORY_HINT) from None
            missing.append(rank)
    return Run(directory, summary, ranks, missing)


def _steps(file: Path, rank: int) -> Steps:
    columns: tuple[list[float], list[float], list[float]] = ([], [], [])
    count = 0
    most = (MOST_SECONDS, MOST_SECONDS, MOST_IMAGES)
    try:
        with io.TextIOWrapper(open_record(file, MOST_BYTES), encoding="utf-8") as lines:
            for number, row in enumerate(islice(csv.DictReader(lines), MOST_ROWS)):
                if not row["other_s"]:  # the run ended while it was written
                    break
                values = [float(row[key]) for key in ("load_s", "update_s", "images")]
                if not all(0 <= value <= limit for value, limit in zip(values, most)):
                    raise ValueError
                count = number + 1
                if count > FIRST_STEPS:
                    for column, value in zip(columns, values):
                        column.append(value)
    except FileNotFoundError:
        raise
    except NotARecord as error:
        raise DataError(f"{file} {error.strerror}", DIRECTORY_HINT) from None
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error.strerror}", "check its permissions and the disk") from None
    except (ValueError, TypeError, KeyError, csv.Error):  # also of bytes that are not UTF-8
        raise DataError(f"{file} is no table of steps", HINT) from None
    return Steps(rank, *columns, count)
