#!/usr/bin/env python3
"""Measures what Python costs: pymillrace.Loader beside `millrace bench`, with the same recipe and the same batches.

    python_loader.py PROGRAM [--pairs N] [--seconds S] [--photos DIR] [--digits DIR] [--only NAME,...]

Both take turns in processes of their own, in an order that alternates. CPU seconds are those of the process with all its
threads, of a run of N batches less a run of a few, so that start-up does not count; the hashes of the first batches are
compared before. Prints, per workload, the medians over the pairs, with their range, of images per CPU-second of the
loader over the program's, and of the microseconds of CPU time that Python adds per batch.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys


def workloads(arguments):
    """Returns {name: (words of the recipe, batches of the short run)}."""
    digits = [f"data.path={arguments.digits}"] if arguments.digits else \
        ["data.reader=synthetic", "data.synthetic.channels=1", "data.synthetic.count=60000"]
    works = {"W1": ["mnist-lenet", *digits, "loader.workers=1"],
             "W1 (2 workers)": ["mnist-lenet", *digits, "loader.workers=2"],
             "bytes only (0 workers)": ["overhead", *digits, "loader.workers=0"],
             "bytes only (1 worker)": ["overhead", *digits, "loader.workers=1"]}
    if arguments.photos:
        works["W4"] = ["imagenet-rrc", "data.reader=folder", f"data.path={arguments.photos}", "loader.workers=1"]
    return works


CHILD = """
import itertools, sys
import pymillrace as mr
batches = itertools.chain.from_iterable(itertools.repeat(mr.Loader(*sys.argv[2:], numpy=True)))
images = sum(len(batch[1]) for batch in itertools.islice(batches, int(sys.argv[1])))
print(images)
"""


def cpu_of(command):
    """Runs a command. Returns its CPU seconds and its output."""
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    text = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        sys.exit(f"failed: {' '.join(command)}")
    return usage.ru_utime + usage.ru_stime, text


def program_run(arguments, words, batches):
    spent, text = cpu_of([arguments.program, "bench", *words, f"bench.batches={batches}", "--json", "-q"])
    return spent, json.loads(text)["images"]


def python_run(arguments, words, batches):
    spent, text = cpu_of([sys.executable, "-c", CHILD, str(batches), *words])
    return spent, int(text)


def difference(run, arguments, words, short, batches):
    """Returns CPU seconds and images of `batches` batches beyond `short`."""
    few, all_of = run(arguments, words, short), run(arguments, words, short + batches)
    return all_of[0] - few[0], all_of[1] - few[1]


def compare_hashes(arguments, words):
    import pymillrace as mr
    import xxhash

    expected = json.loads(cpu_of([arguments.program, "bench", *words, "--hash", "--json", "-q"])[1])["batch_hash"]
    state = xxhash.xxh3_64()
    for images, labels in mr.Loader(*words, numpy=True):
        state.update(images)
        state.update(labels)
    if state.hexdigest() != expected:
        sys.exit(f"{words}: the loader's batches are not the program's")


def spread(values, digits):
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="build/millrace")
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=2.0, help="CPU seconds of the longer runs")
    parser.add_argument("--digits", help="folder of MNIST's files (generated images otherwise)")
    parser.add_argument("--photos", help="folder of class folders with JPEG files, for W4")
    parser.add_argument("--only", type=lambda text: text.split(","))
    arguments = parser.parse_args()
    print("| workload | images per CPU-second, program | Loader / program | µs per batch that Python adds |")
    print("| --- | --- | --- | --- |")
    for name, words in workloads(arguments).items():
        if arguments.only and name not in arguments.only:
            continue
        compare_hashes(arguments, words)
        short, batches = 16, 64
        while (spent := difference(program_run, arguments, words, short, batches)[0]) < 0.1:
            batches *= 4
        batches = max(batches, round(batches * arguments.seconds / spent))
        rates, ratios, added = [], [], []
        for pair in range(arguments.pairs):
            results = {}
            for run in sorted((program_run, python_run), key=lambda one: one.__name__, reverse=pair % 2 == 0):
                results[run] = difference(run, arguments, words, short, batches)
            (ours, images), (python, same) = results[program_run], results[python_run]
            rates.append(images / ours)
            ratios.append((same / python) / (images / ours))
            added.append(1e6 * (python - ours) / batches)
        print(f"| {name} | {statistics.median(rates):,.0f} | {spread(ratios, 3)} | {spread(added, 1)} |", flush=True)


if __name__ == "__main__":
    main()
