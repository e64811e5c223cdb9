"""How many workers an iterable data set can feed."""
from __future__ import annotations

import sys
from types import GeneratorType
from typing import Any

from .faults import pass_on

MOST_SHARDS = 1 << 30


def is_iterable(dataset: Any) -> bool:
    """Returns whether each worker iterates over the data set itself, so that the data set has to divide its samples."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(dataset, torch.utils.data.IterableDataset)


def reads_generator(dataset: Any) -> bool:
    """Returns whether an iterable data set holds a generator, which exists already, as Keras's does.

    Workers cannot share one: a copy by fork yields the same samples in each, and waits for threads that were not copied.
    """
    return is_iterable(dataset) and any(isinstance(one, GeneratorType)
                                        for one in getattr(dataset, "__dict__", {}).values())


def shards_of(dataset: Any, ranks: int = 1) -> int:
    """Returns how many shards of an iterable data set a rank has; 0 if the data set does not tell.

    Read from Hugging Face's `num_shards` (`n_shards` before datasets 3.0), which counts one rank's, and from the list
    at the beginning of WebDataset's pipeline, which all ranks share. A worker without a shard has nothing to do there,
    or fails. MosaicML's data sets, whose workers share shards, have a `num_shards` too.
    """
    if not is_iterable(dataset):
        return 0
    modules = [base.__module__ for base in type(dataset).__mro__]
    try:
        if "datasets.iterable_dataset" in modules:
            counts = (getattr(dataset, name, None) for name in ("num_shards", "n_shards"))
            return next((one for one in counts if isinstance(one, int) and 0 < one <= MOST_SHARDS), 0)
        of_webdataset = any(one.startswith("webdataset.") for one in modules)
        source = dataset.pipeline[0] if of_webdataset else None
        urls = getattr(source, "urls", None)
        if isinstance(urls, list) and not hasattr(source, "nshards"):  # nshards: drawn from the list without end
            return len(urls) // ranks
    except Exception as error:  # somebody's data set does what it likes
        pass_on(error)
    return 0
