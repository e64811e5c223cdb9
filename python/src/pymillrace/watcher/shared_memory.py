"""Shared memory that the tensors of batches in flight need, beside what /dev/shm had when workers began."""
from __future__ import annotations

from .live import write_at_once
from .printable import printable
from .room import SHARED_MEMORY, bytes_text


def needed(workers: int, prefetch: int, tensor_bytes: int) -> int | None:
    """Returns the bytes of all outstanding batches; None without workers, and before the first batch."""
    return workers * prefetch * tensor_bytes or None


def tell_if_full(name: str, workers: int, prefetch: int, tensor_bytes: int, had: int | None) -> None:
    """Writes a line on stderr if a loader's batches in flight do not fit. `had`: bytes that were free at first."""
    wanted = needed(workers, prefetch, tensor_bytes)
    if wanted is not None and had is not None and wanted > had:
        write_at_once(printable(
            f"{name}: batches in flight need {bytes_text(wanted)} of {SHARED_MEMORY}, which had {bytes_text(had)} free "
            f"(num_workers={workers}, prefetch_factor={prefetch}, {bytes_text(tensor_bytes)} per batch): enlarge "
            f"{SHARED_MEMORY}, or lower num_workers, prefetch_factor or the batch size"))
