#!/usr/bin/env python3
"""Prints where a build's time went, as Markdown: build_times.py BUILD

Reads ninja's log: for each target folder the number of compiled files and the seconds they took, summed over jobs that
ran at the same time. Build without a compiler cache (CCACHE_DISABLE=1) in a fresh folder before you compare.
"""
import collections
import pathlib
import sys


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    log = pathlib.Path(sys.argv[1]) / ".ninja_log"
    if not log.exists():
        sys.exit(f"error: {log} is missing: build with ninja first")
    seconds = {}  # the last entry of an output is its newest
    for line in log.read_text().splitlines()[1:]:
        begin, end, _, output, _ = line.split("\t")
        if output.endswith((".o", ".gch")):
            seconds[output] = (int(end) - int(begin)) / 1000
    rooms = collections.defaultdict(list)
    for output, time in seconds.items():
        folder = output.split("/CMakeFiles/")[0] if "/CMakeFiles/" in output else output.rpartition("/")[0]
        rooms[folder].append((time, output))
    print("| folder | compilations | seconds of compile jobs | longest |\n| --- | --- | --- | --- |")
    for folder, jobs in sorted(rooms.items(), key=lambda item: -sum(time for time, _ in item[1])):
        time, output = max(jobs)
        name = pathlib.Path(output).name.removesuffix(".o")
        print(f"| {folder} | {len(jobs)} | {sum(t for t, _ in jobs):.0f} | {name}, {time:.0f} |")
    print(f"| all | {len(seconds)} | {sum(seconds.values()):.0f} | |")


main()
