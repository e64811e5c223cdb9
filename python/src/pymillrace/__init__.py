"""millrace for Python: batches for training loops, and measurements of any data loader.

Importing it loads neither PyTorch nor NumPy.
"""
from __future__ import annotations

import importlib
import sys
from typing import Any

if "t" in sys.abiflags:
    import importlib.machinery
    import importlib.util

    _found = importlib.util.find_spec(f"{__name__}._watch")
    if _found is None or not str(_found.origin).endswith(importlib.machinery.EXTENSION_SUFFIXES[0]):
        raise ImportError("this pymillrace was built for a Python with its lock (GIL), and this one is free-threaded: "
                          "install it there from its source")

from . import _exit

# Names of the package by the module that defines them; builtin_ops has the rest, which are made from declarations in
# C++. Modules are imported on first use. tools/python_classes.py writes __init__.pyi from this.
_HOMES = {
    "augmentations": ("Augmentation", "augmentation", "check"),
    "batch": ("Batch", "Boxes", "Members"),
    "errors": ("DataError", "DeviceError", "Error", "RunError", "UsageError"),
    "loader": ("Dataset", "Failure", "Loader", "StepCost"),
    "recipes": ("Cifar", "Coco", "Folder", "Grayscale", "IMAGENET", "Idx", "Manifest", "Normalize", "Tar",
                "Yolo"),
    "samplers": ("MPerClassSampler", "RASampler", "WeightedRandomSampler"),
    "samples": ("Parquet", "Samples"),
    "translation": ("from_torchvision",),
    "watcher.api": ("WatchError", "watch", "watching"),
    "watcher.loggers": ("log_to_mlflow", "log_to_tensorboard", "log_to_wandb"),
    "watcher.notebook": ("summary",),
}


def _imported(module: str) -> Any:
    return importlib.import_module(f".{module}", __name__)


def __getattr__(name: str) -> Any:
    if name == "__all__":
        value: Any = sorted([*(one for names in _HOMES.values() for one in names), *_imported("builtin_ops").__all__])
    elif (home := next((home for home, names in _HOMES.items() if name in names), None)) is not None:
        value = getattr(_imported(home), name)
    elif not name.startswith("_") and name in _imported("builtin_ops").__all__:
        value = getattr(_imported("builtin_ops"), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__getattr__("__all__"), *(name for name in globals() if name.startswith("__"))})
