"""Gaps of the device while next() waits, with a stand-in for torch.cuda: none of this has run on a device."""
import json
import sys
from pathlib import Path
from time import perf_counter

import pytest

pytest.importorskip("torch", reason="NOT TESTED with PyTorch: it cannot be imported", exc_type=ImportError)

import pymillrace as mr
import torch
import torch._dynamo  # noqa: F401 - the first optimizer loads it, which would then meet the stand-ins
import watch_plants as plants_of
from conftest import timing

from pymillrace.watcher import device
from pymillrace.watcher.device import DeviceGaps


class Stream:
    """A stand-in for torch.cuda: a stream that works off what is queued, on a clock that the test moves."""

    def __init__(self):
        self.now = self.free_at = 0.0
        self.made = 0
        self.capturing = False
        stream = self

        class Event:
            def __init__(self, enable_timing):
                assert enable_timing
                stream.made += 1

            def record(self):
                self.done = max(stream.now, stream.free_at)

            def query(self):
                return self.done <= stream.now

            def elapsed_time(self, end):
                assert self.query() and end.query(), "reading an event that has not completed waits for the device"
                return 1e3 * (end.done - self.done)

        self.Event = Event

    def is_initialized(self):
        return True

    def is_current_stream_capturing(self):
        return self.capturing

    def queue(self, seconds):
        self.free_at = max(self.now, self.free_at) + seconds

    def wait(self, gaps, seconds):
        """A call of next() that takes the host some seconds."""
        gaps.next_begins()
        self.now += seconds
        gaps.next_ended()

    def synchronize(self, *_):
        raise AssertionError("watch synchronised the device")


def test_a_gap_is_the_part_of_a_wait_that_queued_work_does_not_cover():
    stream = Stream()
    gaps = DeviceGaps(stream)
    for queued, waited in ((0.000, 0.030), (0.010, 0.025), (0.050, 0.020), (0.0, 0.010)):
        stream.queue(queued)
        stream.wait(gaps, waited)
    # 30 ms without work; 25 - 10; 20 ms under 50; the remaining 30 ms cover the last.
    stream.now += 1
    gaps.collect()
    assert gaps.gaps == 4 and gaps.seconds == pytest.approx(0.030 + 0.015) and gaps.first_s == pytest.approx(0.030)
    assert gaps.unread == gaps.lost == 0


def test_events_are_read_when_they_have_completed_and_used_again():
    stream = Stream()
    gaps = DeviceGaps(stream)
    stream.queue(0.5)
    for _ in range(3):
        stream.wait(gaps, 0.1)
        gaps.collect()
    assert gaps.gaps == 0 and gaps.unread == 3
    stream.now += 1
    gaps.collect()
    assert gaps.gaps == 3 and gaps.seconds == 0 and stream.made == 6
    for _ in range(3):
        stream.wait(gaps, 0.1)
    gaps.collect()
    assert gaps.seconds == pytest.approx(0.3) and stream.made == 6


def test_a_device_that_lies_far_behind_costs_no_more_memory(monkeypatch):
    monkeypatch.setattr(device, "MOST_PENDING", 2)
    stream = Stream()
    gaps = DeviceGaps(stream)
    stream.queue(100)
    for _ in range(5):
        stream.wait(gaps, 0.1)
    assert gaps.unread == 2 and gaps.lost == 3 and stream.made == 4


def test_of_many_waits_one_in_eight_stands_for_the_others():
    stream, recorded = Stream(), 0
    plain = stream.Event.record

    def record(self, *arguments):
        nonlocal recorded
        recorded += 1
        return plain(self, *arguments)

    stream.Event.record = record
    gaps = DeviceGaps(stream)
    steps = 40_000
    for step in range(steps):
        stream.wait(gaps, 0.008 if step % 8 == 0 else 0.001)  # eight workers, one of them slow
        stream.now += 1
        gaps.collect()
    wanted = steps / 8 * (0.008 + 7 * 0.001)
    assert gaps.seconds == pytest.approx(wanted, rel=0.05)
    assert recorded / 2 == gaps.gaps == pytest.approx(device.ALL_OF + (steps - device.ALL_OF) / 8, rel=0.05)
    assert gaps.lost == gaps.unread == 0 and steps - device.LONGEST <= gaps.waits <= steps


def test_an_error_of_cuda_ends_the_measurement_only():
    stream = Stream()
    gaps = DeviceGaps(stream)
    stream.wait(gaps, 0.1)

    def broken(self, end):
        raise RuntimeError("events of two devices")

    stream.Event.elapsed_time = broken
    gaps.collect()
    stream.wait(gaps, 0.1)
    gaps.collect()
    assert gaps.gaps == 0 and gaps.lost == 2 and gaps.unread == 0
    stream = Stream()
    stream.capturing = True  # a CUDA graph: an event would become part of it
    gaps = DeviceGaps(stream)
    stream.wait(gaps, 0.1)
    gaps.collect()
    assert stream.made == 0 and gaps.unread == 0 and gaps.lost == 1
    stream.capturing = False
    stream.wait(gaps, 0.1)
    stream.capturing = True
    stream.now += 1
    gaps.collect()
    assert gaps.gaps == 0 and gaps.unread == 1
    stream.capturing = False
    gaps.collect()
    assert gaps.gaps == 1


class Cuda:
    """torch.cuda with events of a device that is always busy, or always idle."""

    def __init__(self, real, busy):
        self._real = real

        class Event:
            def __init__(self, enable_timing):
                pass

            def record(self):
                self.at = perf_counter()

            def query(self):
                return True

            def elapsed_time(self, end):
                return 0.0 if busy else 1e3 * (end.at - self.at)

        self.Event = Event

    def is_initialized(self):
        return True

    def is_current_stream_capturing(self):
        return False

    def synchronize(self, *_):
        raise AssertionError("watch synchronised the device")

    def __getattr__(self, name):
        return getattr(self._real, name)


def summary_of(tmp_path, workers=0):
    tmp_path.mkdir(exist_ok=True)
    plants = {"dataset": plants_of.Plant(tmp_path / "plants", "dataset", "blocked", 10)}
    with mr.watching(run=tmp_path / "run"):
        plants_of.train(plants_of.loader_of(plants, workers, batches=24, batch=1), plants)
    return json.loads((tmp_path / "run/summary.json").read_text())


@timing
@pytest.mark.parametrize("workers", [0, 1])
def test_the_gap_decides_the_verdict(tmp_path, monkeypatch, workers):
    monkeypatch.setattr(torch, "cuda", Cuda(torch.cuda, busy=True))
    covered = summary_of(tmp_path / "busy", workers)
    assert covered["bound"] == "device" and "the device waited for data for 0.0% of" in covered["verdict"]
    assert covered["advice"].startswith("advice: the loader keeps up")
    assert covered["device_gap_load_s"] == 0 and covered["device_gaps"] == 24 and covered["device_gaps_lost"] == 0
    monkeypatch.setattr(torch, "cuda", Cuda(torch.cuda, busy=False))
    starved = summary_of(tmp_path / "idle", workers)
    assert starved["bound"] != "device"
    # The events enclose the calls of next(), which sleep 10 ms per batch in the data set without workers.
    assert (0 if workers else 24 * 0.010) < starved["device_gap_load_s"] < starved["wall_s"]
    assert starved["loaders"][0]["device_gaps"] == 24


def test_cuda_is_neither_imported_nor_initialised(tmp_path, monkeypatch):
    class Untouched(Cuda):
        def is_initialized(self):
            return False

        @property
        def Event(self):
            raise AssertionError("watch made an event")

        @Event.setter
        def Event(self, value):
            pass

    monkeypatch.setattr(torch, "cuda", Untouched(torch.cuda, busy=False))
    summary = summary_of(tmp_path)
    assert summary["device_gap_load_s"] is None and summary["device_gaps"] == 0
    monkeypatch.delitem(sys.modules, "torch")
    assert device.device_gaps() is None


def test_the_gpu_benchmarks_loop_is_the_same_with_watch(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "bench/gpu")
    import watch_cuda

    class NoWork:
        def run(self, count):
            pass

        def count_of(self, seconds):
            return 0

    monkeypatch.setattr(watch_cuda, "DEVICE", "cpu")
    summary, plain_s = watch_cuda.watched("on a CPU", NoWork(), 2e-3, 0, True)
    assert plain_s >= 2e-3  # the data set's own sleep
    assert summary["steps"] == watch_cuda.STEPS and summary["bound"] == "dataset"
    monkeypatch.setattr(watch_cuda.Slow, "__getitem__", lambda self, index: watch_cuda.torch.full((16,), 1e3))
    with pytest.raises(SystemExit, match="diverges"):
        watch_cuda.watched("on a CPU", NoWork(), 0, 0, True)
