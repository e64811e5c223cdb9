"""Room that is left: memory, shared memory, and the disk of the records."""
from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

from . import cgroup
from .proc import table

SHARED_MEMORY = "/dev/shm"


class Room(NamedTuple):
    """Bytes of memory."""
    used: int
    total: int

    @property
    def free(self) -> int:
        return self.total - self.used


def memory() -> Room | None:
    """Returns the machine's memory, or that of the control group with the least left; None where nobody tells."""
    rows = table("/proc/meminfo")
    found = [Room(*one) for one in cgroup.limits()]
    if b"MemAvailable" in rows and b"MemTotal" in rows:
        found.append(Room(1024 * (rows[b"MemTotal"] - rows[b"MemAvailable"]), 1024 * rows[b"MemTotal"]))
    return min(found, key=lambda one: one.free, default=None)


def free(path: str | Path) -> int | None:
    """Returns the free bytes of a file system; None where there is none."""
    try:
        found = os.statvfs(path)
    except OSError:
        return None
    return found.f_bavail * found.f_frsize


def left(directory: Path) -> dict[str, int | None]:
    """Returns the free bytes of shared memory, of the directory's disk, and of memory; None where nobody tells."""
    found = memory()
    return {"free_shared_memory": free(SHARED_MEMORY), "free_disk": free(directory),
            "free_memory": None if found is None else found.free}


def left_text(report: dict[str, Any]) -> str:
    return "free: " + ", ".join(f"{name} {bytes_text(report[key])}" for key, name in (
        ("free_shared_memory", SHARED_MEMORY), ("free_memory", "memory"), ("free_disk", "disk")))


def bytes_text(count: float | None) -> str:
    if count is None:
        return "unknown"
    return (f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.0f} MiB" if count >= 2**20 else
            "under 1 MiB")
