"""Plan of a verification run: DataLoader arguments to override, and the step after which the script ends.

Every DataLoader constructed after torch was imported takes the overridden arguments, also one of fastai. Those that
torch refuses without workers are left out there. The script ends with exit code 0 when its main loader is asked for one
batch more than the plan's steps; where another thread takes the batches, at the next step of an optimizer. While an
optimizer exists, only a loader in whose loop one has stepped is the main one: a check before the training, as
Lightning's, ends nothing.
"""
from __future__ import annotations

import functools
import gc
import inspect
import json
import os
import sys
import threading
from contextlib import suppress
from typing import Any

from .command_line import PLAN

OF_THREADS = ("threads", "worker_threads", "OMP_NUM_THREADS")  # overrides that are no arguments of DataLoader
FASTAI = "fastai.data.load"  # module of a DataLoader that is no torch DataLoader, but uses its iterators
# Arguments of DataLoader that torch accepts with workers only.
ONLY_WITH_WORKERS = ("timeout", "prefetch_factor", "persistent_workers", "multiprocessing_context")
EXIT_S = 5.0  # for what a script does at its end


def steps_of_plan() -> int | None:
    """Returns the steps after which this process is to end; None without a plan."""
    text = os.environ.get(PLAN)
    return None if not text else int(json.loads(text)["steps"])


def _overrides() -> dict[str, int]:
    text = os.environ.get(PLAN)
    overrides: dict[str, int] = json.loads(text)["overrides"] if text else {}
    return overrides


def threads_of_plan(kind: str) -> int | None:
    """Returns the number of threads that the plan sets, of the trainer or of workers ("threads", "worker_threads")."""
    return _overrides().get(kind)


def override_arguments(dataloader: Any) -> None:
    """Replaces DataLoader.__init__ so that new loaders take the plan's arguments."""
    overrides = {name: value for name, value in _overrides().items() if name not in OF_THREADS}
    if not overrides:
        return
    init = dataloader.__init__
    signature = inspect.signature(init)

    @functools.wraps(init)
    def __init__(self: Any, *given: Any, **named: Any) -> None:
        try:
            bound = signature.bind(self, *given, **named)
        except TypeError:
            init(self, *given, **named)  # says what is wrong
            return
        arguments = bound.arguments
        workers = overrides.get("num_workers", arguments.get("num_workers", 0))
        arguments |= {"num_workers": workers, **overrides}
        if workers == 0:
            for key in ONLY_WITH_WORKERS:
                arguments.pop(key, None)
        init(*bound.args, **bound.kwargs)

    dataloader.__init__ = __init__


class PlannedEnd(SystemExit):
    """Ends a script at the last step of its plan."""


def exit_soon() -> None:
    """Ends this process in EXIT_S, unless it has ended: a thread that fills a queue may wait for its loop for ever."""
    def leave() -> None:
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):
                stream.flush()
        os._exit(0)

    timer = threading.Timer(EXIT_S, leave)
    timer.daemon = True
    timer.start()


def an_optimizer_exists() -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and any(isinstance(one, torch.optim.Optimizer) for one in gc.get_objects())
