"""The exception of watch."""
from ..errors import RunError


class WatchError(RunError):
    """Reports a loader that cannot be watched or a run directory that cannot be written."""


class InUse(WatchError):
    """Reports that another process writes to the directory."""
