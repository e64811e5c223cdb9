"""Places and kinds of the wait breakdown, which measure/data_loader makes."""
from __future__ import annotations

from .._watch import KINDS, PLACES, Breakdown

__all__ = ["Breakdown", "KINDS", "PLACES"]

DATASET, TRANSFORM, COLLATE, TRANSFER, STARTUP, HANDOVER, NOWHERE = map(
    PLACES.index, ("dataset", "transform", "collate", "transfer", "startup", "handover", "unknown"))
