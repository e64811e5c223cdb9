"""Loaders of other projects that use no torch DataLoader: waits for their batches are recorded, and nothing inside.

A table names the methods that return their iterators. They are replaced where the project has been imported; under
`pymillrace watch` also when it is imported later.
"""
from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .faults import stop
from .iterators import is_inside, iterate

if TYPE_CHECKING:
    from .watched_loader import WatchedLoader

# Class, method and the loader's kind by module. tf.data's own iterators are left alone: TensorFlow takes them into
# functions that it compiles, which need their class.
METHODS = {
    "pymillrace.loader": ("Loader", "__iter__", "mr.Loader"),
    "torchdata.nodes": ("Loader", "__iter__", "torchdata.Loader"),
    "spdl.pipeline": ("Pipeline", "get_iterator", "spdl.Pipeline"),
    "nvidia.dali.plugin.base_iterator": ("_DaliBaseIterator", "__iter__", "DALI's iterator"),
    "ffcv.loader.loader": ("Loader", "__iter__", "ffcv.Loader"),
    "grain._src.python.data_loader": ("DataLoader", "__iter__", "grain.DataLoader"),
    "grain._src.python.dataset.dataset": ("_OutputIterDataset", "__iter__", "grain.IterDataset"),
    "tensorflow.python.data.ops.dataset_ops": ("DatasetV2", "as_numpy_iterator", "tf.data.Dataset"),
}

Watched = Callable[[Any, str], "WatchedLoader | None"]  # returns the recording of a loader of a kind


def replace_in(module: Any, watched_by: Watched) -> None:
    """Replaces the method of a project's class that returns its iterators."""
    class_, method, kind = METHODS[module.__name__]
    of_class = getattr(module, class_, None)
    original = getattr(of_class, method, None)
    if original is None or hasattr(original, "_millrace"):
        return

    @functools.wraps(original)
    def replaced(self: Any, *given: Any, **named: Any) -> Any:
        try:
            watched = None if is_inside() else watched_by(self, kind)
        except Exception as error:
            stop(error)
            watched = None
        if watched is None:
            return original(self, *given, **named)
        return iterate(lambda: original(self, *given, **named), watched)

    setattr(replaced, "_millrace", True)
    setattr(of_class, method, replaced)


def replace_imported(watched_by: Watched) -> None:
    """Replaces the methods of those projects that have been imported."""
    for name in METHODS:
        if name in sys.modules:
            replace_in(sys.modules[name], watched_by)
