"""Parts of the recording by themselves: spans, hooks, the demand of the loop's body, recordings and ranks."""
import gc
import json
import os
import signal
import threading
import weakref
from collections import UserDict
from pathlib import Path
from time import perf_counter, sleep, thread_time_ns
from typing import NamedTuple

import pytest

pytest.importorskip("torch", reason="NOT TESTED with PyTorch: it cannot be imported", exc_type=ImportError)

import torch
from torch.nn.modules import module
from torch.utils.data import DataLoader

import pymillrace as mr
import watch_plants as plants_of
from conftest import timing
from pymillrace.watcher import api, iterators, ranks
from pymillrace._watch import DETAIL, OUTLINE, TRANSFORMS, FetchProbe, Receipts, RecordRing, SendProbe, StepHooks, Steps
from pymillrace.watcher.breakdown import DATASET, HANDOVER, TRANSFER, Breakdown
from pymillrace.watcher.clocks import SCHEDSTAT, UNKNOWN, ThreadClock, between
from pymillrace.watcher.hooks import TorchHooks
from pymillrace.watcher.spans import LOAD, LOOP, UPDATE, Table, Timeline
from pymillrace.watcher.watched_loader import WatchedLoader


def body(*marks):
    """Returns update and loop of a step whose batch came at 100 and whose body ended at 200."""
    timeline, table = Timeline(0), Table()
    timeline.iter_begins(table, 10)
    timeline.iter_ended(table, 20)
    timeline.next_begins(table, 20)
    timeline.next_ended(table, 100, 4)
    for name, now in marks:
        getattr(timeline, name)(now)
    timeline.next_begins(table, 200)
    return table.row[UPDATE], table.row[LOOP]


def test_update_begins_at_the_first_forward_or_step():
    assert body(("forward", 110), ("step_begins", 150), ("step_ended", 160)) == (50, 50)
    # The step for the batch before comes ahead of the forward, as some loops with accumulated gradients have it.
    assert body(("step_begins", 105), ("step_ended", 120), ("forward", 130)) == (15, 85)
    assert body(("step_begins", 105), ("step_ended", 120), ("forward", 130), ("step_ended", 190)) == (85, 15)
    assert body(("forward", 110)) == (0, 100)


def test_steps_and_forwards_of_other_threads_are_no_update():
    marks, steps = StepHooks(0), []
    marks.thread, marks.open, marks.on_step = threading.get_ident(), True, lambda: steps.append(1)
    hooks, timeline = TorchHooks(marks), marks.timeline
    layer = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(layer.parameters(), 0.1)

    def train():
        marks.arm()
        layer(torch.zeros(1, 1)).sum().backward()
        optimizer.step()

    try:
        thread = threading.Thread(target=train)
        thread.start()
        thread.join()
        assert not steps and not timeline.stepped and timeline.marks == (0, 0)
        train()
        assert steps == [1] and timeline.stepped and 0 < timeline.marks[0] < timeline.marks[1]
    finally:
        hooks.remove()


@pytest.mark.parametrize("workers", (0, 1))
def test_the_body_of_every_step_of_short_epochs_but_the_first_two_is_measured(tmp_path, workers):
    plants = {"update": plants_of.Plant(tmp_path / "plants", "update", "cpu", 5)}
    with mr.watching(run=tmp_path / "run"):
        session = api._every[-1]
        plants_of.train(plants_of.loader_of(plants, workers, batches=4), plants, epochs=3)
    usage, planted_s = session.main.usage, 0.005  # each
    assert usage.steps == 3 * 4 - 2
    assert usage.cpu * 1e-9 >= usage.steps * planted_s and usage.ns * 1e-9 >= usage.steps * planted_s
    update = json.loads((tmp_path / "run/summary.json").read_text())["what_if"]["settings"]["update"]
    assert update["cpu"] * update["threads"] >= planted_s


def test_the_body_of_steps_before_a_break_is_measured(tmp_path):
    with mr.watching(run=tmp_path / "run"):
        session = api._every[-1]
        for _ in range(2):
            for step, _ in enumerate(plants_of.loader_of({}, workers=0, batches=8)):
                if step == 2:
                    break
    assert session.loaders[0].usage.steps == 6 - 2


def test_a_stretch_with_another_loader_in_it_is_left_out(tmp_path, monkeypatch):
    train, check = plants_of.loader_of({}, workers=0, batches=4), plants_of.loader_of({}, workers=0, batches=2)
    begins, after_next = [], WatchedLoader.after_next  # steps of the first loader that may begin a stretch

    def begin(loader, data, due):
        after_next(loader, data, due)
        if loader is session.loaders[0]:
            begins.append(loader.table.steps)

    monkeypatch.setattr(WatchedLoader, "after_next", begin)
    with mr.watching(run=tmp_path / "run"):
        session = api._every[-1]
        for epoch in range(2):
            for step, _ in enumerate(train):
                if (epoch, step) == (0, 2):
                    for _ in check:
                        pass
    # Each epoch is a stretch, unless rows were written in it, as after a second. The other loader ran in step 3, with
    # which the first stretch begins.
    assert begins[:3] == [1, 2, 3] and 5 in begins
    left_out = 2 + min(step for step in begins if step > 3) - 3
    assert session.loaders[0].table.steps == 8 and session.loaders[0].usage.steps == 8 - left_out


@pytest.mark.parametrize("workers", (0, 1))
def test_rebuilt_loaders_share_a_recording_that_keeps_no_data_set_alive(tmp_path, workers):
    found, enabled = [], gc.isenabled()
    gc.disable()  # a reference cycle would keep the data set
    try:
        with mr.watching(run=tmp_path / "run"):
            session = api._every[-1]
            for _ in range(4):
                loader = DataLoader(plants_of.Samples(6), batch_size=2, num_workers=workers)
                found.append(weakref.ref(loader.dataset))
                for _ in loader:
                    pass
                del loader
                if workers == 0:
                    assert found[-1]() is None
    finally:
        if enabled:
            gc.enable()
    assert [(one.table.epoch, one.table.steps) for one in session.loaders] == [(4, 12)]


class Wait(NamedTuple):
    """A call of next(), as Breakdown.add() takes it."""
    generation: int
    batch: int
    asked: int
    received: int
    rebuilt: int
    rebuild_cpu: int
    rebuild_delay: int
    got: int
    read_cpu: int = 0


class Record(NamedTuple):
    """A batch's history, as Breakdown.add() takes it."""
    generation: int
    batch: int
    worker: int
    begin: int
    collate: int
    end: int
    dataset_cpu: int
    dataset_delay: int
    collate_cpu: int
    collate_delay: int
    samples: int
    transform: int
    transform_cpu: int
    start_cpu: int
    start_delay: int
    send_key: int
    send_begin: int
    send_end: int
    send_cpu: int
    send_delay: int
    send_waited: int
    parts: tuple[int, ...]


RECORD = Record(1, 0, 0, 100, 200, 300, 100, 0, 100, 0, 2, -1, -1, 0, 0, 1, 300, 1300, 100, 0, 800, ())


def test_waiting_for_room_in_the_pipe_is_no_cost_of_sending():
    breakdown = Breakdown()
    breakdown.add(Wait(1, 0, 1250, 1400, 1500, 50, 0, 1500, 30), RECORD, 50, True)
    assert breakdown.work[TRANSFER] == [100, 100, 0, 0] and breakdown.work[HANDOVER] == [0, 800, 0, 0]
    assert breakdown.rebuilt == [80, 50, 0, 0]  # with the reading of its bytes
    assert sum(map(sum, breakdown.waits)) == 1500 - 1250
    unknown = Breakdown()
    unknown.add(Wait(1, 0, 1250, 1400, 1500, 50, -1, 1500), RECORD._replace(send_delay=-1), 50, True)
    assert unknown.work[TRANSFER] == [100, 0, 0, 100] and unknown.work[HANDOVER] == [0, 0, 0, 800]


def test_a_batch_waits_for_what_its_worker_computes_in_python():
    """Threads that hand a batch over need the interpreter's lock, which the main thread holds while it computes."""
    wait = Wait(1, 0, 250, 1400, 1500, 50, 0, 1500, 30)
    following = RECORD._replace(batch=1, begin=300, collate=1600, end=1700, send_key=0)

    def split(dataset_cpu):
        breakdown = Breakdown()
        breakdown.add(wait, RECORD, 50, True, following._replace(dataset_cpu=dataset_cpu))
        assert sum(map(sum, breakdown.waits)) == pytest.approx(1500 - 250)
        return breakdown.waits

    assert split(0)[DATASET] == [0, 0, 0, 0] and split(0)[TRANSFER][1] == 900 + 50  # it sleeps, and holds no lock
    computing = split(1300)
    assert computing[DATASET] == pytest.approx([900 + 50, 0, 0, 0])  # while sending, and while rebuilding
    assert computing[TRANSFER] == pytest.approx([100 + 50, 0, 0, 0])
    assert split(650)[DATASET][0] == pytest.approx(500 + 50)  # it computed in half of that time


def megabytes(samples):
    return bytes(4_000_000), torch.zeros(len(samples))


def test_a_loop_that_keeps_the_pipe_full_has_a_cheap_transfer(tmp_path):
    plants = {"update": plants_of.Plant(tmp_path / "plants", "update", "blocked", 150)}
    loader = DataLoader(plants_of.Samples(16), batch_size=2, num_workers=1, collate_fn=megabytes)
    with mr.watching(run=tmp_path / "run"):
        for _ in loader:
            plants["update"]()
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    work = summary["loaders"][0]["work"]
    assert work["handover"]["blocked"] > work["transfer"]["blocked"]
    assert summary["what_if"]["settings"]["send"]["blocked"] * 8 <= work["transfer"]["blocked"] + 1e-6


# Clocks and records


def busy(ms):
    end = thread_time_ns() + int(ms * 1e6)
    while thread_time_ns() < end:
        pass


@timing
def test_a_clock_tells_computing_from_sleeping():
    clock = ThreadClock()
    begin = clock.read()
    busy(30)
    computed = clock.read()
    sleep(0.03)
    wall, cpu, delay = between(begin, computed)
    assert cpu >= 30e6 and wall - cpu == pytest.approx(delay, abs=3e6)
    wall, cpu, delay = between(computed, clock.read())
    assert wall >= 30e6 and cpu < 3e6 and delay < 27e6


def test_the_run_queue_time_is_that_of_the_kernel_after_every_wait():
    assert ThreadClock("/nonexistent").read()[2] == UNKNOWN
    if not os.path.exists(SCHEDSTAT):
        pytest.skip(f"NOT TESTED with the kernel's run queue time: there is no {SCHEDSTAT}")

    def of_kernel():
        return int(Path(SCHEDSTAT).read_text().split()[1])

    clock = ThreadClock()
    for _ in range(20):
        sleep(0.001)
        before = of_kernel()
        found = clock.read()[2]
        assert before <= found <= of_kernel()


def blame_of(tmp_path, slots):
    """Returns the breakdown of three waits for batches of a worker, whose records lie in a file of so many slots."""
    file = RecordRing(slots, 0)
    session, table, breakdown = StepHooks(0), Table(), Breakdown()
    session.thread, session.open = threading.get_ident(), True
    steps = Steps(session, table, breakdown)
    steps.generation, steps.records, steps.started = 1, RecordRing(slots, 0, file.path), 1
    probe, sender = FetchProbe(0, 1, SCHEDSTAT, file), SendProbe(SCHEDSTAT, file)
    for batch in range(3):
        assert steps.begin(1, None)
        probe.next_batch = batch
        probe.begin()
        sleep(0.01)
        probe.collate()
        busy(5)
        probe.end()
        probe.keep(4)
        sender.begin((batch, None))
        sender.pickled()
        sender.sent()
        steps.end(batch, [torch.zeros(4)], None)
    assert not steps.begin(2, None)  # of an iterator that was left
    return steps, breakdown, table


def test_waits_are_split_along_the_records_in_the_file(tmp_path):
    steps, breakdown, table = blame_of(tmp_path, 8)
    lines = steps.flush().splitlines()
    assert breakdown.batches == 3 and breakdown.missing == breakdown.overruns == 0
    assert table.steps == 3 and table.images == 12
    assert [line.split(",")[:2] for line in lines] == [["0", "1"], ["0", "2"]]
    work = breakdown.work
    assert work[0][1] >= 25e6 and work[2][0] >= 14.9e6  # slept in the data set, computed in collate
    spans = table.spans
    assert sum(map(sum, breakdown.waits)) == pytest.approx(sum(spans[1:3]), abs=3)


def test_a_record_that_was_overwritten_is_an_overrun(tmp_path):
    steps, breakdown, _ = blame_of(tmp_path, 2)
    steps.flush()
    assert breakdown.batches == 3 and breakdown.missing == breakdown.overruns == 1


@timing
def test_batches_whose_transfer_is_not_measured_are_taken_to_compute_as_long(tmp_path):
    """Reading the CPU time of each batch would cost too much; one that waits longer does not compute more."""
    count, in_detail = 400, 0
    file, session, breakdown = RecordRing(512, 0), StepHooks(0), Breakdown()
    session.thread, session.open = threading.get_ident(), True
    steps, receipts = Steps(session, Table(), breakdown), Receipts(ThreadClock(), False)
    steps.generation, steps.records, steps.started = 1, file, 1
    probe, sender = FetchProbe(0, 1, SCHEDSTAT, file), SendProbe(SCHEDSTAT, file)
    slept = {"send": 0.0, "rebuild": 0.0}

    def transfer(batch, where):
        busy(0.2)
        if batch % 2:
            begin = perf_counter()
            sleep(0.001)
            slept[where] += perf_counter() - begin

    for batch in range(count):
        depth = steps.begin(1, receipts)
        probe.next_batch = batch
        probe.begin()
        probe.finish([0])
        sender.begin((batch, None))
        transfer(batch, "send")
        sender.pickled()
        sender.sent()
        if depth == DETAIL:
            receipts.reads()
            receipts.received()
        transfer(batch, "rebuild")
        if depth == DETAIL:
            receipts.rebuilt((batch, None))
        steps.end(batch, None, receipts)
        in_detail += depth == DETAIL
    steps.flush()
    assert 64 < in_detail < count / 2
    for found, where in ((breakdown.work[TRANSFER], "send"), (breakdown.rebuilt, "rebuild")):
        assert 1e-9 * found[0] == pytest.approx(0.0002 * count, rel=0.25)
        assert slept[where] - 0.01 <= 1e-9 * (found[1] + found[2])  # without a core too, where the machine is busy


def test_what_is_not_measured_at_all_is_unknown(tmp_path):
    steps, breakdown = Steps(StepHooks(0), Table(), Breakdown()), Breakdown()
    assert steps.used_in_next(0) == (0, 0)
    breakdown.add(Wait(1, 0, 250, 1400, 1500, -1, -1, 1500), RECORD._replace(send_cpu=-1, send_delay=-1), 50, True)
    assert breakdown.rebuilt == [0, 0, 0, 100] and breakdown.work[TRANSFER][:3] == [0, 0, 0]


def test_transforms_are_timed_in_the_batch_that_was_asked_for():
    probe = FetchProbe(0, 1, SCHEDSTAT, RecordRing(8, 0))
    assert [probe.begin() for _ in range(2)] == [DETAIL, DETAIL]  # there are no transforms
    probe.unsampled = 2
    assert [probe.begin() for _ in range(5)] == [DETAIL, DETAIL, TRANSFORMS, DETAIL, DETAIL]
    probe.unsampled = 1000
    depths = [probe.begin() for _ in range(1001)]
    assert depths.count(OUTLINE) > 900 and depths[-1] == TRANSFORMS


@pytest.mark.parametrize("workers", (0, 1))
def test_fast_steps_are_recorded_in_outline_after_the_first(tmp_path, workers):
    loader, model = plants_of.loader_of({}, workers, batches=1200), torch.nn.Linear(1, 1)
    optimizer, in_detail = torch.optim.SGD(model.parameters(), 1e-3), []
    with mr.watching(run=tmp_path / "run"):
        batches = iter(loader)
        for values, _ in batches:
            in_detail.append(len(module._global_forward_pre_hooks))
            if workers:
                assert (batches._worker_result_queue._recv_bytes.__module__ == iterators.__name__) == in_detail[-1]
            model(values).sum().backward()
            optimizer.step()
    assert len(in_detail) == 1200 and in_detail[:64] == [1] * 64 and sum(in_detail) < 600  # one every 170 ms
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    assert summary["loaders"][0]["batches"]["missing"] == 0 and summary["steps"] == 1200
    rows = (tmp_path / "run/steps.csv").read_text().splitlines()
    assert all(float(row.split(",")[10]) > 0 for row in rows[2:])  # each has an update


def test_batches_out_of_order_are_all_recorded_in_detail(tmp_path):
    """Their numbers are only known from their receipts."""
    if not hasattr(DataLoader(range(1)), "in_order"):
        pytest.skip(f"NOT TESTED with loaders that are not in order: torch {torch.__version__} has none")
    loader = DataLoader(plants_of.Samples(600), num_workers=2, in_order=False)
    with mr.watching(run=tmp_path / "run"):
        found = sorted(int(index) for _, index in loader)
    batches = json.loads((tmp_path / "run/summary.json").read_text())["loaders"][0]["batches"]
    assert found == list(range(600)) and batches["missing"] == batches["overruns"] == 0


@pytest.mark.parametrize("task, batch", (((3, [1, 2]), 3), ((-3, None), UNKNOWN), ((True, None), UNKNOWN),
                                         ((1 << 70, None), UNKNOWN), ((3, 4, 5), UNKNOWN), (("3", None), UNKNOWN)))
def test_the_number_of_a_batch_is_that_of_the_task(task, batch):
    probe = FetchProbe(0, 1, SCHEDSTAT, None)
    probe.next_batch = 7
    for other in (None, 3, [1, 2]):  # the end of the work, or the begin of an epoch
        probe.asked(other)
    assert probe.next_batch == 7
    probe.asked(task)
    assert probe.next_batch == batch
    receipts = Receipts(ThreadClock(), False)
    receipts.rebuilt(task)
    assert receipts.batch == batch


def test_a_batch_with_a_negative_number_leaves_no_record():
    file = RecordRing(8, 0)
    path, probe = Path(file.path), FetchProbe(0, 1, SCHEDSTAT, file)
    before = path.read_bytes()
    assert before.strip(b"\0") == b"" and len(before) == 8 * 21 * 8
    probe.next_batch = -5
    probe.begin()
    probe.end()
    probe.keep(1)
    assert path.read_bytes() == before
    probe.next_batch = 5
    probe.begin()
    probe.end()
    probe.keep(1)
    assert path.read_bytes() != before


def test_a_file_that_is_shorter_than_its_records_is_refused(tmp_path):
    file = RecordRing(8, 0)
    RecordRing(8, 0, file.path)
    for slots, parts in ((9, 0), (8, 1)):
        with pytest.raises(OSError, match="the file is shorter than its records"):
            RecordRing(slots, parts, file.path)
    (tmp_path / "file").write_bytes(bytes(8 * 21 * 8))
    for other in (tmp_path / "file", tmp_path / "none"):
        with pytest.raises(OSError, match=str(other)):
            RecordRing(8, 0, str(other))


def test_loaders_keep_their_own_records_when_another_becomes_the_main_one(tmp_path):
    plants = {"update": plants_of.Plant(tmp_path / "plants", "update", "cpu", 1)}
    check, train = plants_of.loader_of({}, 1, batches=2), plants_of.loader_of(plants, 1, batches=2)
    files = []  # kept, because the number of a closed descriptor is given to another

    def look():
        for _ in check:
            pass

    with mr.watching(run=tmp_path / "run"):
        session = api._every[-1]
        look()
        plants_of.train(train, plants)
        first, second = session.loaders
        assert (first.number, second.number) == (2, 1)
        for one, loader in ((first, check), (second, train)):
            files.append(one.records)
            one.records = None  # as where the data set has other transforms
            one.recorder.generation = 7
            if loader is check:
                look()
            else:
                plants_of.train(loader, plants)
            files.append(one.records)
    assert len({file.path for file in files}) == 4


def test_the_end_of_an_iteration_that_is_not_under_way_takes_no_time():
    timeline, table = Timeline(0), Table()
    assert timeline.exhausted(table, 10) == 0
    timeline.iter_begins(table, 10)
    timeline.next_begins(table, 20)
    assert timeline.exhausted(table, 50) == 30 and timeline.exhausted(table, 60) == 0


class Raising:
    """A batch whose shape raises, or asks for a signal whose handler does."""

    def __init__(self, error, of_handler):
        self.error, self.of_handler = error, of_handler

    @property
    def shape(self):
        if not self.of_handler:
            raise self.error
        signal.raise_signal(signal.SIGUSR1)


@pytest.mark.parametrize("error, of_handler, passes", (
    (AttributeError("none"), False, False), (TypeError("none"), False, False), (RuntimeError("nested"), False, False),
    (ValueError("none"), False, False), (KeyboardInterrupt(), False, True), (SystemExit(3), False, True),
    (RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed."), True, True),
    (TimeoutError("alarm"), True, True)))
def test_only_errors_of_the_batch_itself_are_ignored(error, of_handler, passes):
    def handler(number, frame):
        raise error

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        count_samples(Raising(error, of_handler), error, passes)
    finally:
        signal.signal(signal.SIGUSR1, before)


def count_samples(batch, error, passes):
    session, table = StepHooks(0), Table()
    session.thread, session.open = threading.get_ident(), True
    steps = Steps(session, table, Breakdown())
    steps.generation = 1
    assert steps.begin(1, None)
    if passes:
        with pytest.raises(type(error)) as raised:
            steps.end(UNKNOWN, [batch], None)
        assert raised.value is error
    else:
        steps.end(UNKNOWN, [batch], None)
    assert (table.steps, table.images) == (1, 0)


@pytest.mark.parametrize("batch, images", (
    ([torch.zeros(3, 2), torch.zeros(3)], 3), ({"image": torch.zeros(5)}, 5), (UserDict(image=[torch.zeros(7)]), 7),
    ((), 0), ({}, 0), (torch.zeros(()), 0), ("text", 0), ([["a", "b"]], 0), (None, 0)))
def test_images_are_counted_in_the_first_array_of_a_batch(batch, images):
    session, table = StepHooks(0), Table()
    session.thread, session.open = threading.get_ident(), True
    steps = Steps(session, table, Breakdown())
    steps.generation = 1
    assert steps.begin(1, None)
    steps.end(UNKNOWN, batch, None)
    assert table.images == images


# Ranks


def summary(rank, load):
    """A summary of a rank whose 11 steps take 11 s."""
    return {"rank": rank, "world_size": 3, "steps": 11, "load_s": load, "first_batch_s": 0.0, "update_s": 11 - 1.1 * load,
            "images_per_s": 10.0, "bound": "dataset", "verdict": f"verdict of {rank}", "advice": f"advice of {rank}",
            "workers_needed": 1.0 + rank, "what_if": None, "complete": True}


def test_whichever_rank_ends_last_completes_the_summary(tmp_path):
    assert ranks.complete(tmp_path) is None  # rank 0 has not ended
    for rank, load, known in ((1, 9.0, None), (0, 1.0, [0, 1]), (2, 1.0, [0, 1, 2])):
        (tmp_path / ranks.summary_name(rank)).write_text(json.dumps(summary(rank, load)))
        found = ranks.complete(tmp_path)
        assert found is None if known is None else [row["rank"] for row in found["ranks"]] == known
    record = json.loads((tmp_path / "summary.json").read_text())
    assert record["straggler"]["rank"] == 1 and record["load_s"] == 1.0
    assert record["verdict_rank"] == 1 and record["workers_needed"] == 2.0
    assert record["verdict"] == "rank 1 holds up the others: verdict of 1" and record["advice"] == "advice of 1"
    assert sorted(path.name for path in tmp_path.glob("summary*")) == ["summary.json", "summary.rank1.json",
                                                                      "summary.rank2.json"]


def test_a_rank_that_ends_later_may_change_who_holds_up_the_others(tmp_path):
    for rank, load in ((0, 1.0), (1, 5.0)):
        (tmp_path / ranks.summary_name(rank)).write_text(json.dumps(summary(rank, load)))
    assert ranks.complete(tmp_path)["verdict"] == "rank 1 holds up the others: verdict of 1"
    (tmp_path / ranks.summary_name(2)).write_text(json.dumps(summary(2, 9.0)))
    record = ranks.complete(tmp_path)
    assert (record["verdict_rank"], record["of_rank_0"]["verdict"]) == (2, "verdict of 0")
    assert record["verdict"] == "rank 2 holds up the others: verdict of 2"
    (tmp_path / ranks.summary_name(2)).write_text(json.dumps({**summary(2, 9.0), "update_s": 90.0}))  # waits for nobody
    record = ranks.complete(tmp_path)
    assert record["straggler"] is None and record["verdict"] == "verdict of 0" and record["advice"] == "advice of 0"
    assert "verdict_rank" not in record and "of_rank_0" not in record


def test_rank_0_writes_its_summary_before_it_waits_for_the_others(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    seen = []

    def wait(path, record):
        seen.append(json.loads((path / "summary.json").read_text()))
        return record

    monkeypatch.setattr(ranks, "wait_for_all", wait)
    with mr.watching(run=tmp_path / "run"):
        plants_of.train(plants_of.loader_of({}, 0), {})
    assert [one["steps"] for one in seen] == [6] and [row["rank"] for row in seen[0]["ranks"]] == [0]
    assert "1 ranks left no complete summary" in capsys.readouterr().err
    monkeypatch.setenv("RANK", "1")
    with mr.watching(run=tmp_path / "run"):
        plants_of.train(plants_of.loader_of({}, 0), {})
    assert [row["rank"] for row in json.loads((tmp_path / "run/summary.json").read_text())["ranks"]] == [0, 1]


def test_a_failed_rank_0_waits_for_nobody(tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setattr(ranks, "wait_for_all", lambda *_: pytest.fail("waits"))
    with pytest.raises(KeyError), mr.watching(run=tmp_path / "run"):
        for _ in plants_of.loader_of({}, 0):
            raise KeyError("planted")
    assert json.loads((tmp_path / "run/summary.json").read_text())["error"] == "KeyError: 'planted'"
