"""CPU seconds of processes and of the kinds of their threads, from /proc."""
import collections
import contextlib
import os
import pathlib
import threading

TICK = 1 / os.sysconf("SC_CLK_TCK")
KINDS = ("main", "fetch", "read", "worker")


def of_process(pid):
    """Returns the CPU seconds of a process, threads that have ended included, to 10 ms."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * TICK


def of_machine():
    """Returns the seconds that the machine's cores were not idle, to 10 ms: processes, and the kernel's own threads."""
    user, nice, system, _, _, irq, softirq, *_ = map(int, pathlib.Path("/proc/stat").read_text().split(None, 9)[1:9])
    return (user + nice + system + irq + softirq) * TICK


def kind_of(pid, task):
    """Returns the kind of a thread of millrace. Its workers belong to TBB and keep the program's name."""
    name = (task / "comm").read_text().strip()
    if int(task.name) == pid:
        return "main"
    return name if name in KINDS else "worker"


class ThreadWatch:
    """Adds up the CPU seconds of a running process by kind of thread. Looks every `period` seconds, so that it misses
    at most so much of each thread's end."""

    def __init__(self, pid, period=0.02):
        self.pid, self.period = pid, period
        self.seconds, self.kinds = {}, {}
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while not self.ended.wait(self.period):
            with contextlib.suppress(OSError, ValueError):
                for task in pathlib.Path(f"/proc/{self.pid}/task").iterdir():
                    with contextlib.suppress(OSError, ValueError):
                        self.seconds[task.name] = int((task / "schedstat").read_text().split()[0]) * 1e-9
                        self.kinds[task.name] = kind_of(self.pid, task)

    def stop(self):
        """Returns the seconds by kind."""
        self.ended.set()
        self.thread.join()
        sums = collections.Counter()
        for task, seconds in self.seconds.items():
            sums[self.kinds[task]] += seconds
        return sums
