"""Figures of a stretch of the loop: seconds by span and by place, and the line of an epoch in metrics.jsonl."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .breakdown import PLACES, Breakdown
from .run_directory import seconds, sums
from .spans import NAMES, Table


def by_span(ns: list[int]) -> dict[str, float]:
    return {name: seconds(one) for name, one in zip(NAMES, ns)}


def rate(images: int, load: float, update: float) -> float | None:
    return images / (load + update) if images and load + update > 0 else None


def blame(breakdown: Breakdown) -> dict[str, float]:
    parts = {place: seconds(sum(breakdown.waits[i])) for i, place in enumerate(PLACES)}
    return {**parts, "load_s": sum(parts.values())}


def epoch_line(table: Table, breakdown: Breakdown, epochs: Sequence[dict[str, Any]], ns: list[int], whole: bool
               ) -> dict[str, Any]:
    """Returns the line of an epoch after those before it. Its blame is that of the epoch alone.

    `ns`: its spans. `whole`: the loader had no more batches.
    """
    load, update, other = sums(ns)
    steps = table.steps - (epochs[-1]["step"] if epochs else 0)
    images = table.images - sum(one["images"] for one in epochs)
    earlier = [one["blame"] for one in epochs]
    return {"epoch": table.epoch, "step": table.steps, "steps": steps, "images": images, "whole": whole,
            "wall_s": load + update + other, "load_s": load, "update_s": update, "other_s": other,
            "spans": by_span(ns), "images_per_s": rate(images, load, update),
            "blame": {key: value - sum(one[key] for one in earlier) for key, value in blame(breakdown).items()}}
