"""Faults in `pymillrace watch`: whatever happens to its records, and whatever signal arrives, the watched script prints
and returns what it does without it."""
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time

import limits
import package
import program
import tracing
from campaign import Failure, Group

SCRIPT = '''import os, signal, sys, time
import torch
from torch.utils.data import DataLoader, Dataset

class Samples(Dataset):
    def __len__(self):
        return 48
    def __getitem__(self, i):
        time.sleep(0.0005)
        return torch.full((3,), float(i))

def got(number, frame):
    print("got", signal.Signals(number).name, flush=True)
    if number == signal.SIGTERM:
        sys.exit(9)

def main(workers, end):
    for name in ("SIGTERM", "SIGUSR1", "SIGUSR2", "SIGHUP", "SIGQUIT", "SIGCONT"):
        signal.signal(getattr(signal, name), got)
    total = 0.0
    print("ready", flush=True)
    for epoch in range(3):
        for batch in DataLoader(Samples(), batch_size=4, num_workers=workers):
            total += float(batch.sum())
            time.sleep(0.005)
        print("epoch", epoch, total, flush=True)
    if end == "error":
        raise ValueError("planted")
    sys.exit(int(end))

if __name__ == "__main__":
    try:
        main(int(sys.argv[1]), sys.argv[2])
    except KeyboardInterrupt:
        time.sleep(0.6)  # saves a checkpoint
        print("saved", flush=True)
        sys.exit(3)
'''
LIMIT_S = 180  # importing PyTorch takes seconds, and half a minute under strace
ENDS = {"0": 0, "7": 7, "error": 1}
ERRORS = ("ENOSPC", "EDQUOT", "EFBIG", "EROFS", "EIO", "ESTALE", "EACCES", "ENOENT", "EMFILE")
# Calls that fail, each with the record that it is for.
CALLS = (("write", "steps.csv"), ("write", "metrics.jsonl"), ("openat", "steps.csv"), ("openat", "metrics.jsonl"),
         ("openat", "run.lock"), ("openat", "config.toml"), ("openat", "workers1.records"), ("flock", "run.lock"),
         ("rename", "summary.json"), ("rename", "config.toml"), ("rename", "timeline.json"), ("mkdir", ""),
         ("ftruncate", "workers1.records"), ("fallocate", "workers1.records"), ("mmap", "workers1.records"),
         ("fsync", "summary.json"), ("unlink", "workers1.records"), ("newfstatat", ""))
FORWARDED = ("SIGTERM", "SIGUSR1", "SIGUSR2", "SIGHUP", "SIGQUIT", "SIGCONT")
# What the script's handler raises where Python cannot pass it on: in a destructor, in a function of atexit.
IGNORED = re.compile(r"Exception ignored in.*\nTraceback (?:.*\n)+?SystemExit: 9\n")
FAULTS = (
    "errors",
    "errors",
    "small disk",
    "small disk",
    "small files",
    "removed",
    "replaced",
    "not a folder",
    "signal",
    "signal",
    "Ctrl-C",
    "watch killed",
     "script killed")


class Recorder(Group):
    name = "recorder"
    about = "`pymillrace watch` with failing records and signals: the script's output and exit code"
    cases = 300
    batch = 4
    smoke = 2
    guess_s = 16

    def missing(self, campaign):
        return package.missing(campaign.build, "torch", "pymillrace._watch")

    def reference(self, place):
        """Returns the lines that the script prints when nobody watches it."""
        def make(folder):
            (folder / "train.py").write_text(SCRIPT)
            for end, code in ENDS.items():
                ended = package.python(place).run(folder / "train.py", "2", end, env=package.environment(place.build),
                                                  limits={resource.RLIMIT_FSIZE: 4096})
                if ended.code != code:
                    raise RuntimeError(f"the script alone ended with {ended.code}: {ended.said()}")
                (folder / "out").write_bytes(ended.out)

        return (place.once("script", make) / "out").read_text().splitlines()

    def run(self, place, indexes):
        self.expected = self.reference(place)
        for index in indexes:
            draw = place.draw(self.name, index)
            case = place.folder / f"case-{index}"
            case.mkdir()
            (case / "train.py").write_text(SCRIPT)
            words = [sys.executable, case / "train.py", str(draw.choice((0, 1, 2))), draw.choice(sorted(ENDS))]
            fault = FAULTS[index % len(FAULTS)]
            story, wrong = self.attempt(place, draw, case, words, fault)
            if wrong:
                how = f"{fault}{story}, {words[2]} workers, ends with {words[3]}"
                yield Failure(index, f"{how}: " + "; ".join(wrong[:3]))
            else:
                shutil.rmtree(case)

    def attempt(self, place, draw, case, words, fault):
        """Watches the script with one fault. Returns what was done, and what is wrong."""
        interpreter = package.python(place)
        env = package.environment(place.build)
        run = case / "run"
        prefix, options, story = [], {}, ""
        if fault == "errors":
            error, (call, name) = draw.choice(ERRORS), draw.choice(CALLS)
            first = draw.choice((1, 1, 2, 5, 20))
            story = f": {call} of {name or 'the folder'} gives {error} from call {first} on"
            if not tracing.missing():
                prefix = ["strace", "-f", "-qq", "--seccomp-bpf", "-o", "/dev/null", "-P", run / name, "-e",
                    f"trace={call}", "-e", "signal=none", "-e", f"inject={call}:error={error}:when={first}+"]
        elif fault == "small files" or fault == "small disk" and not limits.can_mount():
            room = draw.choice((4096, 1 << 14, 1 << 16))  # enough for the script itself
            options = {"limits": {resource.RLIMIT_FSIZE: room}}
            story = f" of {room} bytes"
        elif fault == "small disk":
            room = draw.choice((1, 4, 5, 6, 8, 20, 100, 200)) * 4096
            story = f" of {room} bytes"
            run.mkdir()
            read_only = f"(sleep {draw.uniform(1, 4)}; mount -o remount,ro \"$2\") & " if draw.random() < 0.3 else ""
            prefix = [
    "unshare",
    "-m",
    "bash",
    "-c",
    f'mount -t tmpfs -o size="$1" none "$2" && {read_only}shift 2 && exec "$@"',
    "disk",
    str(room),
     run]
            run = run / "run" if draw.random() < 0.5 else run
        elif fault == "not a folder":
            run.write_text("a file")
            run = draw.choice((run, run / "run", run.with_name("x" * 300), "/proc/run", "/dev/null"))
        command = ["-m", "pymillrace", "watch", "--run", run, "--", *words]
        if fault == "Ctrl-C":
            return self.interrupted(draw, case, [sys.executable, *command], env)
        child = interpreter.start(*command, env=env, prefix=prefix, cwd=case, **options)
        number = None
        if fault in ("removed", "replaced", "signal", "watch killed", "script killed"):
            ready(child)
            # The script takes at least 0.2 s from there.
            time.sleep(draw.uniform(0, 0.15))
            if fault == "signal":
                number = signal.Signals[draw.choice(FORWARDED)]
                story = f": {number.name}"
                child.send(number)
            elif fault == "watch killed":
                child.send(signal.SIGKILL)
            elif fault == "script killed":
                for pid in program.children_of(child.pid):
                    os.kill(pid, signal.SIGKILL)
            elif fault == "removed":
                shutil.rmtree(run, ignore_errors=True)
            elif run.is_dir():
                run.rename(case / "moved")  # removing it would take a while, in which it gets new files
                run.write_text("a file")
        ended = child.wait(LIMIT_S)
        if fault in ("errors", "small disk", "not a folder") and refused(ended):
            return story, []
        if fault == "watch killed":  # the script goes on alone
            left = child.left(30)
            ended.code, ended.out = None, child._out.read_bytes()
            return story, self.verdict(ended, words, None) + [f"{len(left)} processes are left"] * bool(left)
        if fault == "script killed":
            wrong = [] if ended.code in (137, *ENDS.values()) else [f"exit code {ended.code}, expected 137"]
            # Its workers may print what Python's own threads for their connections raise.
            foreign = 0 if "/pymillrace/" in ended.text() else ended.text().count("Traceback (most")
            return story, wrong + extra(ended, foreign)
        return story, self.verdict(ended, words, number)

    def verdict(self, ended, words, number):
        """Compares the output and the exit code with the script's own. It adds a line for each signal, and ends at
        SIGTERM."""
        expected = self.expected
        lines = ended.out.decode().splitlines()
        code = ENDS[words[3]]
        wrong = []
        if ended.timed_out:
            return [f"still running after {LIMIT_S} s"]
        if number is not None and f"got {number.name}" in lines:
            if lines.count(f"got {number.name}") > 1:
                wrong.append(f"{number.name} arrived {lines.count(f'got {number.name}')} times")
            lines = [line for line in lines if line != f"got {number.name}"]
            if number == signal.SIGTERM:
                expected, code = expected[:len(lines)], 9
        elif number is not None and lines != expected:  # none is expected after the end
            wrong.append(f"{number.name} did not arrive")
        # After the script's end, what its handler raises in a function of atexit changes nothing, as in its own.
        if code == 9 and lines == self.expected and "atexit callback" in "".join(IGNORED.findall(ended.text())):
            code = ENDS[words[3]]
        if lines != expected:
            wrong.append(f"printed {lines}, expected {expected}")
        if ended.code is not None and ended.code != code:
            wrong.append(f"exit code {ended.code}, expected {code}")
        return wrong + extra(ended, int(words[3] == "error" and code == 1) + len(IGNORED.findall(ended.text())))

    def interrupted(self, draw, case, command, env):
        """Presses Ctrl-C on a terminal of its own."""
        master, slave = os.openpty()
        with open(case / "out", "wb") as out, open(case / "err", "wb") as err:
            child = subprocess.Popen(["setsid", "-c", *map(str, command)], stdin=slave,
                                     stdout=out, stderr=err, cwd=case, env={**os.environ, **env})
        os.close(slave)
        try:
            deadline = time.monotonic() + 60
            while b"ready" not in (case / "out").read_bytes() and child.poll() is None and time.monotonic() < deadline:
                time.sleep(0.005)
            time.sleep(draw.uniform(0, 0.15))
            os.write(master, b"\x03")
            code = child.wait(60)
            printed = (case / "out").read_text().splitlines()
        except subprocess.TimeoutExpired:
            child.kill()
            return "", ["still running 60 s after Ctrl-C"]
        finally:
            os.close(master)
        said = (case / "err").read_text(errors="replace")
        if "Exception ignored in" in said and "KeyboardInterrupt" in said:
            return "", []  # Python drops a Ctrl-C that arrives in a callback at a fork
        if code == 1 and re.search(r"RuntimeError: DataLoader worker .*exited unexpectedly", said):
            return "", []  # torch tells of its workers' end before the script's own Ctrl-C, or in its handler of it
        wrong = [] if printed[-1:] == ["saved"] else [f"the script did not save: it printed {printed}"]
        return "", wrong + ([] if code == 3 else [f"exit code {code}, expected 3"])


def ready(child):
    deadline = time.monotonic() + 60
    while child.running() and b"ready" not in child._out.read_bytes() and time.monotonic() < deadline:
        time.sleep(0.005)


def refused(ended):
    """Returns whether watch refused the place in one line, before it started the script."""
    return ended.code == 2 and not ended.out and re.fullmatch(r"pymillrace: .*choose another .*\n?", ended.text())


def extra(ended, raised=0):
    """Returns what is on stderr besides the tracebacks that the script itself raised, and a few lines of watch."""
    text = ended.text()
    wrong = []
    if text.count("Traceback (most") > raised:
        wrong.append(f"a traceback: {ended.said(300)}")
    if re.search(r"Fatal Python|Segmentation|Bus error", text):
        wrong.append(ended.said(300))
    complaints = [line for line in text.splitlines() if re.match(r"pymillrace", line)]
    if len(complaints) > 6:
        wrong.append(f"{len(complaints)} lines of watch")
    return wrong


GROUPS = [Recorder()]
