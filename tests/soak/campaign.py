"""The campaign: its cases, records, progress and results."""
import collections
import concurrent.futures
import contextlib
import dataclasses
import datetime
import fcntl
import hashlib
import json
import multiprocessing
import os
import pathlib
import platform
import random
import shutil
import subprocess
import sys
import time
import traceback

from program import Program

SOURCE = pathlib.Path(__file__).resolve().parents[2]


@dataclasses.dataclass
class Failure:
    """A fault found in one case."""
    index: int
    text: str


class Place:
    """A case's means: the program, a folder of its own, its own random numbers."""

    def __init__(self, campaign, group, first):
        self.seed = campaign.seed
        self.build = campaign.build
        self.shared = campaign.work / "shared"
        self.folder = campaign.work / "cases" / f"{group}-{first}"
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        self.shared.mkdir(parents=True, exist_ok=True)
        self.program = Program(campaign.program, self.folder)

    def draw(self, *names):
        """Returns random numbers that depend only on the campaign's seed and on `names`."""
        return random.Random("/".join(map(str, (self.seed, *names))))

    def once(self, name, make):
        """Returns the folder shared/NAME, made by `make(folder)` on first use, by one job while others wait."""
        target = self.shared / name
        with open(self.shared / f"{name}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not target.exists():
                fresh = self.shared / f"{name}.new"
                shutil.rmtree(fresh, ignore_errors=True)
                fresh.mkdir(parents=True)
                make(fresh)
                fresh.rename(target)
        return target


class Group:
    """Cases of one kind. Cases of one batch are tried together."""
    name = ""
    about = ""
    cases = 0
    batch = 1
    smoke = 1      # cases in a smoke test
    guess_s = 1.0  # seconds per batch, until one has been timed

    def missing(self, campaign):
        """Returns why this group cannot run here; empty if it can."""
        return ""

    def run(self, place, indexes):
        """Tries these cases; yields a Failure for each fault."""
        raise NotImplementedError


class Records:
    """Finished cases of a campaign, one JSON object per line, from which a killed campaign continues."""

    def __init__(self, path):
        self.path = path
        self.done = {}      # group -> set of indexes
        self.failures = {}  # group -> {index: [texts]}
        self.seconds = {}   # group -> seconds of all its batches
        self.batches = {}   # group -> number of those batches
        whole = 0
        for line in path.read_bytes().split(b"\n")[:-1] if path.exists() else []:
            try:
                self._take(json.loads(line))
            except ValueError:
                break
            whole += len(line) + 1
        self._file = open(path, "ab")
        self._file.truncate(whole)  # drops an incomplete line
        self._file.seek(0, os.SEEK_END)

    def _take(self, entry):
        group = entry["group"]
        self.done.setdefault(group, set()).update(entry["cases"])
        for index, text in entry["failures"]:
            self.failures.setdefault(group, {}).setdefault(index, []).append(text)
        self.seconds[group] = self.seconds.get(group, 0) + entry["seconds"]
        self.batches[group] = self.batches.get(group, 0) + 1

    def add(self, group, cases, failures, seconds):
        entry = {"group": group, "cases": cases, "seconds": round(seconds, 3),
                 "failures": [[failure.index, failure.text] for failure in failures]}
        self._file.write((json.dumps(entry) + "\n").encode())
        self._file.flush()
        self._take(entry)

    def failed_cases(self):
        return sum(len(cases) for cases in self.failures.values())


def printable(text):
    """Returns `text` without control characters of terminals."""
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)


def say(text):
    print(text, file=sys.stderr, flush=True)


class Pool:
    """Processes that try cases. They are copies of this one, so that they know the campaign."""

    def __init__(self, campaign):
        Pool.campaign = campaign
        self.processes = concurrent.futures.ProcessPoolExecutor(
            campaign.options.jobs, mp_context=multiprocessing.get_context("fork"))

    def submit(self, group, cases):
        return self.processes.submit(Pool.try_cases, self.campaign.groups.index(group), cases)

    @staticmethod
    def try_cases(group, cases):
        return Pool.campaign.try_cases(Pool.campaign.groups[group], cases)

    def close(self):
        self.processes.shutdown(cancel_futures=True)


class Campaign:
    def __init__(self, options, groups):
        self.options = options
        self.groups = groups
        self.seed = options.seed
        self.build = pathlib.Path(options.build).resolve()
        self.program = pathlib.Path(options.program or self.build / "millrace").resolve()
        self.skipped = {}
        self.begun = time.monotonic()

    def run(self):
        """Runs the unfinished cases. Returns the exit code."""
        if not os.access(self.program, os.X_OK):
            say(f"soak: {self.program} is not there\n  hint: ninja -C {self.build}, or name it: "
                "--program FILE")
            return 2
        self.work = pathlib.Path(self.options.work or self.build / "soak").resolve() / self.key()
        if self.options.fresh:
            shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir(parents=True, exist_ok=True)
        for group in self.groups:
            if reason := group.missing(self):
                self.skipped[group.name] = reason
                say(f"soak: SKIPPED: {group.name}: {reason}")
        self.groups = [group for group in self.groups if group.name not in self.skipped]
        if self.options.case:
            return self.run_one()
        self.records = Records(self.work / "records.jsonl")
        queue = self.queue()
        if before := sum(len(done) for done in self.records.done.values()):
            say(f"soak: goes on with {self.records.path}: {before:,} cases are done")
        self.go_through(queue)
        return self.report()

    def key(self):
        """Identifies the program and the settings; a campaign continues only with the same ones."""
        digest = hashlib.sha256(self.program.read_bytes())
        for library in sorted((self.build / "lib").glob("*.so")):
            digest.update(library.read_bytes())
        kind = "-smoke" if self.options.smoke else ""
        return f"seed-{self.seed}-{digest.hexdigest()[:12]}{kind}"

    def planned(self, group):
        return group.smoke if self.options.smoke else group.cases

    def queue(self):
        """Returns the unfinished cases as (group, indexes). All groups advance at the same rate, so that each has done
        the same share of its cases when time runs out."""
        queue = []
        for group in self.groups:
            done = self.records.done.get(group.name, set())
            total = self.planned(group)
            for first in range(0, total, group.batch):
                cases = [i for i in range(first, min(first + group.batch, total)) if i not in done]
                if cases:
                    queue.append((first / total, group, cases))
        queue.sort(key=lambda entry: entry[0])
        return [(group, cases) for _, group, cases in queue]

    def go_through(self, queue):
        """Works on the queue with --jobs processes, which try one batch of cases at a time."""
        deadline = self.begun + 60 * self.options.minutes
        spoken = -1e9
        queue = collections.deque(queue)
        running = {}  # future -> (group, cases, when it began)
        with contextlib.closing(Pool(self)) as pool:
            while queue or running:
                while queue and len(running) < self.options.jobs and time.monotonic() <= deadline:
                    group, cases = queue.popleft()
                    if time.monotonic() - spoken > self.options.every:
                        spoken = time.monotonic()
                        self.say_progress([(group, cases), *queue], deadline)
                    running[pool.submit(group, cases)] = group, cases, time.monotonic()
                if not running:
                    say(f"soak: TIME IS UP after {self.options.minutes:g} minutes, with "
                        f"{sum(len(cases) for _, cases in queue):,} cases left; the same command goes on")
                    return
                ended, _ = concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED)
                for future in ended:
                    group, cases, begun = running.pop(future)
                    self.records.add(group.name, cases, future.result(), time.monotonic() - begun)
        say("soak: all cases are done")

    def say_progress(self, queue, deadline):
        left = sum(self.cost(group) for group, _ in queue) / self.options.jobs
        left = min(left, max(0, deadline - time.monotonic()))
        cases = sum(len(cases) for _, cases in queue)
        total = sum(self.planned(group) for group in self.groups)
        say(f"soak: {total - cases:,} of {total:,} cases, {self.records.failed_cases()} failed, now "
            f"{queue[0][0].name}; about {left / 60:.0f} min left")

    def cost(self, group):
        timed = self.records.batches.get(group.name, 0)
        return self.records.seconds[group.name] / timed if timed else group.guess_s

    def try_cases(self, group, cases):
        place = Place(self, group.name, cases[0])
        try:
            failures = list(group.run(place, cases))
        except Exception:  # a fault of the campaign itself must not end it
            failures = [Failure(cases[0], "the campaign itself: " + traceback.format_exc())]
        for failure in failures:
            say(f"soak: FAILED: {group.name}:{failure.index}, seed {self.seed}: {printable(failure.text)}\n"
                f"  files:  {place.folder}\n"
                f"  repeat: {self.command(group, failure.index)}")
        if not failures:
            shutil.rmtree(place.folder, ignore_errors=True)
        return failures

    def command(self, group, index):
        words = ["tools/soak", "--build", str(self.build), "--seed", str(self.seed)]
        if self.options.program:
            words += ["--program", str(self.program)]
        if self.options.work:
            words += ["--work", str(self.work.parent)]
        return " ".join(words + ["--case", f"{group.name}:{index}"])

    def run_one(self):
        """Runs one case again, whatever the records say (--case GROUP:INDEX)."""
        name, _, index = self.options.case.partition(":")
        for group in self.groups:
            if group.name == name and index.isdigit():
                failures = self.try_cases(group, [int(index)])
                say(f"soak: {self.options.case} {'failed' if failures else 'passed'}")
                return 1 if failures else 0
        say(f"soak: there is no case {self.options.case} here\n  hint: GROUP:NUMBER; tools/soak "
            "--list names the groups")
        return 2

    def report(self):
        table = self.table()
        (self.work / "results.md").write_text(table)
        print(table, end="", flush=True)
        failed = {group.name: self.records.failures[group.name] for group in self.groups
                  if group.name in self.records.failures}
        for name, cases in failed.items():
            for index in sorted(cases):
                say(f"soak: FAILED: {name}:{index}: {printable(cases[index][0][:200])}")
        for group, reason in self.skipped.items():
            say(f"soak: SKIPPED: {group}: {reason}")
        return 1 if failed else 0

    def table(self):
        """Returns the results in Markdown."""
        rows = [("group", "what", "cases", "passed", "failed", "seconds")]
        totals = [0, 0, 0, 0.0]
        for group in self.groups:
            done = len(self.records.done.get(group.name, ()))
            failed = len(self.records.failures.get(group.name, ()))
            seconds = self.records.seconds.get(group.name, 0)
            planned = self.planned(group)
            count = f"{done:,}" if done == planned else f"{done:,} of {planned:,}"
            rows.append((f"`{group.name}`", group.about, count, f"{done - failed:,}", f"{failed:,}",
                         f"{seconds:,.0f}"))
            totals = [a + b for a, b in zip(totals, (done, done - failed, failed, seconds))]
        rows += [(f"`{name}`", f"SKIPPED: {reason}", "0", "0", "0", "0")
                 for name, reason in self.skipped.items()]
        rows.append(("all", "", *(f"{count:,}" for count in totals[:3]), f"{totals[3]:,.0f}"))
        lines = ["| " + " | ".join(row) + " |" for row in rows]
        lines.insert(1, "| --- | --- | --- | --- | --- | --- |")
        return (f"{datetime.date.today()}, {machine()}, commit {commit()}, seed {self.seed}.\n\n"
                + "\n".join(lines) + "\n")


def machine():
    model = platform.processor() or platform.machine()
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    return f"{model}, {len(os.sched_getaffinity(0))} CPUs, {memory:.0f} GB"


def commit():
    """Returns the source tree's commit, marked if files differ from it."""
    def git(*words):
        ended = subprocess.run(["git", "-C", SOURCE, *words], capture_output=True, text=True,
                               check=False)
        return ended.stdout.strip() if ended.returncode == 0 else ""

    return (git("rev-parse", "--short=12", "HEAD") or "unknown") + (
        " with changes" if git("status", "--porcelain") else "")
