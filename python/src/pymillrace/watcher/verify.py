"""Verification of predictions: runs a script again with other DataLoader arguments, in interleaved blocks.

The rules and the order of the runs are those of `millrace profile --verify` (predict/verification.h). The predictions
are written before the first run. A change whose run fails is not run again: its reason is kept, and the others go on.
"""
from __future__ import annotations

import csv
import io
import json
import math
import os
import resource
import statistics
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import _predict
from .._watch import MAX_OTHERS, WORTHWHILE
from ..errors import DataError, Error, UsageError
from . import child
from .command_line import PLAN, watched_environment
from .errors import WatchError
from .output import print_lines
from .predict import PREFETCH
from .recorded import predictions, read_summary
from .records import open_record
from .run_directory import is_complete
from .stalls import STALLS
from .threads import busy_s

SEED = 1
WARM_UP, WINDOW, ENOUGH_WINDOWS = 8, 20, 5
STOCKS = 8  # numbers of outstanding batches that a warm-up lasts
THREADS_OF_POOLS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
MOST_STEPS_BYTES = 256 << 20  # of steps.csv; a step has some 150
MOST_STALLS_BYTES = 16 << 20


class Interrupted(Error):
    """Says that a signal has asked for the end. The script got it too, and has ended in its own time."""

    def __init__(self, received: signal.Signals, hint: str) -> None:
        super().__init__(f"interrupted by {received.name}", hint)
        self.exit_code = 128 + received


@dataclass
class TimedRun:
    """One run of the baseline (change None) or of a change."""
    change: int | None
    images_per_s: float
    others: float | None  # share of the cores' CPU time that other programs took; None: unknown
    failed: str | None = None  # why it gave no rate
    steps: int = 0  # that the rate is of

    @property
    def void(self) -> bool:
        return self.failed is None and self.others is not None and self.others > MAX_OTHERS


@dataclass
class Result:
    """All runs in order, and what they give for each change."""
    runs: list[TimedRun]
    ratios: dict[int, float | None]  # measured; None: it failed, or too few blocks were valid
    intervals: dict[int, tuple[float, float] | None]  # of 90%; None: fewer than two blocks were valid
    valid_blocks: dict[int, int]
    void: bool  # there is no score
    failed: dict[int, str]  # why a change failed
    stopped: str | None = None  # why the baseline failed, which ends the runs
    interrupted: Interrupted | None = None  # ends the runs too


def measure(order: list[list[int]], run: Callable[[int | None], TimedRun]) -> Result:
    """Runs each block: baseline, change, baseline, change, ..., baseline. Repeats void runs at once.

    A change that failed is left out from then on, and so is one whose ratio is settled. A baseline that fails ends the
    runs, and so do an interruption and a first block of nothing but void runs.
    """
    runs, interruption = list[TimedRun](), list[Interrupted]()

    def timed(change: int | None) -> tuple[float, float, bool]:
        try:
            if not interruption:
                runs.append(run(change))
        except Interrupted as error:
            interruption.append(error)
        if interruption:
            return 0.0, math.nan, True
        one = runs[-1]
        return one.images_per_s, math.nan if one.others is None else one.others, one.failed is not None

    found, changes = _predict.Verification(order, timed), sorted(set().union(*order))
    failed = {one.change: one.failed for one in runs if one.change is not None and one.failed is not None}
    stopped = runs[-1].failed if runs and runs[-1].change is None else None
    if interruption:
        stopped = str(interruption[0].what)
    ratios = {change: None if change in failed else found.ratio(change) for change in changes}
    intervals = {change: None if ratios[change] is None else found.interval(change) for change in changes}
    return Result(runs, ratios, intervals, {change: found.valid_blocks(change) for change in changes},
                  found.is_void or not changes or bool(interruption), failed, stopped, *interruption)


def score(outcomes: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns the accuracy over the changes that count, and how many measured ratios lie in their intervals."""
    def end(value: float | None) -> float:
        return math.nan if value is None else value

    found = _predict.score_of([(one["predicted"], one["measured"], end(one["low"]), end(one["high"]))
                               for one in outcomes])
    counted: dict[str, Any] = {"counted": found.counted, "median_error": None, "worst_error": None, "skill": None}
    if found.counted:
        counted |= {"median_error": found.median_error, "worst_error": found.worst_error, "skill": found.skill}
    return {**counted, "with_interval": found.with_interval, "held": found.held}


# Runs of the script

def rate_of(rows: list[tuple[int, float]], window: int = WINDOW) -> float:
    """Returns images/s of steps, each of so many images and seconds: of the middle window, or of all if there are few."""
    windows = [rows[at:at + window] for at in range(0, len(rows) - window + 1, window)]
    if len(windows) < ENOUGH_WINDOWS:
        windows = [rows]
    return statistics.median(sum(images for images, _ in one) / sum(time for _, time in one) for one in windows)


def counted_steps(run: Path, warm_up: int, steps: int) -> list[tuple[int, float]]:
    """Returns images and seconds of load + update of a run's steps after its warm-up.

    A run that ended before the `steps` after it counts with its later half, if that is more. Steps after these do not
    count: what the end of a run takes belongs to its last one.
    """
    try:
        with io.TextIOWrapper(open_record(run / "steps.csv", MOST_STEPS_BYTES), encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        if len(rows) < warm_up + steps:
            warm_up = min(warm_up, max(WARM_UP, len(rows) // 2))
            steps = len(rows)
        rows = rows[warm_up:warm_up + steps]
        return [(int(row["images"]), float(row["load_s"]) + float(row["update_s"])) for row in rows]
    except (OSError, KeyError, TypeError, ValueError, csv.Error) as error:
        raise WatchError(f"{run / 'steps.csv'} cannot be used: {error}") from None


def warm_up_of(settings: dict[str, Any], overrides: dict[str, int]) -> int:
    """Returns the steps of a run that do not count.

    Workers make a stock of batches while the first step takes long. A loop that takes them faster than they are made
    lives on it, and shows no rate that lasts. After STOCKS times as many steps at most one in STOCKS was from stock.
    """
    outstanding: int = (overrides.get("num_workers", settings["num_workers"]) *
                        overrides.get("prefetch_factor", settings["prefetch_factor"] or PREFETCH))
    return max(WARM_UP, STOCKS * outstanding)


def _children_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


class Stall:
    """A wait for a batch in one run, from the reports that the run writes."""

    def __init__(self, run: Path) -> None:
        self._file = run / STALLS
        self.waited_s: float | None = None  # of a wait that was reported twice, once there is one

    def is_there(self) -> bool:
        """Returns whether one wait has been reported twice, which a slow start is not."""
        with suppress(OSError, ValueError, KeyError, TypeError):
            with open_record(self._file, MOST_STALLS_BYTES) as file:
                waits = [(found["step"], found["loader"], float(found["waited_s"])) for found in map(json.loads, file)]
            for before, after in zip(waits, waits[1:]):
                if after[:2] == before[:2] and after[2] > before[2]:
                    self.waited_s = after[2]
        return self.waited_s is not None


class Script:
    """The command that is run again and again, each time for a number of steps."""

    def __init__(self, words: list[str], folder: Path, steps: int, other: str | None = None) -> None:
        """`other`: a script that may run in place of the one that the words name."""
        self.words, self.folder, self.steps, self.started = words, folder, steps, 0
        self.with_other = words if other is None else _with(words, other)

    @property
    def latest(self) -> Path:
        return self.folder / f"{self.started:03}"

    def run(self, overrides: dict[str, int], warm_up: int = WARM_UP,
            other: bool = False) -> tuple[dict[str, Any], float | None]:
        """Runs it once, or the other script. Returns its summary and the share of the cores' CPU time that others took."""
        self.started += 1
        words = self.with_other if other else self.words
        run, log = self.latest, self.folder / f"{self.started:03}.log"
        plan = {"steps": warm_up + self.steps + 1, "overrides": overrides}
        environment = {**watched_environment(run), PLAN: json.dumps(plan)}
        if "OMP_NUM_THREADS" in overrides:
            environment |= {name: str(overrides["OMP_NUM_THREADS"]) for name in THREADS_OF_POOLS}
        stall = Stall(run)
        busy, own, begin = busy_s(), _children_s(), time.monotonic()
        with open(log, "w", encoding="utf-8") as file:
            try:
                code, ended_by = child.run(words, environment, file, stall.is_there if overrides or other else None)
            except OSError as error:
                raise WatchError(f"cannot run {words[0]}: {error.strerror}", "name a program after --") from error
        wall, end = time.monotonic() - begin, busy_s()
        if ended_by is not None:
            raise Interrupted(ended_by, f"the messages of the run that it ended are in {log}")
        if stall.waited_s is not None:
            raise WatchError(f"{' '.join(words)} got no batch for {stall.waited_s:.0f} s and was ended",
                             f"{run / STALLS} says what its workers did; its messages are in {log}")
        if code != 0:
            raise WatchError(f"{' '.join(words)} ended with exit code {code}", f"its messages are in {log}")
        try:
            found = read_summary(run / "summary.json")
            if found["what_if"]:
                predictions(found["what_if"])
        except (OSError, DataError) as error:
            raise WatchError(f"{' '.join(words)} left no record: no process of it iterated over a torch DataLoader",
                             f"its messages are in {log}") from error
        summary: dict[str, Any] = found.value
        if not is_complete(summary):
            raise WatchError(f"{' '.join(words)}, or its recording, was cut off", f"its messages are in {log}")
        if summary.get("what_if") is None and not other:
            raise WatchError("the records do not suffice for predictions: fewer than two steps, or records are missing",
                             f"see {run / 'summary.json'}")
        if not other:
            check_reached(summary["what_if"]["settings"], overrides)
        if busy is None or end is None:
            return summary, None
        others = (end - busy - (_children_s() - own)) / (wall * len(os.sched_getaffinity(0)))
        return summary, min(1.0, max(0.0, others))


def _with(words: list[str], other: str) -> list[str]:
    """Returns a command's words with another script."""
    if not Path(other).is_file():
        raise UsageError(f"--with {other}: there is no such file", "name a script")
    at = next((i for i, word in enumerate(words) if word.endswith(".py") and Path(word).is_file()), None)
    if at is None:
        raise UsageError("--with needs a command that names a script", "say for example: -- python train.py")
    return [*words[:at], other, *words[at + 1:]]


def check_reached(settings: dict[str, Any], overrides: dict[str, int]) -> None:
    """Raises WatchError if a run's loader did not take the arguments that were to be overridden."""
    for name, value in overrides.items():
        if name in settings and settings[name] != value:
            raise WatchError(f"{name}={value} did not reach the loader, which ran with {name}={settings[name]}",
                             "change the script by hand, and compare a run of each with pymillrace compare")


def write_durably(path: Path, value: Any) -> None:
    """Writes a JSON file and waits until it lies on the disk."""
    with open(path, "w", encoding="utf-8") as file:
        json.dump(value, file, indent=2)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())


def verify(words: list[str], folder: Path, steps: int, blocks: int, given: list[str] | None = None,
           other: str | None = None) -> dict[str, Any]:
    """Predicts the changes of a script's DataLoader, then runs all or the `given` ones.

    `other`: a changed script, which is run as a change; others are then run if `given`. It has the prediction of
    millrace's loader if it imports pymillrace.

    Returns what verification.json holds. Raises Interrupted after a signal that asks for the end, once the script has
    ended and the results so far are written.
    """
    script = Script(words, folder, steps, other)
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise WatchError(f"{folder} is not empty", "choose another directory: --run DIR")
    summary, _ = script.run({})
    what_if = summary["what_if"]
    rows = [row for row in what_if["rows"] if row["overrides"] and not row["loading_only"] and "saved_s_per_epoch" not in row]
    if given:
        known = [row["change"] for row in rows]
        unknown = [name for name in given if name not in known]
        if unknown:
            raise UsageError(f"--change {unknown[0]} is not predicted for this script", f"known: {', '.join(known)}")
    if given or other is not None:
        rows = [row for row in rows if row["change"] in (given or [])]
    if other is not None:
        rows.append({**replaced(summary, other), "change": f"with {other}", "overrides": {}})
    warm_ups = {name: warm_up_of(what_if["settings"], overrides)
                for name, overrides in (("baseline", {}), *((row["change"], row["overrides"]) for row in rows))}
    write_durably(folder / "predictions.json", {"warm_up": warm_ups, "command": words, "steps": steps, "blocks": blocks,
                                                "what_if": what_if, "with": rows[-1] if other is not None else None})

    def run(change: int | None) -> TimedRun:
        name, overrides = ("baseline", {}) if change is None else (rows[change]["change"], rows[change]["overrides"])
        try:
            _, others = script.run(overrides, warm_ups[name], change is not None and not overrides)
            steps = counted_steps(script.latest, warm_ups[name], script.steps)
            if not steps:
                raise WatchError(f"the script ended within the {WARM_UP} steps of warm-up",
                                 "let it run for more steps")
        except WatchError as error:
            print_lines([f"{name}: failed: {error}"], sys.stderr)
            return TimedRun(change, 0.0, None, str(error))
        rate = rate_of(steps)
        disturbed = "" if others is None else f", others {100 * others:.0f}%"
        print_lines([f"{name}: {rate:,.0f} images/s over {len(steps)} steps{disturbed}"], sys.stderr)
        return TimedRun(change, rate, others, steps=len(steps))

    result = measure(_predict.verification_order(len(rows), blocks, SEED), run)
    record = _record(rows, result, folder)
    if result.interrupted is not None:
        raise result.interrupted
    return record


def replaced(summary: dict[str, Any], script: str) -> dict[str, Any]:
    """Returns the prediction for a script that may use millrace's loader: without figures if it does not name it."""
    from . import replacement

    found: dict[str, Any] = {"reason": "it does not import pymillrace"}
    if "pymillrace" in Path(script).read_text(encoding="utf-8", errors="replace"):
        found = replacement.row(summary)
    return {"ratio": None, "low": None, "high": None} if found["reason"] is not None else found


def _record(rows: list[dict[str, Any]], result: Result, folder: Path) -> dict[str, Any]:
    outcomes = []
    for i, row in enumerate(rows):
        measured, (low, high) = result.ratios[i], result.intervals[i] or (None, None)
        outcomes.append({"change": row["change"], "predicted": row["ratio"], "low": row["low"], "high": row["high"],
                         "measured": measured, "measured_low": low, "measured_high": high,
                         "error": None if measured is None or row["ratio"] is None else row["ratio"] / measured - 1,
                         "valid_blocks": result.valid_blocks[i], "failed": result.failed.get(i)})
    measured_rows = [one for one in outcomes if one["failed"] is None and one["predicted"] is not None]
    record: dict[str, Any] = {
        "void": result.void, "stopped": result.stopped, "void_runs": sum(run.void for run in result.runs), "runs": len(result.runs),
        "most_others": MAX_OTHERS, "outcomes": outcomes,
        "score": None if result.void else score(measured_rows),
        "timed_runs": [{"change": None if run.change is None else rows[run.change]["change"],
                        "images_per_s": run.images_per_s if run.failed is None else None, "steps": run.steps,
                        "others": run.others, "void": run.void, "failed": run.failed}
                       for run in result.runs]}
    write_durably(folder / "verification.json", record)
    return record


def failed(record: dict[str, Any]) -> bool:
    """Returns whether a run ended without a rate."""
    return record["stopped"] is not None or any(one["failed"] for one in record["outcomes"])


def lines(record: dict[str, Any]) -> list[str]:
    """Returns the verification as text."""
    def part(value: float | None, form: str) -> str:
        return "-" if value is None or math.isnan(value) else format(value, form)

    def interval(low: float | None, high: float | None) -> str:
        return "" if low is None else f"{low:.2f} to {high:.2f}"

    wide = max([25, *(len(one["change"]) for one in record["outcomes"])]) + 1
    text = [f"{'change':<{wide}}{'predicted':>11}{'90%':>14}{'measured':>10}{'90%':>14}{'error':>9}"]
    for one in record["outcomes"]:
        predicted = "-" if one["predicted"] is None else f"{one['predicted']:.2f}x"
        text.append(f"{one['change']:<{wide}}{predicted:>11}{interval(one['low'], one['high']):>14}"
                    f"{part(one['measured'], '.2f'):>10}{interval(one['measured_low'], one['measured_high']):>14}"
                    f"{part(one['error'], '+.1%'):>9}")
    text += [f"{one['change']} failed: {one['failed']}" for one in record["outcomes"] if one["failed"]]
    if record["stopped"]:
        text.append(f"stopped: a run without changes failed: {record['stopped']}")
    if record["void"] and record["void_runs"] == 0:
        text.append("void: too few runs ended for a score")
    elif record["void"]:
        text.append(f"void: other programs took more than {100 * MAX_OTHERS:.0f}% of the CPU time in "
                    f"{record['void_runs']} of {record['runs']} runs; no score; repeat it on an idle machine")
    elif record["score"]["counted"] == 0:
        text.append("no change with a prediction had an effect of 20% or more, predicted or measured: nothing counts")
    else:
        found = record["score"]
        text.append(f"counted changes: {found['counted']}; median error {found['median_error']:.1%}, worst "
                    f"{found['worst_error']:.1%}, skill {found['skill']:.2f}")
    if record["score"] is not None and record["score"]["with_interval"]:
        known = record["score"]["with_interval"]
        text.append(f"{record['score']['held']} of {known} measured ratio{'' if known == 1 else 's'} lie within the 90% "
                    "interval of their prediction")
    if not record["void"]:
        text.append(_advice(record["outcomes"]))
    return text


def _advice(outcomes: list[dict[str, Any]]) -> str:
    """Returns one line: the change that was measured to be the fastest, if it surely gains."""
    sure = [one for one in outcomes if one["failed"] is None and (one["measured_low"] or 0.0) >= WORTHWHILE]
    if not sure:
        return f"advice: keep what you have; no change was measured to gain {100 * (WORTHWHILE - 1):.0f}% for sure"
    fastest = max(sure, key=lambda one: one["measured"])
    return (f"advice: {fastest['change']}: {fastest['measured']:.2f} times the images/s, as measured "
            f"({fastest['measured_low']:.2f} to {fastest['measured_high']:.2f})")
