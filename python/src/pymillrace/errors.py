"""The exceptions that pymillrace raises on purpose, one class for each kind of fault."""


class Error(Exception):
    """Base of all exceptions that pymillrace raises on purpose.

    The text says what went wrong, where, and in brackets what to do about it.

    Attributes:
        what: the text without the advice.
        hint: what to do; may be empty.
        exit_code: the exit code of the program `millrace` for this kind of fault.
    """

    exit_code = 1

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(what, hint)
        self.what = what
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.what} ({self.hint})" if self.hint else str(self.what)


class RunError(Error, RuntimeError):
    """A run cannot continue: a thread, memory or a file failed, or a loader is used where it cannot be."""


class UsageError(Error, ValueError):
    """A recipe, a key, an option or a call is wrong."""

    exit_code = 2


class DataError(Error, RuntimeError):
    """A data set or a sample is damaged or unsuitable, or a plugin breaks a rule."""

    exit_code = 3


class DeviceError(Error, RuntimeError):
    """A required device or backend is missing."""

    exit_code = 4
