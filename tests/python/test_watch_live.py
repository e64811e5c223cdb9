"""Lines on stderr while a watched script runs."""
import json
import os
import subprocess
import sys
import threading
import time
import types
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="NOT TESTED with PyTorch: it cannot be imported", exc_type=ImportError)

import watch_plants as plants_of
from pymillrace.watcher import live, session
from pymillrace.watcher.command import main
from pymillrace.watcher.command_line import EVERY
from pymillrace.watcher.loop_facts import LoopFacts

SCRIPT = """
import sys
import watch_plants

if __name__ == "__main__":
    plants = {"dataset": watch_plants.Plant(sys.argv[1], "dataset", "blocked", 20),
              "update": watch_plants.Plant(sys.argv[1], "update", "blocked", 10)}
    watch_plants.train(watch_plants.loader_of(plants, workers=0, batches=int(sys.argv[2]), batch=1), plants)
    print("trained")
"""


def watched(tmp_path, batches, *options):
    (tmp_path / "train.py").write_text(SCRIPT)
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    words = [sys.executable, "-m", "pymillrace", "watch", "--run", "run", *options, "--", sys.executable, "train.py", "p",
             str(batches)]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=200,
                          env={**os.environ, "PYTHONPATH": path})
    assert (done.returncode, done.stdout) == (0, "trained\n"), done.stderr
    return [line for line in done.stderr.splitlines() if line.startswith("pymillrace watch: ")]


def test_a_line_follows_every_interval(tmp_path):
    lines = watched(tmp_path, 240, "--every", "1s")  # some 7 s: on a busy machine, a line may take longer than 1 s
    assert len(lines) >= 2 and all(line.startswith("pymillrace watch: watch_plants.py:") for line in lines)
    for line in lines:
        assert " steps in " in line and ": load " in line and "%, update " in line
    assert "dataset-bound: " in lines[-1] and "; advice: try num_workers=" in lines[-1]
    assert watched(tmp_path, 60, "--every", "1s", "--quiet") == []


@pytest.mark.parametrize("text", ("0", "1d", "-3", "0.5s", "soon"))
def test_a_time_that_is_none_is_wrong_usage(text, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["watch", "--every", text, "--", "true"])
    assert "30s or 5m" in capsys.readouterr().err


def test_times_have_units():
    from pymillrace.watcher.durations import seconds_of
    assert [seconds_of(text) for text in ("30s", "5m", "1.5h", "45")] == [30, 300, 5400, 45]


@pytest.fixture
def pipe(monkeypatch):
    """A pipe in place of stderr, which pytest sets anew before each test. Gives its ends."""
    read, write = os.pipe()
    os.set_blocking(read, False)
    with open(read, "rb", buffering=0) as reader, open(write, "w") as writer:
        monkeypatch.setattr(live, "sys", types.SimpleNamespace(stderr=writer))
        yield reader, writer


def test_a_line_is_written_whole_and_cut_where_a_pipe_would_split_it(pipe):
    live.write_at_once("ä" * 3000)
    line = os.read(pipe[0].fileno(), 1 << 16)
    assert line.startswith("pymillrace watch: ää".encode()) and line.endswith(b"\n") and len(line) <= 4096
    assert line.count(b"\n") == 1


def test_a_full_stderr_takes_no_line_and_holds_nobody_up(pipe):
    reader, writer = pipe
    os.set_blocking(writer.fileno(), False)
    filled = 0
    try:
        while True:
            filled += os.write(writer.fileno(), bytes(1 << 12))
    except BlockingIOError:
        os.set_blocking(writer.fileno(), True)
    thread = threading.Thread(target=live.write_at_once, args=("lost",), daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive()
    assert os.read(reader.fileno(), 1 << 20) == bytes(filled)


@pytest.mark.parametrize("stream", (None, "closed", "abandoned", "own"))
def test_a_stderr_that_is_gone_is_no_fault(monkeypatch, stream):
    class Own:
        def write(self, text):
            raise AssertionError("it may be used by the script's thread only")

    if stream in ("closed", "abandoned"):
        read, write = os.pipe()
        os.close(read)
        stream_ = open(write, "w")
        if stream == "closed":
            stream_.close()
    else:
        stream_ = None if stream is None else Own()
    monkeypatch.setattr(live, "sys", types.SimpleNamespace(stderr=stream_))
    live.write_at_once("lost")


TABLE = types.SimpleNamespace(steps=3, spans=[0, 1, 1, 2, 0, 0, 0, 0])  # of a loader after three steps


def test_a_line_after_few_steps_says_what_is_missing(pipe, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(live.time, "monotonic", lambda: now[0])
    lines = live.Live(60.0, types.SimpleNamespace(path=Path(), world_size=1))
    told = []
    for now[0] in (100.0, 109.9, 110.0, 111.0, 169.9, 170.0):
        if lines.due():
            told.append(now[0])
            lines.tell("a.py:1", TABLE, LoopFacts(steps=3), 2)
            lines._thread.join()
    assert told == [110.0, 170.0]
    first, second = os.read(pipe[0].fileno(), 1 << 16).decode().splitlines()
    assert first == ("pymillrace watch: a.py:1: 3 steps in 10 s: load 50%, update 50%; too short: 17 more steps")
    assert "in 70 s" in second


def test_a_line_is_of_the_rank_that_the_others_wait_for(tmp_path):
    loop = LoopFacts(steps=100, workers=1, update_s=3.0)  # this rank waits in its updates of 30 ms
    other = {"rank": 1, "world_size": 2, "steps": 100, "load_s": 2.5, "first_batch_s": 0.0, "update_s": 0.5,
             "images_per_s": 10.0, "bound": "dataset", "verdict": "dataset-bound: its own words", "complete": False,
             "advice": "advice: \x1b[31mits own", "replay": None}
    run, alone = (types.SimpleNamespace(path=tmp_path, world_size=size) for size in (2, 1))
    assert live._of_straggler(loop, run) == []  # not known yet
    (tmp_path / "summary.rank1.json").write_text(json.dumps(other))
    verdict, advice = live._of_straggler(loop, run)
    assert verdict == "rank 1 holds up the others: dataset-bound: its own words"
    assert advice.startswith("advice: ") and "\x1b" not in advice
    assert live._of_straggler(loop, alone) == []
    (tmp_path / "summary.rank1.json").write_text(json.dumps({**other, "load_s": 0.05, "update_s": 2.95}))
    assert live._of_straggler(loop, run) == []


@pytest.mark.parametrize("rank, wants, every, given", ((0, True, "60", True), (1, True, "60", False),
                                                       (0, False, "60", False), (0, True, None, False)))
def test_only_rank_0_of_a_watched_command_writes_lines(tmp_path, monkeypatch, rank, wants, every, given):
    monkeypatch.delenv(EVERY, raising=False)
    if every:
        monkeypatch.setenv(EVERY, every)
    one = session.Session(tmp_path, live=wants)
    one._directory = types.SimpleNamespace(rank=rank, path=tmp_path, name=lambda *_: "x", close=lambda: None,
                                           follow_torch=lambda: True)
    try:
        one.open()
        assert (one._live is not None) == given
    finally:
        one.hooks.remove()
        one._directory = one.hooks = None
        one.close()
