"""Screen of a terminal on which pages replace each other, by the control sequences that all terminals have in common.

The terminal is as before when the screen is left: by a key, a signal that ends the process, or an exception. While the
process is stopped (Ctrl-Z) it is too.
"""
from __future__ import annotations

import os
import select
import signal
import sys
import termios
import tty
from collections.abc import Iterable
from contextlib import suppress
from types import FrameType, TracebackType

# Its own screen, so that the earlier one comes back; no cursor; what is too long is cut and not wrapped.
ENTER, LEAVE = "\x1b[?1049h\x1b[?25l\x1b[?7l", "\x1b[?7h\x1b[?25h\x1b[?1049l"
HOME, END_OF_LINE, BELOW = "\x1b[H", "\x1b[K", "\x1b[J"
ENDING = (signal.SIGTERM, signal.SIGHUP)


class Screen:
    """The terminal of stdin and stdout, which takes keys without Return."""

    def __enter__(self) -> Screen:
        self._keys = sys.stdin.fileno() if sys.stdin is not None and sys.stdin.isatty() else None
        self._before = None if self._keys is None else termios.tcgetattr(self._keys)
        self._woken, wakes = os.pipe()
        os.set_blocking(wakes, False)
        self._wakes = signal.set_wakeup_fd(wakes, warn_on_full_buffer=False), wakes
        self._handlers = {one: signal.signal(one, handler) for one, handler in (
            (signal.SIGWINCH, lambda *_: None), (signal.SIGTSTP, self._stops),
            *((one, self._ends) for one in ENDING))}
        try:
            self._take()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C would leave the rest undone
        self._give_back()
        for one, handler in self._handlers.items():
            signal.signal(one, handler)
        signal.set_wakeup_fd(self._wakes[0])
        os.close(self._woken)
        os.close(self._wakes[1])
        signal.signal(signal.SIGINT, interrupt)

    def _take(self) -> None:
        if self._keys is not None:
            tty.setcbreak(self._keys)
        _write(ENTER)

    def _give_back(self) -> None:
        with suppress(OSError):  # the terminal may be gone
            _write(LEAVE)
        if self._keys is not None and self._before is not None:
            with suppress(termios.error):
                termios.tcsetattr(self._keys, termios.TCSADRAIN, self._before)

    def _ends(self, received: int, _: FrameType | None) -> None:
        sys.exit(128 + received)

    def _stops(self, _: int, __: FrameType | None) -> None:
        self._give_back()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._take()

    def size(self) -> tuple[int, int]:
        """Returns columns and lines."""
        found = os.get_terminal_size(sys.stdout.fileno())
        return found.columns or 80, found.lines or 24

    def show(self, lines: Iterable[str]) -> None:
        """Replaces the page. Lines that the terminal's height cannot hold must have been left out."""
        _write(HOME + "\n".join(f"{line}{END_OF_LINE}" for line in lines) + BELOW)

    def wait(self, seconds: float) -> str:
        """Waits until the time is up, the window's size has changed or a key was pressed, which it returns."""
        files = [self._woken] if self._keys is None else [self._woken, self._keys]
        ready, _, _ = select.select(files, [], [], seconds)
        if self._woken in ready:
            os.read(self._woken, 1024)
        if self._keys is None or self._keys not in ready:
            return ""
        try:
            return os.read(self._keys, 1).decode(errors="replace") or "q"
        except OSError:  # the terminal is gone
            return "q"


def _write(text: str) -> None:
    """Writes past the stream's buffer, which a signal's handler could find in use."""
    data = text.encode(sys.stdout.encoding or "utf-8", "backslashreplace")
    while data:
        data = data[os.write(sys.stdout.fileno(), data):]
