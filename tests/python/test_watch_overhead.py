"""The benchmark of what watching costs finds a planted cost, and its intervals are Student's."""
import math
import random
import statistics
import sys
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="NOT TESTED with PyTorch: it cannot be imported", exc_type=ImportError)

from conftest import timing
from pymillrace._watch import FetchProbe, Steps
from pymillrace.watcher import watched_loader, worker

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))
import mean_interval
import watch_depths
import watch_overhead

PLANTED = 1_500_000  # ns per step: what watching itself costs, 0.05 to 0.15 ms beside other tests, is little of it
STEP_MS = 5.0  # so that a step with it is not left out as disturbed


class SlowProbe(FetchProbe):
    def begin(self):
        watch_overhead.compute(PLANTED)
        return super().begin()


class SlowSteps(Steps):
    def begin(self, *given):
        watch_overhead.compute(PLANTED)
        return super().begin(*given)


@timing
@pytest.mark.parametrize("workers", (0, 1))
def test_a_planted_cost_is_found_in_the_process_that_has_it(monkeypatch, workers):
    if workers:
        monkeypatch.setattr(worker, "FetchProbe", SlowProbe)
    else:
        monkeypatch.setattr(watched_loader, "Steps", SlowSteps)
    arguments = Namespace(rounds=2, blocks=4, turn=watch_overhead.TURN, step_ms=STEP_MS, compile=None)
    trainer, made = watch_overhead.measure(arguments, workers, random.Random(1))
    slowed = made if workers else trainer
    assert statistics.fmean(slowed.added) == pytest.approx(PLANTED, rel=0.2)
    assert abs(statistics.fmean(slowed.control)) < 0.2 * PLANTED
    if workers:
        assert statistics.fmean(trainer.added) < 0.5 * PLANTED


@timing
def test_a_planted_cost_is_found_in_the_steps_that_have_it(monkeypatch):
    monkeypatch.setattr(watched_loader, "Steps", SlowSteps)
    arguments = Namespace(rounds=2, steps=60, step_ms=1.0)
    in_outline, _ = watch_depths.measure(arguments, 0, True)
    assert in_outline == pytest.approx([PLANTED] * 2, rel=0.2)
    control, in_detail = watch_depths.measure(arguments, 0, False)
    assert control == pytest.approx([0] * 2, abs=0.2 * PLANTED) and in_detail == []


def test_batches_of_another_data_set_end_the_measurement(monkeypatch):
    monkeypatch.setattr(watch_overhead, "collate", lambda samples: (np.zeros((16, 12), np.float32), np.zeros(16)))
    with pytest.raises(SystemExit, match="the batches are not those of the data set"):
        watch_overhead.measure(Namespace(rounds=1, blocks=1, turn=watch_overhead.TURN, step_ms=0.1, compile=None), 0, random.Random(1))


def test_the_interval_of_a_mean_is_students():
    values = [math.sin(i) for i in range(24)]
    error = statistics.stdev(values) / math.sqrt(24)
    for level, quantile in ((0.95, 2.0687), (0.99, 2.8073)):  # of 23 degrees of freedom
        mean, low, high = mean_interval.mean_interval(values, level)
        assert mean == pytest.approx(statistics.fmean(values))
        assert [mean - low, high - mean] == pytest.approx(2 * [quantile * error], rel=1e-3)
    with pytest.raises(SystemExit, match="9 values are too few"):
        mean_interval.mean_interval(values[:9])
