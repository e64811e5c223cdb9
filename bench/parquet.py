#!/usr/bin/env python3
"""Compares ways to load the JPEG bytes of a Parquet file: images per CPU-second and memory, in turns.

    parquet.py DATA [--turns N] [--rows N] [--group N] [--window N] [--workers N] [--ranks N]

DATA is a folder with JPEG files, whose images fill a Parquet file of --rows rows, again and again, in
row groups of --group. Ways: `groups`, mr.Parquet of the file; `table`, mr.Samples of read_table(). Both load one epoch
of rank 0 of --ranks in the order loader.shuffle=window:N (0: none), crop to 224 x 224 at random and flip. Each turn is
a process of its own, and ways take turns in an order that alternates. CPU seconds are those of the process from before
the file is opened, and the memory is the most that was resident, less what was before that. The batches of both ways
are compared. Prints each way's median over the turns with its range. Needs pyarrow and xxhash.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

from turns import in_turns, spread

BATCH = 32
WAYS = ("groups", "table")


def write(folder, file, rows, group):
    import pyarrow
    import pyarrow.parquet as parquet

    paths = sorted(path for path in pathlib.Path(folder).rglob("*") if path.suffix.lower() in (".jpg", ".jpeg"))
    schema = pyarrow.schema([("jpeg", pyarrow.binary()), ("class", pyarrow.int64())])
    with parquet.ParquetWriter(file, schema, use_dictionary=False) as writer:
        for first in range(0, rows, group):
            numbers = range(first, min(first + group, rows))
            images = [paths[number % len(paths)].read_bytes() for number in numbers]
            writer.write_table(pyarrow.table({"jpeg": images, "class": [number % 10 for number in numbers]}, schema),
                               row_group_size=group)


def resident():
    """Returns the most memory that was resident so far, in MB."""
    # Not getrusage(), which counts what the parent had when it started this process.
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024e-6 for line in lines if line.startswith("VmHWM:"))


def epoch(way, file, window, workers, ranks):
    """Loads one epoch of rank 0. Prints images per CPU-second, the most memory in MB and the batches' hash."""
    import pyarrow.parquet as parquet
    import pymillrace as mr
    import xxhash

    before, begin = resident(), time.process_time()
    if way == "groups":
        source = mr.Parquet(file, image="jpeg", label="class")
    else:
        source = mr.Samples(parquet.read_table(file), image="jpeg", label="class")
    shuffle = f"window:{window}" if window > 0 else "none"
    loader = mr.Loader(source, [mr.RandomResizedCrop(224), mr.HFlip()], f"loader.shuffle={shuffle}",
                       f"loader.workers={workers}", "output.dtype=u8", batch=BATCH, numpy=True, rank=0,
                       world_size=ranks)
    state, count = xxhash.xxh3_64(), 0
    for batch in loader:
        state.update(batch.images)
        state.update(batch.labels)
        count += len(batch.labels)
    print(json.dumps((count / (time.process_time() - begin), resident() - before, state.hexdigest())))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--group", type=int, default=200, help="rows per row group")
    parser.add_argument("--window", type=int, default=1000, help="rows per window of the order")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--ranks", type=int, default=1, help="processes that share each batch")
    parser.add_argument("--way", choices=WAYS, help="load one epoch of the file DATA, as a turn does")
    arguments = parser.parse_args()
    if arguments.way:
        return epoch(arguments.way, arguments.data, arguments.window, arguments.workers, arguments.ranks)

    def turn(way):
        command = [sys.executable, __file__, file, "--way", way, "--window", str(arguments.window),
                   "--workers", str(arguments.workers), "--ranks", str(arguments.ranks)]
        return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)

    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/photos.parquet"
        write(arguments.data, file, arguments.rows, arguments.group)
        print(f"{arguments.rows} rows, {os.path.getsize(file) * 1e-6:.0f} MB")
        found = in_turns(WAYS, arguments.turns, turn)
    if len({digest for turns in found.values() for _, _, digest in turns}) != 1:
        sys.exit("the batches of the two ways differ")
    ratios = [groups[0] / table[0] for groups, table in zip(found["groups"], found["table"])]
    print("| way | images per CPU-second | memory, MB |")
    print("| --- | --- | --- |")
    for way, turns in found.items():
        print(f"| {way} | {spread([rate for rate, _, _ in turns], 0)} | {spread([most for _, most, _ in turns], 0)} |")
    print(f"groups beside table: {spread(ratios, 3)}")


if __name__ == "__main__":
    main()
