"""Memory of the control group (cgroup) that this process belongs to: limits, use, and kills for lack of memory.

Both versions are read (Linux, Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst). A limit of a group
holds for all groups below it.
"""
from __future__ import annotations

import os
from functools import lru_cache
from typing import NamedTuple

from .proc import read, table


class _Version(NamedTuple):
    """Names of files, and prefix of the sums over all groups below in memory.stat."""
    limit: str
    usage: str
    events: str
    sums: bytes


VERSIONS = (_Version("memory.limit_in_bytes", "memory.usage_in_bytes", "memory.oom_control", b"total_"),
            _Version("memory.max", "memory.current", "memory.events", b""))


@lru_cache(maxsize=1)
def folders() -> tuple[str, ...]:
    """Returns the folder of this process's group and of those above it; none where memory is not controlled."""
    own = (read("/proc/self/cgroup") or b"").decode(errors="replace")
    mounts = (read("/proc/self/mountinfo") or b"").decode(errors="replace")
    for controller, system in (("memory", "cgroup"), ("", "cgroup2")):  # where both are mounted, 1 controls memory
        path = next((row[2] for row in (line.split(":", 2) for line in own.split("\n"))
                     if len(row) == 3 and controller in row[1].split(",")), None)
        for line in mounts.split("\n"):
            place, _, kind = line.partition(" - ")
            fields, kinds = place.split(), kind.split()
            if path is not None and kinds[:1] == [system] and (not controller or controller in kinds[-1].split(",")):
                return _up(fields[4], path.removeprefix(fields[3]))
    return ()


def _up(mount: str, path: str) -> tuple[str, ...]:
    """Returns the folder of a group below a mount, and those above it. A container may not see its own."""
    parts = [one for one in path.split("/") if one]
    found = ("/".join((mount, *parts[:count])) for count in range(len(parts), -1, -1))
    return tuple(one for one in found if os.path.isdir(one))


def limits() -> list[tuple[int, int]]:
    """Returns used and permitted bytes of each group with a limit. The page cache counts as free: it is given back."""
    found = []
    for folder in folders():
        for version in VERSIONS:
            limit, usage = read(f"{folder}/{version.limit}"), read(f"{folder}/{version.usage}")
            if limit is not None and usage is not None and limit.strip().isdigit():  # "max": there is none
                rows = table(f"{folder}/memory.stat")
                cache = sum(rows.get(version.sums + name, 0) for name in (b"inactive_file", b"active_file"))
                found.append((max(0, int(usage) - cache), int(limit)))
    return found


def oom_kills() -> int | None:
    """Returns how many processes of this group the kernel has killed for lack of memory; None where it does not count.

    `memory.failcnt` of version 1 is no such count: it rises whenever the limit makes the kernel give pages back.
    """
    own = folders()[:1]
    counts = (table(f"{folder}/{version.events}").get(b"oom_kill") for folder in own for version in VERSIONS)
    return next((one for one in counts if one is not None), None)
