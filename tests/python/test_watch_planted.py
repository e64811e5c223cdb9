"""Delays planted in each place of a DataLoader's work come out in that place, as long as they measured themselves.

The plants measure themselves, so that a busy machine changes both sides. It also takes the core away between plants;
that time is a kind of its own, `cores`, and is left out of the comparison. A core that is lost between the two readings
of a plant and of the recorder is in one of them only, so tests are repeated. MILLRACE_LONG_TESTS=1 runs every
combination. The output ends with a table of the errors.
"""
import csv
import json
import os
from time import perf_counter

import pytest

pytest.importorskip("torch", reason="NOT TESTED with PyTorch: it cannot be imported", exc_type=ImportError)

import pymillrace as mr
import watch_plants as plants_of
from conftest import LONG, planted_errors, timing

pytestmark = timing
PLACES = ("dataset", "transform", "collate", "update")
KINDS = ("blocked", "cpu")
PER_CALL_MS = {"dataset": 12, "transform": 12, "collate": 60, "update": 40}


def watched(tmp_path, plants, epochs=1, **options):
    loader = plants_of.loader_of(plants, **options)
    with mr.watching(run=tmp_path / "run"):
        updates = plants_of.train(loader, plants, epochs)
    del loader
    return json.loads((tmp_path / "run/summary.json").read_text()), updates


def with_core(work):
    assert work["unknown"] == 0
    return work["cpu"] + work["blocked"]


def compared(place, kind, workers, method, found, planted):
    """Asserts that what was found lies within 5% of what the plant measured, and notes the error for the table."""
    test = os.environ["PYTEST_CURRENT_TEST"].split(" ")[0]
    error = found / planted - 1
    key = (place, kind, workers, method if workers else "")
    errors = planted_errors.setdefault(test, {})
    errors[key] = max(errors.get(key, 0), error, key=abs)
    assert found == pytest.approx(planted, rel=0.05)


def check_place(summary, updates, place, kind, plant, workers, method="fork"):
    if place == "update":
        assert plant.wall <= summary["spans"]["update"]
        compared(place, kind, workers, method, summary["spans"]["update"], updates)
        return
    work = summary["loaders"][0]["work"][place]
    compared(place, kind, workers, method, with_core(work), plant.cpu + plant.blocked)
    compared(place, kind, workers, method, work[kind], getattr(plant, kind))


@pytest.mark.parametrize("workers", (0, 2))
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", PLACES)
def test_a_delay_comes_out_in_its_place_and_kind(tmp_path, place, kind, workers):
    planted_errors.pop(os.environ["PYTEST_CURRENT_TEST"].split(" ")[0], None)
    log = tmp_path / "plants"
    plants = {place: plants_of.Plant(log, place, kind, PER_CALL_MS[place])}
    summary, updates = watched(tmp_path, plants, workers=workers)
    plant = plants_of.measured(log)[place]
    check_place(summary, updates, place, kind, plant, workers)
    others = [one for one in ("dataset", "transform", "collate") if one != place]
    for one in others:
        assert with_core(summary["loaders"][0]["work"][one]) < 0.1 * plant.wall


CONFIGURATIONS = [(0, "fork", False), (1, "fork", False), (2, "fork", True), (2, "spawn", True)]
if LONG:
    CONFIGURATIONS += [(1, "fork", True), (2, "fork", False), (1, "spawn", False), (1, "spawn", True),
                       (2, "spawn", False), (1, "forkserver", False), (2, "forkserver", True)]


@pytest.mark.parametrize("kind", KINDS if LONG else ("blocked",))
@pytest.mark.parametrize("workers, method, persistent", CONFIGURATIONS)
def test_delays_in_all_places_at_once(tmp_path, workers, method, persistent, kind):
    planted_errors.pop(os.environ["PYTEST_CURRENT_TEST"].split(" ")[0], None)
    log = tmp_path / "plants"
    plants = {place: plants_of.Plant(log, place, kind, PER_CALL_MS[place]) for place in PLACES}
    summary, updates = watched(tmp_path, plants, epochs=2, workers=workers, method=method, persistent=persistent)
    main = summary["loaders"][0]
    for place, plant in plants_of.measured(log).items():
        check_place(summary, updates, place, kind, plant, workers, method)
    assert main["batches"]["missing"] == 0
    assert [row["name"] for row in main["transforms"]] == ["Nothing", "PlantedTransform", "Nothing"]
    slow = plants_of.measured(log)["transform"].wall / (2 * 6 * 3)
    assert main["transforms"][1]["s_per_sample"] == pytest.approx(slow, rel=0.05)
    assert main["transforms"][0]["s_per_sample"] < 0.05 * slow


@pytest.mark.parametrize("workers", (0, 1))
@pytest.mark.parametrize("kind", KINDS)
def test_delays_in_fast_steps_are_estimated_from_those_in_detail(tmp_path, workers, kind):
    """Steps of 9 ms; most of them are recorded in outline."""
    planted_errors.pop(os.environ["PYTEST_CURRENT_TEST"].split(" ")[0], None)
    log, per_call_ms = tmp_path / "plants", {"dataset": 0.5, "collate": 5, "update": 2}
    if workers and kind == "cpu":  # the collate function would share the interpreter's lock with the thread that sends
        per_call_ms = {"dataset": 1.2, "update": 2}
    plants = {place: plants_of.Plant(log, place, kind if place != "update" else "cpu", ms)
              for place, ms in per_call_ms.items()}
    summary, updates = watched(tmp_path, plants, workers=workers, batches=500)
    assert summary["loaders"][0]["batches"]["missing"] == 0
    for place, plant in plants_of.measured(log).items():
        check_place(summary, updates, place, kind, plant, workers)


def test_waits_are_blamed_on_the_place_that_delays_the_only_worker(tmp_path):
    log = tmp_path / "plants"
    plants = {"dataset": plants_of.Plant(log, "dataset", "blocked", 7)}
    summary, _ = watched(tmp_path, plants, workers=1, batches=24)
    blame, wall = summary["blame"], plants_of.measured(log)["dataset"].wall
    assert summary["bound"] == "dataset"
    # The worker goes on meanwhile:
    overlapped = summary["loaders"][0]["load_rows"]["iter"] + summary["update_s"] + summary["spans"]["log"] + \
        blame["transfer"] + blame["handover"]
    assert 0.98 * wall - overlapped <= blame["dataset"] <= 1.02 * wall
    assert summary["blame_what"]["blocked"] >= 0.9 * blame["dataset"]
    assert sum(value for key, value in blame.items() if key != "load_s") == pytest.approx(blame["load_s"], abs=1e-9)
    assert blame["load_s"] == pytest.approx(summary["load_s"], abs=1e-9)


def test_a_loop_that_waits_for_nothing_is_device_bound(tmp_path):
    log = tmp_path / "plants"
    plants = {"update": plants_of.Plant(log, "update", "blocked", 60)}
    summary, updates = watched(tmp_path, plants, workers=1, batches=20, batch=2)
    assert summary["bound"] == "device"
    assert summary["spans"]["update"] == pytest.approx(updates, rel=0.05)


@pytest.mark.parametrize("workers", (0, 2))
def test_parts_add_up_to_the_wall_time_that_the_caller_measures(tmp_path, workers):
    plants = {"update": plants_of.Plant(tmp_path / "plants", "update", "blocked", 40)}
    loader = plants_of.loader_of(plants, workers=workers, batches=40)
    before = perf_counter()
    with mr.watching(run=tmp_path / "run"):
        begin = perf_counter()
        plants_of.train(loader, plants)
        end = perf_counter()
    after = perf_counter()
    rows = list(csv.DictReader(open(tmp_path / "run/steps.csv")))
    assert len(rows) == 40
    whole = sum(float(row[key]) for row in rows for key in ("load_s", "update_s", "other_s"))
    assert end - begin <= whole <= after - before
    spans = sum(float(row[key]) for row in rows for key in ("setup", "first_batch", "load", "update", "loop",
                                                            "evaluate", "log", "between"))
    assert spans == pytest.approx(whole, abs=1e-6)
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    assert abs(summary["unaccounted_s"]) < 0.002 * summary["wall_s"]


def test_load_and_update_are_what_the_loop_itself_measures(tmp_path):
    plants = {"dataset": plants_of.Plant(tmp_path / "plants", "dataset", "blocked", 15)}
    loader = plants_of.loader_of(plants, workers=1, batches=10)
    load = 0.0
    with mr.watching(run=tmp_path / "run"):
        begin = perf_counter()
        batches = iter(loader)
        load += perf_counter() - begin
        while True:
            begin = perf_counter()
            batch = next(batches, None)
            load += perf_counter() - begin
            if batch is None:
                break
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    assert summary["load_s"] == pytest.approx(load, rel=0.02)
    rows = summary["loaders"][0]["load_rows"]
    assert rows["iter"] > 0 and rows["end"] > 0
    assert sum(rows.values()) == pytest.approx(summary["load_s"], abs=1e-9)
