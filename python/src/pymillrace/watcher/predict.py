"""What-if for DataLoaders: predicts a recorded loop's images/s under other settings, from its own records."""
from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from typing import Any

from .._watch import ENOUGH, WORTHWHILE
from .breakdown import COLLATE, DATASET, STARTUP, TRANSFER, Breakdown
from .intervals import MODEL_ERROR, Doubts, Intervals, half_width, scaled
from .loop_facts import LoopFacts
from .paging import Paging, measure
from .replay import Demand, Setup, replay, without_spinning
from .threads import rows as thread_rows

PREFETCH = 2  # torch's default
# CPU seconds per batch in the feeder thread, and again in next(), assumed where no worker ran: messages, descriptors.
TRANSFER_S = 0.0006
MAX_SAVED = 0.9  # share of a measured demand that a run without workers saves at most
MOST_OFFERED = 128  # workers for batches that wait for storage
QUICK_STEPS = 60  # of a replay while the run goes on: fewer than of those that end it
# Beyond them a record is not believed, since the time of a replay grows with them.
LIMITS = {"workers": 1024, "prefetch": 64, "batch": 1 << 30, "cores": 1024}  # in the order of Setup
DEMANDS = ("send", "receive", "hand", "update")
MOST_FETCHES, MOST = 256, 1e9
MOST_THREADS = 1 << 53  # a quotient of two measured times, one of which may be next to nothing
STORAGE_THAT_COUNTS = 0.05  # share of a batch's time blocked in the data set


@dataclass(frozen=True)
class Change:
    """A change to try. `overrides` are arguments of DataLoader; without any, no argument expresses it."""
    text: str
    overrides: dict[str, int]
    setup: Setup
    loading_only: bool = False  # the update is left out, since it would change too


@dataclass(frozen=True)
class Recorded:
    """What predictions need beside the replay's input."""
    images_per_s: float
    blocked_in_dataset: float  # its share of the time that fetching is blocked
    batch_bytes: int = 0
    collate_cpu: float = 0.0  # seconds per batch
    update_s: float = 0.0  # length of an update; 0: it was not measured with its CPU time
    fetch_error: float = 0.0  # relative half widths of the intervals of a batch's and of an update's length
    update_error: float = 0.0


def _per(rows: list[float], count: int) -> Demand:
    """Returns the demand of one of `count` events whose kinds of time were summed up. Unknown time counts as blocked."""
    if count == 0:
        return Demand()
    return Demand(cpu=1e-9 * rows[0] / count, blocked=1e-9 * (rows[1] + rows[3]) / count)


def _fetches(breakdown: Breakdown, workers: int, pools: float) -> tuple[Demand, ...]:
    """Returns the latest batches' demands, without the first of each worker if there are enough.

    `pools`: CPU seconds of other threads per batch. What was blocked meanwhile waited for them, and for no storage.
    """
    found = list(breakdown.demands)
    first = max(1, workers)
    if len(found) >= 4 * first and breakdown.batches == len(found):
        found = found[first:]
    waited = [min(1e-9 * blocked, pools) for _, blocked in found]
    return tuple(Demand(cpu=1e-9 * cpu + part, blocked=1e-9 * blocked - part)
                 for (cpu, blocked), part in zip(found, waited))


def _pools_per_batch(loop: LoopFacts) -> float:
    """Returns the CPU seconds that threads of pools use for one batch, in the trainer or in workers."""
    load = 1e-9 * sum(loop.breakdown.steady) / max(1, loop.steps - 1)
    if not loop.workers:
        return loop.threads.in_load * load
    return loop.threads.worker_cpu * (load + loop.update_s / loop.steps)


def setup_of(loop: LoopFacts, cores: int) -> Setup | None:
    """Returns the replay's input for a recorded loop. None if the records do not suffice."""
    breakdown = loop.breakdown
    if not loop.sees_inside or breakdown.missing or loop.steps < 2 or not breakdown.demands:
        return None
    if loop.takes_ahead:  # load and update do not take turns in its thread
        return None
    update = loop.usage.demand() or Demand(blocked=loop.update_s / loop.steps)
    batches = breakdown.batches
    send, receive = _per(breakdown.work[TRANSFER], batches), _per(breakdown.rebuilt, breakdown.rebuilds)
    if not loop.workers:
        send = receive = Demand(cpu=TRANSFER_S)
    hand = Demand(cpu=1e-9 * breakdown.handed / breakdown.hands if breakdown.hands else 0.0)
    return Setup(loop.workers, loop.prefetch or PREFETCH, max(1, round(loop.images / loop.steps)), cores,
                 _fetches(breakdown, loop.workers, _pools_per_batch(loop)), send, receive, hand, update)


def measured_rate(loop: LoopFacts) -> float | None:
    """Returns images per second of load + update, without first batches and the start of workers."""
    if loop.steps < 2:
        return None
    steady = loop.breakdown.steady
    step = 1e-9 * (sum(steady) - steady[STARTUP]) / (loop.steps - 1) + loop.update_s / loop.steps
    return loop.images / loop.steps / step if step > 0 else None


def paging_of(setup: Setup, batch_bytes: int, collate_cpu: float) -> Paging:
    """Returns what shared memory costs the loader's batches with workers, as far as its records can hold that cost."""
    paging = measure(batch_bytes)
    if not setup.workers:
        return paging
    # A batch in private memory is moved to shared memory when it is sent, which no loop without workers does.
    make = 0.0 if setup.send.cpu >= paging.make else min(paging.make, MAX_SAVED * collate_cpu)
    return Paging(make, min(paging.take, MAX_SAVED * setup.update.cpu))


def with_workers(setup: Setup, workers: int, paging: Paging) -> Setup:
    """Returns the setup with another number of workers. Only batches of workers lie in shared memory."""
    added = (workers > 0) - (setup.workers > 0)
    fetch = tuple(replace(one, cpu=max(0.0, one.cpu + added * paging.make)) for one in setup.fetch)
    update = replace(setup.update, cpu=max(0.0, setup.update.cpu + added * paging.take))
    return replace(setup, workers=workers, fetch=fetch, update=update)


def _that_wait(setup: Setup) -> list[int]:
    """Returns numbers of workers up to the one that hides the load of batches that wait, which may exceed the cores."""
    fetch = _mean(setup.fetch)
    if fetch.blocked <= STORAGE_THAT_COUNTS * fetch.seconds:
        return []
    trainer = setup.update.seconds + setup.hand.seconds + setup.receive.seconds
    cpu = fetch.cpu + setup.send.cpu + setup.receive.cpu + setup.hand.cpu + setup.update.threads * setup.update.cpu
    step = max(trainer, cpu / setup.cores)
    most = min(MOST_OFFERED, math.ceil(fetch.seconds / step) + 1 if step > 0 else MOST_OFFERED)
    found = [4]  # 1 and 2 are always tried
    while found[-1] < most:
        found.append(min(most, 2 * found[-1]))
    return [one for one in found if one <= most]


def changes(setup: Setup, blocked_in_dataset: float, paging: Paging) -> Iterable[Change]:
    """Yields the changes that are tried. `blocked_in_dataset`: its share of the time that fetching is blocked."""
    workers = {0, 1, 2, setup.workers + 1, 2 * setup.workers, setup.cores, *_that_wait(setup)} - {setup.workers}
    most = max(2 * setup.cores, 2 * setup.workers, *_that_wait(setup), 0)
    for one in sorted(workers):
        if one <= most:
            yield Change(f"num_workers={one}", {"num_workers": one}, with_workers(setup, one, paging))
    if setup.workers:
        for one in sorted({1, 2, 4, 8} - {setup.prefetch}):
            yield Change(f"prefetch_factor={one}", {"prefetch_factor": one}, replace(setup, prefetch=one))
    fetch = sum(one.seconds for one in setup.fetch)
    blocked = blocked_in_dataset * sum(one.blocked for one in setup.fetch)
    if fetch > 0 and blocked > STORAGE_THAT_COUNTS * fetch:
        part = 1 - 0.5 * blocked_in_dataset
        yield Change("storage twice as fast", {},
                     replace(setup, fetch=tuple(scaled(one, 1, part) for one in setup.fetch)))
    for one in (setup.batch // 2, 2 * setup.batch):
        if one < 1:
            continue
        factor = one / setup.batch
        yield Change(f"batch_size={one}", {"batch_size": one}, replace(
            setup, batch=one, fetch=tuple(scaled(each, factor, factor) for each in setup.fetch),
            send=scaled(setup.send, factor, factor), receive=scaled(setup.receive, factor, factor),
            update=Demand()), loading_only=True)


def what_if(loop: LoopFacts, cores: int) -> dict[str, Any] | None:
    """Returns the predictions of a run as they stand in summary.json; None if its records do not suffice."""
    given = input_of(loop, cores)
    record = None if given is None else _predictions(*given)
    if record is not None:
        if loop.workers and not loop.persistent:
            record["rows"] += persistent_rows(loop.epochs, record["loader_images_per_s"])
        record["rows"] += thread_rows(loop.threads, loop.workers, cores)
    return record


def input_of(loop: LoopFacts, cores: int) -> tuple[Setup, Recorded] | None:
    """Returns the input of the predictions; None if the records do not suffice."""
    setup, rate = setup_of(loop, cores), measured_rate(loop)
    if setup is None or rate is None:
        return None
    work = loop.breakdown.work
    blocked = sum(row[1] for row in work[:3])
    collate = _per(work[COLLATE], loop.breakdown.batches)
    seconds = [one.seconds for one in setup.fetch]
    return setup, Recorded(rate, work[DATASET][1] / blocked if blocked > 0 else 0.0, loop.batch_bytes, collate.cpu,
                           loop.usage.update_s, half_width(seconds, [1.0] * len(seconds)), loop.usage.half_width())


def _predictions(setup: Setup, recorded: Recorded) -> dict[str, Any] | None:
    return predictions(setup, recorded, paging_of(setup, recorded.batch_bytes, recorded.collate_cpu))


def replay_input(loop: LoopFacts, cores: int) -> dict[str, Any] | None:
    """Returns what the predictions are made from, for a summary of a run that is under way."""
    given = input_of(loop, cores)
    if given is None:
        return None
    setup, recorded = given
    numbers = {key: getattr(setup, key) for key in LIMITS}
    demands = {key: list(astuple(getattr(setup, key))) for key in DEMANDS}
    return {**numbers, "fetch": [[one.cpu, one.blocked] for one in setup.fetch], **demands, **asdict(recorded)}


def input_from(record: Any) -> tuple[Setup, Recorded] | None:
    """Returns the input that a replay_input() holds. None if it is none, or no machine's."""
    try:
        numbers = [_within(record[key], 0 if key == "workers" else 1, most) for key, most in LIMITS.items()]
        fetch = tuple(Demand(_number(cpu), _number(blocked)) for cpu, blocked in record["fetch"][:MOST_FETCHES])
        send, receive, hand, update = (Demand(_number(cpu), _number(blocked), _within(threads, 1, MOST_THREADS))
                                       for cpu, blocked, threads in map(record.__getitem__, DEMANDS))
        recorded = Recorded(_number(record["images_per_s"]), _number(record["blocked_in_dataset"]),
                            _within(record["batch_bytes"], 0, 1 << 40), _number(record["collate_cpu"]),
                            *(_number(record.get(key, 0.0)) for key in ("update_s", "fetch_error", "update_error")))
    except (AttributeError, KeyError, TypeError, ValueError):
        return None
    if not fetch:
        return None
    workers, prefetch, batch, cores = numbers
    return Setup(workers, prefetch, batch, cores, fetch, send, receive, hand, update), recorded


def predictions_from(record: Any) -> dict[str, Any] | None:
    """Returns the predictions that follow from a replay_input(). None if it is none, or no machine's."""
    given = input_from(record)
    return None if given is None else _predictions(*given)


def quick_predictions(setup: Setup, recorded: Recorded) -> dict[str, Any] | None:
    """Returns predictions of more workers, and of other numbers of batches ahead, by short replays."""
    return predictions(replace(setup, steps=QUICK_STEPS), recorded,
                       wanted=lambda change: bool(change.overrides) and not change.loading_only and
                       change.overrides.get("num_workers", 1) > 0)


def _within(value: Any, least: int, most: int) -> int:
    if type(value) is not int or not least <= value <= most:
        raise ValueError
    return value


def _number(value: Any) -> float:
    if type(value) not in (int, float) or not 0 <= value <= MOST:
        raise ValueError
    return float(value)


def persistent_rows(epochs: Sequence[dict[str, Any]], alone: float) -> list[dict[str, Any]]:
    """Returns the row of persistent_workers=True, if a run started workers for a second epoch and went through it.

    The rate and the ratio are those of the whole epochs after the first, whose start-up the change saves. Epochs that
    were left early do not count: their start-up is a larger part of them. `alone`: images/s of the loader alone.
    """
    later = [one for one in epochs[1:] if one["images"] and one["whole"]]
    saved = sum(one["blame"]["startup"] for one in later)
    whole = sum(one["load_s"] + one["update_s"] for one in later)
    if saved <= 0 or whole <= saved:
        return []
    ratio = whole / (whole - saved)
    return [{"change": "persistent_workers=True", "overrides": {"persistent_workers": True},
             "ratio": ratio, "low": ratio / (1 + MODEL_ERROR), "high": ratio * (1 + MODEL_ERROR), "loading_only": False,
             "images_per_s": sum(one["images"] for one in later) / (whole - saved), "loader_images_per_s": alone,
             "saved_s_per_epoch": saved / len(later)}]


def predictions(measured: Setup, recorded: Recorded, paging: Paging = Paging(),
                wanted: Callable[[Change], bool] = lambda _: True) -> dict[str, Any] | None:
    """Returns images/s of each wanted change: the recorded rate times the ratio of the two replays.

    None if a replay has no work that takes time.
    """
    try:
        return _replayed(measured, recorded, paging, wanted)
    except ValueError:
        return None


def _replayed(measured: Setup, recorded: Recorded, paging: Paging, wanted: Callable[[Change], bool]) -> dict[str, Any]:
    setup = without_spinning(measured, recorded.update_s) if recorded.update_s > 0 else measured
    doubts = Doubts(recorded.fetch_error, recorded.update_error,
                    measured.update.cpu / setup.update.cpu if setup.update.cpu > 0 else 1.0)
    alone = replace(setup, update=Demand())
    base, loading = replay(setup), replay(alone)
    of_loop, of_loading = Intervals(setup, recorded.images_per_s, doubts), Intervals(alone, None, doubts)
    rows: list[dict[str, Any]] = []
    for change in filter(wanted, changes(setup, recorded.blocked_in_dataset, paging)):
        rates = replay(change.setup)
        ratio = rates.images_per_s / (loading if change.loading_only else base).images_per_s
        if not change.overrides:  # faster storage delays nobody; batches that meet differently do, in a replay
            ratio = max(1.0, ratio)
        low, high = (of_loading if change.loading_only else of_loop).around(ratio, change.setup)
        loader = rates if change.loading_only else replay(replace(change.setup, update=Demand()))
        rows.append({"change": change.text, "overrides": change.overrides, "ratio": ratio, "low": low, "high": high,
                     "loading_only": change.loading_only,
                     "images_per_s": None if change.loading_only else ratio * recorded.images_per_s,
                     "loader_images_per_s": loader.images_per_s})
    return {"images_per_s": recorded.images_per_s, "loader_images_per_s": loading.images_per_s,
            "replay_images_per_s": base.images_per_s, "settings": _settings(setup), "doubts": asdict(doubts),
            "transfer_assumed": setup.workers == 0, "shared_memory": asdict(paging), "rows": rows}


def _settings(setup: Setup) -> dict[str, Any]:
    fetch = _mean(setup.fetch)
    return {"num_workers": setup.workers, "prefetch_factor": setup.prefetch if setup.workers else None,
            "batch": setup.batch, "cores": setup.cores, "fetch": asdict(fetch), "send": asdict(setup.send),
            "receive": asdict(setup.receive), "hand": asdict(setup.hand), "update": asdict(setup.update)}


def _mean(demands: tuple[Demand, ...]) -> Demand:
    count = len(demands)
    return Demand(sum(one.cpu for one in demands) / count, sum(one.blocked for one in demands) / count)


def best(record: dict[str, Any]) -> dict[str, Any] | None:
    """Returns the change of arguments that gains most at least, if that is worthwhile.

    Of those within 5% of the best lower end of an interval it is the one with the fewest workers.
    """
    rows = [row for row in record["rows"]
            if row["overrides"] and not row["loading_only"] and (row["low"] or 0.0) >= WORTHWHILE]
    if not rows:
        return None
    top = max(row["low"] for row in rows)
    near: list[dict[str, Any]] = [row for row in rows if row["low"] >= ENOUGH * top]
    return min(near, key=lambda row: row["overrides"].get("num_workers", record["settings"]["num_workers"]))


def proposal(change: dict[str, Any]) -> str:
    """Returns a change in words, with the rates that it is predicted to turn into each other."""
    now = change["images_per_s"] / change["ratio"]
    return (f"try {change['change']}: {change['images_per_s']:,.0f} images/s predicted ({change['low'] * now:,.0f} to "
            f"{change['high'] * now:,.0f}), {now:,.0f} now")


def lines(record: dict[str, Any]) -> list[str]:
    """Returns the table as text."""
    def number(value: float | None) -> str:
        return "-" if value is None else f"{value:,.0f}"

    def interval(row: dict[str, Any]) -> str:
        if row["low"] is None or row["high"] is None or row["loading_only"]:
            return ""
        return f"{100 * (row['low'] - 1):+.0f} to {100 * (row['high'] - 1):+.0f}%"

    wide = max([26, *(len(row["change"]) for row in record["rows"])]) + 1
    text = [f"{'what if':<{wide}}{'images/s':>10}{'change':>9}{'90%':>16}{'loader alone':>14}",
            f"{'as it ran':<{wide}}{number(record['images_per_s']):>10}{'':>25}"
            f"{number(record['loader_images_per_s']):>14}"]
    for row in record["rows"]:
        if "saved_s_per_epoch" in row:  # of another base, with the start-up of workers
            base = row["images_per_s"] / row["ratio"] if row["images_per_s"] and row["ratio"] else None
            text.append(f"{'whole epochs, as they ran':<{wide}}{number(base):>10}")
        change = "" if row["loading_only"] else "?" if row["ratio"] is None else f"{100 * (row['ratio'] - 1):+.0f}%"
        text.append(f"{row['change']:<{wide}}{number(row['images_per_s']):>10}{change:>9}{interval(row):>16}"
                    f"{number(row['loader_images_per_s']):>14}")
    text += [f"{row['change']}: saves the start-up of {row['saved_s_per_epoch']:.2f} s in each epoch"
             for row in record["rows"] if "saved_s_per_epoch" in row]
    if any(row["ratio"] is None for row in record["rows"]):
        text.append("?: not predicted; pymillrace what-if --verify measures it")
    return text
