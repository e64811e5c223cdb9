#!/usr/bin/env python3
"""CPU time in which the commands of pymillrace that need no data plane start, beyond that of an empty program.

Each runs 15 times on records that are missing, which it says after all its imports; the lowest counts.
"""
import resource
import subprocess
import sys

COMMANDS = (("watch", "--", "true"), ("what-if", "none"), ("compare", "none", "none"), ("top", "none"))
RUNS = 15


def cpu_s(*words):
    """Returns the lowest CPU time of a command and of its children."""
    times = []
    for _ in range(RUNS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(times)


def main():
    empty = cpu_s("-c", "pass")
    for words in COMMANDS:
        print(f"{words[0]}: {1e3 * (cpu_s('-m', 'pymillrace', *words) - empty):.0f} ms")


if __name__ == "__main__":
    main()
