"""Calls functions with modules that are imported later."""
from __future__ import annotations

import importlib.machinery
from collections.abc import Callable, Mapping
from typing import Any

from .faults import stop


class Finder:
    """Finds modules by the other finders, and calls a function with each of them after it has run."""

    def __init__(self, after: Mapping[str, Callable[[Any], None]]) -> None:
        """`after`: functions by the names of modules."""
        self._after = after

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if name not in self._after:
            return None
        try:
            return self._followed(name, path)
        except Exception as error:
            stop(error)
            return None  # other finders follow

    def _followed(self, name: str, path: Any) -> importlib.machinery.ModuleSpec | None:
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            execute(module)
            try:
                self._after[name](module)
            except Exception as error:
                stop(error)

        setattr(spec.loader, "exec_module", exec_module)
        return spec
