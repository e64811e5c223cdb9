"""millrace for Python: batches for training loops, and measurements of any data loader.

Importing it loads neither PyTorch nor NumPy.
"""
import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .augmentations import Augmentation, augmentation
    from .batch import Batch
    from .errors import DataError, DeviceError, Error, RunError, UsageError
    from .loader import Dataset, Failure, Loader, StepCost
    from .recipes import (
        CenterCrop,
        Cifar,
        ColorJitter,
        Folder,
        GaussianBlur,
        HFlip,
        IMAGENET,
        Idx,
        Manifest,
        Normalize,
        RandomCrop,
        RandomGrayscale,
        RandomResizedCrop,
        RandomRotation,
        Resize,
        Tar,
        VFlip,
        from_torchvision,
    )
    from .watcher import WatchError, watch, watching

# Where each public name is defined; it is imported on first use.
_HOMES = {
    "Augmentation": "augmentations",
    "Batch": "batch",
    "CenterCrop": "recipes",
    "Cifar": "recipes",
    "ColorJitter": "recipes",
    "DataError": "errors",
    "Dataset": "loader",
    "DeviceError": "errors",
    "Error": "errors",
    "Failure": "loader",
    "Folder": "recipes",
    "GaussianBlur": "recipes",
    "HFlip": "recipes",
    "IMAGENET": "recipes",
    "Idx": "recipes",
    "Loader": "loader",
    "Manifest": "recipes",
    "Normalize": "recipes",
    "RandomCrop": "recipes",
    "RandomGrayscale": "recipes",
    "RandomResizedCrop": "recipes",
    "RandomRotation": "recipes",
    "Resize": "recipes",
    "RunError": "errors",
    "StepCost": "loader",
    "Tar": "recipes",
    "UsageError": "errors",
    "VFlip": "recipes",
    "WatchError": "watcher",
    "augmentation": "augmentations",
    "from_torchvision": "recipes",
    "watch": "watcher",
    "watching": "watcher",
}

__all__ = [
    "Augmentation",
    "Batch",
    "CenterCrop",
    "Cifar",
    "ColorJitter",
    "DataError",
    "Dataset",
    "DeviceError",
    "Error",
    "Failure",
    "Folder",
    "GaussianBlur",
    "HFlip",
    "IMAGENET",
    "Idx",
    "Loader",
    "Manifest",
    "Normalize",
    "RandomCrop",
    "RandomGrayscale",
    "RandomResizedCrop",
    "RandomRotation",
    "Resize",
    "RunError",
    "StepCost",
    "Tar",
    "UsageError",
    "VFlip",
    "WatchError",
    "augmentation",
    "from_torchvision",
    "watch",
    "watching",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{home}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
