"""Signals under `pymillrace watch -- COMMAND`: the script gets each once, and ends when and as it likes.

Tests wait for events in a log that the script writes, never for a time in which something should have happened; only
where nothing may follow do they wait for longer than a signal takes.
"""
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pymillrace.watcher import child
from pymillrace.watcher.verify import Interrupted, TimedRun, measure

PATIENCE_S = 120
AFTERWARDS_S = 1.0  # a second signal would have come by then
WATCH = [sys.executable, "-m", "pymillrace", "watch", "--run"]

# Notes "ready", then each signal; ends with 0 once the file `stop` exists. An argument names the log.
NOTES = """
import os, signal, sys, time
def note(text):
    with open(sys.argv[1], "a") as log: log.write(text + "\\n")
for one in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGCONT"):
    signal.signal(getattr(signal, one), lambda number, _: note(signal.Signals(number).name))
note(f"ready {os.getpid()}")
while not os.path.exists(sys.argv[1] + ".stop"): time.sleep(0.02)
note("done")
"""

# Saves for longer than the 0.25 s after which subprocess.run kills a child.
SAVES = """
import sys, time
def note(text):
    with open(sys.argv[1], "a") as log: log.write(text + "\\n")
try:
    note("ready")
    time.sleep(600)
except KeyboardInterrupt:
    note("saving")
    time.sleep(1.5)
    note("saved")
    sys.exit(7)
"""


class Log:
    """What a script notes, in a file."""

    def __init__(self, folder, text):
        self.path, self.script, self.run = folder / "log", folder / "script.py", folder / "run"
        self.script.write_text(text)

    @property
    def command(self):
        return [*WATCH, str(self.run), "--", sys.executable, str(self.script), str(self.path)]

    @property
    def lines(self):
        return self.path.read_text().split("\n")[:-1] if self.path.exists() else []

    def wait_for(self, begin, count=1):
        """Waits until lines begin with a text; returns the last of them."""
        found = wait_until(lambda: [one for one in self.lines if one.startswith(begin)][count - 1:], lambda: self.lines)
        return found[-1]

    def pid(self):
        return int(self.wait_for("ready").split()[1])

    def stop(self):
        Path(f"{self.path}.stop").touch()


def wait_until(condition, said=lambda: None):
    """Returns what a condition gives, once that is true."""
    deadline = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        assert time.monotonic() < deadline, said()
        time.sleep(0.02)
    return found


def state_of(pid):
    """Returns the letter of a process's state: T is stopped, "" gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
    except OSError:
        return ""


def members(group):
    """Returns the processes of a group that have not ended."""
    found = []
    for one in Path("/proc").iterdir():
        try:
            state, _, owner = (one / "stat").read_text().rpartition(") ")[2].split()[:3]
        except (OSError, ValueError):
            continue
        if int(owner) == group and state != "Z":
            found.append(int(one.name))
    return sorted(found)


@pytest.fixture
def start():
    """Starts commands in groups of their own; what is left of these is killed afterwards."""
    groups = []

    def begin(command, **options):
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   text=True, preexec_fn=os.setpgrp, **options)
        groups.append(process)
        return process

    yield begin
    for process in groups:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.communicate(timeout=PATIENCE_S)


class Terminal:
    """A command in the foreground of a terminal, whose session it leads."""

    def __init__(self, command):
        self.pid, self.keys = pty.fork()
        if self.pid == 0:
            os.execvp(command[0], command)

    def press(self, key):
        os.write(self.keys, key)

    def exit_code(self):
        """Reads the screen until the command has ended."""
        try:
            while os.read(self.keys, 4096):
                pass
        except OSError:  # the last process of the terminal has ended
            pass
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def test_a_script_saves_its_checkpoint_after_ctrl_c(tmp_path):
    log = Log(tmp_path, SAVES)
    terminal = Terminal(log.command)
    log.wait_for("ready")
    terminal.press(b"\x03")
    assert terminal.exit_code() == 7
    assert log.lines == ["ready", "saving", "saved"]


def test_each_ctrl_c_reaches_the_script_once(tmp_path):
    log = Log(tmp_path, NOTES)
    terminal = Terminal(log.command)
    log.wait_for("ready")
    for count in (1, 2, 3):
        terminal.press(b"\x03")
        log.wait_for("SIGINT", count)
    terminal.press(b"\x1c")
    log.wait_for("SIGQUIT")
    time.sleep(AFTERWARDS_S)
    log.stop()
    assert terminal.exit_code() == 0
    assert log.lines[1:] == ["SIGINT"] * 3 + ["SIGQUIT", "done"]


def test_a_terminal_that_closes_reaches_the_script(tmp_path):
    log = Log(tmp_path, NOTES)
    terminal = Terminal(log.command)
    log.wait_for("ready")
    os.close(terminal.keys)
    log.wait_for("SIGHUP")
    log.stop()
    assert os.waitstatus_to_exitcode(os.waitpid(terminal.pid, 0)[1]) == 0
    assert log.lines.count("SIGHUP") == 1


def kill_each(group, number):
    """Sends a signal to one process after the other, as job schedulers do with a cgroup."""
    for pid in members(group):
        os.kill(pid, number)


@pytest.mark.parametrize("name", ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGCONT"))
@pytest.mark.parametrize("send", (os.kill, os.killpg, kill_each), ids=("process", "group", "each"))
def test_a_signal_to_watch_or_to_its_group_reaches_the_script_once(tmp_path, start, name, send):
    log = Log(tmp_path, NOTES)
    watch = start(log.command)
    log.wait_for("ready")
    for count in (1, 2):
        send(watch.pid, getattr(signal, name))
        log.wait_for(name, count)
        time.sleep(AFTERWARDS_S)
    log.stop()
    assert watch.wait(PATIENCE_S) == 0
    assert log.lines[1:] == [name] * 2 + ["done"]


def test_the_signals_of_timeout_to_process_and_group_reach_the_script_once(tmp_path, start):
    log = Log(tmp_path, NOTES)
    timeout = start(["timeout", "3600", *log.command])
    log.wait_for("ready")
    timeout.send_signal(signal.SIGALRM)  # its time is up
    log.wait_for("SIGTERM")
    time.sleep(AFTERWARDS_S)
    log.stop()
    assert timeout.wait(PATIENCE_S) == 124
    assert [log.lines.count(one) for one in ("SIGTERM", "SIGCONT")] == [1, 1]


def test_a_script_in_a_group_of_its_own_gets_what_its_watcher_gets(tmp_path, start):
    log = Log(tmp_path, "import os\nos.setsid()\n" + NOTES)
    watch = start(log.command)
    log.wait_for("ready")
    os.killpg(watch.pid, signal.SIGTERM)
    log.wait_for("SIGTERM")
    log.stop()
    assert watch.wait(PATIENCE_S) == 0


def test_watch_stops_with_the_script_and_goes_on_with_it(tmp_path, start):
    log = Log(tmp_path, NOTES)
    watch = start(log.command)
    script = log.pid()
    watch.send_signal(signal.SIGTSTP)
    wait_until(lambda: state_of(script) == state_of(watch.pid) == "T")
    watch.send_signal(signal.SIGCONT)
    log.wait_for("SIGCONT")
    watch.send_signal(signal.SIGUSR1)
    log.wait_for("SIGUSR1")
    time.sleep(AFTERWARDS_S)
    log.stop()
    assert watch.wait(PATIENCE_S) == 0
    assert log.lines[1:] == ["SIGCONT", "SIGUSR1", "done"]


def test_signals_arrive_once_after_a_stop_of_the_group(tmp_path, start):
    log = Log(tmp_path, NOTES)
    watch = start(log.command)
    script = log.pid()
    os.killpg(watch.pid, signal.SIGSTOP)
    wait_until(lambda: state_of(script) == state_of(watch.pid) == "T")
    watch.send_signal(signal.SIGCONT)  # to watch alone
    log.wait_for("SIGCONT")
    os.killpg(watch.pid, signal.SIGUSR1)
    log.wait_for("SIGUSR1")
    time.sleep(AFTERWARDS_S)
    log.stop()
    assert watch.wait(PATIENCE_S) == 0
    assert log.lines.count("SIGUSR1") == 1


def test_a_shell_puts_watch_into_the_background_and_back(tmp_path):
    log = Log(tmp_path, NOTES)
    shell = f'set -m; "$@"; echo stopped >>{log.path}; fg; code=$?; echo "code $code" >>{log.path}; exit $code'
    terminal = Terminal(["bash", "-c", shell, "bash", *log.command])
    log.wait_for("ready")
    terminal.press(b"\x1a")
    log.wait_for("stopped")
    log.wait_for("SIGCONT")
    terminal.press(b"\x03")
    log.wait_for("SIGINT")
    time.sleep(AFTERWARDS_S)
    log.stop()
    assert terminal.exit_code() == 0
    assert log.lines[1:] == ["stopped", "SIGCONT", "SIGINT", "done", "code 0"]


def test_a_script_goes_on_when_watch_is_killed(tmp_path, start):
    log = Log(tmp_path, NOTES)
    watch = start(log.command)
    script = log.pid()
    watch.kill()
    watch.wait(PATIENCE_S)
    wait_until(lambda: members(watch.pid) == [script])  # nothing else is left behind
    log.stop()
    log.wait_for("done")


def test_records_of_a_script_are_complete_when_watch_was_killed(tmp_path, start):
    pytest.importorskip("torch", reason="NOT TESTED with PyTorch: it cannot be imported", exc_type=ImportError)
    log = Log(tmp_path, """
import os, sys, time
from torch.utils.data import DataLoader
for step, batch in enumerate(DataLoader(list(range(80)), 4, num_workers=1)):
    if step == 2:
        print("ready", os.getpid(), file=open(sys.argv[1], "a"), flush=True)
        while not os.path.exists(sys.argv[1] + ".stop"): time.sleep(0.02)
""")
    watch = start(log.command)
    log.wait_for("ready")
    watch.kill()
    watch.wait(PATIENCE_S)
    log.stop()
    wait_until((log.run / "summary.json").exists)
    wait_until(lambda: not members(watch.pid))
    assert len((log.run / "steps.csv").read_text().splitlines()) == 21


@pytest.mark.parametrize("text, code", (("import sys; sys.exit(3)", 3), ("import os; os.kill(os.getpid(), 9)", 137),
                                        ("import os; os.kill(os.getpid(), 15)", 143)))
def test_the_exit_code_is_the_scripts_own(tmp_path, text, code):
    log = Log(tmp_path, text)
    assert subprocess.run(log.command, capture_output=True, timeout=PATIENCE_S).returncode == code


def test_a_program_that_cannot_be_started_is_named(tmp_path):
    done = subprocess.run([*WATCH, str(tmp_path), "--", "/no/such/program"], capture_output=True, text=True,
                          timeout=PATIENCE_S)
    assert (done.returncode, done.stderr) == (2, "pymillrace: cannot run /no/such/program: No such file or directory\n")


def odd_signals():
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1, signal.SIGTERM, signal.SIGALRM})


@pytest.mark.parametrize("prepare", (None, odd_signals), ids=("plain", "odd"))
def test_a_script_inherits_blocked_and_ignored_signals_unchanged(tmp_path, prepare):
    tells = ["grep", "-E", "^Sig(Blk|Ign|Cgt)|^ShdPnd", "/proc/self/status"]
    plain = subprocess.run(tells, capture_output=True, text=True, preexec_fn=prepare).stdout
    # The exit code counts although SIGCHLD is ignored, which would otherwise lose it.
    done = subprocess.run([*WATCH, str(tmp_path), "--", "sh", "-c", " ".join(map(repr, tells)) + "; exit 5"],
                          capture_output=True, text=True, preexec_fn=prepare, timeout=PATIENCE_S)
    of_shell = subprocess.run(["/bin/sh", "-c", " ".join(map(repr, tells)) + "; exit 5"], capture_output=True, text=True,
                              preexec_fn=prepare).stdout
    assert done.stdout == of_shell and "SigIgn" in plain and done.returncode == 5


def test_nohup_keeps_its_promise(tmp_path, start):
    log = Log(tmp_path, "import signal\nhandler = signal.getsignal(signal.SIGHUP)\n" + NOTES.replace('"SIGHUP", ', "") +
                        "note(handler.name)\n")
    watch = start(["nohup", *log.command])
    log.wait_for("ready")
    watch.send_signal(signal.SIGHUP)
    watch.send_signal(signal.SIGUSR1)
    log.wait_for("SIGUSR1")
    log.stop()
    assert watch.wait(PATIENCE_S) == 0
    assert log.lines[1:] == ["SIGUSR1", "done", "SIG_IGN"]


def test_a_pipe_ends_with_the_script(tmp_path):
    log = Log(tmp_path, "print('out')")
    done = subprocess.run(log.command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE_S,
                          start_new_session=True)
    assert done.returncode == 0 and done.stdout == "out\n"


# what-if --verify

@pytest.mark.parametrize("send", (os.kill, os.killpg), ids=("process", "group"))
def test_verification_waits_for_the_script_and_runs_no_other(tmp_path, start, send):
    log = Log(tmp_path, SAVES)
    check = start([sys.executable, "-m", "pymillrace", "what-if", "--verify", "--run", str(tmp_path / "check"), "--",
                   *log.command[-3:]])
    log.wait_for("ready")
    send(check.pid, signal.SIGINT)
    said, _ = check.communicate(timeout=PATIENCE_S)
    assert check.returncode == 130
    assert said == (f"pymillrace: interrupted by SIGINT (the messages of the run that it ended are in "
                    f"{tmp_path}/check/001.log)\n")
    assert log.lines == ["ready", "saving", "saved"]
    assert sorted(one.name for one in (tmp_path / "check").iterdir()) == ["001.log"]


def test_a_verification_that_is_killed_leaves_its_script_alone(tmp_path, start):
    log = Log(tmp_path, NOTES)
    check = start([sys.executable, "-m", "pymillrace", "what-if", "--verify", "--run", str(tmp_path / "check"), "--",
                   *log.command[-3:]])
    script = log.pid()
    check.kill()
    check.wait(PATIENCE_S)
    wait_until(lambda: members(check.pid) == [script])
    log.stop()
    log.wait_for("done")


def test_an_interruption_ends_a_verification_and_keeps_the_results():
    seen = []

    def run(change):
        seen.append(change)
        if len(seen) == 4:
            raise Interrupted(signal.SIGTERM, "")
        return TimedRun(change, 50.0 if change is None else 100.0, others=0.0)

    result = measure([[0], [0]], run)
    assert result.valid_blocks == {0: 1} and len(result.runs) == 3 and result.void
    assert result.stopped == "interrupted by SIGTERM" and result.interrupted.exit_code == 143


def test_a_script_that_is_stuck_is_ended(tmp_path, monkeypatch):
    assert child.run(["sleep", "60"], dict(os.environ), is_stuck=lambda: True) == (128 + signal.SIGTERM, None)
    monkeypatch.setattr(child, "END_S", 0.2)
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(60)"
    with open(tmp_path / "log", "w") as log:
        code = child.run([sys.executable, "-c", deaf], dict(os.environ), log, lambda: (tmp_path / "log").stat().st_size > 0)
    assert code == (128 + signal.SIGKILL, None)


def test_signals_of_this_process_are_as_before_a_run():
    before = signal.pthread_sigmask(signal.SIG_BLOCK, set()), signal.getsignal(signal.SIGCHLD)
    assert child.run([sys.executable, "-c", ""], dict(os.environ)) == (0, None)
    assert (signal.pthread_sigmask(signal.SIG_BLOCK, set()), signal.getsignal(signal.SIGCHLD)) == before
    with pytest.raises(OSError):
        child.run(["/no/such/program"], dict(os.environ))
    assert (signal.pthread_sigmask(signal.SIG_BLOCK, set()), signal.getsignal(signal.SIGCHLD)) == before
