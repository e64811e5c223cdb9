"""Runs when a Python process of `pymillrace watch -- COMMAND` starts: records its DataLoaders.

Waits until torch's DataLoader is imported. Another sitecustomize on the path runs too.
"""
from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys

TYPE_CHECKING = False  # importing typing would delay the start of every process
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

_HERE = os.path.dirname(os.path.abspath(__file__))
_MODULE = "torch.utils.data.dataloader"


class _Finder:
    """Finds torch's module by the other finders and starts the recording after it has run."""

    def __init__(self, directory: str) -> None:
        self._run = directory  # the script may clear its environment

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if name != _MODULE:
            return None
        try:
            return self._recorded(name, path)
        except Exception as error:
            _stop(error)
            return None  # other finders follow

    def _recorded(self, name: str, path: Any) -> importlib.machinery.ModuleSpec | None:
        sys.meta_path.remove(self)
        if "t" in sys.abiflags:
            print("pymillrace watch: not recorded: this Python is free-threaded, and recording needs one with its lock "
                  "(GIL); the training goes on", file=sys.stderr)
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            try:
                sys.modules.setdefault(_MODULE, module)
                from pymillrace.watcher.api import start_when_imported
                start_when_imported(module, self._run)
            except Exception as error:
                _stop(error)

        setattr(spec.loader, "exec_module", exec_module)
        return spec


def _stop(error: Exception) -> None:
    """Ends the recording before it begins, also where the package cannot be imported."""
    try:
        from pymillrace.watcher.faults import stop
    except Exception:
        if sys.stderr is not None:
            print(f"pymillrace watch: recording stopped: {error}; the training goes on", file=sys.stderr)
    else:
        stop(error)


def _run_the_other_one() -> None:
    paths = [path for path in sys.path if os.path.abspath(path or ".") != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", paths)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


if os.environ.get("PYMILLRACE_WATCH_RUN"):
    sys.meta_path.insert(0, _Finder(os.environ["PYMILLRACE_WATCH_RUN"]))
_run_the_other_one()
