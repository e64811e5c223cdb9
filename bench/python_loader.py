#!/usr/bin/env python3
"""Measures what Python costs: pymillrace.Loader beside `millrace bench`, with the same recipe and the same batches.

    python_loader.py PROGRAM [--pairs N] [--seconds S] [--photos DIR] [--digits DIR] [--only NAME,...] [--tensors]

Both take turns in processes of their own, in an order that alternates. CPU seconds are those of the process with all
its threads, without the batches of its first 0.3 CPU seconds, so that start-up does not count: the thread that NumPy's
OpenBLAS starts at import waits for work in a loop for some 50 ms before it sleeps. The hashes of the batches are
compared before.
Batches are NumPy arrays, with --tensors PyTorch's tensors. Prints, per workload, the medians over the pairs, with their
range, of images per CPU-second of the loader over the program's, and of the microseconds of CPU time that Python adds
per batch.
"""
import argparse
import json
import statistics
import subprocess
import sys


def workloads(arguments):
    """Returns {name: words of the recipe}."""
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
import itertools, json, sys, time
import pymillrace as mr
warmup, batches, numpy = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "numpy"
endless = itertools.chain.from_iterable(itertools.repeat(mr.Loader(*sys.argv[4:], numpy=numpy)))
for _ in itertools.islice(endless, warmup):
    pass
begin = time.process_time()
for _ in itertools.islice(endless, batches):
    pass
print(json.dumps({"cpu_s": time.process_time() - begin}))
"""
WARMUP_S = 0.3


def answer_of(command):
    """Runs a command and returns the JSON document that it prints."""
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"failed: {' '.join(command)}")
    return json.loads(done.stdout)


def program_run(arguments, words, warmup, batches):
    """Returns images and CPU seconds of `batches` batches after `warmup`."""
    limits = (f"bench.batches={warmup + batches}", f"bench.warmup={warmup}")
    answer = answer_of([arguments.program, "bench", *words, *limits, "--json", "-q"])
    return answer["measured"]["images"], answer["measured"]["cpu_s"]


def python_run(arguments, words, warmup, batches):
    """Returns CPU seconds of the same batches."""
    arrays = "tensors" if arguments.tensors else "numpy"
    return answer_of([sys.executable, "-c", CHILD, str(warmup), str(batches), arrays, *words])["cpu_s"]


def compare_hashes(arguments, words):
    import pymillrace as mr
    import xxhash

    expected = answer_of([arguments.program, "bench", *words, "--hash", "--json", "-q"])["batch_hash"]
    state = xxhash.xxh3_64()
    for batch in mr.Loader(*words, numpy=not arguments.tensors):
        for array in batch:
            state.update(array.numpy() if arguments.tensors else array)
    if state.hexdigest() != expected:
        sys.exit(f"{words}: the loader's batches are not the program's")


def spread(values, digits):
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="build/millrace")
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=2.0, help="CPU seconds of a run")
    parser.add_argument("--digits", help="folder of MNIST's files (generated images otherwise)")
    parser.add_argument("--photos", help="folder of class folders with JPEG files, for W4")
    parser.add_argument("--tensors", action="store_true", help="batches of PyTorch's tensors (default: NumPy arrays)")
    parser.add_argument("--only", type=lambda text: text.split(","))
    arguments = parser.parse_args()
    print("| workload | images per CPU-second, program | Loader / program | µs per batch that Python adds |")
    print("| --- | --- | --- | --- |")
    for name, words in workloads(arguments).items():
        if arguments.only and name not in arguments.only:
            continue
        compare_hashes(arguments, words)
        batches = 64
        while (spent := program_run(arguments, words, 64, batches)[1]) < 0.1:
            batches *= 4
        warmup, batches = (max(1, round(batches * seconds / spent)) for seconds in (WARMUP_S, arguments.seconds))
        rates, ratios, added = [], [], []
        for pair in range(arguments.pairs):
            results = {}
            for run in sorted((program_run, python_run), key=lambda one: one.__name__, reverse=pair % 2 == 0):
                results[run] = run(arguments, words, warmup, batches)
            (images, ours), python = results[program_run], results[python_run]
            rates.append(images / ours)
            ratios.append(ours / python)
            added.append(1e6 * (python - ours) / batches)
        print(f"| {name} | {statistics.median(rates):,.0f} | {spread(ratios, 3)} | {spread(added, 1)} |", flush=True)


if __name__ == "__main__":
    main()
