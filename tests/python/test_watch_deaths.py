"""A DataLoader worker that dies: torch's exception stays as it is, and the records say what happened."""
import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
import types

import pytest

torch = pytest.importorskip("torch", reason="NOT TESTED with PyTorch: it cannot be imported", exc_type=ImportError)
from torch.utils.data import DataLoader, Dataset, TensorDataset

import pymillrace as mr
from pymillrace.watcher import cgroup, deaths, room, shared_memory
from pymillrace.watcher.session import Session

BAD = 13  # sample, of 40


class Dies(Dataset):
    def __init__(self, ends):
        self.ends = ends

    def __len__(self):
        return 40

    def __getitem__(self, index):
        if index == BAD:
            time.sleep(0.1)
            self.ends()
        return torch.zeros(1000)


def killed_by(number):
    return lambda: os.kill(os.getpid(), number)


def ends(tmp_path, dataset, step_s=0.0, **settings):
    """Returns kind and first line of the exception of a loop, its records of deaths and its summary."""
    with pytest.raises((RuntimeError, ConnectionError, EOFError)) as raised, mr.watching(run=tmp_path / "run"):
        for _ in DataLoader(dataset, 2, num_workers=2, **settings):
            time.sleep(step_s)
    records = [json.loads(line) for line in (tmp_path / "run/deaths.jsonl").read_text().splitlines()]
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    assert summary["deaths"] == len(records)
    first = (str(raised.value).strip().splitlines() or [""])[0]
    return f"{raised.typename}: {first}", records, summary  # the exception itself would keep the iterator


WAYS = {"SIGKILL": (killed_by(signal.SIGKILL), {"signal": "SIGKILL", "exit_code": None}, "was killed by SIGKILL"),
        "SIGSEGV": (killed_by(signal.SIGSEGV), {"signal": "SIGSEGV", "exit_code": None}, "was killed by SIGSEGV"),
        "exit": (lambda: os._exit(3), {"signal": None, "exit_code": 3}, "ended with exit code 3")}


@pytest.mark.parametrize("way, where", (*((way, "next") for way in WAYS), ("SIGKILL", "body"),
                                        ("exit", "body of persistent workers")))
def test_a_death_is_recorded_with_its_reason(tmp_path, capfd, way, where):
    end, known, words = WAYS[way]
    error, records, summary = ends(tmp_path, Dies(end), 0.0 if where == "next" else 0.3,
                                   persistent_workers="persistent" in where)
    record, = records
    assert record["error"] == error and summary["error"].startswith(error)
    assert record | known == record and record["worker"] == 0 and record["step"] <= 6
    assert record["shared_memory_needed"] in (None, 2 * 2 * 2 * 4000)  # None before the first batch
    assert all(record[key] > 0 for key in ("free_shared_memory", "free_memory", "free_disk"))
    written = capfd.readouterr().err.replace("\0", "")  # torch writes one after a message on SIGSEGV
    line, = re.findall("^pymillrace watch: .*DataLoader worker.*", written, re.MULTILINE)
    assert f"DataLoader worker 0 (pid {record['pid']}) {words} after step {record['step']}; " in line
    assert "; free: /dev/shm " in line and line.endswith(f"; {error}")


SCRIPT = """
    import os, signal, sys, torch
    from torch.utils.data import DataLoader, Dataset

    class Dies(Dataset):
        def __len__(self):
            return 40
        def __getitem__(self, index):
            if index == 13:
                os.kill(os.getpid(), signal.SIGKILL)
            return torch.zeros(1)

    try:
        for _ in DataLoader(Dies(), 2, num_workers=1):
            pass
    except (RuntimeError, ConnectionError, EOFError) as error:
        print(type(error).__name__, "worker" in str(error))
        sys.exit(7)
"""


def test_the_exit_code_is_the_scripts_own(tmp_path):
    (tmp_path / "train.py").write_text(textwrap.dedent(SCRIPT))
    watch = [sys.executable, "-m", "pymillrace", "watch", "--run", "run", "--", sys.executable, "train.py"]
    done = subprocess.run(watch, cwd=tmp_path, capture_output=True, text=True, timeout=200)
    assert done.returncode == 7 and re.fullmatch(r"(RuntimeError True|\w+Error \w+)\n", done.stdout), done.stderr
    assert len(re.findall("^pymillrace watch: .* was killed by SIGKILL after step ", done.stderr, re.MULTILINE)) == 1


@pytest.mark.parametrize("file, text, kills", (
    ("memory.events", "low 0\nmax 9\noom 4\noom_kill {}\n", 1),
    ("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill {}\n", 1),
    ("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\n", None),
    ("memory.failcnt", "{}\n", None)))
def test_kills_for_lack_of_memory_are_counted_from_the_begin(tmp_path, capfd, monkeypatch, file, text, kills):
    counts = tmp_path / file
    counts.write_text(text.format(3))
    monkeypatch.setattr(cgroup, "folders", lambda: (str(tmp_path), "/none"))
    session = Session(tmp_path / "run")
    session.open()
    counts.write_text(text.format(4))
    session.deaths.note("a.py:1", 0, None, [types.SimpleNamespace(pid=9, exitcode=-signal.SIGKILL)])
    session.failed(RuntimeError("a worker"))
    session.close()
    assert json.loads((tmp_path / "run/deaths.jsonl").read_text())["oom_kills"] == kills
    shown = "unknown" if kills is None else kills
    assert f"; out-of-memory kills in its control group: {shown}; " in capfd.readouterr().err


def test_an_exception_that_the_script_catches_is_no_reason_to_be_silent(tmp_path):
    with mr.watching(run=tmp_path / "run"):
        try:
            for _ in DataLoader(Dies(killed_by(signal.SIGKILL)), 2, num_workers=1):
                time.sleep(0.3)
        except RuntimeError:
            pass
    record = json.loads((tmp_path / "run/deaths.jsonl").read_text())
    assert record["signal"] == "SIGKILL"


@pytest.mark.parametrize("workers", (0, 2))
def test_a_loop_that_is_left_or_ends_has_no_deaths(tmp_path, capfd, workers):
    with mr.watching(run=tmp_path / "run"):
        for loader in (DataLoader(range(40), num_workers=workers),
                       DataLoader(range(40), num_workers=workers, persistent_workers=workers > 0)):
            for number, _ in enumerate(loader):
                if number == 5:
                    break
            for _ in loader:
                pass
        with pytest.raises(ZeroDivisionError):
            for _ in loader:
                1 / 0
    assert not (tmp_path / "run/deaths.jsonl").exists() and "DataLoader worker" not in capfd.readouterr().err


def test_workers_that_end_as_they_should_are_not_named(tmp_path):
    fork = multiprocessing.get_context("fork")
    ended = [fork.Process(target=os._exit, args=(code,)) for code in (0, 3)]
    for one in ended:
        one.start()
        one.join()
    waits = fork.Process(target=time.sleep, args=(60,))
    waits.start()
    named = f"DataLoader worker 1 (pid {ended[1].pid}) ended with exit code 3"
    assert deaths.Deaths().note("a.py:1", 4, None, [*ended, waits]) == [named]
    assert deaths.Deaths().note("a.py:1", 4, None, [*ended, waits], (3,)) == []
    waits.kill()
    waits.join()


@pytest.mark.parametrize("workers, free, told", ((1, 1 << 30, False), (1, 100_000, True), (0, 100_000, False)))
def test_batches_that_do_not_fit_into_shared_memory_are_told_of_at_the_first(tmp_path, monkeypatch, workers, free, told):
    written = []
    monkeypatch.setattr(shared_memory, "write_at_once", written.append)
    monkeypatch.setattr(Session, "writes_lines", True)
    monkeypatch.setattr(room, "free", lambda path: free)
    with mr.watching(run=tmp_path / "run"):
        for _ in DataLoader(TensorDataset(torch.zeros(8, 16384)), 2, num_workers=workers):
            pass
    loader, = json.loads((tmp_path / "run/summary.json").read_text())["loaders"]
    assert loader["shared_memory_needed"] == (2 * 2 * 65536 * workers or None)
    assert loader["free_shared_memory"] == (free if workers else None)
    assert len(written) == told
    assert all("which had under 1 MiB free (num_workers=1, prefetch_factor=2, " in line for line in written)
