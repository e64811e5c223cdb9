"""Spans of a step: at any moment the trainer's thread is in exactly one span of one loader, or between loaders.

FIRST_BATCH and LOAD count as load, UPDATE and LOOP as update, the others as other.
"""
from __future__ import annotations

from .._watch import SPANS as NAMES
from .._watch import Table, Timeline

__all__ = ["NAMES", "Table", "Timeline"]

# NAMES is in the order of the columns of steps.csv.
SETUP, FIRST_BATCH, LOAD, UPDATE, LOOP, EVALUATE, LOG, BETWEEN = map(
    NAMES.index, ("setup", "first_batch", "load", "update", "loop", "evaluate", "log", "between"))
