"""Batches with boxes in the forms that detectors take: Loader(collate=...)."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from .arguments import shown
from .batch import Batch
from .errors import UsageError


class Collate(NamedTuple):
    """A form of batches."""

    overrides: tuple[str, ...]
    """Settings of the recipe that it needs."""
    shape: Callable[[Batch], Any]


def _torchvision(batch: Batch) -> tuple[list[Any], list[dict[str, Any]]]:
    boxes = batch.boxes
    extras = {"keypoints": batch.key_points} if batch.has_key_points else {}
    if batch.has_instance_masks:
        extras["masks"] = batch.instance_masks
    targets: list[dict[str, Any]] = []
    ends = boxes.offsets.tolist()
    for image, begin, end in zip(batch.image_ids, ends, ends[1:]):
        target = {"boxes": boxes.values[begin:end], "labels": boxes.class_ids[begin:end] + 1, "image_id": image}
        targets.append(target | {name: values[begin:end] for name, values in extras.items()})
    return list(batch.images), targets


def _ultralytics(batch: Batch) -> dict[str, Any]:
    boxes = batch.boxes
    counts = (boxes.offsets[1:] - boxes.offsets[:-1]).tolist()
    as_array = boxes.values.new_tensor if hasattr(boxes.values, "new_tensor") else boxes.values.dtype.type
    shaped = {
        "img": batch.images,
        "cls": boxes.class_ids.reshape(-1, 1),
        "bboxes": boxes.values,
        "batch_idx": as_array([sample for sample, count in enumerate(counts) for _ in range(count)]),
    }
    if batch.has_key_points:
        shaped["keypoints"] = batch.key_points
    return shaped


_COLLATES = {
    "torchvision": Collate(("targets.format=xyxy", "targets.relative=false"), _torchvision),
    "ultralytics": Collate(("targets.format=cxcywh", "targets.relative=true"), _ultralytics),
}


def collate_of(name: str | None, keys: Sequence[str] | None) -> Collate | None:
    """Returns the form of batches that `name` stands for."""
    if name is None:
        return None
    if name not in _COLLATES:
        raise UsageError(f"collate={shown(name)} is no form of batches", f"choose one of {', '.join(_COLLATES)}")
    if keys is not None:
        raise UsageError("collate= and keys= both shape batches", "leave one of them out")
    return _COLLATES[name]
