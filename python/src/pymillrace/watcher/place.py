"""Place of this process among those of a run: its rank, their number, and the launch that started them."""
from __future__ import annotations

import os
import sys

# Number and count of the tasks that mpirun and srun start. A batch script of Slurm's has no step, and is one process.
TASKS = (("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE"),
         ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"))
LAUNCHERS = ("RANK", "LOCAL_RANK", "NODE_RANK", *(number for number, _ in TASKS))  # variables that they set


def place() -> tuple[int, int]:
    """Returns rank and world size: torch.distributed's once it is initialised, else those of the environment.

    There, the variables of PyTorch's launchers come before those of mpirun and srun.
    """
    found = place_in_torch()
    if found is not None:
        return found
    if "WORLD_SIZE" in os.environ:
        rank, world_size = _variable("RANK", _rank_of_device()), _variable("WORLD_SIZE", 1)
    else:
        rank, world_size = _task()
    return (rank, world_size) if 0 <= rank < world_size else (0, max(1, world_size))


def place_in_torch() -> tuple[int, int] | None:
    """Returns torch.distributed's rank and world size; None while it is not initialised."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return int(distributed.get_rank()), int(distributed.get_world_size())


def _task() -> tuple[int, int]:
    """Returns the number of this process among those that mpirun or srun has started, and their count."""
    for number, count in TASKS:
        if {number, count} <= os.environ.keys():
            return _variable(number, 0), _variable(count, 1)
    return 0, 1


def _rank_of_device() -> int:
    """Returns the rank as the number of the device tells it: Lightning's launcher sets no RANK."""
    local = _variable("LOCAL_RANK", 0)
    return _variable("NODE_RANK", _variable("GROUP_RANK", 0)) * _variable("LOCAL_WORLD_SIZE", 0) + local


def _variable(name: str, default: int) -> int:
    try:
        return int(os.environ[name])
    except (KeyError, ValueError):
        return default


def is_launched() -> bool:
    """Returns whether this process may be one of several ranks: a launcher or multiprocessing has started it."""
    launched = _variable("WORLD_SIZE", 1) > 1 or any(name in os.environ for name in LAUNCHERS)
    return launched or spawner() is not None


def spawner() -> int | None:
    """Returns the process that has started this one by multiprocessing."""
    import multiprocessing  # which readers of records do without

    parent = multiprocessing.parent_process()
    return None if parent is None else parent.pid


def place_is_known() -> bool:
    """Returns whether this process need not wait for torch.distributed to know its rank."""
    return place_in_torch() is not None or {"RANK", "WORLD_SIZE"} <= os.environ.keys() or not is_launched()


def launch() -> str:
    """Names the launch that this process belongs to, as far as variables tell: the same on all of its ranks."""
    names = ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT")
    return "-".join(os.environ.get(name, "") for name in names)
