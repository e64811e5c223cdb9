"""What-if for DataLoaders: predicts a recorded loop's images/s under other settings, from its own records."""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .._predict import (MODEL_ERROR, USUAL_TENSORS, DataLoaderChange, DataLoaderInput, DataLoaderPredictor, Demand, Paging,
                        RecordedRun, mean_of)
from .._watch import ENOUGH, WORTHWHILE
from .batch_means import half_width
from .breakdown import COLLATE, DATASET, STARTUP, TRANSFER, Breakdown
from .loop_facts import LoopFacts
from .paging import measure
from .shards import MOST_SHARDS
from .threads import rows as thread_rows

if TYPE_CHECKING:
    from .summary_record import ChangeRecord, DemandRecord, ReplayRecord, SettingsRecord, WhatIfRecord

PREFETCH = 2  # torch's default
# CPU seconds of either end for a batch, and for each of its tensors, assumed where no worker ran: of next(), and of the
# worker's threads that send messages and hand over descriptors of shared memory.
TRANSFER_S, TENSOR_S = 0.0005, 0.00025
AHEAD = 1  # batches in the queue of a thread that takes them, at least; how many more is not known
MAX_SAVED = 0.9  # share of a measured demand that a run without workers saves at most
QUICK_STEPS = 60  # of a replay while the run goes on: fewer than of those that end it
# Beyond them a record is not believed, since the time of a replay grows with them.
LIMITS = {"workers": 1024, "prefetch": 64, "batch": 1 << 30, "cores": 1024}  # in the order of Setup
DEMANDS = ("send", "receive", "hand", "update")
FIRST_FACTS = ("images_per_s", "blocked_in_dataset")  # of RecordedRun; 0.2 had no others
FACTS = (*FIRST_FACTS, "update_s", "fetch_error", "update_error")
MOST_FETCHES, MOST = 256, 1e9
MOST_TENSORS = 1 << 20
MOST_THREADS = 1 << 53  # a quotient of two measured times, one of which may be next to nothing


@dataclass(frozen=True)
class Recorded:
    """What predictions need of a run beside the replay's input."""
    run: RecordedRun
    batch_bytes: int = 0
    collate_cpu: float = 0.0  # seconds per batch
    takes_prefetch: bool = True  # LoopFacts.takes_prefetch


def _per(rows: list[float], count: int) -> Demand:
    """Returns the demand of one of `count` events whose kinds of time were summed up. Unknown time counts as blocked."""
    if count == 0:
        return Demand()
    return Demand(1e-9 * rows[0] / count, 1e-9 * (rows[1] + rows[3]) / count)


def _fetches(breakdown: Breakdown, workers: int, pools: float) -> list[Demand]:
    """Returns the latest batches' demands, without the first of each worker if there are enough.

    `pools`: CPU seconds of other threads per batch. What was blocked meanwhile waited for them, and for no storage.
    """
    found = list(breakdown.demands)
    first = max(1, workers)
    if len(found) >= 4 * first and breakdown.batches == len(found):
        found = found[first:]
    waited = [min(1e-9 * blocked, pools) for _, blocked in found]
    return [Demand(1e-9 * cpu + part, 1e-9 * blocked - part) for (cpu, blocked), part in zip(found, waited)]


def _pools_per_batch(loop: LoopFacts) -> float:
    """Returns the CPU seconds that threads of pools use for one batch, in the trainer or in workers."""
    load = 1e-9 * sum(loop.breakdown.steady) / max(1, loop.steps - 1)
    if not loop.workers:
        return loop.threads.in_load * load
    return loop.threads.worker_cpu * (load + loop.mean_update_s)


def input_of(loop: LoopFacts, cores: int) -> DataLoaderInput | None:
    """Returns the replay's input for a recorded loop. None if the records do not suffice."""
    breakdown = loop.breakdown
    if not loop.sees_inside or breakdown.missing or loop.steps < 2 or not breakdown.demands:
        return None
    if loop.takes_ahead and loop.loop_waits is None:  # how long the loop takes for an update is not known
        return None
    update = loop.usage.demand() or Demand(blocked_s=loop.mean_update_s)
    batches = breakdown.batches
    send, receive = _per(breakdown.work[TRANSFER], batches), _per(breakdown.rebuilt, breakdown.rebuilds)
    if not loop.workers:
        send = receive = Demand(cpu_s=TRANSFER_S + TENSOR_S * (loop.tensors or USUAL_TENSORS))
    hand = Demand(cpu_s=1e-9 * breakdown.handed / breakdown.hands if breakdown.hands else 0.0)
    return DataLoaderInput(workers=loop.workers, prefetch=loop.prefetch or PREFETCH, ahead=AHEAD if loop.takes_ahead else 0,
                           batch=max(1, round(loop.images / loop.steps)), cores=cores,
                           fetch=_fetches(breakdown, loop.workers, _pools_per_batch(loop)), send=send, receive=receive,
                           tensors=loop.tensors, hand=hand, update=update)


def measured_rate(loop: LoopFacts) -> float | None:
    """Returns images per second of load + update, without the first batch and updates and the start of workers."""
    if loop.steps < 2:
        return None
    steady = loop.breakdown.steady
    step = 1e-9 * (sum(steady) - steady[STARTUP]) / (loop.steps - 1) + loop.mean_update_s
    return loop.images / loop.steps / step if step > 0 else None


def paging_of(measured: DataLoaderInput, recorded: Recorded) -> Paging:
    """Returns what shared memory costs the loader's batches with workers, as far as its records can hold that cost."""
    paging = measure(recorded.batch_bytes)
    if not measured.workers:
        return paging
    # A batch in private memory is moved to shared memory when it is sent, which no loop without workers does.
    make = 0.0 if measured.send.cpu_s >= paging.make_s else min(paging.make_s, MAX_SAVED * recorded.collate_cpu)
    return Paging(make, min(paging.take_s, MAX_SAVED * measured.update.cpu_s))


def what_if(loop: LoopFacts, cores: int) -> WhatIfRecord | None:
    """Returns the predictions of a run as they stand in summary.json; None if its records do not suffice."""
    given = recorded(loop, cores)
    record = None if given is None else predictions(*given)
    if record is not None:
        if loop.workers and not loop.persistent:
            record["rows"] += persistent_rows(loop.epochs, record["loader_images_per_s"])
        record["rows"] += thread_rows(loop.threads, loop.workers, cores)
    return record


def recorded(loop: LoopFacts, cores: int) -> tuple[DataLoaderInput, Recorded] | None:
    """Returns what predictions are made of; None if the records do not suffice."""
    measured, rate = input_of(loop, cores), measured_rate(loop)
    if measured is None or rate is None or loop.generator:
        return None
    work = loop.breakdown.work
    blocked = sum(row[1] for row in work[:3])
    seconds = [one.seconds for one in measured.fetch]
    run = RecordedRun(images_per_s=rate, blocked_in_dataset=work[DATASET][1] / blocked if blocked > 0 else 0.0,
                      update_s=loop.usage.update_s, fetch_error=half_width(seconds, [1.0] * len(seconds)),
                      update_error=loop.usage.half_width(), shards=loop.shards)
    collate_cpu = _per(work[COLLATE], loop.breakdown.batches).cpu_s
    return measured, Recorded(run, loop.batch_bytes, collate_cpu, loop.takes_prefetch)


def replay_input(loop: LoopFacts, cores: int) -> ReplayRecord | None:
    """Returns what the predictions are made from, for a summary of a run that is under way."""
    given = recorded(loop, cores)
    if given is None:
        return None
    measured, of_run = given
    send, receive, hand, update = ([one.cpu_s, one.blocked_s, round(one.threads)] for one in (
        measured.send, measured.receive, measured.hand, measured.update))
    run = of_run.run
    return {"workers": measured.workers, "prefetch": measured.prefetch, "batch": measured.batch,
            "cores": measured.cores, "fetch": [[one.cpu_s, one.blocked_s] for one in measured.fetch],
            "send": send, "receive": receive, "hand": hand, "update": update,
            "takes_prefetch": of_run.takes_prefetch, "batch_bytes": of_run.batch_bytes,
            "collate_cpu": of_run.collate_cpu, "images_per_s": run.images_per_s,
            "blocked_in_dataset": run.blocked_in_dataset, "update_s": run.update_s, "fetch_error": run.fetch_error,
            "update_error": run.update_error, "shards": run.shards, "ahead": measured.ahead,
            "tensors": measured.tensors}


def recorded_from(record: Any) -> tuple[DataLoaderInput, Recorded] | None:
    """Returns the input of predictions that a replay_input() holds. None if it is none, or no machine's."""
    try:
        given: dict[str, Any] = {key: _within(record[key], 0 if key == "workers" else 1, most)
                                 for key, most in LIMITS.items()}
        fetch = [Demand(_number(cpu), _number(blocked)) for cpu, blocked in record["fetch"][:MOST_FETCHES]]
        given |= {key: Demand(_number(cpu), _number(blocked), _within(threads, 1, MOST_THREADS))
                  for key in DEMANDS for cpu, blocked, threads in [record[key]]}
        facts = {key: _number(record[key] if key in FIRST_FACTS else record.get(key, 0.0)) for key in FACTS}
        shards = _within(record.get("shards", 0), 0, MOST_SHARDS)
        given["ahead"] = _within(record.get("ahead", 0), 0, AHEAD)
        given["tensors"] = _within(record.get("tensors", 0), 0, MOST_TENSORS)
        of_run = Recorded(RecordedRun(**facts, shards=shards), _within(record["batch_bytes"], 0, 1 << 40),
                          _number(record["collate_cpu"]), record.get("takes_prefetch") is not False)
    except (AttributeError, KeyError, TypeError, ValueError):
        return None
    return (DataLoaderInput(**given, fetch=fetch), of_run) if fetch else None


def predictions_from(record: Any) -> WhatIfRecord | None:
    """Returns the predictions that follow from a replay_input(). None if it is none, or no machine's."""
    given = recorded_from(record)
    return None if given is None else predictions(*given)


def quick_predictions(measured: DataLoaderInput, of_run: Recorded) -> WhatIfRecord | None:
    """Returns predictions of more workers, and of other numbers of batches ahead, by short replays."""
    return predictions(measured.replace(steps=QUICK_STEPS), of_run, Paging(),
                       lambda change: change.argument == "prefetch_factor" or
                       (change.argument == "num_workers" and change.value > 0))


def _within(value: Any, least: int, most: int) -> int:
    if type(value) is not int or not least <= value <= most:
        raise ValueError
    return value


def _number(value: Any) -> float:
    if type(value) not in (int, float) or not 0 <= value <= MOST:
        raise ValueError
    return float(value)


def persistent_rows(epochs: Sequence[dict[str, Any]], alone: float) -> list[ChangeRecord]:
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


def predictions(measured: DataLoaderInput, of_run: Recorded, paging: Paging | None = None,
                wanted: Callable[[DataLoaderChange], bool] = lambda _: True) -> WhatIfRecord | None:
    """Returns images/s of each wanted change: the recorded rate times the ratio of the two replays.

    `paging` is measured if it is not given. None if a replay has no work that takes time.
    """
    paging = paging_of(measured, of_run) if paging is None else paging
    rate = of_run.run.images_per_s
    try:
        predictor = DataLoaderPredictor(measured, of_run.run)
        changes = [one for one in predictor.changes(paging)
                   if wanted(one) and (of_run.takes_prefetch or one.argument != "prefetch_factor")]
        rows = [_row(one, predictor, rate) for one in changes]
    except ValueError:
        return None
    doubts = predictor.doubts
    return {"images_per_s": rate, "loader_images_per_s": predictor.loader_images_per_s,
            "replay_images_per_s": predictor.images_per_s, "settings": _settings(predictor.input),
            "doubts": {"fetch": doubts.fetch, "update": doubts.update, "spinning": doubts.spinning},
            "transfer_assumed": measured.workers == 0,
            "shared_memory": {"make": paging.make_s, "take": paging.take_s}, "rows": rows}


def _row(change: DataLoaderChange, predictor: DataLoaderPredictor, rate: float) -> ChangeRecord:
    overrides: dict[str, int | bool] = {change.argument: change.value} if change.argument else {}
    found = predictor.predict(change)
    return {"change": f"{change.argument}={change.value}" if overrides else "storage twice as fast",
            "overrides": overrides, "ratio": found.ratio, "low": found.low, "high": found.high,
            "loading_only": change.loading_only, "images_per_s": None if change.loading_only else found.ratio * rate,
            "loader_images_per_s": found.loader_images_per_s}


def _settings(used: DataLoaderInput) -> SettingsRecord:
    return {"num_workers": used.workers, "prefetch_factor": used.prefetch if used.workers else None,
            "batch": used.batch, "cores": used.cores, "fetch": _demand(mean_of(used.fetch)),
            "send": _demand(used.send), "receive": _demand(used.receive), "tensors": used.tensors,
            "tensor_wait": used.tensor_wait_s, "hand": _demand(used.hand), "update": _demand(used.update)}


def _demand(demand: Demand) -> DemandRecord:
    return {"cpu": demand.cpu_s, "blocked": demand.blocked_s, "threads": round(demand.threads)}


def best(record: Mapping[str, Any]) -> dict[str, Any] | None:
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


def proposal(change: Mapping[str, Any]) -> str:
    """Returns a change in words, with the rates that it is predicted to turn into each other."""
    return f"try {change['change']}: {promise(change)}"


def promise(change: Mapping[str, Any]) -> str:
    """Returns the rates that a change is predicted to turn into each other."""
    now = change["images_per_s"] / change["ratio"]
    return (f"{change['images_per_s']:,.0f} images/s predicted ({change['low'] * now:,.0f} to "
            f"{change['high'] * now:,.0f}), {now:,.0f} now")


def _percent(ratio: float) -> str:
    text = f"{100 * (ratio - 1):+.0f}"
    return "+0" if text == "-0" else text


def lines(record: Mapping[str, Any]) -> list[str]:
    """Returns the table as text."""
    def number(value: float | None) -> str:
        return "-" if value is None else f"{value:,.0f}"

    def interval(row: Mapping[str, Any]) -> str:
        if row["low"] is None or row["high"] is None or row["loading_only"]:
            return ""
        return f"{_percent(row['low'])} to {_percent(row['high'])}%"

    wide = max([26, *(len(row["change"]) for row in record["rows"])]) + 1
    text = [f"{'what if':<{wide}}{'images/s':>10}{'change':>9}{'90%':>16}{'loader alone':>14}",
            f"{'as it ran':<{wide}}{number(record['images_per_s']):>10}{'':>25}"
            f"{number(record['loader_images_per_s']):>14}"]
    for row in record["rows"]:
        if "saved_s_per_epoch" in row:  # of another base, with the start-up of workers
            base = row["images_per_s"] / row["ratio"] if row["images_per_s"] and row["ratio"] else None
            text.append(f"{'whole epochs, as they ran':<{wide}}{number(base):>10}")
        change = "" if row["loading_only"] else "?" if row["ratio"] is None else f"{_percent(row['ratio'])}%"
        text.append(f"{row['change']:<{wide}}{number(row['images_per_s']):>10}{change:>9}{interval(row):>16}"
                    f"{number(row['loader_images_per_s']):>14}")
    text += [f"{row['change']}: saves the start-up of {row['saved_s_per_epoch']:.2f} s in each epoch"
             for row in record["rows"] if "saved_s_per_epoch" in row]
    if any(row["ratio"] is None for row in record["rows"]):
        text.append("?: not predicted; pymillrace what-if --verify measures it")
    return text
