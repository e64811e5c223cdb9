"""Finds files that the build adds to the package: the program, and the shipped recipes."""
from __future__ import annotations

import importlib.util
from pathlib import Path


def installed(name: str) -> Path:
    """Returns the path of a file or folder of the package, whether it exists or not.

    An editable install leaves the Python files in the source tree, without what the build makes; that lies beside the
    compiled modules.
    """
    beside = Path(__file__).with_name(name)
    if beside.exists():
        return beside
    module = importlib.util.find_spec("._watch", __package__)
    return beside if module is None or module.origin is None else Path(module.origin).with_name(name)
