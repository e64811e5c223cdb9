"""Runs one child process: pinned, timed until its last descendant ends; returns its answer and peak memory.

CPU time is the kernel's account of the whole tree (wait4), so it includes all threads and worker processes.
"""
import ctypes
import json
import os
import signal
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass

PR_SET_CHILD_SUBREAPER = 36


class Failed(Exception):
    """A child's final message, on one line."""


@dataclass(frozen=True)
class Usage:
    cpu_s: float
    wall_s: float
    peak_rss: int  # bytes, of the largest process in the tree
    answer: dict

    @property
    def images(self):
        return self.answer["images"]


def adopt_orphans():
    """Adopts worker processes that outlive the child, so that their CPU time is counted too."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def run(command, cores, environment=None, timeout=600):
    """Runs `command` on `cores` ("1", "0,1"). Its standard output must end with a JSON document."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        begin = time.perf_counter()
        child = subprocess.Popen(["taskset", "-c", cores, *command], stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                 env=os.environ | (environment or {}), start_new_session=True)
        late = threading.Event()

        def stop():
            late.set()
            os.killpg(child.pid, signal.SIGKILL)
        timer = threading.Timer(timeout, stop)
        timer.start()
        try:
            _, status, usage = os.wait4(child.pid, 0)
        finally:
            timer.cancel()
        wall = time.perf_counter() - begin
        child.returncode = os.waitstatus_to_exitcode(status)
        cpu = usage.ru_utime + usage.ru_stime + _reap_orphans(child.pid)
        out.seek(0)
        err.seek(0)
        text, errors = out.read().decode(errors="replace"), err.read().decode(errors="replace")
        if late.is_set():
            raise Failed(f"not done after {timeout} s; {_reason(errors) or 'it said nothing'}")
        if child.returncode != 0:
            raise Failed(_reason(errors) or f"ended with {child.returncode}")
        return Usage(cpu, wall, usage.ru_maxrss * 1024, _answer(text))


def _reap_orphans(group):
    """Ends the child's remaining processes and returns their CPU time."""
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        pass
    cpu = 0.0
    while True:
        try:
            _, _, usage = os.wait4(-1, 0)
        except ChildProcessError:
            return cpu
        cpu += usage.ru_utime + usage.ru_stime


def _reason(text):
    """Returns the line that names the error, or else the last one."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    named = [line for line in lines if line.startswith(("millrace: ", "error: ")) or "Error: " in line]
    return (named or lines or [""])[-1][:200]


def _answer(text):
    """Parses the document: the last line, or the whole output."""
    for candidate in (text, text.strip().rsplit("\n", 1)[-1]):
        try:
            return json.loads(candidate)
        except ValueError:
            pass
    raise Failed("its answer is not JSON")
