"""Calls functions with modules that are imported later. Needs nothing else of this package."""
from __future__ import annotations

import importlib.machinery

TYPE_CHECKING = False  # importing typing would delay the start of every process of `pymillrace watch`
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any


class Finder:
    """Finds modules by the other finders, and calls a function with each of them after it has run."""

    def __init__(self, after: Mapping[str, Callable[[Any], None]], stop: Callable[[Exception], None]) -> None:
        """`after`: functions by the names of modules. `stop` is called with an error of theirs."""
        self._after, self._stop = after, stop

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if name not in self._after:
            return None
        try:
            return self._followed(name, path)
        except Exception as error:
            self._stop(error)
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
                self._stop(error)

        setattr(spec.loader, "exec_module", exec_module)
        return spec
