"""Threads beside the loop's own: their CPU time is counted where it was spent, and too many of them are named."""
import _thread
import dataclasses
import json
import math
import os
import queue
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="NOT TESTED with PyTorch: it cannot be imported", exc_type=ImportError)
from torch.utils.data import DataLoader, Dataset

import pymillrace as mr
from conftest import timing
from pymillrace import _watch as watch_module
from pymillrace.watcher import predict, threads, verdict, verify
from pymillrace.watcher.breakdown import Breakdown
from pymillrace.watcher.command_line import PLAN, watched_environment
from pymillrace.watcher.loop_facts import LoopFacts
from pymillrace.watcher.threads import Facts

BYTES = bytes(1 << 20)


def compute(seconds):
    """Uses CPU time without the interpreter's lock."""
    import hashlib

    end = time.thread_time() + seconds
    while time.thread_time() < end:
        hashlib.sha256(BYTES).digest()


class Pool:
    """Threads of which Python does not know, as those of OpenCV and LibTorch."""

    def __init__(self, size):
        self.calls, self.results = queue.SimpleQueue(), queue.SimpleQueue()
        for _ in range(size):
            _thread.start_new_thread(self.work, ())

    def work(self):
        while True:
            function, argument = self.calls.get()
            self.results.put(function(argument))

    def map(self, function, arguments):
        for argument in arguments:
            self.calls.put((function, argument))
        return [self.results.get() for _ in arguments]


class Pooled(Dataset):
    """Computes each sample in threads of a pool and waits for them."""

    def __init__(self, count, pool, seconds, kind=Pool):
        self.count, self.size, self.seconds, self.kind, self.process, self.pool = count, pool, seconds, kind, 0, None

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if self.process != os.getpid():  # a worker has no threads of its trainer
            self.process, self.pool = os.getpid(), self.kind(self.size)
        list(self.pool.map(compute, [self.seconds] * self.size))
        return torch.zeros(1)


def train(loader, run, update_s=0.0):
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    with mr.watching(run=run):
        for batch in loader:
            model(batch).sum().backward()
            time.sleep(update_s)
            optimizer.step()
    return json.loads((run / "summary.json").read_text())


@pytest.fixture
def alone(monkeypatch):
    """Leaves out what other programs use: tests run beside them."""
    monkeypatch.setattr(threads, "busy_s", lambda: None)


@timing
def test_cpu_of_pools_during_load_is_not_counted_as_update(tmp_path, alone):
    summary = train(DataLoader(Pooled(60, 1, 0.02)), tmp_path / "run", update_s=0.02)
    update = summary["what_if"]["settings"]["update"]
    assert update["cpu"] * update["threads"] < 0.006  # the pool's 20 ms per step belong to load
    assert summary["threads"]["cores_in_load"] > 0.1 and summary["threads"]["trainer_pools"] > 0.5
    fetch = summary["what_if"]["settings"]["fetch"]
    assert fetch["cpu"] == pytest.approx(0.02, abs=0.006)  # what waits for the pool waits for no storage
    proposed = [row["change"] for row in summary["what_if"]["rows"] if row["ratio"] is None]
    assert any("OMP_NUM_THREADS=1" in change or "torch.set_num_threads(1)" in change for change in proposed)
    assert "cheaper" not in summary["advice"]


@timing
def test_more_threads_than_cores_are_named(tmp_path, alone, capsys):
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        train(DataLoader(Pooled(60, 4, 0.008)), tmp_path / "run")
    finally:
        os.sched_setaffinity(0, cores)
    assert "oversubscribed: 5 threads on 1 core; " in capsys.readouterr().err


@timing
def test_pools_of_workers_are_seen(tmp_path, alone):
    summary = train(DataLoader(Pooled(120, 3, 0.008), num_workers=1), tmp_path / "run")
    assert 2.4 < summary["threads"]["pools_per_worker"] < 4.6  # the thread that sends batches may want a core, too
    assert summary["threads"]["trainer_pools"] < 0.5
    rows = {row["change"]: row["overrides"] for row in summary["what_if"]["rows"] if row["ratio"] is None}
    assert rows == {"OMP_NUM_THREADS=1": {"OMP_NUM_THREADS": 1}}


@timing
def test_threads_that_the_script_starts_are_no_pool(tmp_path, alone):
    summary = train(DataLoader(Pooled(60, 1, 0.02, ThreadPoolExecutor)), tmp_path / "run", update_s=0.02)
    assert summary["threads"]["cores_in_load"] > 0.1 and summary["threads"]["trainer_pools"] == 0
    assert all(row["ratio"] is not None for row in summary["what_if"]["rows"])
    assert "set_num_threads" not in summary["advice"] and "OMP_NUM_THREADS" not in summary["advice"]
    assert summary["what_if"]["settings"]["update"]["cpu"] < 0.006


def test_programs_that_the_script_started_are_its_own():
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"
    busy = "import time\nprint(flush=True)\nwhile time.process_time() < 0.4: pass\nprint(flush=True); input()"
    before = threads.family_s()
    with subprocess.Popen([sys.executable, "-c", code, busy], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        child.stdout.readline(), child.stdout.readline()
        during = threads.family_s()
        child.communicate(b"\n")
    if math.isnan(before):
        pytest.skip("NOT TESTED: this kernel does not list the children of threads")
    assert during - before > 0.35
    assert threads.family_s() >= during - 0.05  # also after they have ended


def test_a_loop_without_pools_has_no_such_rows(tmp_path, alone):
    summary = train(DataLoader(torch.zeros(200, 1)), tmp_path / "run", update_s=0.006)
    assert summary["threads"]["trainer_pools"] == 0 and summary["threads"]["cores_in_load"] == 0
    assert all(row["ratio"] is not None for row in summary["what_if"]["rows"])


def test_threads_of_a_process_are_listed_with_their_times():
    with ThreadPoolExecutor(1) as pool:
        pool.submit(compute, 0.05).result()
        found = {thread: cpu for thread, cpu, _ in watch_module.threads_of(0)}
    assert max(cpu for thread, cpu in found.items() if thread != os.getpid()) >= 45_000_000
    assert os.getpid() in found and watch_module.threads_of(2**31 - 1) == []


# Words

class Torch:
    @staticmethod
    def get_num_threads():
        return 12


def loop_of(facts, workers=0, cpu=10**9):
    """Returns a loop of 100 steps whose load was a second in the data set, of which it computed for `cpu` ns."""
    breakdown = Breakdown()
    breakdown.add_outside(0, [10**9, cpu, 0], 1e9)
    return LoopFacts(steps=100, workers=workers, breakdown=breakdown, update_s=0.1, threads=facts)


MANY = Facts(threads=13, trainer=12, wanted=11, in_load=0.9, pools_in_load=0.9)


def test_the_verdict_and_the_advice_name_oversubscription(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", Torch)
    loop = loop_of(MANY)
    found = verdict.classify(loop, 2)
    assert found.sentence.startswith("oversubscribed: 13 threads on 2 cores; dataset-bound")
    change = {"change": "num_workers=2", "overrides": {"num_workers": 2}, "ratio": 2.0, "low": 1.8, "high": 2.2,
              "loading_only": False, "images_per_s": 2.0}
    text = verdict.advice(loop, found, 2, {"rows": [change], "settings": {"num_workers": 0}})
    assert text.startswith("advice: try torch.set_num_threads(1): 13 threads want 2 cores; ")
    assert text.endswith("; then num_workers=2") and "predicted" not in text
    assert not verdict.classify(loop_of(Facts(threads=3, wanted=2.9)), 2).sentence.startswith("over")  # no pools
    assert not verdict.classify(loop_of(Facts(threads=13, trainer=12, wanted=1.5)), 2).sentence.startswith("over")


@pytest.mark.parametrize("cpu, change, first", (
    (10**8, True, "num_workers=4"), (10**8, False, "torch.set_num_threads(1)"),
    (9 * 10**8, True, "torch.set_num_threads(1)")))
def test_workers_come_before_threads_where_load_waits_for_storage(monkeypatch, cpu, change, first):
    monkeypatch.setitem(sys.modules, "torch", Torch)
    loop = loop_of(Facts(threads=2, trainer=1, wanted=1.5, in_load=0.2, pools_in_load=0.2), cpu=cpu)
    row = {"change": "num_workers=4", "overrides": {"num_workers": 4}, "ratio": 4.0, "low": 3.0, "high": 5.0,
           "loading_only": False, "images_per_s": 4.0}
    found = verdict.classify(loop, 2)
    assert found.kind == ("blocked" if cpu < 5 * 10**8 else "cpu")
    text = verdict.advice(loop, found, 2, {"rows": [row] if change else [], "settings": {"num_workers": 0}})
    assert text.startswith(f"advice: try {first}:")


@pytest.mark.parametrize("workers, expected", (
    (1, "advice: the loader keeps up; a faster model or device would help, a faster loader would not"),
    (0, "advice: without workers the loop waits for all of load, 17% of load + update: make the dataset cheaper; no other "
        "setting is sure to gain 5%")))
def test_a_loop_that_seldom_waits_is_told_to_measure_its_threads(monkeypatch, workers, expected):
    monkeypatch.setitem(sys.modules, "torch", Torch)
    monkeypatch.delitem(sys.modules, "cv2", raising=False)
    for facts, more in ((Facts(threads=2, trainer=1, wanted=1.9), "; pymillrace what-if --verify measures whether the "
                         "update is faster with torch.set_num_threads(1)"), (Facts(), "")):
        loop = dataclasses.replace(loop_of(facts, workers), update_s=20.0 if workers else 5.0)
        found = verdict.classify(loop, 2)
        assert found.bound == "device"
        assert verdict.advice(loop, found, 2, {"rows": [], "settings": {}}) == expected + more


@pytest.mark.parametrize("facts, workers, expected", (
    (MANY, 0, ["torch.set_num_threads(1)"]), (Facts(threads=14, trainer=12, wanted=13), 1, ["torch.set_num_threads(3)", "torch.set_num_threads(1)"]),
    (Facts(threads=2, trainer=1, wanted=2), 1, ["torch.set_num_threads(1)"]),  # beside a worker, on more cores
    (Facts(threads=9, worker=3, wanted=8), 2, ["OMP_NUM_THREADS=1"]),
    (Facts(threads=2, wanted=2, in_load=0.9, pools_in_load=0.05), 0, []), (Facts(), 0, [])))
def test_rows_follow_the_threads_that_were_found(monkeypatch, facts, workers, expected):
    monkeypatch.setitem(sys.modules, "torch", Torch)
    monkeypatch.delitem(sys.modules, "cv2", raising=False)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    rows = threads.rows(facts, workers, 4)
    assert [row["change"] for row in rows] == expected
    assert all(row["ratio"] is None and row["images_per_s"] is None for row in rows)


def test_opencvs_threads_are_named_where_it_is_loaded(monkeypatch):
    cv2 = type("cv2", (), {"getNumThreads": staticmethod(lambda: 12)})
    monkeypatch.setitem(sys.modules, "cv2", cv2)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    assert [row["change"] for row in threads.rows(MANY, 0, 2)] == ["cv2.setNumThreads(0)"]
    assert [row["change"] for row in threads.rows(Facts(worker=3), 2, 2)] == ["worker_init_fn: cv2.setNumThreads(0)"]
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    assert [row["change"] for row in threads.rows(MANY, 0, 2)] == ["torch.set_num_threads(1) and cv2.setNumThreads(0)"]
    monkeypatch.setitem(sys.modules, "cv2", type("cv2", (), {}))  # half imported
    assert [row["change"] for row in threads.rows(MANY, 0, 2)] == ["torch.set_num_threads(1)"]


def test_what_the_environment_sets_is_not_advised(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.delitem(sys.modules, "cv2", raising=False)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    assert threads.rows(MANY, 0, 2) == [] == threads.rows(Facts(worker=3), 2, 2)


def test_the_advice_does_not_take_every_thread_of_a_worker_for_a_librarys(monkeypatch):
    monkeypatch.delitem(sys.modules, "cv2", raising=False)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    loop = loop_of(Facts(threads=9, worker=3, wanted=8), workers=2)
    text = verdict.advice(loop, verdict.Verdict("dataset", "cpu", "", None), 2, None)
    assert text.startswith("advice: try OMP_NUM_THREADS=1 (if the workers' threads are a library's): 9 threads want 2 c")


def test_rows_without_a_figure_are_shown_as_such():
    record = {"images_per_s": 10.0, "loader_images_per_s": 20.0, "rows": threads.rows(Facts(worker=3), 2, 2)}
    text = predict.lines(record)
    assert text[2].split()[-3:] == ["-", "?", "-"] and "--verify measures it" in text[-1]
    assert len({len(line) for line in text[:-1]}) == 1
    assert predict.best(record) is None


# Plans

SCRIPT = """
import os
import torch

def say(worker):
    torch.set_num_threads(3)

class Threads(torch.utils.data.Dataset):
    def __len__(self):
        return 2
    def __getitem__(self, index):
        return torch.get_num_threads()

if __name__ == "__main__":
    torch.set_num_threads(4)
    for found in torch.utils.data.DataLoader(Threads(), num_workers=1, worker_init_fn=say):
        pass
    print(int(found), torch.get_num_threads(), os.environ.get("OMP_NUM_THREADS"))
"""


@pytest.mark.parametrize("overrides, printed", (({}, "3 4"), ({"threads": 2}, "3 2"), ({"worker_threads": 1}, "1 4")))
def test_a_plan_sets_threads_after_the_script_did(tmp_path, overrides, printed):
    (tmp_path / "train.py").write_text(SCRIPT)
    plan = {PLAN: json.dumps({"steps": 100, "overrides": overrides})}
    done = subprocess.run([sys.executable, "train.py"], cwd=tmp_path, capture_output=True, text=True, timeout=200,
                          env={**watched_environment(tmp_path / "run"), **plan})
    assert done.stdout.startswith(printed + " "), done.stderr


def test_a_plan_sets_the_environment_of_pools(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(verify.child, "run", lambda words, environment, file, is_stuck: seen.append(environment) or (3, None))
    with pytest.raises(mr.WatchError):
        verify.Script(["train"], Path(tmp_path), 10).run({"OMP_NUM_THREADS": 1})
    assert {seen[0][name] for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")} == {"1"}


def test_a_measured_row_without_a_prediction_has_no_error(tmp_path):
    rows = [{**row, "overrides": {"threads": 1}} for row in threads.rows(Facts(worker=3), 2, 2)[:1]]
    runs = [verify.TimedRun(None, 10.0, 0.0), verify.TimedRun(0, 15.0, 0.0), verify.TimedRun(None, 10.0, 0.0)]
    record = verify._record(rows, verify.Result(runs, {0: 1.5}, {0: None}, {0: 1}, False, {}), tmp_path)
    assert record["outcomes"][0]["measured"] == 1.5 and record["outcomes"][0]["error"] is None
    assert "1.50" in verify.lines(record)[1] and record["score"]["counted"] == 0
