"""Places and kinds of the wait breakdown, which python/ext/watch makes."""
from __future__ import annotations

from .._watch import Breakdown

__all__ = ["Breakdown", "KINDS", "PLACES"]

PLACES = ("dataset", "transform", "collate", "transfer", "startup", "handover", "unknown")
KINDS = ("cpu", "blocked", "cores", "unknown")
DATASET, TRANSFORM, COLLATE, TRANSFER, STARTUP, HANDOVER, NOWHERE = range(7)
