"""pymillrace compare: the differences of two watched runs, with intervals."""
from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._predict import t_quantile
from .._watch import STEPS_FOR_VERDICT
from ..errors import UsageError
from .batch_means import LEVEL, Estimate
from .budget import Budget, read_baseline, worst
from .estimates import Run

# Settings that may explain a difference.
SETTINGS = (("workers", "num_workers"), ("prefetch", "prefetch_factor"), ("batch", "batch_size"), ("cores", "cores"),
            ("world_size", "ranks"), ("torch", "torch"), ("python", "python"), ("host", "host"), ("script", "script"))


@dataclass(frozen=True)
class Row:
    name: str
    unit: str
    scale: float
    before: Estimate
    after: Estimate

    @property
    def ratio(self) -> tuple[float, float, float] | None:
        """The ratio after : before and its interval, by the logarithms' errors; None where either is 0."""
        if self.before.value <= 0 or self.after.value <= 0:
            return None
        error = math.hypot(self.before.error / self.before.value, self.after.error / self.after.value)
        freedom = min(self.before.freedom, self.after.freedom)  # at most a little too wide
        half = t_quantile(freedom, LEVEL) * error
        value = self.after.value / self.before.value
        return value, value * math.exp(-half), value * math.exp(half)

    @property
    def verdict(self) -> str:
        found = self.ratio
        if found is None:
            return "unknown"
        return "higher" if found[1] > 1 else "lower" if found[2] < 1 else "no difference found"


def rows(before: Run, after: Run) -> list[Row]:
    """Compares the ranks with the largest share of load, for which the others wait."""
    first, second = (worst(Budget("", "share", 0.0), one.ranks) for one in (before, after))
    return [Row("images/s", "", 1.0, first.rate(), second.rate()),
            Row("load of load + update", "%", 100.0, first.share(), second.share()),
            Row("load per step", "ms", 1e3, first.wait(), second.wait()),
            Row("update per step", "ms", 1e3, first.work(), second.work())]


def settings(before: Run, after: Run) -> list[tuple[str, str, str]]:
    """Returns what differs of the settings: its name and both values."""
    def value(run: Run, key: str) -> str:
        found = run.summary[key].value
        return "none" if found is None else str(found)[:80] if isinstance(found, (int, float, str)) else "?"

    pairs = [(name, value(before, key), value(after, key)) for key, name in SETTINGS]
    return [pair for pair in pairs if pair[1] != pair[2]]


def compare(first: Path, second: Path) -> tuple[Run, Run]:
    """Reads two runs. Raises DataError, and UsageError where one is missing or too short."""
    runs = read_baseline(first), read_baseline(second)
    for run in runs:
        if run.missing:
            raise UsageError(f"{run.directory} has no steps of rank {run.missing[0]}", "compare runs that have ended")
        if short := [steps for steps in run.ranks if not steps.are_enough]:
            raise UsageError(f"{run.directory} has {short[0].count} steps, too few to compare",
                             f"watch at least {STEPS_FOR_VERDICT}")
    return runs


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _cells(row: Row) -> list[str]:
    def cell(found: Estimate) -> str:
        low, high = found.interval()
        return f"{_number(row.scale * found.value)} ({_number(max(0.0, row.scale * low))} to {_number(row.scale * high)})"

    ratio = row.ratio
    name = f"{row.name}, {row.unit}" if row.unit else row.name
    return [name, cell(row.before), cell(row.after),
            "-" if ratio is None else f"{ratio[0]:.3f} ({ratio[1]:.3f} to {ratio[2]:.3f})", row.verdict]


NOTE = (f"The {100 * LEVEL:.0f}% intervals cover only the variation of steps within each run, not differences between "
        "runs, such as other load on the machine.")


def lines(before: Run, after: Run) -> list[str]:
    """Returns a table as text."""
    table = [["", "before", "after", "after : before", ""], *map(_cells, rows(before, after))]
    widths = [max(len(row[i]) for row in table) for i in range(5)]
    text = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in table]
    differ = [f"{name}: {one} before, {other} after" for name, one, other in settings(before, after)]
    return [f"before: {before.directory}, {before.name}", f"after:  {after.directory}, {after.name}", *text, *differ, NOTE]


def markdown(before: Run, after: Run) -> list[str]:
    """Returns a table for a pull request."""
    def escaped(text: str) -> str:
        return "".join("\\" + c if c in "\\`*_{}[]<>()#+-.!|~&" else c for c in text)

    table = [["", "before", "after", "after : before", ""], ["---"] * 5, *map(_cells, rows(before, after))]
    differ = [f"- {name}: {escaped(one)} before, {escaped(other)} after" for name, one, other in settings(before, after)]
    return [*("| " + " | ".join(row) + " |" for row in table), "", *([*differ, ""] if differ else []), NOTE]


def document(before: Run, after: Run) -> str:
    """Returns one JSON document."""
    def estimate(found: Estimate) -> dict[str, float]:
        low, high = found.interval()
        return {"value": found.value, "low": low, "high": high}

    def row(one: Row) -> dict[str, Any]:
        ratio = one.ratio
        return {"name": one.name, "before": estimate(one.before), "after": estimate(one.after), "verdict": one.verdict,
                "ratio": None if ratio is None else dict(zip(("value", "low", "high"), ratio))}

    return json.dumps({"command": "compare", "before": str(before.directory), "after": str(after.directory),
                       "level": LEVEL, "rows": [row(one) for one in rows(before, after)],
                       "settings": [dict(zip(("name", "before", "after"), one)) for one in settings(before, after)]},
                      indent=2)
