"""The counterpart of a loader in millrace: its transforms as overrides of a recipe, its folder, and some of its files.

It is recorded while a loop is watched; replacement.py predicts from it, and replacement_code.py writes code from it.
"""
from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .. import recipes, translation
from ..errors import UsageError
from .faults import pass_on
from .transforms import callables

if TYPE_CHECKING:
    from .summary_record import Counterpart, Source

MOST_SAMPLES = 64
# Attributes in which data sets keep paths, or tuples that begin with one; torchvision's ImageFolder has the first two.
PATHS = ("samples", "imgs", "image_paths", "img_paths", "paths", "files", "filenames", "image_files", "images")


class NoCounterpart(Exception):
    """Gives the reason why millrace's loader cannot replace a loader."""


def counterpart_of(loader: Any) -> Counterpart:
    """Returns what a prediction needs of a DataLoader's data set, as summary.json keeps it; never raises.

    `words` are its transforms as overrides of a recipe, `samples` up to 64 paths of its files. Where one of them is
    missing, `reason` says why; otherwise it is None. `source` and `no_source` are likewise what code needs besides.
    """
    words: list[str] = []
    samples: list[str] = []
    source: Source | None = None
    reason = no_source = None
    dataset = loader.dataset
    try:
        words = _words(dataset)
        samples = _samples(dataset)
    except (NoCounterpart, UsageError) as error:
        reason = error.what if isinstance(error, UsageError) else str(error)
    except Exception as error:  # somebody's data set does what it likes; the watched loop goes on
        pass_on(error)
        reason = f"{type(dataset).__name__} cannot be examined: {type(error).__name__}: {error}"
    try:
        if reason is None:
            source = _source(loader)
    except NoCounterpart as error:
        no_source = str(error)
    except Exception as error:
        pass_on(error)
        no_source = f"{type(loader).__name__} cannot be examined: {type(error).__name__}: {error}"
    return {"words": words, "samples": samples, "reason": reason, "source": source, "no_source": no_source}


def _source(loader: Any) -> Source:
    """Returns what a loader reads, and in which order. Raises NoCounterpart where code in its place would differ."""
    dataset = loader.dataset
    folders, data = sys.modules.get("torchvision.datasets.folder"), sys.modules["torch.utils.data"]
    if folders is None or type(dataset) is not folders.ImageFolder:
        raise NoCounterpart(f"the data set is {type(dataset).__name__}, not torchvision's ImageFolder")
    if dataset.loader is not folders.default_loader:
        raise NoCounterpart("its ImageFolder has a loader= of its own")
    batches = loader.batch_sampler
    if type(batches) is not data.BatchSampler:
        raise NoCounterpart("its DataLoader has a batch_sampler of its own, or none")
    if loader.collate_fn is not data.default_collate:
        raise NoCounterpart("its DataLoader has a collate_fn of its own")
    shuffle = type(batches.sampler) is data.RandomSampler and not batches.sampler.replacement
    if not shuffle and type(batches.sampler) is not data.SequentialSampler or len(batches.sampler) != len(dataset):
        raise NoCounterpart("its DataLoader has a sampler of its own; give it to mr.Loader(sampler=...)")
    return {"folder": os.path.abspath(os.fsdecode(dataset.root)), "images": len(dataset),
            "batch": batches.batch_size, "shuffle": shuffle, "drop_last": batches.drop_last}


def _words(dataset: Any) -> list[str]:
    found = callables(dataset)
    for name, transform in found:
        if name.startswith("target"):
            raise NoCounterpart(f"{name} has no counterpart")
    chains = list({id(transform): transform for _, transform in found}.values())
    if not chains:
        raise NoCounterpart(f"{type(dataset).__name__} has no attribute that holds its transforms")
    if len(chains) > 1:
        raise NoCounterpart(f"{type(dataset).__name__} holds {len(chains)} transforms; which one an image gets is unknown")
    words: list[str] = []
    for op in translation.from_torchvision(chains[0]):
        words += op.overrides() if isinstance(op, recipes.Normalize) else [op.override()]
    return words


def _samples(dataset: Any) -> list[str]:
    """Returns up to 64 paths, evenly spread over the data set."""
    indices: Sequence[int] | None = None
    values = getattr(dataset, "__dict__", {})
    if "dataset" in values and "indices" in values:  # torch's Subset
        indices, dataset = values["indices"], values["dataset"]
    for name in PATHS:
        held = getattr(dataset, "__dict__", {}).get(name)
        if isinstance(held, (list, tuple)) and held and _path(held[0]) is not None:
            count = len(held) if indices is None else len(indices)
            places = [i * count // min(count, MOST_SAMPLES) for i in range(min(count, MOST_SAMPLES))]
            chosen = [_path(held[i if indices is None else int(indices[i])]) for i in places]
            return [path for path in chosen if path is not None]
    raise NoCounterpart(f"{type(dataset).__name__} has no list of image files")


def _path(item: Any) -> str | None:
    """Returns the absolute path of a file that an item of a data set's list names."""
    if isinstance(item, (list, tuple)) and item:
        item = item[0]
    if not isinstance(item, (str, os.PathLike)) or not os.path.isfile(item):
        return None
    return os.path.abspath(os.fsdecode(item))
