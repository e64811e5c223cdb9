"""Shared memory that the tensors of batches in flight need, beside what /dev/shm had when workers began."""
from __future__ import annotations

from typing import TYPE_CHECKING

from .live import write_at_once
from .printable import printable
from .room import SHARED_MEMORY, bytes_text

if TYPE_CHECKING:
    from .watched_loader import WatchedLoader


def needed(loader: WatchedLoader) -> int | None:
    """Returns the bytes of all outstanding batches; None without workers, and before the first batch."""
    return loader.workers * loader.prefetch * loader.tensor_bytes or None


def tell_if_full(loader: WatchedLoader) -> None:
    """Writes a line on stderr if the batches in flight do not fit. Call it with the first batch."""
    wanted, had = needed(loader), loader.free_shared_memory
    if wanted is not None and had is not None and wanted > had:
        write_at_once(printable(
            f"{loader.name}: batches in flight need {bytes_text(wanted)} of {SHARED_MEMORY}, which had "
            f"{bytes_text(had)} free (num_workers={loader.workers}, prefetch_factor={loader.prefetch}, "
            f"{bytes_text(loader.tensor_bytes)} per batch): make it larger, or lower one of them"))
