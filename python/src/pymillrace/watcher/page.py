"""Page of `pymillrace top`: a look at a watched run as lines of text for a terminal of any width."""
from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from typing import NamedTuple

from .durations import text_of
from .history import Point
from .room import bytes_text
from .watched_run import Epoch, Memory, State, Summary
from .worker_activity import BUSY, CELL_NS, CELLS

LEAST_COLUMNS = 40
LEVELS, ASCII_LEVELS = "· ▁▂▃▄▅▆▇█", "? .:-=+*#@"  # unknown, then from nothing to the whole
LABEL, NUMBER = 10, 7  # columns of a chart's label, and of a number behind it
NOW_S = 10.0  # of recorded time that counts as now
QUIET_S = 5.0  # without a new row after which the page says so
MOST_WORKERS = 16  # that have a line
MOST_LINES = 6  # of one text
STYLES = {"title": "1", "load": "33", "update": "32", "notice": "31", "faint": "2"}  # SGR parameters


class Line(NamedTuple):
    text: str
    style: str = ""  # a key of STYLES, or none

    def painted(self) -> str:
        return f"\x1b[{STYLES[self.style]}m{self.text}\x1b[m" if self.style else self.text


class Row(NamedTuple):
    """A chart's row: its value at a point of time, as a text and as a share of the highest."""
    name: str
    style: str
    value: Callable[[Point], float]
    text: Callable[[float], str]


def _percent(share: float) -> str:
    return f"{100 * share:.0f}%"


def _share(part: Callable[[Point], float]) -> Callable[[Point], float]:
    return lambda point: part(point) / point.seconds if point.seconds > 0 else 0.0


def _rate(point: Point) -> float:
    time = point.load + point.update
    return point.images / time if time > 0 else 0.0


ROWS = (Row("load", "load", _share(lambda point: point.load), _percent),
        Row("update", "update", _share(lambda point: point.update), _percent),
        Row("other", "", _share(lambda point: point.other), _percent),
        Row("images/s", "", _rate, "{:,.0f}".format))


def lines(state: State, width: int, levels: str = LEVELS) -> list[Line]:
    """Returns the page. No line is longer than `width`, which counts as LEAST_COLUMNS if it is less."""
    width = max(LEAST_COLUMNS, width)
    summary = state.summary
    page = [Line(f"{_title(state)}: {state.directory}", "title")]
    page += _wrapped(_progress(state), width)
    if summary is not None and summary.error:
        page += _wrapped(f"ended by {summary.error}", width, "notice")
    if state.history.points:
        page += [Line(""), *_chart(state, width, levels)]
    if summary is not None:
        if summary.activity:
            page += [Line(""), *_workers(summary, width, levels)]
        page += [Line("")] * bool(summary.verdict) + _wrapped(_verdict(summary, state.steps), width)
        page += _wrapped(summary.advice, width)
        if summary.memory is not None:
            page += _memory(summary.memory, summary.ended, width)
        if summary.ranks:
            page += [Line(""), *_ranks(summary)]
    for fault in state.faults:
        page += _wrapped(fault, width, "notice")
    return [line._replace(text=line.text[:width].rstrip()) for line in page]


def _wrapped(text: str, width: int, style: str = "") -> list[Line]:
    return [Line(one, style) for one in textwrap.wrap(text, width)[:MOST_LINES]]


def _title(state: State) -> str:
    if state.summary is None:
        return "running, no summary yet"
    return f"{state.summary.state}, {text_of(state.summary.wall_s)}"


def _progress(state: State) -> str:
    """Returns what was done and how fast, and how much of the epoch is left."""
    summary, now = state.summary, state.history.latest(NOW_S)
    found = [f"{'' if summary is None else f'{summary.loader}: '}{state.steps:,} step{'s' * (state.steps != 1)}"]
    if summary is not None and summary.ended:
        found.append(f"{summary.epochs:,} epoch{'s' * (summary.epochs != 1)}")
        now = summary.total
    if now.seconds > 0:
        found.append(f"{now.steps / now.seconds:,.3g} steps/s")
    if state.epoch is not None:
        found.append(_epoch(state.epoch, now))
    if state.quiet_s > QUIET_S and not (summary is not None and summary.ended):
        found.append(f"no new step for {text_of(state.quiet_s)}")
    return ", ".join(found)


def _verdict(summary: Summary, steps: int) -> str:
    """Returns the verdict, which may be of fewer steps than the page shows."""
    if not summary.verdict or summary.steps >= steps:
        return summary.verdict
    return f"after {summary.steps:,} step{'s' * (summary.steps != 1)}: {summary.verdict}"


def _epoch(epoch: Epoch, now: Point) -> str:
    if epoch.length is None or epoch.done > epoch.length:
        return f"epoch {epoch.number:,}: {epoch.done:,} steps"
    left = f", {text_of((epoch.length - epoch.done) * now.seconds / now.steps)} left" if now.steps > 0 else ""
    return f"epoch {epoch.number:,}: {epoch.done:,} of {'about ' * epoch.is_estimate}{epoch.length:,} steps{left}"


def _bar(shares: Sequence[float | None], levels: str) -> str:
    """Returns a character per share of 0 to 1; None is unknown."""
    most = len(levels) - 2
    return "".join(levels[0 if share is None else 1 + min(most, round(most * share))] for share in shares)


def _chart(state: State, width: int, levels: str) -> list[Line]:
    history, summary = state.history, state.summary
    columns = [] if summary is not None and summary.ended else [("now", history.latest(NOW_S))]
    columns += [] if summary is None else [("run", summary.total)]
    count = width - LABEL - NUMBER * len(columns) - 1
    heads = "".join(f"{name:>{NUMBER}}" for name, _ in columns)
    found = [Line(f"{'':{LABEL}}{heads} last {text_of(history.seconds)}", "faint")]
    cells = history.cells(count)
    for row in ROWS:
        values = [row.value(cell) for cell in cells]
        highest = max([*values, 1e-9]) if row.value is _rate else 1.0
        numbers = "".join(f"{row.text(row.value(point)):>{NUMBER}}" for _, point in columns)
        found.append(Line(f"{row.name:{LABEL}}{numbers} {_bar([one / highest for one in values], levels)}", row.style))
    return found


def _workers(summary: Summary, width: int, levels: str) -> list[Line]:
    """Returns a line per worker: how much of the time before the summary it made batches."""
    count = min(CELLS, width - LABEL - NUMBER - 1)
    ago = "" if summary.ended else f", {text_of(summary.age_s)} ago"
    found = [Line(f"{'':{LABEL}}{'busy':>{NUMBER}} last {text_of(1e-9 * CELLS * CELL_NS)}{ago}", "faint")]
    for worker, text in enumerate(summary.activity[:MOST_WORKERS]):
        cells = [None if one == "-" else int(one) / BUSY for one in text]
        bounds = [at * len(cells) // count for at in range(count + 1)]
        shares = [_mean(cells[begin:max(end, begin + 1)]) for begin, end in zip(bounds, bounds[1:])]
        mean = _mean(cells)
        found.append(Line(f"{f'worker {worker}':{LABEL}}{'-' if mean is None else _percent(mean):>{NUMBER}} "
                          f"{_bar(shares, levels)}"))
    if (more := len(summary.activity) - MOST_WORKERS) > 0:
        found.append(Line(f"and {more} more workers", "faint"))
    return found


def _mean(cells: Sequence[float | None]) -> float | None:
    known = [one for one in cells if one is not None]
    return sum(known) / len(known) if known else None


def _memory(memory: Memory, ended: bool, width: int) -> list[Line]:
    """Returns what uses memory and what is free, and when it will be full if the run has said so."""
    text = (f"memory{' at the last sample' * ended}: trainer {bytes_text(memory.trainer)}, "
            f"workers {bytes_text(memory.workers)}; {bytes_text(max(0, memory.room.free))} of "
            f"{bytes_text(memory.room.total)} are free")
    return _wrapped(text, width) + _wrapped(memory.warning, width, "notice")


def _ranks(summary: Summary) -> list[Line]:
    """Returns a line per rank, with * at the one that the others wait for."""
    found = [Line(f"{'rank':>5}{'load ms':>9}{'update ms':>11}  bound", "faint")]
    for row in summary.ranks:
        mark = "*" if row["rank"] == summary.straggler else " "
        found.append(Line(f"{mark}{row['rank']:>4}{1e3 * row['load_s_per_step']:>9.1f}"
                          f"{1e3 * row['update_s_per_step']:>11.1f}  {row['bound']}", "load" if mark == "*" else ""))
    return found + [Line("* the others wait for it", "faint")] * (summary.straggler is not None)
