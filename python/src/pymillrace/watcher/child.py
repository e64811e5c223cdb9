"""Runs a script as a shell runs a command: waits for its end, however long that takes, and passes signals on.

Schedulers, `timeout` and `kill` send signals to the process that they know, which is this one. The script gets each of
them once: not a second time where the sender reached the whole process group, as the terminal does with Ctrl-C. The
script stays in this process's group, so that Ctrl-C, Ctrl-Z and a supervisor's kill(-group) reach all of a pipeline.
The script needs nothing of this process: it goes on if this one dies. Nothing here ends it, unless a caller says that it
is stuck.
"""
from __future__ import annotations

import os
import select
import signal
import struct
import subprocess
import time
from collections.abc import Callable, Sequence, Set
from typing import IO, NamedTuple

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)  # ask a program to end
PASSED_ON = (*ENDING, signal.SIGUSR1, signal.SIGUSR2, signal.SIGTSTP, signal.SIGCONT)
OF_TERMINAL = (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP)  # from the kernel: keys, for the whole group
SI_KERNEL = 0x80  # si_code of what the kernel sent
GRACE_S = 0.2  # for the witness's report; one signal to process and group counts once if it arrives within this time
REPORT = struct.Struct("=id")  # of the witness: signal and time
POLL_S = 1.0  # between looks at the script in case another thread took SIGCHLD
END_S = 10.0  # for a stuck script to end by SIGTERM, before SIGKILL


class Ended(NamedTuple):
    """End of a script: its exit code, or 128 + the signal that ended it; and the first of ENDING that arrived here."""
    code: int
    signal: signal.Signals | None


def run(words: Sequence[str], environment: dict[str, str], output: IO[str] | None = None,
        is_stuck: Callable[[], bool] | None = None) -> Ended:
    """Runs a command to its end. `output` takes its stdout and stderr. Raises OSError if it cannot be started.

    `is_stuck` is asked every second; once it says so, the command is ended.
    """
    # An ignored signal stays ignored, here and in the script: it is not waited for.
    passed_on = {one for one in PASSED_ON if signal.getsignal(one) is not signal.SIG_IGN}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {*passed_on, signal.SIGCHLD})
    children = signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # while it is ignored, exit codes are lost
    try:
        witness = _Witness(passed_on)
        try:
            return _Script(words, environment, output, mask, children, witness).wait(passed_on, is_stuck)
        finally:
            witness.close()
    finally:
        while signal.sigtimedwait(passed_on, 0) is not None:  # arrived too late for the script
            pass
        signal.signal(signal.SIGCHLD, signal.SIG_DFL if children is None else children)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


class _Script:
    """The process of a command, a child of this one."""

    def __init__(self, words: Sequence[str], environment: dict[str, str], output: IO[str] | None,
                 mask: Set[int], children: object, witness: _Witness) -> None:
        def as_before() -> None:
            if signal.SIGINT not in mask and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
                signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C from here on ends it, also before exec
            if children is signal.SIG_IGN:
                signal.signal(signal.SIGCHLD, signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

        self._witness = witness
        self._process = subprocess.Popen(words, env=environment, stdout=output, preexec_fn=as_before, close_fds=False,
                                         stderr=None if output is None else subprocess.STDOUT)
        self._stopped = self._stops_us = False
        self._ended_by: signal.Signals | None = None

    def wait(self, passed_on: set[signal.Signals], is_stuck: Callable[[], bool] | None) -> Ended:
        """Passes signals on until the script has ended."""
        asked: float | None = None  # when it was asked to end, because it was stuck
        while (code := self._code()) is None:
            self._witness.read()
            if asked is None and is_stuck is not None and is_stuck():
                asked = time.monotonic()
                self._process.terminate()
            if asked is not None and time.monotonic() - asked > END_S:
                self._process.kill()
            received = signal.sigtimedwait({*passed_on, signal.SIGCHLD}, POLL_S)
            if received is not None and received.si_signo != signal.SIGCHLD:
                self._receive(signal.Signals(received.si_signo), received.si_code)
        return Ended(code, self._ended_by)

    def _code(self) -> int | None:
        """Returns the exit code, once the script has ended; stops this process where it was to stop with the script."""
        while self._process.returncode is None:
            found, status = os.waitpid(self._process.pid, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
            if found == 0:
                break
            self._stopped = os.WIFSTOPPED(status)
            if not self._stopped and not os.WIFCONTINUED(status):
                self._process.returncode = os.waitstatus_to_exitcode(status)
        code = self._process.returncode
        if code is None and self._stopped and self._stops_us:
            self._stops_us = False
            os.kill(os.getpid(), signal.SIGSTOP)
        return 128 - code if code is not None and code < 0 else code

    def _receive(self, received: signal.Signals, origin: int) -> None:
        if received in ENDING:
            self._ended_by = self._ended_by or received
        if received in (signal.SIGTSTP, signal.SIGCONT):
            self._stops_us = received == signal.SIGTSTP
        if origin == SI_KERNEL and received in OF_TERMINAL:
            return
        script = self._process.pid  # not reaped yet, so the number is still its own
        if os.getpgid(script) == os.getpgrp() and self._witness.saw(received):
            return
        os.kill(script, received)
        if received == signal.SIGCONT:
            self._witness.resume()


class _Witness:
    """A child that tells which signals reach the whole process group: what it gets, the script got too.

    The siginfo of kill(pid) and of kill(-group) are equal, so this process alone cannot tell them apart. `timeout` and
    job schedulers use both, some of them one after the other.
    """

    def __init__(self, signals: set[signal.Signals]) -> None:
        self._seen: dict[int, float] = {}  # when it got each signal, on the monotonic clock of all processes
        self._reports, report = os.pipe()
        lifeline, self._lifeline = os.pipe()  # its end tells the witness that this process has ended
        try:
            self._pid = os.fork()
        except OSError:
            for file in (self._reports, report, lifeline, self._lifeline):
                os.close(file)
            raise
        if self._pid == 0:
            try:
                _testify(signals, report, lifeline)
            finally:
                os._exit(0)
        os.close(report)
        os.close(lifeline)
        os.set_blocking(self._reports, False)

    def saw(self, sought: signal.Signals) -> bool:
        """Returns whether the witness got this signal, just now or within the time of grace."""
        now = time.monotonic()
        deadline = now + GRACE_S
        poll = select.poll()
        poll.register(self._reports, select.POLLIN)
        while self.read():
            if self._seen.get(sought, 0.0) > now - GRACE_S:
                return True
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            poll.poll(1e3 * left)
        return False

    def read(self) -> bool:
        """Reads the reports that have come. Returns False if the witness is gone."""
        try:
            found = os.read(self._reports, 256 * REPORT.size)
        except BlockingIOError:
            return True
        self._seen.update(REPORT.iter_unpack(found))
        return bool(found)

    def resume(self) -> None:
        """Lets it go on after a stop of the group that only this process was told to end."""
        os.kill(self._pid, signal.SIGCONT)

    def close(self) -> None:
        os.close(self._lifeline)
        os.close(self._reports)
        os.kill(self._pid, signal.SIGKILL)  # it may be stopped
        os.waitpid(self._pid, 0)


def _testify(signals: set[signal.Signals], report: int, lifeline: int) -> None:
    """Writes each signal and its time to `report` until the other end of `lifeline` is closed."""
    def write(number: int, _: object) -> None:
        try:
            os.write(report, REPORT.pack(number, time.monotonic()))
        except OSError:  # it is full of reports that nobody has asked for, or the reader has ended
            pass

    for file in map(int, os.listdir("/proc/self/fd")):  # holds no pipe, terminal or log open
        if file in (report, lifeline):
            continue
        try:
            os.close(file)
        except OSError:  # of the list itself
            pass
    for one in signals:
        signal.signal(one, write)
    os.set_blocking(report, False)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
    os.read(lifeline, 1)
