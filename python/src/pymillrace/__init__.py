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
        AutoAugment,
        CenterCrop,
        Cifar,
        ColorJitter,
        ElasticTransform,
        Folder,
        GaussianBlur,
        GaussianNoise,
        Grayscale,
        HFlip,
        IMAGENET,
        Idx,
        JPEG,
        Manifest,
        Normalize,
        Pad,
        RandAugment,
        RandomAdjustSharpness,
        RandomAffine,
        RandomApply,
        RandomAutocontrast,
        RandomCrop,
        RandomEqualize,
        RandomErasing,
        RandomGrayscale,
        RandomInvert,
        RandomPerspective,
        RandomPosterize,
        RandomResizedCrop,
        RandomRotation,
        RandomSolarize,
        Resize,
        Tar,
        TrivialAugmentWide,
        VFlip,
    )
    from .translation import from_torchvision
    from .watcher import WatchError, watch, watching

# Where each public name is defined; it is imported on first use.
_HOMES = {
    "Augmentation": "augmentations",
    "AutoAugment": "recipes",
    "Batch": "batch",
    "CenterCrop": "recipes",
    "Cifar": "recipes",
    "ColorJitter": "recipes",
    "DataError": "errors",
    "Dataset": "loader",
    "DeviceError": "errors",
    "ElasticTransform": "recipes",
    "Error": "errors",
    "Failure": "loader",
    "Folder": "recipes",
    "GaussianBlur": "recipes",
    "GaussianNoise": "recipes",
    "Grayscale": "recipes",
    "HFlip": "recipes",
    "IMAGENET": "recipes",
    "Idx": "recipes",
    "JPEG": "recipes",
    "Loader": "loader",
    "Manifest": "recipes",
    "Normalize": "recipes",
    "Pad": "recipes",
    "RandAugment": "recipes",
    "RandomAdjustSharpness": "recipes",
    "RandomAffine": "recipes",
    "RandomApply": "recipes",
    "RandomAutocontrast": "recipes",
    "RandomCrop": "recipes",
    "RandomEqualize": "recipes",
    "RandomErasing": "recipes",
    "RandomGrayscale": "recipes",
    "RandomInvert": "recipes",
    "RandomPerspective": "recipes",
    "RandomPosterize": "recipes",
    "RandomResizedCrop": "recipes",
    "RandomRotation": "recipes",
    "RandomSolarize": "recipes",
    "Resize": "recipes",
    "RunError": "errors",
    "StepCost": "loader",
    "Tar": "recipes",
    "TrivialAugmentWide": "recipes",
    "UsageError": "errors",
    "VFlip": "recipes",
    "WatchError": "watcher",
    "augmentation": "augmentations",
    "from_torchvision": "translation",
    "watch": "watcher",
    "watching": "watcher",
}

__all__ = [
    "Augmentation",
    "AutoAugment",
    "Batch",
    "CenterCrop",
    "Cifar",
    "ColorJitter",
    "DataError",
    "Dataset",
    "DeviceError",
    "ElasticTransform",
    "Error",
    "Failure",
    "Folder",
    "GaussianBlur",
    "GaussianNoise",
    "Grayscale",
    "HFlip",
    "IMAGENET",
    "Idx",
    "JPEG",
    "Loader",
    "Manifest",
    "Normalize",
    "Pad",
    "RandAugment",
    "RandomAdjustSharpness",
    "RandomAffine",
    "RandomApply",
    "RandomAutocontrast",
    "RandomCrop",
    "RandomEqualize",
    "RandomErasing",
    "RandomGrayscale",
    "RandomInvert",
    "RandomPerspective",
    "RandomPosterize",
    "RandomResizedCrop",
    "RandomRotation",
    "RandomSolarize",
    "Resize",
    "RunError",
    "StepCost",
    "Tar",
    "TrivialAugmentWide",
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
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
