"""A small data set, loaders and scripts that read it, and the hash of batches."""
import subprocess
import sys
import textwrap

import pymillrace as mr
import xxhash

# A small data set without files. Images are random but the same in every run.
SYNTHETIC = ("mnist-lenet", "data.reader=synthetic", "data.synthetic.channels=1", "data.synthetic.count=1000")


def make(*overrides, numpy=True, **options):
    return mr.Loader(*SYNTHETIC, *overrides, numpy=numpy, **options)


def run_python(code, *arguments, **options):
    """Runs a script with pymillrace; returns the finished process."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)], capture_output=True, text=True, timeout=60,
        **options)


class Hash:
    """The hash of `millrace bench --hash`: every batch's bytes, then its labels."""

    def __init__(self):
        self._state = xxhash.xxh3_64()

    def add(self, batch):
        for array in batch:
            self._state.update(array.numpy() if hasattr(array, "numpy") else array)
        return self

    def text(self):
        return self._state.hexdigest()


def hash_of(batches):
    hashed = Hash()
    for batch in batches:
        hashed.add(batch)
    return hashed.text()
