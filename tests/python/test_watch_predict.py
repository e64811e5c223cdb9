"""Predictions from the record of one run come true in other runs. The loops sleep, so that a busy machine matters little."""
import json
import time

import pytest

torch = pytest.importorskip("torch", reason="NOT TESTED with PyTorch: it cannot be imported", exc_type=ImportError)

import pymillrace as mr
import watch_plants as plants_of
from conftest import timing
from pymillrace._predict import DataLoaderInput, DataLoaderRatios, Demand, Doubts, Paging, RecordedRun, with_workers
from pymillrace.watcher import api, predict
from pymillrace.watcher.paging import measure
from pymillrace.watcher.predict import Recorded
from pymillrace.watcher.usage import Usage

DATASET_MS, UPDATE_MS = 50, 30  # per sample, per step
STEP_MS = {0: 2 * DATASET_MS + UPDATE_MS, 1: 2 * DATASET_MS, 2: DATASET_MS}  # per batch of two, by number of workers


def summary_of(tmp_path, workers, batch=2, batches=24):
    """Trains with planted sleeps and returns the run's summary."""
    log = tmp_path / f"plants{workers}.{batch}"
    plants = {"dataset": plants_of.Plant(log, "dataset", "blocked", DATASET_MS),
              "update": plants_of.Plant(log, "update", "blocked", UPDATE_MS)}
    run = tmp_path / f"run{workers}.{batch}"
    with mr.watching(run=run):
        plants_of.train(plants_of.loader_of(plants, workers, batches=batches, batch=batch), plants)
    return json.loads((run / "summary.json").read_text())


def rates(summary):
    return {row["change"]: row for row in summary["what_if"]["rows"]}


@timing
def test_other_numbers_of_workers_come_true_from_a_run_with_any(tmp_path):
    runs = {workers: summary_of(tmp_path, workers) for workers in (0, 1, 2)}
    for workers, summary in runs.items():
        for other in {0, 1, 2} - {workers}:
            row = rates(summary)[f"num_workers={other}"]
            assert row["ratio"] == pytest.approx(STEP_MS[workers] / STEP_MS[other], rel=0.1), (workers, other)
            measured = runs[other]["what_if"]["images_per_s"]
            assert row["images_per_s"] == pytest.approx(measured, rel=0.15), (workers, other)
    assert runs[1]["advice"].startswith("advice: try num_workers=")
    assert runs[1]["what_if"]["settings"]["fetch"]["blocked"] == pytest.approx(0.100, rel=0.1)


@timing
def test_storage_twice_as_fast_and_other_batches_follow_the_planted_sleeps(tmp_path):
    what_if = summary_of(tmp_path, 1)["what_if"]
    rows = {row["change"]: row for row in what_if["rows"]}
    assert rows["storage twice as fast"]["images_per_s"] == pytest.approx(2 / 0.050, rel=0.15)
    assert rows["batch_size=4"]["images_per_s"] is None and rows["batch_size=4"]["loading_only"]
    assert rows["batch_size=4"]["loader_images_per_s"] == pytest.approx(2 / 0.100, rel=0.1)


def test_what_if_ends_the_output_of_a_run(tmp_path, capsys):
    summary_of(tmp_path, 1, batches=40)  # so that starting the worker is not what limits the run
    text = capsys.readouterr().err
    assert "images/s predicted" in text and "num_workers=2 " in text and "loader alone" in text


@timing
def test_no_change_is_advised_that_is_predicted_to_lose(tmp_path):
    plants = {"dataset": plants_of.Plant(tmp_path / "plants", "dataset", "cpu", 0.1)}
    with mr.watching(run=tmp_path / "run"):
        for _ in plants_of.loader_of(plants, workers=0, batches=100):
            pass
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    assert summary["bound"] == "dataset" and summary["workers_needed"] > 1
    # Handing a batch over costs more than making it.
    assert all(row["ratio"] < 1.1 for row in summary["what_if"]["rows"] if not row["loading_only"])
    assert summary["advice"].startswith("advice: ") and "try num_workers" not in summary["advice"]


def test_loaders_that_cannot_be_seen_into_are_not_predicted(tmp_path):
    for _ in mr.watch([1, 2, 3], run=tmp_path / "run"):
        pass
    api._sessions[str(tmp_path / "run")].close()
    assert json.loads((tmp_path / "run/summary.json").read_text())["what_if"] is None


SETUP = DataLoaderInput(workers=1, prefetch=2, batch=8, cores=2, fetch=[Demand(blocked_s=0.080)],
                        update=Demand(blocked_s=0.010))


def test_the_best_change_is_the_cheapest_of_the_best():
    record = predict.predictions(SETUP, Recorded(RecordedRun(100.0, 1.0)))
    best = predict.best(record)
    assert best["overrides"] == {"num_workers": 8} and best["ratio"] == pytest.approx(8, rel=0.02)
    bound = predict.predictions(SETUP.replace(update=Demand(blocked_s=0.100)), Recorded(RecordedRun(80.0, 1.0)))
    assert predict.best(bound) is None  # the update binds


def test_the_table_has_a_line_per_change():
    record = predict.predictions(SETUP, Recorded(RecordedRun(100.0, 1.0)))
    text = predict.lines(record)
    assert len(text) == 2 + len(record["rows"])
    assert text[1].split() == ["as", "it", "ran", "100", "100"]
    twice, = [line.split() for line in text if line.startswith("storage twice as fast")]
    assert twice[4:6] == ["199", "+99%"]  # 40.3 instead of 80.3 ms per batch, pauses included


def epoch(images, load, update, startup):
    return {"images": images, "whole": True, "load_s": load, "update_s": update, "blame": {"startup": startup}}


def test_persistent_workers_save_the_start_of_later_epochs():
    epochs = [epoch(80, 30.0, 5.0, 29.0), epoch(80, 6.0, 5.0, 3.0), epoch(80, 4.0, 5.0, 1.0)]
    row, = predict.persistent_rows(epochs, 99.0)
    assert row["ratio"] == pytest.approx(20 / 16) and row["images_per_s"] == pytest.approx(160 / 16)
    assert row["saved_s_per_epoch"] == pytest.approx(2) and row["loader_images_per_s"] == 99.0
    record = predict.predictions(SETUP, Recorded(RecordedRun(100.0, 1.0)))
    record["rows"] += [row | {"ratio": 9.0, "low": 8.5, "images_per_s": 90.0}]
    assert predict.best(record)["overrides"] == {"persistent_workers": True}
    lines = predict.lines(record)
    assert "start-up of 2.00 s" in lines[-1]
    # Its base stands above it: 90 images/s, +800%.
    before, own = next((lines[i - 1], lines[i]) for i in range(len(lines)) if lines[i].startswith("persistent_workers"))
    assert before.split()[-1] == "10" and own.split()[1:3] == ["90", "+800%"], lines
    assert predict.persistent_rows([epoch(80, 6.0, 5.0, 3.0)], 99.0) == []  # there is no second start
    assert predict.persistent_rows([epoch(80, 6.0, 5.0, 3.0), epoch(0, 1.0, 0.0, 1.0)], 99.0) == []


@pytest.mark.parametrize("workers, epochs, persistent, given", ((1, 2, False, True), (1, 1, False, False),
                                                                (1, 2, True, False), (0, 2, False, False)))
def test_only_workers_that_are_started_again_can_persist(tmp_path, workers, epochs, persistent, given):
    with mr.watching(run=tmp_path / "run"):
        plants_of.train(plants_of.loader_of({}, workers, persistent=persistent), {}, epochs=epochs)
    what_if = json.loads((tmp_path / "run/summary.json").read_text())["what_if"]
    rows = [row for row in what_if["rows"] if row["change"] == "persistent_workers=True"]
    assert [row["ratio"] > 1 for row in rows] == ([True] if given else [])


def test_usage_tells_cores_from_sleep():
    usage = Usage()
    usage.steps, usage.ns, usage.cpu, usage.delay = 10, 1_000_000_000, 1_600_000_000, 200_000_000
    assert usage.demand() == Demand(cpu_s=0.080, blocked_s=0.0, threads=2)  # 80 ms with a core, on two of them
    usage.cpu, usage.delay = 200_000_000, 0
    demand = usage.demand()
    assert (demand.cpu_s, demand.threads) == (0.020, 1) and demand.blocked_s == pytest.approx(0.080)


def test_a_change_without_work_that_takes_time_has_no_prediction():
    # Without workers nothing is left of a fetch whose time was that of shared memory.
    setup = SETUP.replace(workers=1, fetch=(Demand(cpu_s=1e-9),), hand=Demand(), update=Demand(cpu_s=0.01))
    assert predict.predictions(setup, Recorded(RecordedRun(100.0, 0.0)), Paging(make_s=1.0)) is None
    # The warm-up lasts so long that a clock in seconds does not tell the counted steps from none.
    late = SETUP.replace(workers=0, fetch=(Demand(cpu_s=1e9), *[Demand(cpu_s=1e-12)] * 255), update=Demand(), steps=200)
    assert predict.predictions(late, Recorded(RecordedRun(100.0, 0.0))) is None


def test_only_batches_of_workers_pay_for_shared_memory():
    paging = Paging(make_s=0.005, take_s=0.003)
    inline = SETUP.replace(workers=0, fetch=(Demand(cpu_s=0.040), Demand(cpu_s=0.050)), update=Demand(cpu_s=0.010))
    shared = with_workers(inline, 2, paging)
    assert (shared.workers, shared.update.cpu_s) == (2, pytest.approx(0.013))
    assert [one.cpu_s for one in shared.fetch] == pytest.approx([0.045, 0.055])
    assert with_workers(shared, 1, paging) == shared.replace(workers=1)
    assert with_workers(shared, 0, paging).fetch[1].cpu_s == pytest.approx(0.050)
    rows = {row["change"]: row["ratio"] for row in predict.predictions(shared, Recorded(RecordedRun(100.0, 0.0)), paging)["rows"]}
    assert rows["num_workers=0"] > {row["change"]: row["ratio"] for row in
                                    predict.predictions(shared, Recorded(RecordedRun(100.0, 0.0)))["rows"]}["num_workers=0"]


MANY = DataLoaderInput(workers=1, prefetch=2, batch=4, cores=2, fetch=[Demand(blocked_s=0.040)], receive=Demand(0.001),
                       tensors=21)


def test_only_batches_of_workers_wait_for_their_tensors():
    assert with_workers(MANY, 0, Paging()) == MANY.replace(workers=0)
    for workers in (1, 8):
        assert with_workers(MANY, workers, Paging()).tensor_wait_s == pytest.approx(0.007)
    for few in (0, 1):
        assert with_workers(MANY.replace(tensors=few), 8, Paging()).tensor_wait_s == 0


def test_predictions_tell_a_batch_of_many_tensors_from_one_tensor():
    def of_eight(measured):
        return DataLoaderRatios(measured, 0, Doubts()).with_interval(with_workers(measured, 8, Paging()))

    many, few = of_eight(MANY), of_eight(MANY.replace(tensors=1))
    # 8 workers make a batch every 5 ms: the trainer, which receives one in 1 + 7 ms, holds them up.
    assert few[0] == pytest.approx(8, rel=0.05) and many[0] == pytest.approx(40 / 8, rel=0.05)
    assert few[1] > many[0] > many[1] and many[2] >= few[0]  # the interval holds the ratio without such waits
    # In a run with 8 workers those waits were recorded, and do not end once the worker makes no batch.
    recorded = MANY.replace(workers=8, receive=Demand(0.001, 0.007))
    found = predict.predictions(recorded, Recorded(RecordedRun(100.0, 1.0)), Paging())
    assert found["replay_images_per_s"] == pytest.approx(4 / 0.008, rel=0.05)
    assert (found["settings"]["receive"]["blocked"], found["settings"]["tensor_wait"]) == pytest.approx((0, 0.007))


def test_a_worker_that_computes_in_python_makes_no_batch_while_it_sends_many_tensors():
    """With one worker, of the images per second without: measured with 24 and with 11 tensors (docs/results)."""
    for tensors, fetch, update, batch, rate, measured in ((24, 0.0164, 0.0018, 3, 165, 0.72),
                                                          (11, 0.0176, 0.0010, 4, 215, 0.77)):
        sending = Demand(0.0005 + 0.00025 * tensors)
        loop = DataLoaderInput(workers=0, prefetch=2, batch=batch, cores=2, fetch=[Demand(fetch)], send=sending,
                               receive=sending, tensors=tensors, update=Demand(update))
        found = predict.predictions(loop, Recorded(RecordedRun(rate, 0.0)), Paging())
        row = next(row for row in found["rows"] if row["change"] == "num_workers=1")
        assert row["ratio"] == pytest.approx(measured, rel=0.1)
        assert row["low"] <= measured <= row["high"]
        assert found["settings"]["tensors"] == tensors


@pytest.mark.parametrize("tensors", (1, 10))
def test_without_workers_the_cost_of_sending_follows_from_the_number_of_tensors(tmp_path, tensors):
    data = [torch.zeros(3)] * 40
    with mr.watching(run=tmp_path / "run"):
        for _ in torch.utils.data.DataLoader(data, collate_fn=lambda rows: rows[0].repeat(tensors, 1).unbind()):
            time.sleep(0.002)
    what_if = json.loads((tmp_path / "run/summary.json").read_text())["what_if"]
    assert what_if["transfer_assumed"]
    for end in ("send", "receive"):
        assert what_if["settings"][end]["cpu"] == pytest.approx(0.0005 + 0.00025 * tensors)


def test_shared_memory_costs_more_for_larger_batches():
    small, large = measure(1 << 20), measure(1 << 26)
    assert large.make_s > small.make_s > 0 and large.take_s > small.take_s > 0
    assert measure(0).make_s == measure(0).take_s == 0


def test_no_more_is_saved_than_was_measured(tmp_path):
    what_if = summary_of(tmp_path, 1)["what_if"]  # tiny batches: collation takes less than a page
    assert 0 <= what_if["shared_memory"]["make"] < 1e-3 and 0 <= what_if["shared_memory"]["take"] < 1e-3
