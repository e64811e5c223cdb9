"""Environment through which a command's Python processes are told to record their DataLoaders."""
from __future__ import annotations

import os
from pathlib import Path

HOOK = Path(__file__).parent / "start"  # holds sitecustomize.py
RUN = "PYMILLRACE_WATCH_RUN"
EVERY = "PYMILLRACE_WATCH_EVERY"  # seconds between two lines on stderr; without it there are none
PLAN = "PYMILLRACE_WATCH_PLAN"  # JSON: steps after which the script ends, and overridden arguments of DataLoader


def watched_environment(directory: str | os.PathLike[str]) -> dict[str, str]:
    """Returns the environment of a command that is to be recorded in a directory."""
    path = os.pathsep.join([str(HOOK), str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, RUN: os.path.abspath(directory), "PYTHONPATH": path}
