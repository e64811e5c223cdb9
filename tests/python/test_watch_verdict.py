"""Verdicts and advice say no more than the records hold."""
import json
import re
import subprocess
import sys
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

pytest.importorskip("torch", reason="NOT TESTED with PyTorch: it cannot be imported", exc_type=ImportError)

import torch

import pymillrace as mr
import watch_plants as plants_of
from conftest import timing
from pymillrace._watch import STEPS_FOR_VERDICT
from pymillrace._predict import DataLoaderInput, Demand, RecordedRun, replay
from pymillrace.watcher import predict, verdict
from pymillrace.watcher.breakdown import TRANSFER, Breakdown
from pymillrace.watcher.loop_facts import LoopFacts
from pymillrace.watcher.shards import shards_of
from pymillrace.watcher.threads import Facts


def loop_of(facts, workers, cpu, cores):
    """Returns a loop whose load was `cpu` seconds of computing and `cores` seconds of waiting for a core."""
    breakdown = Breakdown()
    breakdown.add_outside(0, [int(1e9 * (cpu + cores)), int(1e9 * cpu), int(1e9 * cores)], 1e9 * (cpu + cores))
    return LoopFacts(steps=100, workers=workers, breakdown=breakdown, update_s=0.1, threads=facts)


def test_an_expensive_transfer_names_the_tensors_unless_they_are_large():
    def advice(tensors, tensor_bytes):
        breakdown = Breakdown()
        breakdown.add_outside(TRANSFER, [int(1e9)] * 2 + [0], 1e9)
        loop = LoopFacts(steps=100, workers=8, breakdown=breakdown, update_s=0.1, tensors=tensors,
                         batch_bytes=tensors * tensor_bytes)
        return verdict.advice(loop, verdict.classify(loop, 8), 8, None)

    fewer = "are expensive to send: put their values into fewer tensors"
    assert advice(2, 1 << 10) == f"advice: batches {fewer}, or use larger batches"
    assert advice(24, 1 << 19) == f"advice: batches of 24 tensors {fewer}"  # 12 MiB
    assert advice(2, 3 << 20).startswith("advice: batches are expensive to send: keep images uint8")


def summary_of(run, batches, epochs=1, workers=0):
    plants = {"dataset": plants_of.Plant(run.parent / "plants", "dataset", "blocked", 5)}  # longer than lost cores
    with mr.watching(run=run):
        plants_of.train(plants_of.loader_of(plants, workers, batches=batches, batch=2), plants, epochs)
    return json.loads((run / "summary.json").read_text())


# Too few steps

def test_a_short_run_says_how_many_steps_are_missing(tmp_path, capsys):
    summary = summary_of(tmp_path / "run", batches=6)
    assert (summary["verdict"], summary["bound"], summary["advice"]) == ("too short: 14 more steps", "unknown", "")
    text = capsys.readouterr().err
    assert "  too short: 14 more steps\n" in text and "advice" not in text and "what if" not in text
    done = subprocess.run([sys.executable, "-m", "pymillrace", "what-if", str(tmp_path / "run")], capture_output=True,
                          text=True)
    assert done.returncode == 2 and "too short: 14 more steps" in done.stderr and done.stderr.count("\n") == 1


def test_twenty_steps_are_enough(tmp_path, capsys):
    summary = summary_of(tmp_path / "run", batches=10, epochs=2)
    assert summary["bound"] == "dataset" and summary["advice"].startswith("advice: ")
    assert "what if" in capsys.readouterr().err


@pytest.mark.parametrize("steps, text", ((1, "19 more steps"), (19, "1 more step"), (20, None)))
def test_missing_steps_are_counted(steps, text):
    assert verdict.too_short(steps) == (None if text is None else f"too short: {text}")
    assert steps < STEPS_FOR_VERDICT or text is None


# Load that workers would not hide

@pytest.mark.parametrize("share, workers, text", (
    (0.4, 0, "advice: without workers the loop waits for all of load, 40% of load + update: make the dataset cheaper; no "
             "other setting is sure to gain 5%"),
    (0.05, 0, "advice: the loader keeps up; a faster model or device would help, a faster loader would not"),
    (0.05, 1, "advice: the loader keeps up; a faster model or device would help, a faster loader would not")))
def test_a_faster_loader_helps_where_the_loop_waits_for_load(share, workers, text):
    update = 10.0
    loop = replace(loop_of(Facts(taken=0.0), workers, cpu=update * share / (1 - share), cores=0.0), update_s=update)
    found = verdict.classify(loop, 2)
    assert found.bound == "device" and verdict.advice(loop, found, 2, {"rows": [], "settings": {}}) == text


# Workers for batches that wait for storage

def best_of(fetch, update, cores=2, workers=0):
    setup = DataLoaderInput(workers, 2, 32, cores, (fetch,), update=update)
    return predict.best(predict.predictions(setup, predict.Recorded(RecordedRun(100.0, 1.0))))["overrides"]


def test_waits_for_storage_are_offered_workers_beyond_the_cores():
    assert best_of(Demand(blocked_s=0.064), Demand(cpu_s=0.004)) == {"num_workers": 16}  # 32 samples that sleep 2 ms
    assert best_of(Demand(cpu_s=0.002, blocked_s=0.100), Demand(cpu_s=0.010))["num_workers"] in range(9, 13)
    assert best_of(Demand(blocked_s=0.064), Demand(cpu_s=0.004), workers=2) == {"num_workers": 16}


def test_no_worker_beyond_those_that_hide_the_load_is_offered():
    setup = DataLoaderInput(0, 2, 32, 2, (Demand(blocked_s=0.064),), update=Demand(cpu_s=0.032))
    rows = {row["change"] for row in predict.predictions(setup, predict.Recorded(RecordedRun(100.0, 1.0)))["rows"]}
    assert {one for one in rows if one.startswith("num_workers")} == {"num_workers=1", "num_workers=2"}
    endless = DataLoaderInput(0, 2, 32, 2, (Demand(blocked_s=1.0),), update=Demand(cpu_s=1e-9))
    rows = predict.predictions(endless, predict.Recorded(RecordedRun(100.0, 1.0)))["rows"]
    assert "num_workers=128" in {row["change"] for row in rows}


def test_work_that_computes_is_offered_no_more_workers_than_before():
    setup = DataLoaderInput(0, 2, 32, 2, (Demand(cpu_s=0.064),), update=Demand(cpu_s=0.004))
    rows = {row["change"] for row in predict.predictions(setup, predict.Recorded(RecordedRun(100.0, 0.0)))["rows"]}
    assert {one for one in rows if one.startswith("num_workers")} == {"num_workers=1", "num_workers=2"}


# The first updates

@timing
def test_what_happens_once_is_no_part_of_an_update(tmp_path, capsys):
    """Imports, caches and compilers take long once, in the second body where a batch is taken ahead."""
    with mr.watching(run=tmp_path / "run"):
        for step, _ in enumerate(torch.utils.data.DataLoader(Parted(), batch_size=2)):  # loads for 4 ms
            time.sleep(0.3 if step < 2 else 0.002)
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    assert summary["update_s"] > 0.6  # nothing is lost in what was measured
    assert summary["bound"] == "dataset"
    assert re.search(r"; its first 2 updates, which took 0\.[6-9]\d* s, are left out", summary["verdict"])
    predicted = summary["what_if"]
    assert sum(predicted["settings"]["update"][kind] for kind in ("cpu", "blocked")) < 0.012
    assert predicted["replay_images_per_s"] == pytest.approx(predicted["images_per_s"], rel=0.15)
    assert predicted["images_per_s"] > 2 / 0.020
    assert summary["workers_needed"] > 0.5
    assert "its first" not in summary_of(tmp_path / "usual", batches=24)["verdict"]


# Data sets that divide their samples among workers

class Parted(torch.utils.data.IterableDataset):
    """A data set of another project, by the module of its class."""

    def __init__(self, **attributes):
        vars(self).update(attributes)

    def __iter__(self):
        for one in range(48):
            time.sleep(0.002)
            yield one


class Shards(Parted):
    __module__ = "datasets.iterable_dataset"


class Archives(Parted):
    __module__ = "webdataset.compat"


class Streamed(Parted):
    """Its workers share shards."""
    __module__ = "streaming.base.dataset"


def test_shards_are_known_where_a_data_set_tells_them():
    listed = SimpleNamespace(urls=["a.tar", "b.tar", "c.tar", "d.tar"])
    endless = SimpleNamespace(urls=["a.tar"], nshards=1 << 62)
    assert shards_of(Shards(num_shards=6)) == shards_of(Shards(n_shards=6), ranks=2) == 6
    assert (shards_of(Archives(pipeline=[listed, len])), shards_of(Archives(pipeline=[listed, len]), ranks=2)) == (4, 2)
    for unknown in (Shards(), Shards(num_shards=None), Shards(pipeline=[listed]), Archives(pipeline=[]), Archives(),
                    Archives(pipeline=[endless]), Streamed(num_shards=6), [1, 2], SimpleNamespace(num_shards=6)):
        assert shards_of(unknown) == 0


def test_no_more_workers_are_offered_than_a_data_set_has_shards():
    def offered(shards, workers=0):
        setup = DataLoaderInput(workers, 2, 32, 2, (Demand(blocked_s=0.064),), update=Demand(cpu_s=0.004))
        run = predict.Recorded(RecordedRun(100.0, 1.0, shards=shards))
        return {row["overrides"]["num_workers"] for row in predict.predictions(setup, run)["rows"]
                if "num_workers" in row["overrides"]}
    assert offered(0) == {1, 2, 4, 8, 16, 17}
    assert offered(6) == {1, 2, 4, 6} and offered(1) == {1} and offered(6, workers=6) == {0, 1, 2, 4}
    assert offered(4, workers=6) == {0, 1, 2, 4}  # two of them have nothing to do


def test_advice_says_what_an_iterable_data_set_must_do():
    more = {"rows": [{**FEWER, "change": "num_workers=8", "overrides": {"num_workers": 8}}], "settings": {"num_workers": 1}}
    loop = replace(loop_of(Facts(), workers=1, cpu=0.9, cores=0), iterable=True)
    found = verdict.classify(loop, 2)
    must = "this IterableDataset must divide its samples among so many workers"
    assert must in verdict.advice(loop, found, 2, more)
    for other in (replace(loop, shards=8), replace(loop, iterable=False), replace(loop, workers=8)):
        assert must not in verdict.advice(other, found, 2, more)
    found = replace(found, workers_needed=9.0, kind="blocked")
    assert verdict.advice(replace(loop, workers=4, shards=4), found, 2, {**more, "rows": []}).endswith(
        "or divide the data set into more shards: it has 4, and each worker needs one")


def test_the_shards_of_a_loops_data_set_are_recorded(tmp_path):
    with mr.watching(run=tmp_path / "run"):
        for _ in torch.utils.data.DataLoader(Shards(num_shards=3), batch_size=2, num_workers=0):
            pass
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    offered = [row["overrides"].get("num_workers", 0) for row in summary["what_if"]["rows"]]
    assert max(offered) == 3 and "IterableDataset" not in summary["advice"]


# Cores

@pytest.mark.parametrize("cores, words", ((2, "9.0 workers needed, you have none on 2 cores"),
                                          (16, "9.0 workers needed, you have none")))
def test_more_workers_than_cores_are_said_to_be_needed_with_the_cores(monkeypatch, cores, words):
    monkeypatch.setattr(verdict, "workers_needed", lambda _: 9.0)
    assert verdict.classify(loop_of(Facts(), workers=0, cpu=0.9, cores=0), cores).sentence.endswith(words)


# Cores that other programs take

FEWER = {"change": "num_workers=1", "overrides": {"num_workers": 1}, "ratio": 1.3, "low": 1.2, "high": 1.4,
         "loading_only": False, "images_per_s": 13.0}


@pytest.mark.parametrize("change", (None, FEWER))
def test_cores_of_other_programs_are_no_reason_for_fewer_workers(change):
    predicted = {"rows": [change] if change else [], "settings": {"num_workers": 4}}
    loop = loop_of(Facts(threads=5, wanted=5, taken=0.6), workers=4, cpu=0.2, cores=0.8)
    found = verdict.classify(loop, 2)
    assert found.kind == "cores"
    text = verdict.advice(loop, found, 2, predicted)
    assert text == "advice: other programs use 60% of the 2 cores that this one may run on; measure on an idle machine"
    loop = replace(loop, threads=Facts(threads=5, wanted=5, taken=0.01))  # the workers take them from each other
    assert "num_workers=1" in verdict.advice(loop, found, 2, predicted) if change else \
        "use fewer workers" in verdict.advice(loop, found, 2, predicted)


@pytest.mark.parametrize("workers", (0, 1))
def test_programs_that_take_few_cores_are_not_blamed(workers):
    loop = loop_of(Facts(threads=2, wanted=3, taken=0.01), workers, cpu=0.2, cores=0.8)
    found = verdict.classify(loop, 2)
    assert found.kind == "cores"
    assert verdict.advice(loop, found, 2, {"rows": [], "settings": {"num_workers": workers}}) == (
        "advice: this training's own threads wait for each other on 2 cores: use fewer of them, or make the work cheaper")


MORE_PREFETCH = {**FEWER, "change": "prefetch_factor=4", "overrides": {"prefetch_factor": 4}, "low": 1.15}


@pytest.mark.parametrize("workers", (0, 1, 2, 4))
@pytest.mark.parametrize("changes", (None, [], [FEWER]))
def test_cores_that_others_may_have_taken_are_no_reason_for_fewer_workers(workers, changes):
    predicted = None if changes is None else {"rows": changes, "settings": {"num_workers": workers}}
    loop = loop_of(Facts(threads=5, wanted=5, taken=None), workers, cpu=0.2, cores=0.8)  # as with several ranks
    found = verdict.classify(loop, 2)
    assert found.kind == "cores"
    text = verdict.advice(loop, found, 2, predicted)
    if workers < 2 and changes:  # these are no fewer
        assert "num_workers=1" in text
        return
    own = {0: "", 1: "1 worker, ", 2: "2 workers, ", 4: "4 workers, "}[workers]
    assert text == (f"advice: {own}the training loop and perhaps other programs or ranks share 2 cores: make the work "
                    "cheaper, or measure on an idle machine")


def test_other_changes_are_advised_where_others_may_have_taken_cores():
    loop = loop_of(Facts(threads=5, wanted=5, taken=None), workers=4, cpu=0.2, cores=0.8)
    predicted = {"rows": [FEWER, MORE_PREFETCH], "settings": {"num_workers": 4}}
    assert verdict.advice(loop, verdict.classify(loop, 2), 2, predicted).startswith("advice: try prefetch_factor=4: ")
    pools = replace(loop, threads=Facts(threads=9, trainer=4, wanted=9, taken=None))
    for changes in ([FEWER], [FEWER, MORE_PREFETCH]):
        text = verdict.advice(pools, verdict.classify(pools, 2), 2, {**predicted, "rows": changes})
        assert "num_workers" not in text and "fewer" not in text


def test_fewer_workers_are_advised_where_they_wait_for_more_than_cores():
    loop = loop_of(Facts(threads=5, wanted=5, taken=None), workers=4, cpu=0.9, cores=0.1)
    found = verdict.classify(loop, 2)
    assert found.kind == "cpu"
    assert "num_workers=1" in verdict.advice(loop, found, 2, {"rows": [FEWER], "settings": {"num_workers": 4}})


def test_what_other_programs_use_is_measured(tmp_path, monkeypatch):
    from pymillrace.watcher import threads

    monkeypatch.setattr(threads, "busy_s", lambda: 0.9 * time.monotonic())  # of two cores, also between late readings
    monkeypatch.setattr(threads.os, "sched_getaffinity", lambda _: {0, 1})
    plants = {"update": plants_of.Plant(tmp_path / "plants", "update", "blocked", 50)}
    with mr.watching(run=tmp_path / "run"):
        plants_of.train(plants_of.loader_of(plants, 0, batches=50), plants)
    taken = json.loads((tmp_path / "run/summary.json").read_text())["threads"]["cores_taken"]
    assert 0.3 < taken < 0.5


# Epochs that were left early, faster storage

def epochs_left_after(steps, run):
    loader = plants_of.loader_of({}, workers=1, batches=30)
    with mr.watching(run=run):
        for _ in range(3):
            for step, _ in enumerate(loader, 1):
                if step == steps:
                    break
    rows = json.loads((run / "summary.json").read_text())["what_if"]["rows"]
    lines = [json.loads(line) for line in open(run / "metrics.jsonl")]
    return [row["change"] for row in rows if row["change"].startswith("persistent")], [one["whole"] for one in lines]


def test_epochs_that_were_left_early_promise_nothing_of_persistent_workers(tmp_path):
    assert epochs_left_after(8, tmp_path / "left") == ([], [False] * 3)
    assert epochs_left_after(30, tmp_path / "counted") == (["persistent_workers=True"], [True] * 3)
    assert epochs_left_after(31, tmp_path / "whole") == (["persistent_workers=True"], [True] * 3)


def test_faster_storage_loses_nothing_also_in_a_run_that_was_killed():
    fetch = (Demand(0.001, 0.002), Demand(0.03), Demand(0.01, 0.05), Demand(0.01))
    setup = DataLoaderInput(2, 2, 8, 2, fetch, Demand(0.002), Demand(0.001), update=Demand(0.02))
    faster = setup.replace(fetch=[one.replace(blocked_s=0.5 * one.blocked_s) for one in fetch])
    assert replay(faster).images_per_s < replay(setup).images_per_s  # their batches meet worse
    record = {"workers": 2, "prefetch": 2, "batch": 8, "cores": 2, "fetch": [[one.cpu_s, one.blocked_s] for one in fetch],
              "send": [0.002, 0.0, 1], "receive": [0.001, 0.0, 1], "hand": [0.0, 0.0, 1], "update": [0.02, 0.0, 1],
              "images_per_s": 100.0, "blocked_in_dataset": 1.0, "batch_bytes": 0, "collate_cpu": 0.0}
    for found in (predict.predictions(setup, predict.Recorded(RecordedRun(100.0, 1.0))), predict.predictions_from(record)):
        row, = [row for row in found["rows"] if row["change"] == "storage twice as fast"]
        assert row["ratio"] >= 1 and row["images_per_s"] >= 100
