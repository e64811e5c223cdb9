"""Memory of a watched loop: its growth per epoch, the line before it is full, and what reading it costs."""
import csv
import json
import random
import time
import types
from fractions import Fraction

import pytest

torch = pytest.importorskip("torch", reason="NOT TESTED with PyTorch: it cannot be imported", exc_type=ImportError)
from torch.utils.data import DataLoader, Dataset

import pymillrace as mr
from conftest import timing
from pymillrace.watcher import cgroup, memory, proc, threads, watchdog
from pymillrace.watcher.memory import Loop, Memory, Sample, trend
from pymillrace.watcher.room import Room, bytes_text
from pymillrace.watcher.session import Session

MB = 1 << 20
COST = memory.COST  # as it is without the fixture below


@pytest.fixture(autouse=True)
def often(monkeypatch):
    for module, name, value in ((watchdog, "LOOK_S", 0.02), (memory, "INTERVAL_S", 0.02), (memory, "COST", 2)):
        monkeypatch.setattr(module, name, value)


@pytest.fixture
def lines(monkeypatch):
    """The lines that are written to stderr while a loop runs."""
    written = []
    monkeypatch.setattr(Session, "writes_lines", True)
    monkeypatch.setattr(memory, "write_at_once", written.append)
    return written


@pytest.fixture
def limited(monkeypatch, tmp_path):
    """A control group, of version 2, with so many bytes left."""
    def limit(free):
        (tmp_path / "memory.max").write_text(f"{1000 * MB}\n")
        (tmp_path / "memory.current").write_text(f"{1100 * MB - free}\n")
        (tmp_path / "memory.stat").write_text(f"anon 1\ninactive_file {60 * MB}\nactive_file {40 * MB}\n")
        monkeypatch.setattr(cgroup, "folders", lambda: (str(tmp_path),))
    return limit


class Leaks(Dataset):
    """Keeps so many bytes of each sample."""

    def __init__(self, size):
        self.size, self.kept = size, []

    def __len__(self):
        return 40

    def __getitem__(self, index):
        self.kept.append(b"\1" * self.size)
        return torch.zeros(4)


class Counts(Dataset):
    """Reads a list of a million numbers, and so writes to their counts of references."""

    def __init__(self):
        self.numbers = list(range(1000, 1_001_000))

    def __len__(self):
        return 80

    def __getitem__(self, index):
        return float(sum(self.numbers[12500 * index:12500 * (index + 1)]))


def recorded(tmp_path, dataset, epochs, step_s, **settings):
    loader = DataLoader(dataset, 2, **{"num_workers": 2, **settings})
    with mr.watching(run=tmp_path / "run"):
        for _ in range(epochs):
            for _ in loader:
                time.sleep(step_s)
    return json.loads((tmp_path / "run/summary.json").read_text())


def test_a_worker_that_keeps_samples_is_measured_and_told_of_before_memory_is_full(tmp_path, lines, limited):
    limited(300 * MB)
    summary = recorded(tmp_path, Leaks(MB), 7, 0.03, persistent_workers=True)
    found = summary["memory"]
    assert found["growth_per_epoch"] == pytest.approx(40 * MB, rel=0.2)
    line, = lines
    assert line.startswith("memory grows by ") and "per epoch, mostly in the workers" in line
    assert "; 700 MiB of 1000 MiB are used; at this rate it is full in about " in line
    assert 5 <= int(line.split()[-2]) <= 10 and line.endswith(" epochs"), line
    assert found["warning"] == line and summary["verdict"].endswith(f"; {line}")
    shown = " ".join(mr.summary(tmp_path / "run").split())
    assert (f" memory at the last sample: trainer {bytes_text(found['trainer'])}, "
            f"workers {bytes_text(found['workers'])}; 300 MiB of 1000 MiB are free {line}") in shown
    with open(tmp_path / "run/memory.csv") as file:
        rows = list(csv.DictReader(file))
    assert int(rows[-1]["trainer_bytes"]) == found["trainer"] and int(rows[-1]["workers_bytes"]) == found["workers"]
    assert len(rows) == found["samples"] and {row["workers"] for row in rows} == {"2"}
    assert [int(row["step"]) for row in rows] == sorted(int(row["step"]) for row in rows)
    assert all(int(row["free_memory_bytes"]) == 300 * MB and int(row["trainer_bytes"]) > MB for row in rows)


@timing  # samples of memory are taken by the clock
def test_copies_on_write_are_growth_within_an_epoch(tmp_path, lines, limited):
    limited(10 * MB)
    found = recorded(tmp_path, Counts(), 1, 0.05)["memory"]
    grown = found["growth_in_epoch"]  # 32 bytes per number, less what is copied before the first step
    assert 20 * MB < grown["workers"] + grown["trainer"] < 48 * MB and grown["workers"] > grown["trainer"]
    assert lines and "per 1,000 steps, mostly in the workers; 990 MiB of 1000 MiB are used" in lines[0]
    assert lines[0].endswith(" steps, before the epoch ends")


def test_steady_memory_is_recorded_and_not_told_of(tmp_path, lines, limited):
    limited(100 * MB)
    summary = recorded(tmp_path, Leaks(0), 2, 0.05, persistent_workers=True)
    found = summary["memory"]
    assert found["samples"] > 2 and abs(sum(found["growth_in_epoch"].values())) < 12 * MB
    assert found["growth_per_epoch"] is None and found["warning"] is None
    assert lines == [] and "memory" not in summary["verdict"]


def test_without_workers_nothing_is_recorded_or_written(tmp_path, lines, limited):
    limited(MB)
    summary = recorded(tmp_path, Leaks(MB), 2, 0.01, num_workers=0)
    assert summary["memory"] is None and lines == [] and not (tmp_path / "run/memory.csv").exists()


def test_a_process_that_cannot_be_read_is_silent(tmp_path, lines, monkeypatch, capfd):
    read = proc.read
    monkeypatch.setattr(proc, "read", lambda path: None if path.endswith("smaps_rollup") else read(path))
    summary = recorded(tmp_path, Leaks(0), 1, 0.02)
    assert summary["complete"] is True and summary["memory"] is None and lines == []
    assert not (tmp_path / "run/memory.csv").exists() and "recording stopped" not in capfd.readouterr().err


def test_pages_of_files_do_not_count(monkeypatch):
    rows = b"55a0-7ffe ---p 00000000 00:00 0 [rollup]\nRss: 900 kB\nPss: 700 kB\nPss_Anon: 300 kB\n"
    monkeypatch.setattr(proc, "read", lambda path: rows + b"Pss_File: 250 kB\n")
    assert memory._set_size(1) == 450 * 1024
    monkeypatch.setattr(proc, "read", lambda path: rows)  # before Linux 5.4
    assert memory._set_size(1) == 700 * 1024


# The rule


def samples(values, epoch=1):
    return [Sample(epoch, step, 0, int(value), Room(0, 1)) for step, value in enumerate(values)]


def grows(values):
    return trend(samples(values), 2)


def test_growth_is_told_from_noise():
    noise = random.Random(5)
    assert grows(100 * step + noise.gauss(0, 300) for step in range(40)).rate == pytest.approx(100, rel=0.2)
    assert grows(100 * step + noise.gauss(0, 300) for step in range(40)).grows
    for name, values in {
            "steady": [5] * 40, "falling": range(40, 0, -1), "saturating": [min(step, 10) for step in range(40)],
            "a jump": [step // 20 for step in range(40)], "a sawtooth": [step % 10 for step in range(40)]}.items():
        assert not grows(values).grows, name
    of_noise = [grows([noise.gauss(1000, 100) for _ in range(40)]) for _ in range(200)]
    assert sum(one.steps_to(1000, float("inf")) is not None for one in of_noise) == 0
    assert grows(range(7)) is None, "too few samples"


@pytest.fixture
def run():
    """Memory of a run of epochs of 100 steps."""
    found = Memory(lambda: None)
    found.length = 100

    def epoch(number, values, total=1000 * MB):
        for at, value in enumerate(values, 1):
            step = 100 * (number - 1) + at * 100 // len(values)
            loop = Loop("loader", number, step, 100 * (number - 1), found.length, [[1]], None, writes_lines=True)
            found._add(loop, Sample(number, step, int(value), 0, Room(min(int(value), total), total)))

    found.add_epoch = epoch
    return found


def test_a_line_comes_again_when_half_of_the_time_is_left(run, lines):
    for number in range(1, 50):
        run.add_epoch(number, [number * 20 * MB] * 4)
    epochs_left = [int(line.split()[-2]) for line in lines]
    assert all(line.startswith("memory grows by 20 MiB per epoch, mostly in the training process; ") for line in lines)
    assert epochs_left[0] >= 30 and all(after <= before / 2 for before, after in zip(epochs_left, epochs_left[1:]))
    assert 3 <= len(lines) <= 7


def test_growth_that_ends_with_the_epoch_is_not_extended_beyond_it(run, lines):
    for number in range(1, 12):  # an epoch's results, kept until it ends
        run.add_epoch(number, [at * 20 * MB for at in range(1, 33)])
    assert lines == []
    run.add_epoch(12, [at * 40 * MB for at in range(1, 33)])
    assert lines and lines[0].endswith(", before the epoch ends")


def test_growth_in_an_epoch_without_a_known_end_is_told_of(run, lines):
    run.length = None
    run.add_epoch(1, [at * 20 * MB for at in range(1, 10)])
    line, = lines
    assert " per 1,000 steps, mostly in the training process; " in line and line.endswith(" steps"), line


def test_slow_growth_is_told_of_when_enough_of_it_was_seen(run, lines):
    for number in range(1, 12):
        run.add_epoch(number, [number * MB] * 4)
    assert lines == [], "full in 990 epochs"


# Cost


def test_samples_and_readings_of_threads_may_together_take_a_thousandth_of_the_time():
    assert Fraction(1, COST) + Fraction(1, threads.COST) <= Fraction(1, 1000)


def test_samples_keep_to_their_share_of_the_time(monkeypatch):
    now, spent = [0.0], 0.0
    monkeypatch.setattr(memory, "INTERVAL_S", 1.0)
    monkeypatch.setattr(memory, "COST", COST)
    monkeypatch.setattr(memory, "time", types.SimpleNamespace(monotonic=lambda: now[0], thread_time=time.thread_time))
    workers = ["self"]  # of the same size as the trainer
    directory = types.SimpleNamespace(append=lambda name, text: None, name=lambda *_: "memory.csv")
    run = Memory(lambda: Loop("loader", 1, 1, 0, None, [workers], directory, writes_lines=False))
    while now[0] < 900:
        now[0] += 0.5
        if now[0] == 450:
            workers = ["self"] * 8
        begin = time.thread_time()
        run.look()
        spent += time.thread_time() - begin
        assert spent <= 1.5 * now[0] / COST, "beyond what the first sample was expected to cost"
    assert spent <= 900 / COST and run.facts["samples"] >= 3
    assert run.facts["cpu_s"] == pytest.approx(spent, rel=0.2)
