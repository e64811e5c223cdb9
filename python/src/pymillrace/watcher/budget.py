"""Budgets of `pymillrace watch`, for continuous integration: what loading may cost, judged by intervals."""
from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .._watch import STEPS_FOR_VERDICT
from ..errors import UsageError
from . import estimates
from .batch_means import LEVEL, Estimate
from .estimates import Run, Steps

EXCEEDED, UNDECIDED = 5, 6  # exit codes
UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


@dataclass(frozen=True)
class Budget:
    option: str  # as on the command line, with its value
    kind: str  # share, wait or rate
    limit: float  # a share, seconds or images/s; where it is relative, a share of the baseline's
    is_relative: bool = False

    def estimate(self, steps: Steps) -> Estimate:
        return steps.share() if self.kind == "share" else steps.wait() if self.kind == "wait" else steps.rate()

    def margin(self, steps: Steps, baseline: Run | None) -> Estimate:
        """Returns by how much the budget is exceeded: above 0 it is."""
        found = self.estimate(steps)
        limit, error, freedom = self.limit, 0.0, found.freedom
        if self.is_relative and baseline is not None:
            other = self.estimate(worst(self, baseline.ranks))
            limit, error, freedom = limit * other.value, limit * other.error, min(freedom, other.freedom)
        excess = limit - found.value if self.kind == "rate" else found.value - limit
        return Estimate(excess, math.hypot(found.error, error), freedom)


def worst(budget: Budget, ranks: list[Steps]) -> Steps:
    sign = -1.0 if budget.kind == "rate" else 1.0
    return max(ranks, key=lambda steps: sign * budget.estimate(steps).value)


def parse(max_load: str | None, max_wait: str | None, min_rate: str | None, has_baseline: bool) -> list[Budget]:
    """Returns the budgets of the options' values. Raises UsageError."""
    found = []
    if max_load is not None:
        share = re.fullmatch(r"(\d+(?:\.\d+)?)%", max_load)
        if share is None or not 0 < float(share[1]) <= 100:
            raise UsageError(f"--max-load {max_load}: this is not a share of load + update", "write for example 10%")
        found.append(Budget(f"--max-load {max_load}", "share", float(share[1]) / 100))
    for option, value, kind, example in (("--max-wait", max_wait, "wait", "5ms"),
                                         ("--min-images-per-s", min_rate, "rate", "1500")):
        if value is None:
            continue
        share = re.fullmatch(r"(\d+(?:\.\d+)?)%", value)
        plain = re.fullmatch(r"(\d+(?:\.\d+)?)(us|ms|s)" if kind == "wait" else r"(\d+(?:\.\d+)?)", value)
        number = share or plain
        if number is None or float(number[1]) <= 0:
            raise UsageError(f"{option} {value}: this is not a budget",
                             f"write for example {example}, or a percentage of another run's with --baseline RUN")
        if share is not None and not has_baseline:
            raise UsageError(f"{option} {value}: of what?", "name the run to compare with: --baseline RUN")
        factor = 0.01 if share is not None else UNITS[number[2]] if kind == "wait" else 1.0
        found.append(Budget(f"{option} {value}", kind, factor * float(number[1]), share is not None))
    if has_baseline and not any(one.is_relative for one in found):
        raise UsageError("--baseline has nothing to be compared with",
                         "say for example --min-images-per-s 95% --baseline RUN")
    return found


def judge(budgets: Sequence[Budget], run: Run, baseline: Run | None) -> tuple[int, list[str]]:
    """Returns the exit code, 0 where all budgets are kept, and what is printed."""
    for one in filter(None, (run, baseline)):
        if one.missing:
            return UNDECIDED, [f"budgets undecided: {one.directory} has no steps of rank {one.missing[0]}"]
        short = [steps for steps in one.ranks if not steps.are_enough]
        if short:
            return UNDECIDED, [f"budgets undecided: {one.directory} has {short[0].count} steps of rank "
                               f"{short[0].rank}, and {STEPS_FOR_VERDICT} are needed"]
    codes, lines = [0], []
    for budget in budgets:
        steps = worst(budget, run.ranks)
        low, high = budget.margin(steps, baseline).interval()
        code, said = (EXCEEDED, "exceeded") if low > 0 else (UNDECIDED, "undecided") if high > 0 else (0, "kept")
        codes.append(code)
        rank = f"rank {steps.rank}: " if len(run.ranks) > 1 else ""
        lines.append(f"{budget.option} is {said}: {rank}{text(budget.kind, budget.estimate(steps))}" +
                     ("; watch more steps, or on a quieter machine" if code == UNDECIDED else ""))
    return EXCEEDED if EXCEEDED in codes else max(codes), lines


def text(kind: str, found: Estimate) -> str:
    """Returns a value with its interval."""
    low, high = found.interval()
    low = max(0.0, low)
    level = f"{100 * LEVEL:.0f}%"
    if kind == "share":
        return f"load is {100 * found.value:.1f}% of load + update ({level} interval {100 * low:.1f} to {100 * high:.1f}%)"
    if kind == "wait":
        return f"load takes {1e3 * found.value:.3g} ms per step ({level} interval {1e3 * low:.3g} to {1e3 * high:.3g})"
    return f"{found.value:,.0f} images/s ({level} interval {low:,.0f} to {high:,.0f})"


def of_run(budgets: Sequence[Budget], directory: Path, baseline: Run | None) -> tuple[int, list[str]]:
    """Judges the records of a run. Raises DataError."""
    try:
        run = estimates.read(directory)
    except OSError:
        return UNDECIDED, [f"budgets undecided: {directory} has no summary.json: nothing was recorded"]
    return judge(budgets, run, baseline)


def read_baseline(directory: Path) -> Run:
    """Reads the run to compare with. Raises DataError, and UsageError if there is none."""
    try:
        return estimates.read(directory)
    except OSError:
        raise UsageError(f"{directory} holds no summary.json of a finished run",
                         f"record one with: pymillrace watch --run {directory} -- python train.py") from None
