"""Compares the CPU time of pymillrace.Loader per batch with that of `millrace bench`."""
import json
import subprocess
import sys

import pytest
from conftest import needs_torch, timing

WORDS = ("overhead", "data.reader=synthetic", "data.synthetic.channels=1", "data.synthetic.count=6400",
         "loader.workers=0")
BATCHES, WARMUP, TURNS = 2000, 100, 3

LOOP = """
import itertools, json, sys, time
import pymillrace as mr

numpy, warmup, count, *words = json.loads(sys.argv[1])
batches = itertools.chain.from_iterable(itertools.repeat(mr.Loader(*words, numpy=numpy)))
for _ in itertools.islice(batches, warmup):
    pass
begin = time.process_time()
images = sum(len(labels) for _, labels in itertools.islice(batches, count))
print(json.dumps({"cpu_s": time.process_time() - begin, "images": images}))
"""


def output_of(*command):
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout)


@timing
@pytest.mark.parametrize("numpy", [True, pytest.param(False, marks=needs_torch)], ids=["numpy", "torch"])
def test_python_adds_at_most_20_microseconds_per_batch(program, numpy):
    limits = (f"bench.batches={WARMUP + BATCHES}", f"bench.warmup={WARMUP}")
    ours, pythons = [], []
    for _ in range(TURNS):
        ours.append(output_of(program, "bench", *WORDS, *limits, "--json")["measured"])
        pythons.append(output_of(sys.executable, "-c", LOOP, json.dumps([numpy, WARMUP, BATCHES, *WORDS])))
    assert {one["batches"] for one in ours} == {BATCHES}
    assert {one["images"] for one in ours} == {one["images"] for one in pythons}
    cheapest, program_s = (min(one["cpu_s"] for one in runs) for runs in (pythons, ours))
    assert 1e6 * (cheapest - program_s) / BATCHES <= 20
