"""Mapped file of batch records: workers write one record per batch, the trainer's process reads them.

A record lies at (batch number modulo slots), whichever worker makes the batch. A record that was overwritten before it
was read is an overrun. The fields of the feeder thread are written after the batch was sent, by another thread.
"""
from __future__ import annotations

import mmap
import os
import struct
from typing import NamedTuple

FETCH = struct.Struct("<15q")
FEEDER = struct.Struct("<6q")
SENDING = FETCH.size
BATCH = struct.Struct("<21q")  # both
PARTS = BATCH.size


class Record(NamedTuple):
    """History of one batch inside a worker. Times are ns of CLOCK_MONOTONIC, durations ns; -1 is unknown."""
    generation: int  # from 1: number of the iteration that this worker serves; 0 is an empty slot
    batch: int
    worker: int
    begin: int  # fetch begins
    collate: int  # the collate function begins
    end: int  # fetch ends
    dataset_cpu: int
    dataset_delay: int
    collate_cpu: int
    collate_delay: int
    samples: int
    transform: int  # in the transforms; -1 on batches that were not sampled
    transform_cpu: int
    start_cpu: int  # of the worker's thread before its first batch
    start_delay: int
    send_key: int  # batch number again, written last
    send_begin: int  # the feeder thread begins to pickle
    send_end: int  # the bytes are in the pipe
    send_cpu: int
    send_delay: int
    send_waited: int  # of send_end - send_begin: blocked until the pipe was free and had room
    parts: tuple[int, ...]  # wall and CPU of each transform, in turn

    @property
    def sent(self) -> bool:
        return self.send_key == self.batch + 1


class RecordFile:
    """Ring of records, shared by processes through its path."""

    def __init__(self, path: str, slots: int, parts: int, create: bool) -> None:
        self.slots = slots
        self._parts = struct.Struct(f"<{2 * parts}q")
        self._size = PARTS + self._parts.size
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT | os.O_TRUNC if create else 0)
        file = os.open(path, flags, 0o666)
        try:
            if create:
                os.ftruncate(file, slots * self._size)
            self._map = mmap.mmap(file, slots * self._size)
        finally:
            os.close(file)

    def write(self, fetch: tuple[int, ...], parts: list[int]) -> None:
        """Writes the fields of the worker's main thread."""
        at = fetch[1] % self.slots * self._size
        if parts:
            self._parts.pack_into(self._map, at + PARTS, *parts)
        BATCH.pack_into(self._map, at, *fetch, 0, 0, 0, 0, 0, 0)

    def write_sending(self, batch: int, begin: int, end: int, cpu: int, delay: int, waited: int) -> None:
        """Writes the fields of the feeder thread."""
        FEEDER.pack_into(self._map, batch % self.slots * self._size + SENDING, batch + 1, begin, end, cpu, delay, waited)

    def read(self, generation: int, batch: int) -> Record | None:
        """Returns the record of a batch; None if its slot holds another."""
        at = batch % self.slots * self._size
        fields = BATCH.unpack_from(self._map, at)
        if fields[0] != generation or fields[1] != batch:
            return None
        return Record._make((*fields, self._parts.unpack_from(self._map, at + PARTS)))

    def holds_later(self, generation: int, batch: int) -> bool:
        """Returns whether the slot of a batch was overwritten by a later one."""
        fetch = FETCH.unpack_from(self._map, batch % self.slots * self._size)
        return (fetch[0], fetch[1]) > (generation, batch)
