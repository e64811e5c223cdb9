"""Plan of a verification run: DataLoader arguments to override, and the step after which the script ends.

Only loaders that are like the main one are changed: those constructed with batches and, for a prefetch factor, with
workers. The script ends with exit code 0 when its main loader is asked for one batch more than the plan's steps.
"""
from __future__ import annotations

import functools
import json
import os
from typing import TYPE_CHECKING, Any

from .command_line import PLAN

if TYPE_CHECKING:
    from .session import Session


def steps_of_plan() -> int | None:
    """Returns the steps after which this process is to end; None without a plan."""
    text = os.environ.get(PLAN)
    return None if not text else int(json.loads(text)["steps"])


def override_arguments(dataloader: Any) -> None:
    """Replaces DataLoader.__init__ so that new loaders take the plan's arguments."""
    text = os.environ.get(PLAN)
    overrides = json.loads(text)["overrides"] if text else {}
    if not overrides:
        return
    init = dataloader.__init__

    @functools.wraps(init)
    def __init__(self: Any, dataset: Any, batch_size: int | None = 1, shuffle: bool | None = None, sampler: Any = None,
                 batch_sampler: Any = None, num_workers: int = 0, *rest: Any, **more: Any) -> None:
        num_workers = overrides.get("num_workers", num_workers)
        if num_workers == 0:
            for key in ("prefetch_factor", "multiprocessing_context"):
                more.pop(key, None)
            more["persistent_workers"] = False
        elif "prefetch_factor" in overrides:
            more["prefetch_factor"] = overrides["prefetch_factor"]
        init(self, dataset, batch_size, shuffle, sampler, batch_sampler, num_workers, *rest, **more)

    dataloader.__init__ = __init__


class PlannedEnd(SystemExit):
    """Ends a script at the last step of its plan."""


def end_at(session: Session, steps: int) -> None:
    """Raises PlannedEnd at the first call of next() after the main loader's last step."""
    main = session.main
    if main is not None and main.table.steps >= steps:
        session.close()
        raise PlannedEnd(0)
