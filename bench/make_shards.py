#!/usr/bin/env python3
"""Writes a large set of archives that hold one image again and again, to measure how a set opens.

bench/make_shards.py IMAGE.jpg DIR --samples 1000000 --shards 100

The names and labels differ, so that a listing has its usual size. No archive has an index.
"""

import argparse
import pathlib


def header(name, size):
    """Returns the ustar header of a file."""
    block = bytearray(512)
    for at, text in ((0, name), (100, "0000644"), (108, "0000000"), (116, "0000000"), (124, f"{size:011o}"),
                     (136, "00000000000"), (148, " " * 8), (156, "0"), (257, "ustar\0" + "00")):
        block[at:at + len(text)] = text.encode()
    block[148:156] = f"{sum(block):06o}\0 ".encode()
    return bytes(block)


def member(name, content):
    return header(name, len(content)) + content + bytes(-len(content) % 512)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("image", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--samples", type=int, default=1_000_000)
    parser.add_argument("--shards", type=int, default=100)
    options = parser.parse_args()
    image = options.image.read_bytes()
    options.folder.mkdir(parents=True)
    for shard in range(options.shards):
        begin, end = (options.samples * n // options.shards for n in (shard, shard + 1))
        with open(options.folder / f"train-{shard:06}.tar", "wb") as out:
            for i in range(begin, end):
                out.write(member(f"{i:09}.jpg", image) + member(f"{i:09}.cls", str(i % 1000).encode()))
            out.write(bytes(1024))


if __name__ == "__main__":
    main()
