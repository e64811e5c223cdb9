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

_HERE = os.path.dirname(os.path.abspath(__file__))
_MODULE = "torch.utils.data.dataloader"


def _follow(run: str) -> None:
    """Starts the recording after torch's module has run."""
    spec = importlib.util.spec_from_file_location("pymillrace_import_finder", f"{os.path.dirname(_HERE)}/import_finder.py")
    assert spec is not None and spec.loader is not None
    import_finder = importlib.util.module_from_spec(spec)  # without the package, which most processes do not need
    spec.loader.exec_module(import_finder)

    def start(module: ModuleType) -> None:
        if finder in sys.meta_path:
            sys.meta_path.remove(finder)
        sys.modules.setdefault(_MODULE, module)
        from pymillrace.watcher.api import start_when_imported
        start_when_imported(module, run)

    finder = import_finder.Finder({_MODULE: start}, _stop)
    sys.meta_path.insert(0, finder)


def _stop(error: Exception) -> None:
    """Ends the recording before it begins, also where the package cannot be imported."""
    try:
        from pymillrace.watcher.faults import stop
    except Exception:
        if sys.stderr is not None:
            print(f"pymillrace watch: not recorded: {error}; the training goes on", file=sys.stderr)
    else:
        stop(error)


def _run_the_other_one() -> None:
    paths = [path for path in sys.path if os.path.abspath(path or ".") != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", paths)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


if os.environ.get("PYMILLRACE_WATCH_RUN"):
    try:
        _follow(os.environ["PYMILLRACE_WATCH_RUN"])  # the script may clear its environment
    except Exception as error:
        _stop(error)
_run_the_other_one()
