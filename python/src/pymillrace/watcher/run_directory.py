"""Run directory: the files that one run leaves behind, as `millrace report` reads them (docs/reference/records.md)."""
from __future__ import annotations

import fcntl
import json
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from . import proc
from .errors import InUse, WatchError
from .place import is_launched, launch, place, place_in_torch, spawner
from .records import open_lock, open_record, read_record
from .signals import without_signals_of_writes
from .spans import FIRST_BATCH, LOAD, LOOP, NAMES, UPDATE

LOCK = "run.lock"
PATIENCE = 2.0  # seconds to wait for a predecessor that is being killed
MOST_CONFIG_BYTES = 1 << 20
RANK_PATIENCE, END_PATIENCE = 0.5, 2.0  # seconds for which another rank waits for rank 0, at its begin and at its end
LAUNCH_S = 60.0  # within which the ranks of a launch start
TRIAL = "trial.tmp-"  # begin of the name of a file that check() writes and removes
TRIAL_BYTES = 4096  # that a place must have room for
HEADER = "epoch,step,load_s,update_s,other_s,images,loss," + ",".join(NAMES) + ",iter\n"


def seconds(ns: float) -> float:
    return ns * 1e-9


def is_of_one_launch(path: Path) -> bool:
    """Returns whether a run that is in use may be that of another rank of this launch.

    Without the variables of a launcher, it is one if its process has started this one or if both have one parent.
    """
    if is_launched():
        return True
    holder = _holder(path)
    return holder is not None and holder != os.getpid() and os.getppid() in (holder, _parent(holder))


def beside_parent(path: Path) -> Path:
    """Returns the directory of this launch: another one if the process that spawned its ranks records in `path`."""
    parent = spawner()
    return path.with_name(f"{path.name}.ranks") if parent is not None and _holder(path) == parent else path


def is_held(path: Path) -> bool:
    """Returns whether a process holds the lock of a run. One that is about to take it is held up by 20 ms at most."""
    try:
        with open_record(path / LOCK, MOST_CONFIG_BYTES) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False
    except BlockingIOError:
        return True
    except OSError:
        return False


def _holder(path: Path) -> int | None:
    """Returns the process of this host that holds the lock of a run; None if nobody does."""
    if not is_held(path):
        return None
    try:
        words = read_record(path / LOCK, MOST_CONFIG_BYTES).decode(errors="replace").split()
    except OSError:
        return None
    return int(words[1]) if words[1:2] and words[1].isdecimal() and words[-1] == os.uname().nodename else None


def _name() -> str:
    """Names this process among those that may write to a directory."""
    return f"pid {os.getpid()} on host {os.uname().nodename}"


def _parent(process: int) -> int | None:
    """Returns the process that has started another one; None if that is not known."""
    fields = proc.stat(process)
    return int(fields[1]) if len(fields) > 1 else None


def refuse_what_is_no_run(path: Path) -> None:
    """Raises WatchError if something else lies in the place of a run, or if the place cannot be looked at."""
    try:
        if not path.exists():
            return
        if not path.is_dir():
            raise WatchError(f"run={path}: a file of that name exists; choose another directory")
        marks = ("config.toml", "sweep.json")
        if not any((path / mark).exists() for mark in marks) and any(
                one.name != LOCK and not one.name.startswith(TRIAL) for one in path.iterdir()):
            raise WatchError(f"run={path}: the folder holds files that are not a run; choose another directory")
    except OSError as error:
        raise WatchError(f"run={path}: {error.strerror}; choose another directory") from error


def check(path: Path) -> None:
    """Raises WatchError unless a run directory can be made in this place, and leaves nothing there."""
    trial = path / f"{TRIAL}{os.getpid()}"
    made: list[Path] = []
    try:
        made = [one for one in (path, *path.parents) if not one.exists()]
        refuse_what_is_no_run(path)
        path.mkdir(parents=True, exist_ok=True)
        with without_signals_of_writes():
            trial.write_bytes(bytes(TRIAL_BYTES))
    except OSError as error:
        raise WatchError(f"{path} cannot be written: {error.strerror}; choose another place: --run DIR") from error
    finally:
        with suppress(OSError):
            trial.unlink(missing_ok=True)
            for one in made:
                one.rmdir()


def write_file(path: Path, text: str, replace: Callable[[Path, Path], object] = Path.replace) -> None:
    """Writes a whole file or none of it, also when the power fails. `replace`: gives it its name."""
    temporary = path.with_name(f"{path.name}.tmp-{threading.get_native_id()}")
    try:
        with without_signals_of_writes(), open(temporary, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


def is_complete(summary: dict[str, Any]) -> bool:
    """Returns whether a summary is that of a run's end. One without the flag, of 0.2, was written there."""
    return summary.get("complete") is not False


def file_name(stem: str, suffix: str, rank: int, number: int = 1) -> str:
    """Returns STEM.SUFFIX for the main loader of rank 0, whose number is 1, else with rank and number in it."""
    return stem + (f".rank{rank}" if rank > 0 else "") + (f".{number}" if number > 1 else "") + f".{suffix}"


class RunDirectory:
    """Creates and locks a directory. An earlier run in the same place moves to PATH.1, PATH.2, ...

    Rank 0 makes the directory of all. Another rank that does not find it soon writes to PATH.rankR-PID, from where its
    records move at its end: no rank waits for another one, which may be waiting for it.

    Keeps no file open but the lock: a directory that goes away is noticed, and a script may close all descriptors.
    """

    def __init__(self, path: Path, config: str) -> None:
        self.path, (self.rank, self.world_size) = path, place()
        self._config = config
        self._lock: tuple[int, int, int] | None = None  # descriptor, device, inode
        self._wanted: Path | None = None  # where rank 0 was not found
        if self.rank == 0:
            self._open()
        elif not self._finds_rank_0(path, RANK_PATIENCE):
            self.path, self._wanted = path.with_name(f"{path.name}.rank{self.rank}-{os.getpid()}"), path
            self._open()

    def _open(self) -> None:
        refuse_what_is_no_run(self.path)
        self.path.mkdir(parents=True, exist_ok=True)
        self._take_lock()
        if any(entry.name != LOCK for entry in self.path.iterdir()):
            self._move_aside()
            self.path.mkdir()
            held = self._lock
            self._take_lock()
            _close(held)
        self._write_config()

    def _write_config(self) -> None:
        write_file(self.path / "config.toml", f"# launch {launch()}\n# {_name()}\n{self._config}")

    def follow_torch(self) -> bool:
        """Takes the world size that torch.distributed tells by now. Returns False if the directory is another rank's.

        Lightning, for one, starts the other ranks inside fit().
        """
        found = place_in_torch()
        if found is None or found == (self.rank, self.world_size):
            return True
        if found[0] != self.rank:
            return False
        self.world_size = found[1]
        if self.rank == 0:
            self._write_config()  # the others wait for it
        return True

    def leave(self) -> None:
        """Leaves a directory without records to another rank."""
        if self._lock is not None:
            with suppress(OSError):
                (self.path / "config.toml").unlink(missing_ok=True)
        self.close()

    def _move_aside(self) -> None:
        number = 1
        while (moved := self.path.with_name(f"{self.path.name}.{number}")).exists():
            number += 1
        self.path.rename(moved)

    def _take_lock(self) -> None:
        file = open_lock(self.path / LOCK)
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    holder = os.pread(file, 300, 0).decode(errors="replace").split("\n")[0]
                    holder = holder if holder and holder.isprintable() else "another process"
                    os.close(file)
                    raise InUse(f"{self.path} is in use: {holder} writes to it; wait until it has ended, or "
                                     "choose another directory: run=DIR") from None
                time.sleep(0.02)
        os.ftruncate(file, 0)
        os.pwrite(file, f"{_name()}\n".encode(), 0)
        opened = os.fstat(file)
        self._lock = file, opened.st_dev, opened.st_ino

    def _finds_rank_0(self, path: Path, patience_s: float, at_end: bool = False) -> bool:
        """Returns whether a directory becomes that of rank 0 of this launch within some seconds."""
        deadline = time.monotonic() + patience_s
        while not self._is_of_rank_0(path, at_end):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True

    def _is_of_rank_0(self, path: Path, at_end: bool) -> bool:
        """Returns whether rank 0 of this launch writes to a directory, or `at_end` has written to it.

        Where locks do not reach other hosts, that is known at the end only.
        """
        if any((path / self.name(stem, suffix, 1)).exists() for stem, suffix in (("steps", "csv"), ("summary", "json"))):
            return False  # another process has this rank there
        config = path / "config.toml"
        try:
            first, second = read_record(config, MOST_CONFIG_BYTES).split(b"\n")[:2]
            opened = os.stat(config).st_mtime
            lock = read_record(path / LOCK, MOST_CONFIG_BYTES)
        except (OSError, ValueError):
            return False
        if second != b"# " + lock.strip():  # rank 0 is about to move an earlier run aside
            return False
        process = _holder(path)
        # A launcher that sets no RANK runs in rank 0, which may have opened the directory before it launched the others.
        if "RANK" not in os.environ and spawner() is None and process is not None and process == os.getppid():
            return True
        if first != f"# launch {launch()}".encode():
            return False
        return is_held(path) or (at_end and opened >= proc.begin_of_this() - LAUNCH_S)

    def join(self) -> None:
        """Moves the records of a rank that did not find rank 0 when it began to those of rank 0, if there are any now."""
        wanted = self._wanted
        if wanted is None or not self._finds_rank_0(wanted, END_PATIENCE, at_end=True):
            return
        for file in sorted(self.path.iterdir()):
            if file.name in (LOCK, "config.toml"):
                file.unlink()
            else:
                file.rename(wanted / file.name)
        self.path.rmdir()
        self.path, self._wanted = wanted, None

    @property
    def is_apart(self) -> bool:
        """Returns whether the records of this rank lie apart from those of rank 0."""
        return self._wanted is not None

    # Files

    def name(self, stem: str, suffix: str, number: int) -> str:
        return file_name(stem, suffix, self.rank, number)

    def append(self, name: str, text: str) -> None:
        with without_signals_of_writes(), open(self.path / name, "a", encoding="utf-8") as file:
            file.write(text)

    def swap(self, one: str, other: str) -> None:
        """Exchanges the names of two files, either of which may be missing."""
        middle = self.path / f"{one}.tmp-{os.getpid()}"
        for source, target in ((self.path / one, middle), (self.path / other, self.path / one),
                               (middle, self.path / other)):
            if source.exists():
                source.rename(target)

    def append_rows(self, name: str, rows: str) -> None:
        header = "" if (self.path / name).exists() else HEADER
        self.append(name, header + rows)

    def close(self) -> None:
        held, self._lock = self._lock, None
        _close(held)


def _close(lock: tuple[int, int, int] | None) -> None:
    """Closes a lock, unless the script has closed it (os.closerange) and the number is another file's by now."""
    if lock is None:
        return
    file, *opened = lock
    with suppress(OSError):
        now = os.fstat(file)
        if [now.st_dev, now.st_ino] == opened:
            os.close(file)


def sums(ns: list[int]) -> tuple[float, float, float]:
    """Returns load, update and other of a row's spans, in seconds."""
    load = ns[FIRST_BATCH] + ns[LOAD]
    update = ns[UPDATE] + ns[LOOP]
    return seconds(load), seconds(update), seconds(sum(ns) - load - update)


def dump(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, indent=indent) + "\n"
