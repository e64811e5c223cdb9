"""Copies batches to a device ahead of the loop, for Loader(device=...).

A copy goes on while the host does other things, so its source must stay as it is until the copy has ended. The source
is memory that the device's driver has locked, of which PyTorch's own book-keeping knows nothing. Therefore Copies keeps
every batch until the event behind its copy has completed, and nobody else gets a view of it.
"""
from __future__ import annotations

import collections
import ctypes
import weakref
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from .arguments import shown
from .batch import Rest
from .errors import UsageError

AHEAD = 1  # batches that are copied while the loop has the one before
MOST = 4  # copies that may be under way; more wait for the first of them
_abandoned: list[Any] = []  # batches that a device may still read, because it reported an error


class Event(Protocol):
    """An event in a device's queue of work."""

    def query(self) -> bool:
        """Returns whether all work before the event has completed."""

    def synchronize(self) -> None:
        """Waits until all work before the event has completed."""


class Device(Protocol):
    """Operations of a device that copying needs."""

    locks: tuple[int, int]
    """Addresses of the functions that lock and unlock pages for the device."""

    def current(self) -> AbstractContextManager[Any]:
        """Makes this device the thread's current one, for calls that allocate."""

    def copy(self, arrays: Sequence[Any]) -> tuple[list[Any], Event]:
        """Starts copying arrays of page-locked memory. Returns the copies and the event that follows them."""

    def hand_out(self, arrays: Sequence[Any], event: Event) -> None:
        """Makes work that the caller queues from now on wait for the copies."""


class CudaDevice:
    """A CUDA device of PyTorch's, with a stream for the copies."""

    def __init__(self, name: str) -> None:
        import torch as torch_module

        torch: Any = torch_module  # parts of torch.cuda have no types
        self._torch = torch
        try:
            self._device = torch.device(name)
        except Exception as error:  # PyTorch raises several kinds
            raise UsageError(f"device={shown(name)} is not a device: {(str(error).splitlines() or [''])[0]}") from None
        if self._device.type != "cuda":
            raise UsageError(f"device={shown(name)}: batches are copied to CUDA devices only", "leave device= out for the CPU")
        if not torch.cuda.is_available():
            raise UsageError(f"device={shown(name)}: PyTorch finds no CUDA device here")
        with torch.cuda.device(self._device):
            self._stream = torch.cuda.Stream()
        runtime = ctypes.CDLL(f"libcudart.so.{str(torch.version.cuda).partition('.')[0]}")  # PyTorch has loaded it
        self.locks = (ctypes.cast(runtime.cudaHostRegister, ctypes.c_void_p).value or 0,
                      ctypes.cast(runtime.cudaHostUnregister, ctypes.c_void_p).value or 0)

    def current(self) -> AbstractContextManager[Any]:
        context: AbstractContextManager[Any] = self._torch.cuda.device(self._device)
        return context

    def copy(self, arrays: Sequence[Any]) -> tuple[list[Any], Event]:
        with self._torch.cuda.stream(self._stream):
            copies = [array.to(self._device, non_blocking=True) for array in arrays]
            event = self._torch.cuda.Event()
            event.record(self._stream)
        return copies, event

    def hand_out(self, arrays: Sequence[Any], event: Event) -> None:
        stream = self._torch.cuda.current_stream(self._device)
        stream.wait_event(event)
        for array in arrays:
            array.record_stream(stream)  # or their memory could be given away before that work


def open_device(name: str) -> Device:
    """Returns the device that a Loader copies its batches to."""
    return CudaDevice(name)


class Copy:
    """A batch on its way to the device, without its source."""

    def __init__(self, arrays: list[Any], event: Event, rest: Rest) -> None:
        self.arrays, self.event, self.rest = arrays, event, rest


class Copies:
    """Copies batches and keeps each of them until its copy has ended."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self._running: collections.deque[tuple[Event, Any]] = collections.deque()
        weakref.finalize(self, _wait, self._running)  # also when the process ends

    def start(self, batch: Any, rest: Rest) -> Copy:
        """Starts copying the arrays of a batch, and keeps the batch."""
        self.collect()
        if len(self._running) >= MOST:
            self._running[0][0].synchronize()
            self.collect()
        arrays, event = self.device.copy(batch)
        self._running.append((event, batch))
        return Copy(arrays, event, rest)

    def collect(self) -> None:
        """Releases the batches whose copies have ended."""
        running = self._running
        while running:
            event, batch = running[0]
            try:
                if not event.query():
                    return
            except BaseException:
                _abandoned.extend(running)
                running.clear()
                raise
            running.popleft()
            del event, batch

    def hand_out(self, copy: Copy) -> list[Any]:
        """Returns the arrays on the device, for use by what the caller queues from now on."""
        self.device.hand_out(copy.arrays, copy.event)
        return copy.arrays

    def close(self) -> None:
        """Waits for the copies."""
        _wait(self._running)


def _wait(running: collections.deque[tuple[Event, Any]]) -> None:
    while running:
        try:
            running[0][0].synchronize()
        except BaseException:
            _abandoned.extend(running)
            running.clear()
            raise
        running.popleft()
