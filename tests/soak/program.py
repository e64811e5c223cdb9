"""Runs the program under test, waits for its end, and judges how it ended."""
import ctypes
import dataclasses
import json
import os
import pathlib
import re
import resource
import signal
import subprocess
import threading
import time

# Documented exit codes: 0 done; 1 the run failed; 2 wrong usage or recipe; 3 bad data or plugin; 4 a device or backend
# is missing; 130 interrupted.
DOCUMENTED = (0, 1, 2, 3, 4, 130)
LONGEST_LINE = 4000
MOST_TEXT = 64 << 10
MOST_MEMORY = 2 << 30
# Lines that libraries print by themselves.
FOREIGN = re.compile(
    r"terminate called|Assertion|Exception raised from|frame #\d|^\[ ?(WARN|ERROR)[ :]|^libpng |"
    r"^Traceback \(most|^Corrupt JPEG|^Premature end|^TIFF\w*: |imdecode|stack smashing|Sanitizer|"
    r"^double free|^free\(\)", re.M)
LINKER = "error while loading shared libraries"


@dataclasses.dataclass
class Ended:
    """How a process ended. `code` is negative if a signal ended it, as in subprocess."""
    command: list
    code: int
    out: bytes
    err: bytes
    seconds: float
    peak_bytes: int
    timed_out: bool

    def text(self):
        return self.err.decode("utf-8", "replace")

    def document(self):
        """Returns the JSON on stdout, or None."""
        try:
            return json.loads(self.out)
        except ValueError:
            return None

    def said(self, most=400):
        """Returns its final message in one line."""
        text = " | ".join(self.text().split("\n")).strip(" |")
        return text if len(text) <= most else text[:most // 2] + " ... " + text[-most // 2:]


LIBC = ctypes.CDLL(None)
PR_SET_PDEATHSIG = 1


class Preparation:
    """Prepares a child before it becomes the program: sets its resource limits ({resource.RLIMIT_NOFILE: 16}) and asks
    to be killed when the campaign dies."""

    def __init__(self, limits):
        self.limits = limits

    def __call__(self):
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        for which, value in self.limits.items():
            resource.setrlimit(which, (value, value))


class Process:
    """A running program in a session of its own, so that all of its processes can be found."""

    def __init__(self, command, folder, name, env=None, limits=None, cwd=None):
        self.command = [str(word) for word in command]
        self._out = folder / f"{name}.out"
        self._err = folder / f"{name}.err"
        self.begun = time.monotonic()
        with open(self._out, "wb") as out, open(self._err, "wb") as err:
            self._child = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                env={**os.environ, **(env or {})}, start_new_session=True, cwd=cwd,
                preexec_fn=Preparation(limits or {}))
        self.pid = self._child.pid
        self._status = None
        self._peak = 0
        self._end = None

    def running(self):
        if self._status is None:
            pid, status, usage = os.wait4(self.pid, os.WNOHANG)
            if pid:
                self._ended(status, usage)
        return self._status is None

    def _ended(self, status, usage):
        self._end = time.monotonic()
        self._status = status
        self._peak = usage.ru_maxrss * 1024
        self._child.returncode = os.waitstatus_to_exitcode(status)

    def says(self):
        """Returns its stderr so far."""
        return self._err.read_bytes()

    def send(self, number):
        if self.running():
            os.kill(self.pid, number)

    def wait(self, timeout):
        """Waits for the end; after `timeout` seconds kills it and all processes that it started."""
        timed_out = False
        if self._status is None:
            fired = threading.Event()

            def end():
                fired.set()
                kill_session(self.pid)

            timer = threading.Timer(timeout, end)
            timer.start()
            try:
                _, status, usage = os.wait4(self.pid, 0)
            except BaseException:  # Ctrl-C: leaves nothing behind
                kill_session(self.pid)
                raise
            finally:
                timer.cancel()
            self._ended(status, usage)
            timed_out = fired.is_set()
        return Ended(self.command, self._child.returncode, read_most(self._out),
                     read_most(self._err), self._end - self.begun, self._peak, timed_out)

    def left(self, patience=10):
        """Kills processes that it started and that outlive it by `patience` seconds. Returns them."""
        deadline = time.monotonic() + patience
        while pids := session_of(self.pid):
            if time.monotonic() > deadline:
                kill_session(self.pid)
                return pids
            time.sleep(0.01)
        return []


def read_most(path, most=64 << 20):
    with open(path, "rb") as file:
        return file.read(most)


def session_of(session):
    """Returns the processes of a session, without zombies."""
    pids = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            fields = pathlib.Path("/proc", entry, "stat").read_bytes().rpartition(b")")[2].split()
        except OSError:  # the process has ended
            continue
        if int(fields[3]) == session and fields[0] not in (b"Z", b"X"):
            pids.append(int(entry))
    return pids


def kill_session(session):
    for pid in session_of(session):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def children_of(parent):
    """Returns the ids of a process's children, in the order of their start."""
    try:
        text = pathlib.Path(f"/proc/{parent}/task/{parent}/children").read_text()
    except OSError:
        return []
    return [int(pid) for pid in text.split()]


def control_characters(text):
    return sorted({hex(ord(c)) for c in text if ord(c) < 32 and c not in "\n\t" or ord(c) == 127})


def complaints(ended, codes=DOCUMENTED, most_memory=MOST_MEMORY):
    """Returns what is wrong with how a command ended; empty if nothing is.

    For any input, the program must end in time by itself with one of `codes`, and explain a failure in one line of
    bounded length.
    """
    found = []
    text = ended.text()
    if ended.timed_out:
        found.append(f"still running after {ended.seconds:.0f} s")
    elif ended.code < 0:
        found.append(f"ended by {signal.Signals(-ended.code).name}")
    elif ended.code not in codes:
        found.append(f"exit code {ended.code}, expected one of {', '.join(map(str, codes))}")
    if len(ended.err) > MOST_TEXT:
        found.append(f"{len(ended.err)} bytes on stderr")
    longest = max((len(line) for line in text.split("\n")), default=0)
    if longest > LONGEST_LINE:
        found.append(f"a line of {longest} characters on stderr")
    if strange := control_characters(text):
        found.append(f"control characters on stderr: {', '.join(strange)}")
    if foreign := FOREIGN.search(text):
        found.append(f"a library's own line on stderr: {text[foreign.start():].splitlines()[0][:80]!r}")
    if ended.code not in (0, 130) and ended.code > 0 and not ended.timed_out:
        lines = re.findall(r"^(?:\[ranks? [\d, ]+\] )?(?:py)?millrace: .", text, re.M)
        if not lines:
            found.append("no line that says what went wrong")
        elif len(lines) > 1 and "launch" not in ended.command:
            found.append(f"{len(lines)} lines that say what went wrong, instead of one")
    if ended.peak_bytes > most_memory:
        found.append(f"{ended.peak_bytes >> 20} MB of memory")
    return found


class Program:
    """Path of the program, and the folder in which a case works."""

    def __init__(self, path, folder):
        self.path = pathlib.Path(path)
        self.folder = folder
        self._count = 0

    def start(self, *words, prefix=(), **options):
        self._count += 1
        return Process([*prefix, self.path, *words], self.folder, f"command-{self._count}", **options)

    def run(self, *words, timeout=120, **options):
        return self.start(*words, **options).wait(timeout)

