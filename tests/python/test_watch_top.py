"""pymillrace top: pages of recorded runs, the terminal, and what it does not need."""
import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from pymillrace.watcher import history, page, top, watched_run, worker_activity
from pymillrace.watcher.history import History, Point
from pymillrace.watcher.memory import Loop, Memory, Sample
from pymillrace.watcher.room import Room
from pymillrace.watcher.run_directory import HEADER
from watch_records import ESCAPES, NOW, VERDICT, Lock, recorded, replay_of, rows_of, summary_of

PAGES = Path(__file__).parent / "pages"  # written anew where MILLRACE_WRITE_PAGES is set
TOP = [sys.executable, "-m", "pymillrace", "top"]


def memory_of(growth):
    """The recorder's record of memory after seven epochs, in each of which the workers grow by so many bytes."""
    memory = Memory(lambda: None)
    for epoch in range(1, 8):
        workers = (1 << 30) + epoch * growth
        loop = Loop("loader", epoch, 300 * epoch, 300 * (epoch - 1), 300, [[1]], None, writes_lines=False)
        memory._add(loop, Sample(epoch, 300 * epoch, 3 << 29, workers, Room((10 << 30) + workers, 16 << 30)))
    return memory.facts


def running(run):
    """Its memory grows, and its verdict says so, as the recorder's does."""
    memory = memory_of(300 << 20)
    return Lock(recorded(run, False, replay=replay_of(), memory=memory, verdict=f"{VERDICT}; {memory['warning']}"))


def ended(run):
    recorded(run, True, memory=memory_of(0))


def killed(run):
    recorded(run, False, replay=None)


def ranks(run):
    lock = Lock(recorded(run, False, replay=None, world_size=3))
    for rank, load in ((1, 25.0), (2, 15.5)):
        update = summary_of(False)["update_s"] + summary_of(False)["load_s"] - load  # its steps take as long
        summary = summary_of(False, replay=None, world_size=3, rank=rank, load_s=load, update_s=update,
                             verdict=f"verdict of rank {rank}")
        (run / f"summary.rank{rank}.json").write_text(json.dumps(summary))
    return lock


def hostile(run):
    recorded(run, True, loader=ESCAPES, error=ESCAPES, verdict="x" * 4000, advice=ESCAPES * 9, bound=ESCAPES,
             world_size=2, memory={"trainer": 1 << 60, "workers": 0, "used": 1 << 60, "total": 1, "warning": ESCAPES},
             worker_activity=[ESCAPES, "9" * 40])
    (run / "steps.csv").unlink()
    os.mkfifo(run / "steps.csv")
    (run / "metrics.jsonl").unlink()
    os.mkfifo(run / "metrics.jsonl")


@pytest.mark.parametrize("width", (40, 80, 120))
@pytest.mark.parametrize("scene", (running, ended, killed, ranks, hostile), ids=lambda scene: scene.__name__)
def test_a_page_fits_its_terminal(tmp_path, monkeypatch, capsys, scene, width):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(watched_run.time, "time", lambda: NOW)
    monkeypatch.setenv("COLUMNS", str(width))
    lock = scene(tmp_path / "run")
    assert top.main(["run", "--once"]) == 0
    said = capsys.readouterr()
    if lock is not None:
        lock.__exit__()
    file = PAGES / f"{scene.__name__}-{width}.txt"
    if "MILLRACE_WRITE_PAGES" in os.environ:
        file.write_text(said.out)
    assert said.out == file.read_text() and said.err == ""
    assert all(one == "\n" or one.isprintable() for one in said.out)
    assert max(map(len, said.out.splitlines())) <= width


def test_the_record_of_memory_has_the_keys_that_the_recorder_declares():
    from pymillrace.watcher.summary_record import MemoryRecord

    assert set(memory_of(0)) == MemoryRecord.__required_keys__ and memory_of(0)["warning"] is None
    assert "at this rate it is full in about " in memory_of(300 << 20)["warning"]


@pytest.mark.parametrize("width", (page.LEAST_COLUMNS, 80, 120))
def test_a_page_says_once_and_in_whole_when_memory_is_full(tmp_path, width):
    warning = ("memory grows by 310 MiB per 1,000 steps, mostly in the training process; 1012 MiB of 1023 MiB are "
               "used; at this rate it is full in about 12,345 steps, before the epoch ends")
    memory = {**memory_of(0), "warning": warning}
    recorded(tmp_path / "run", False, replay=None, memory=memory, verdict=f"{VERDICT}; {warning}")
    state = watched_run.WatchedRun(tmp_path / "run").look()
    text = " ".join(line.text for line in page.lines(state, width))
    assert text.count(warning) == 1 and f"{VERDICT} memory at the last sample: trainer 1.5 GiB" in text
    assert ", workers 1.0 GiB; 5.0 GiB of 16.0 GiB are free" in text


@pytest.mark.parametrize("counted, begin", ((500, ""), (12, "after 12 steps: ")))
def test_a_verdict_of_fewer_steps_than_are_shown_says_so(tmp_path, counted, begin):
    recorded(tmp_path / "run", False, replay=None, steps=counted)
    state = watched_run.WatchedRun(tmp_path / "run").look()
    assert state.steps == 500
    assert f"{begin}{VERDICT}" in [line.text for line in page.lines(state, 400)]


def test_a_narrower_terminal_gets_the_narrowest_page(tmp_path):
    ended(tmp_path / "run")
    state = watched_run.WatchedRun(tmp_path / "run").look()
    assert page.lines(state, 10) == page.lines(state, page.LEAST_COLUMNS)


def test_an_encoding_without_blocks_gets_other_characters(tmp_path):
    ended(tmp_path / "run")
    done = subprocess.run([*TOP, "run"], cwd=tmp_path, env={**os.environ, "PYTHONIOENCODING": "ascii"},
                          capture_output=True, timeout=60)
    assert done.returncode == 0 and done.stdout.isascii() and b"@" in done.stdout, done


def test_a_pipe_that_closes_is_no_error(tmp_path):
    ended(tmp_path / "run")
    read, write = os.pipe()
    os.close(read)
    with open(write, "w") as stdout:
        done = subprocess.run([*TOP, "run", "--once"], cwd=tmp_path, stdout=stdout, stderr=subprocess.PIPE, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")


def test_help_imports_neither_the_recorder_nor_the_data_plane():
    code = "import sys; from pymillrace.__main__ import main\ntry: main()\nfinally: print(*sys.modules)"
    for words, heavy in ((["top", "--help"], {"predict", "session", "watched_run"}), (["top", "none"], {"session"})):
        done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=60)
        loaded = set(done.stdout.splitlines()[-1].split())
        assert "pymillrace.watcher.top" in loaded, done.stderr
        assert not loaded & {"pymillrace._core", "torch", "numpy", *(f"pymillrace.watcher.{one}" for one in heavy)}


@pytest.mark.parametrize("words, code, text", (
    (["none"], 2, "none holds no summary.json of a watched run (record one with: pymillrace watch --run none -- "),
    (["no\x1bne"], 2, "no\\u001bne holds no summary.json"),
    (["none", "--every", "0"], 2, "write for example 30s or 5m")))
def test_what_cannot_be_shown_is_one_line(tmp_path, monkeypatch, capsys, words, code, text):
    monkeypatch.chdir(tmp_path)
    try:
        found = top.main(words)
    except SystemExit as error:
        found = error.code
    said = capsys.readouterr()
    assert found == code and text in said.err and said.out == ""


def test_only_what_is_new_is_read_of_a_table_that_grows(tmp_path, monkeypatch):
    ended(tmp_path / "run")
    run = watched_run.WatchedRun(tmp_path / "run")
    assert sum(one.steps for one in run.look().history.points) == 500
    with open(tmp_path / "run/steps.csv", "a") as file:
        file.write("2,501,0.1,0.1,0,32,,0,0,0.1,0.1,0,0,0,0,0\n2,502,0.1")  # the second is being written
    state = run.look()
    assert sum(one.steps for one in state.history.points) == 501 and state.steps == 501
    with open(tmp_path / "run/steps.csv", "a") as file:
        file.write(",0.1,0,32,,0,0,0.1,0.1,0,0,0,0,0\n" + "no row\n" * 3 + "2,503,nan,-1,0,32,,0,0,0,0,0,0,0,0,0\n")
    assert run.look().steps == 502
    (tmp_path / "run/steps.csv").unlink()  # another run begins in this place
    (tmp_path / "run/steps.csv").write_text(HEADER + "".join(rows_of(3)))
    assert sum(one.steps for one in run.look().history.points) == 3


def test_only_the_end_of_a_large_table_is_read(tmp_path):
    ended(tmp_path / "run")
    with open(tmp_path / "run/steps.csv", "r+b") as file:
        file.truncate(100 << 30)  # sparse
        file.seek(0, os.SEEK_END)
        file.write(b"\n" + "".join(rows_of(5)).encode())
    begin = time.process_time()
    state = watched_run.WatchedRun(tmp_path / "run").look()
    assert sum(one.steps for one in state.history.points) == 5 and time.process_time() - begin < 5


def test_looking_writes_nothing(tmp_path):
    def contents():
        return {file.name: (file.read_bytes(), file.stat().st_mtime_ns) for file in (tmp_path / "run").iterdir()}

    with running(tmp_path / "run"):
        before = contents()
        watched_run.WatchedRun(tmp_path / "run").look()
        assert contents() == before


def test_a_history_keeps_its_sums_in_bounded_memory():
    one = History()
    for step in range(20 * history.MOST_POINTS):
        one.add(Point(0.01 if step % 2 else 0.03, 0.02, 0, 1, 8))
    assert len(one.points) <= history.MOST_POINTS
    whole = one.latest(1e9)
    assert (whole.steps, whole.images) == (20 * history.MOST_POINTS, 160 * history.MOST_POINTS)
    cells = one.cells(7)
    assert sum(cell.steps for cell in cells) == pytest.approx(whole.steps)
    assert all(cell.seconds == pytest.approx(whole.seconds / 7) for cell in cells)
    assert 10 <= one.latest(10).seconds < 11 + 0.1 * whole.seconds / 10


@pytest.mark.parametrize("change", (
    {"steps": -1}, {"steps": "x"}, {"epochs": None}, {"load_s": float("nan")}, {"verdict": 3}, {"worker_activity": 7},
    {"worker_activity": ["9" * 41]}, {"worker_activity": ["9"] * 65}, {"world_size": 10**9}, {"wall_s": 1e300},
    {"advice": "x" * 5000}, {"memory": 7}, {"memory": {"trainer_rss_bytes": 3 << 29}},
    {"memory": {**memory_of(0), "total": 1 << 61}}, {"memory": {**memory_of(0), "workers": 0.5}},
    {"memory": {**memory_of(0), "warning": 3}}), ids=str)
def test_a_value_that_does_not_fit_is_one_line(tmp_path, capsys, change):
    recorded(tmp_path / "run", True, **change)
    assert top.main([str(tmp_path / "run")]) == 3
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1 and next(iter(change)) in said.err


@pytest.mark.parametrize("replay", (7, {}, {**replay_of(), "workers": 10**9}, {**replay_of(), "fetch": []},
                                    {**replay_of(), "update": [1e300, 0, 1]},
                                    {**replay_of(), "workers": 1024, "prefetch": 64, "cores": 1024}))
def test_a_replay_that_is_none_or_would_take_long_gives_no_advice(tmp_path, replay):
    recorded(tmp_path / "run", False, replay=replay)
    begin = time.process_time()
    assert watched_run.WatchedRun(tmp_path / "run").look().summary.advice == "" and time.process_time() - begin < 5


def test_cells_of_a_worker_hold_the_ninths_of_a_quarter_of_a_second():
    batches = [(100_000_000, 600_000_000), (1_250_000_000, 1_260_000_000)]
    assert worker_activity._cells(batches) == "594000" + "-" * 34
    assert worker_activity._cells([]) == "-" * 40


# The terminal

LOOP = """
import time
import pymillrace as mr

for _ in mr.watch(range(200), run="run"):
    time.sleep(0.02)
"""


class Terminal:
    """pymillrace top in a pseudo-terminal, and what it has written there."""

    def __init__(self, folder, *words, columns=80, **environment):
        self._master, self.slave = pty.openpty()
        self.resize(columns)
        self.before = termios.tcgetattr(self.slave)
        self.process = subprocess.Popen([*TOP, *words], cwd=folder, stdin=self.slave, stdout=self.slave,
                                        stderr=self.slave, start_new_session=True, preexec_fn=self._take,
                                        env={**os.environ, "TERM": "xterm", **environment})
        self.text = ""

    @staticmethod
    def _take():
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    def resize(self, columns):
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, columns, 0, 0))

    def press(self, keys):
        os.write(self._master, keys)

    def until(self, text, seconds=60):
        """Reads until the terminal has been given a text."""
        end = time.monotonic() + seconds
        while text not in self.text:
            assert time.monotonic() < end, self.text
            if select.select([self._master], [], [], 0.2)[0]:
                self.text += os.read(self._master, 1 << 16).decode()

    def wait(self):
        """Waits for the end. Returns the exit code, and whether the terminal is as it was."""
        code = self.process.wait(60)
        while select.select([self._master], [], [], 0.1)[0]:
            self.text += os.read(self._master, 1 << 16).decode()
        restored = termios.tcgetattr(self.slave) == self.before
        os.close(self._master), os.close(self.slave)
        entered, left = (self.text.count(one) for one in ("\x1b[?1049h", "\x1b[?1049l"))
        shows = self.text.rfind("\x1b[?25h") > self.text.rfind("\x1b[?25l")
        return code, restored and entered == left > 0 and shows


def test_a_run_is_watched_to_its_end(tmp_path):
    (tmp_path / "loop.py").write_text(LOOP)
    loop = subprocess.Popen([sys.executable, "loop.py"], cwd=tmp_path, stderr=subprocess.DEVNULL)
    while not (tmp_path / "run/run.lock").exists():
        time.sleep(0.05)
    terminal = Terminal(tmp_path, "run", "--every", "1s")
    terminal.until("running, ")
    terminal.until("ended, ")
    assert terminal.wait() == (0, True) and loop.wait() == 0
    last = terminal.text.rpartition("\x1b[?1049l")[2]  # stays on the terminal's own screen
    assert "200 steps" in last and "device-bound" in last and "press q to quit" not in last, last


@pytest.mark.parametrize("keys", (b"q", b"\x03"), ids=("q", "Ctrl-C"))
def test_a_key_ends_it_and_restores_the_terminal(tmp_path, keys):
    with running(tmp_path / "run"):
        terminal = Terminal(tmp_path, "run")
        terminal.until("press q to quit")
        assert termios.tcgetattr(terminal.slave) != terminal.before
        terminal.press(keys)
        assert terminal.wait() == (0, True), terminal.text
    assert "Traceback" not in terminal.text


def test_an_exception_and_a_signal_restore_the_terminal(tmp_path):
    with running(tmp_path / "run"):
        terminal = Terminal(tmp_path, "run")
        terminal.until("press q to quit")
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.wait() == (128 + signal.SIGTERM, True), terminal.text
        (tmp_path / "sitecustomize.py").write_text(
            "import pymillrace.watcher.page as page\n"
            "def fail(*_):\n    raise ValueError('planted')\n"
            "page.lines = fail\n")
        terminal = Terminal(tmp_path, "run", PYTHONPATH=f"{tmp_path}:{os.environ['PYTHONPATH']}")
        assert terminal.wait() == (1, True) and "planted" in terminal.text


def test_the_page_follows_the_terminals_width_and_stops_with_ctrl_z(tmp_path):
    with running(tmp_path / "run"):
        terminal = Terminal(tmp_path, "run", "--every", "60s", columns=120)
        terminal.until("press q to quit")
        assert VERDICT in terminal.text and "\x1b[33m" in terminal.text
        terminal.text = ""
        terminal.resize(40)
        terminal.process.send_signal(signal.SIGWINCH)  # as the kernel does in a terminal of its session
        terminal.until("press q to quit", 20)  # long before the next look
        assert VERDICT[:30] in terminal.text and VERDICT not in terminal.text
        terminal.press(b"\x1a")
        terminal.until("\x1b[?1049l")
        while os.waitpid(terminal.process.pid, os.WNOHANG | os.WUNTRACED) == (0, 0):
            time.sleep(0.02)
        assert termios.tcgetattr(terminal.slave) == terminal.before
        terminal.process.send_signal(signal.SIGCONT)
        terminal.until("\x1b[?1049h")
        terminal.press(b"q")
        assert terminal.wait()[0] == 0


@pytest.mark.parametrize("environment", ({"NO_COLOR": "1"}, {"TERM": "dumb"}), ids=str)
def test_colours_are_left_out_where_they_are_not_wanted(tmp_path, environment):
    with running(tmp_path / "run"):
        terminal = Terminal(tmp_path, "run", *(["--once"] if "NO_COLOR" in environment else []), **environment)
        terminal.until("num_workers")
        assert terminal.process.wait(60) == 0 and "\x1b[" not in terminal.text


def test_a_record_that_is_damaged_meanwhile_is_said_and_read_again(tmp_path):
    with running(tmp_path / "run"):
        terminal = Terminal(tmp_path, "run", "--every", "1s")
        terminal.until("press q to quit")
        whole = (tmp_path / "run/summary.json").read_text()
        (tmp_path / "run/summary.json").write_text(whole[:100])
        terminal.until("holds no JSON")
        (tmp_path / "run/summary.json").write_text(whole.replace("train.py:28", "again.py:1"))
        terminal.until("again.py:1")
        terminal.press(b"q")
        assert terminal.wait() == (0, True)
