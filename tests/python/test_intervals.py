"""The 90% intervals of predictions hold what was measured, and advice needs their lower end."""
import pytest

from pymillrace._predict import (MAX_COOLING, MAX_CROWDING, MODEL_ERROR, DataLoaderInput, DataLoaderRatios, Demand, Doubts,
                                 Paging, RecordedRun, replay, usual_pause)
from pymillrace.watcher import predict
from pymillrace.watcher.batch_means import half_width
from pymillrace.watcher.predict import Recorded

SETUP = DataLoaderInput(workers=1, prefetch=2, batch=8, cores=1, fetch=[Demand(blocked_s=0.080)],
                        update=Demand(blocked_s=0.010))
TWICE = SETUP.replace(workers=2)


def around(setup, changed, measured=0, doubts=Doubts()):
    """Returns the ends of a ratio's interval over the ratio of the replays, which it must hold."""
    replayed = replay(changed).images_per_s / replay(setup).images_per_s
    ratio, low, high = DataLoaderRatios(setup, measured, doubts).with_interval(changed)
    assert low < ratio < high and low < replayed < high
    return low / replayed, high / replayed


def assumed(setup, changed):
    """Returns the ratio that is predicted over the ratio of the replays."""
    replayed = replay(changed).images_per_s / replay(setup).images_per_s
    return DataLoaderRatios(setup, 0, Doubts()).with_interval(changed)[0] / replayed


def test_known_demands_leave_the_model_error():
    assert around(SETUP, TWICE) == pytest.approx((1 / (1 + MODEL_ERROR), 1 + MODEL_ERROR))
    assert around(SETUP, TWICE, replay(SETUP).images_per_s) == pytest.approx((1 / (1 + MODEL_ERROR), 1 + MODEL_ERROR))


def test_a_replay_that_misses_the_run_widens_the_interval():
    low, high = around(SETUP, TWICE, 1.2 * replay(SETUP).images_per_s)
    assert high > 1.18 and low < 1 / 1.18


def test_demands_that_vary_widen_the_interval_where_they_decide():
    bound = SETUP.replace(update=Demand(blocked_s=0.075))  # 10% more load binds one worker, and never two
    low, high = around(bound, bound.replace(workers=2), doubts=Doubts(fetch=0.2))
    assert high == pytest.approx((1 + MODEL_ERROR) * 1.2) and low == pytest.approx(0.075 / 0.080 / (1 + MODEL_ERROR))


def test_half_widths_come_from_batch_means():
    assert half_width([0.1] * 40, [1.0] * 40) == pytest.approx(0, abs=1e-9)
    slow_and_fast = [0.1 + 0.05 * (i % 20 < 10) for i in range(80)]  # lasts many batches, so that few are independent
    assert half_width(slow_and_fast, [1.0] * 80) > 1.5 * half_width([0.1, 0.15] * 40, [1.0] * 80) + 0.02
    assert half_width([0.1, 0.2, 0.3], [1.0] * 3) == 0


def test_busy_cores_may_be_slower_than_one():
    cpu = SETUP.replace(cores=2, workers=2, fetch=(Demand(cpu_s=0.080),), update=Demand(cpu_s=0.020))
    low, high = around(cpu, cpu.replace(workers=0))
    assert high == pytest.approx(MAX_CROWDING * (1 + MODEL_ERROR), rel=0.01) and low == pytest.approx(1 / (1 + MODEL_ERROR))


def test_cores_that_get_busy_may_be_slower():
    # One worker and a trainer that mostly waits keep 1.1 cores busy, two workers both.
    loads = SETUP.replace(cores=2, fetch=(Demand(cpu_s=0.080),), update=Demand(cpu_s=0.008))
    low, high = around(loads, loads.replace(workers=2))
    assert low == pytest.approx(MAX_CROWDING**-0.9 / (1 + MODEL_ERROR), rel=0.01) and high == pytest.approx(1 + MODEL_ERROR)


def test_code_on_a_core_that_no_longer_waits_may_be_faster():
    # A worker that sleeps leaves the update the core for 2 ms of 32; 32 workers keep it busy.
    waits = SETUP.replace(fetch=(Demand(blocked_s=0.032),), update=Demand(cpu_s=0.002))
    low, high = around(waits, waits.replace(workers=32))
    assert high == pytest.approx(MAX_COOLING**(30 / 32) * (1 + MODEL_ERROR), rel=0.01)
    assert low == pytest.approx(1 / (1 + MODEL_ERROR))
    # Where the workers' sleep still binds, faster code gains nothing.
    assert around(waits, waits.replace(workers=2))[1] == pytest.approx(1 + MODEL_ERROR)


def test_a_ratio_assumes_the_middle_of_what_a_record_cannot_tell():
    cpu = SETUP.replace(cores=2, workers=2, fetch=(Demand(cpu_s=0.080),), update=Demand(cpu_s=0.020))
    assert assumed(cpu, cpu.replace(workers=0)) == pytest.approx(MAX_CROWDING**0.5, rel=0.01)
    assert assumed(cpu.replace(workers=0), cpu) == pytest.approx(MAX_CROWDING**-0.5, rel=0.01)
    waits = SETUP.replace(fetch=(Demand(blocked_s=0.032),), update=Demand(cpu_s=0.002))
    assert assumed(waits, waits.replace(workers=32)) == pytest.approx(MAX_COOLING**(15 / 32), rel=0.01)
    assert assumed(SETUP, TWICE) == pytest.approx(1)


# Milliseconds per batch in runs with one worker on two cores: fetching on a core and blocked, the pause between two
# batches, and a step (docs/results/2026-11-29-campaign.md; timm's loop, the one that does not pause, is left out).
PAUSES = ((16.8, 0.2, 1.64, 18.5), (16.8, 0.1, 1.55, 18.5), (16.9, 0.2, 1.91, 19.0), (16.7, 0.2, 1.94, 18.7),
          (1.4, 32.4, 0.38, 34.1), (0.8, 32.3, 0.32, 33.3))


@pytest.mark.parametrize("cpu, blocked, pause, step", PAUSES)
def test_a_worker_pauses_between_batches(cpu, blocked, pause, step):
    fetch = Demand(1e-3 * cpu, 1e-3 * blocked)
    assert usual_pause(fetch, 0) == usual_pause(fetch, 2) == pytest.approx(1e-3 * pause, abs=0.0005)
    loop = DataLoaderInput(1, 2, 4, 2, [fetch], Demand(0.0005), Demand(0.0008), Demand(0.0002), Demand(0.002))
    predicted = predict.predictions(loop, Recorded(RecordedRun(0, 0.0)), Paging())
    assert predicted["replay_images_per_s"] == pytest.approx(4000 / step, rel=0.03)
    assert replay(loop).images_per_s == pytest.approx(4000 / (cpu + blocked), rel=0.01)


@pytest.mark.parametrize("tensors, cpu, pause", ((11, 19.1, 4.45), (24, 16.8, 8.01)))
def test_a_worker_pauses_longer_after_a_batch_of_many_tensors(tensors, cpu, pause):
    """Measured in runs with one worker (docs/results/2026-11-30-tensors.md)."""
    assert usual_pause(Demand(1e-3 * cpu), tensors) == pytest.approx(1e-3 * pause, abs=0.0005)


# Demands of runs with two workers on two cores, in ms: fetch, update (of each thread), threads; images/s; the length of
# an update; and the ratio that was measured without workers (docs/results/2026-11-27-without-workers.md).
RUNS = ((79.3, 46.3, 2, 177.5, 0.99), (72.7, 41.1, 2, 195.1, 1.06), (93.3, 48.7, 2, 160.9, 1.18),
        (68.2, 32.0, 2, 227.4, 1.11), (105.2, 43.2, 1, 203.9, 0.73), (86.1, 29.1, 1, 264.1, 0.73),
        (81.0, 25.9, 1, 279.3, 0.65))


@pytest.mark.parametrize("fetch, update, threads, rate, measured", RUNS)
def test_the_interval_without_workers_holds_what_was_measured(fetch, update, threads, rate, measured):
    setup = DataLoaderInput(2, 2, 16, 2, [Demand(1e-3 * fetch)], Demand(0.0008), Demand(0.0008), Demand(0.001),
                            Demand(1e-3 * update, threads=threads))
    recorded = Recorded(RecordedRun(rate, 0.0, replay(setup.replace(spins=False)).update_s))
    rows = {row["change"]: row for row in predict.predictions(setup, recorded, Paging(0.0055, 0.002))["rows"]}
    found = rows["num_workers=0"]
    assert found["low"] <= measured + 0.005 and measured - 0.005 <= found["high"]  # it was rounded
    if threads == 2:  # without spinning and crowding it was 0.72, whatever was measured
        assert found["ratio"] == pytest.approx(measured, rel=0.25) and found["ratio"] > 0.85


def test_workers_beside_a_pool_are_no_advice():
    # Two threads of LibTorch on two cores, in a run without workers: 0.94 to 1.07 was measured with two of them.
    setup = DataLoaderInput(0, 2, 16, 2, [Demand(0.063)], Demand(0.0006), Demand(0.0006), Demand(0.0001),
                            Demand(0.0127, 0.0013, threads=2))
    record = predict.predictions(setup, Recorded(RecordedRun(206.9, 0.0)), Paging(0.0055, 0.002))
    row = next(row for row in record["rows"] if row["change"] == "num_workers=2")
    assert row["low"] < 0.94 and row["high"] > 1.07 and predict.best(record) is None


def test_advice_needs_a_lower_end_that_helps():
    row = {"change": "num_workers=2", "overrides": {"num_workers": 2}, "loading_only": False, "ratio": 1.3,
           "high": 1.6, "images_per_s": 130.0}
    settings = {"num_workers": 1}
    assert predict.best({"rows": [row | {"low": 1.04}], "settings": settings}) is None
    sure = row | {"low": 1.05}
    assert predict.best({"rows": [sure], "settings": settings}) is sure
    assert predict.proposal(sure) == "try num_workers=2: 130 images/s predicted (105 to 160), 100 now"
    larger = row | {"ratio": 2.0, "low": 1.02, "change": "num_workers=4"}  # it may gain more, or nothing
    assert predict.best({"rows": [larger, sure], "settings": settings}) is sure
