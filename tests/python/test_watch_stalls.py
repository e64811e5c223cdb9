"""A training that gets no batch says who is waited for, and what that one does."""
import ctypes
import json
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="NOT TESTED with PyTorch: it cannot be imported", exc_type=ImportError)
from torch.utils.data import DataLoader, Dataset

import pymillrace as mr
from pymillrace.watcher import live, session, stalls, watchdog
from pymillrace.watcher.command_line import EVERY

STALLED = 9  # sample


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    for module, name, value in ((stalls, "LEAST_S", 1.0), (stalls, "WORKER_S", 0.3), (watchdog, "LOOK_S", 0.1)):
        monkeypatch.setattr(module, name, value)


class Hangs(Dataset):
    def __init__(self, way=time.sleep, seconds=3.0):
        self.way, self.seconds = way, seconds
        self.samples = [(f"/data/{index}.jpg", 0) for index in range(12)]

    def __len__(self):
        return 12

    def __getitem__(self, index):
        if index == STALLED:
            self.waits()
        return torch.full((1,), float(index))

    def waits(self):
        self.way(self.seconds)


class HoldsTheLock:
    """Waits in native code that keeps the interpreter's lock."""

    def __call__(self, seconds):
        ctypes.PyDLL(None).usleep(int(1e6 * seconds))


def recorded(tmp_path, dataset, workers):
    with mr.watching(run=tmp_path / "run"):
        batches = [one.flatten().tolist() for one in DataLoader(dataset, 2, num_workers=workers)]
    assert batches == [[2.0 * at, 2.0 * at + 1] for at in range(6)]
    assert not list((tmp_path / "run").glob("stall.*.json"))
    rows = [json.loads(line) for line in (tmp_path / "run/stalls.jsonl").read_text().splitlines()]
    assert json.loads((tmp_path / "run/summary.json").read_text())["stalls"] == len(rows)
    return rows


@pytest.mark.parametrize("workers", (0, 1))
def test_a_stall_names_the_sample_its_file_and_the_stack(tmp_path, workers):
    rows = recorded(tmp_path, Hangs(seconds=5.0 if workers else 3.0), workers)
    first = rows[0]
    assert first["loader"].startswith("test_watch_stalls.py:") and first["step"] == 4 and first["waited_s"] >= 1.0
    assert (first["worker"], first["index"], first["file"]) == (0 if workers else None, STALLED, "/data/9.jpg")
    assert (first["pid"] == os.getpid()) == (workers == 0) and first["unavailable"] is None
    assert first["stack"][-1].endswith(" in waits") and first["stack"][-2].endswith(" in __getitem__")
    assert all(first[key] > 0 for key in ("free_shared_memory", "free_memory", "free_disk"))
    assert len(rows) <= 3  # seldom again
    found = stalls.lines(first)
    assert ", index 9, file /data/9.jpg; free: /dev/shm " in found[0] and found[-1].endswith(" in waits")
    assert "file \\u001b[2J.jpg;" in stalls.lines(first | {"file": "\x1b[2J.jpg"})[0]


def test_a_stack_that_native_code_hides_is_unavailable(tmp_path):
    first = recorded(tmp_path, Hangs(HoldsTheLock(), 4.0), 1)[0]
    assert first["worker"] == 0 and first["stack"] == [] and "native code is holding" in first["unavailable"]
    assert stalls.lines(first)[1].startswith("  stack unavailable: native code")


def test_a_stall_is_reported_while_native_code_holds_the_lock_of_the_trainer(tmp_path):
    """No thread of Python runs meanwhile. The lines come from a pipe, the record is there before the lock is free."""
    script = tmp_path / "hold.py"
    script.write_text(f"""
import ctypes, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from torch.utils.data import DataLoader
from test_watch_stalls import Hangs, HoldsTheLock
from pymillrace.watcher import stalls, watchdog
stalls.LEAST_S, stalls.FIRST_S, watchdog.LOOK_S = 1.0, 1.0, 0.1

class Seen(HoldsTheLock):
    def __call__(self, seconds):
        super().__call__(seconds)
        print(open({str(tmp_path / 'run/stalls.jsonl')!r}).read(), end="")

for _ in DataLoader(Hangs(Seen(), 4.0), 2):
    pass
""")
    ended = subprocess.run([sys.executable, "-m", "pymillrace", "watch", "--run", tmp_path / "run", sys.executable,
                            script],
                           capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    rows = [json.loads(line) for line in ended.stdout.splitlines()]
    assert 1 <= len(rows) <= 3 and rows[0]["waited_s"] >= 1.0
    assert rows[0] | {"pid": 0, "waited_s": 0} == {
        "loader": "hold.py:14", "worker": None, "pid": 0, "index": None, "file": None, "stack": [], "step": 4,
        "waited_s": 0, "unavailable": stalls.HELD, **{key: rows[0][key] for key in rows[0] if key.startswith("free_")}}
    assert all(rows[0][key] > 0 for key in ("free_shared_memory", "free_memory", "free_disk"))
    said = [line for line in ended.stderr.splitlines() if "no batch for" in line]
    assert len(said) >= len(rows) and re.match(
        r"pymillrace watch: hold.py:14: no batch for \d s after step 4: this process \(pid \d+\); free: /dev/shm ", said[0])
    assert f"  stack unavailable: {stalls.HELD}" in ended.stderr
    assert json.loads((tmp_path / "run/summary.json").read_text())["stalls"] >= len(rows)


def test_no_thread_lives_beside_a_fork_and_it_comes_back(tmp_path, monkeypatch):
    looks = threading.Event()

    def look_slowly(_):
        looks.set()
        time.sleep(0.3)  # as where it waits for a core

    monkeypatch.setattr(session.Session, "_tell_if_late", look_slowly)

    def names():
        return [one.name for one in threading.enumerate() if one.name == "pymillrace stalls"]

    at_fork = []
    os.register_at_fork(after_in_parent=lambda: at_fork.append(names()))
    with mr.watching(run=tmp_path / "run"):
        seen = []
        for _ in DataLoader(Hangs(seconds=0.0), 6):
            seen.append(names())
            if len(seen) == 1:
                looks.wait(20)
                child = os.fork()
                if child == 0:
                    os._exit(len(names()))
                assert os.waitpid(child, 0)[1] == 0
        for _ in DataLoader(Hangs(seconds=0.0), 12):
            seen.append(names())
    assert at_fork == [[]] and seen[0] == seen[2] == ["pymillrace stalls"] and names() == []


def test_a_line_is_written_while_a_step_takes_long(tmp_path, monkeypatch):
    monkeypatch.setenv(EVERY, "1")
    monkeypatch.setattr(session, "LEAST_S", 0.5)
    written = []
    monkeypatch.setattr(live, "write_at_once", written.append)
    monkeypatch.setattr(stalls, "write_at_once", written.append)
    one = session.Session(tmp_path / "run", live=True)
    try:
        loader = one.loader("a.py:1", "Numbers", None, given=True)
        loader.iter_begins(None)
        loader.iter_ended()
        deadline = time.monotonic() + 20
        while not written and time.monotonic() < deadline:
            time.sleep(0.1)
    finally:
        one.close()
    assert written and written[0].startswith("a.py:1: 0 steps in "), written
