"""Run directory: the files that one run leaves behind, as `millrace report` reads them (docs/reference/records.md)."""
from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from pathlib import Path
from typing import Any, TextIO

from .errors import WatchError
from .records import open_lock, read_record
from .spans import FIRST_BATCH, LOAD, LOOP, NAMES, UPDATE

LOCK = "run.lock"
PATIENCE = 2.0  # seconds to wait for a predecessor that is being killed
MOST_CONFIG_BYTES = 1 << 20
RANK_PATIENCE = 60.0  # seconds to wait for rank 0
HEADER = "epoch,step,load_s,update_s,other_s,images,loss," + ",".join(NAMES) + ",iter\n"


def seconds(ns: float) -> float:
    return ns * 1e-9


def rank() -> int:
    return int(os.environ.get("RANK", "0") or 0)


def world_size() -> int:
    return int(os.environ.get("WORLD_SIZE", "1") or 1)


def _launch() -> str:
    """Names the launch that this process belongs to, for the other ranks."""
    names = ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT")
    return "-".join(os.environ.get(name, "") for name in names)


class RunDirectory:
    """Creates and locks a directory. An earlier run in the same place moves to PATH.1, PATH.2, ..."""

    def __init__(self, path: Path, config: str) -> None:
        self.path, self.rank = path, rank()
        self._files: dict[str, TextIO] = {}
        self._lock: int | None = None
        try:
            if self.rank == 0:
                self._open(f"# launch {_launch()}\n{config}")
            else:
                self._wait_for_rank_0()
        except OSError as error:
            raise WatchError(f"{path} cannot be written: {error.strerror}; choose another place: run=DIR") from error

    def _open(self, config: str) -> None:
        self._refuse_what_is_no_run()
        self.path.mkdir(parents=True, exist_ok=True)
        self._take_lock()
        if any(entry.name != LOCK for entry in self.path.iterdir()):
            self._move_aside()
            self.path.mkdir()
            held, self._lock = self._lock, None
            self._take_lock()
            if held is not None:
                os.close(held)
        self.write("config.toml", config)

    def _refuse_what_is_no_run(self) -> None:
        if not self.path.exists():
            return
        if not self.path.is_dir():
            raise WatchError(f"run={self.path}: there is a file of that name; choose another directory")
        marks = ("config.toml", "sweep.json")
        if not any((self.path / mark).exists() for mark in marks) and any(
                entry.name != LOCK for entry in self.path.iterdir()):
            raise WatchError(f"run={self.path}: the folder holds files that are not a run; choose another directory")

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
                    raise WatchError(f"{self.path} is in use: {holder} writes there; wait until it has ended, or "
                                     "choose another directory: run=DIR") from None
                time.sleep(0.02)
        os.ftruncate(file, 0)
        os.pwrite(file, f"pid {os.getpid()} on host {socket.gethostname()}\n".encode(), 0)
        self._lock = file

    def _wait_for_rank_0(self) -> None:
        """Waits until rank 0 of the same launch has made the directory."""
        deadline = time.monotonic() + RANK_PATIENCE
        while True:
            try:
                config = read_record(self.path / "config.toml", MOST_CONFIG_BYTES)
                if config.startswith(f"# launch {_launch()}\n".encode()):
                    return
            except OSError:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            if time.monotonic() > deadline:
                raise WatchError(f"rank {self.rank}: rank 0 has not opened {self.path} for {RANK_PATIENCE:.0f} s; "
                                 "watch the same loaders on every rank")
            time.sleep(0.02)

    # Files

    def name(self, stem: str, suffix: str, number: int) -> str:
        """Returns a file's name: STEM.SUFFIX for the main loader of rank 0, else with the rank and loader in it."""
        of_rank = f".rank{self.rank}" if self.rank > 0 else ""
        return f"{stem}{of_rank}{f'.{number}' if number > 1 else ''}.{suffix}"

    def write(self, name: str, text: str) -> None:
        """Writes a whole file or none of it."""
        temporary = self.path / f"{name}.tmp-{os.getpid()}"
        temporary.write_text(text)
        temporary.replace(self.path / name)

    def append(self, name: str, text: str) -> None:
        if name not in self._files:
            self._files[name] = open(self.path / name, "a", encoding="utf-8")
        self._files[name].write(text)
        self._files[name].flush()

    def swap(self, one: str, other: str) -> None:
        """Exchanges the names of two files, either of which may be missing."""
        for name in (one, other):
            file = self._files.pop(name, None)
            if file is not None:
                file.close()
        middle = self.path / f"{one}.tmp-{os.getpid()}"
        for source, target in ((self.path / one, middle), (self.path / other, self.path / one),
                               (middle, self.path / other)):
            if source.exists():
                source.rename(target)

    def append_rows(self, name: str, rows: str) -> None:
        header = HEADER if name not in self._files and not (self.path / name).exists() else ""
        self.append(name, header + rows)

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def sums(ns: list[int]) -> tuple[float, float, float]:
    """Returns load, update and other of a row's spans, in seconds."""
    load = ns[FIRST_BATCH] + ns[LOAD]
    update = ns[UPDATE] + ns[LOOP]
    return seconds(load), seconds(update), seconds(sum(ns) - load - update)


def dump(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, indent=indent) + "\n"
