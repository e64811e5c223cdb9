"""Compares the CPU time of pymillrace.Loader per batch with that of `millrace bench`."""
import itertools
import json
import subprocess
import time

import pymillrace as mr
import pytest
from conftest import needs_torch, timing

WORDS = ("overhead", "data.reader=synthetic", "data.synthetic.channels=1", "data.synthetic.count=6400",
         "loader.workers=0")
BATCHES, WARMUP = 2000, 100


@timing
@pytest.mark.parametrize("numpy", [True, pytest.param(False, marks=needs_torch)], ids=["numpy", "torch"])
def test_python_adds_at_most_20_microseconds_per_batch(program, numpy):
    limits = (f"bench.batches={WARMUP + BATCHES}", f"bench.warmup={WARMUP}")
    done = subprocess.run([program, "bench", *WORDS, *limits, "--json"], capture_output=True, text=True, check=True)
    ours = json.loads(done.stdout)["measured"]
    assert ours["batches"] == BATCHES
    batches = itertools.chain.from_iterable(itertools.repeat(mr.Loader(*WORDS, numpy=numpy)))
    for _ in itertools.islice(batches, WARMUP):
        pass
    begin = time.process_time()
    images = sum(len(labels) for _, labels in itertools.islice(batches, BATCHES))
    spent = time.process_time() - begin
    assert images == ours["images"]
    assert 1e6 * (spent - ours["cpu_s"]) / BATCHES <= 20
