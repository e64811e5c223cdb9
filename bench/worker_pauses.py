#!/usr/bin/env python3
"""How long do workers of watched loops pause between two batches?  worker_pauses.py RUN [RUN ...]

Reads timeline.json of runs of `pymillrace watch`, in which the loop waited for its workers: a worker that has no batch
to make pauses for longer. Prints, per run, the mean length of a batch's fetch, the mean and the median pause until the
same worker begins the next, and how long sending takes and how long after its batch it begins, both as medians. The
first eight batches do not count. Times are ms.
"""
import argparse
import json
import statistics
from pathlib import Path

FIRST = 8


def tracks(file):
    """Returns the slices of each worker's two threads, by their name: (begin, end) in ms, in order."""
    found = {}
    for event in json.loads(file.read_text())["traceEvents"]:
        if event["ph"] == "X" and event["pid"] > 1:  # process 1 is the trainer
            worker = found.setdefault((event["pid"], (event["tid"] - 1) // 2), {})
            worker.setdefault(event["name"], []).append((event["ts"] / 1e3, (event["ts"] + event["dur"]) / 1e3))
    return [{name: sorted(slices) for name, slices in one.items()} for one in found.values()]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", nargs="+", type=Path)
    print("| run | fetch | pause: mean | median | sending begins after | takes |\n" + "| --- " * 6 + "|")
    for run in parser.parse_args().run:
        fetch, pauses, late, takes = [], [], [], []
        for one in tracks(run / "timeline.json"):
            if not all(one.get(name) for name in ("samples", "collate", "send")):
                continue
            batches = [(begin, end) for (begin, _), (_, end) in zip(one["samples"], one["collate"])][FIRST:]
            fetch += [end - begin for begin, end in batches]
            pauses += [begin - end for (_, end), (begin, _) in zip(batches, batches[1:])]
            sends = one["send"][FIRST:]
            late += [begin - end for (_, end), (begin, _) in zip(batches, sends)]
            takes += [end - begin for begin, end in sends]
        if not pauses or not late:
            print(f"| {run} | - | - | - | - | - |")
            continue
        print(f"| {run} | {statistics.mean(fetch):.2f} | {statistics.mean(pauses):.2f} | {statistics.median(pauses):.2f} "
              f"| {statistics.median(late):.2f} | {statistics.median(takes):.2f} |")


if __name__ == "__main__":
    main()
