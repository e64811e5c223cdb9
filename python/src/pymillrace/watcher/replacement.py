"""What-if row "replaced by millrace": what a loop's rate would be with millrace's own loader.

While a loop is watched, the counterpart of its data set is recorded. `pymillrace what-if RUN` measures what millrace's
loader takes for its files, and replays the loop with that.
"""
from __future__ import annotations

import math
import os
import shlex
from collections.abc import Callable
from typing import Any

from .._predict import DataLoaderInput, DataLoaderRatios, Demand, Doubts, replay, usual_pause
from .._watch import ENOUGH, WORTHWHILE
from ..errors import Error
from .loader_cpu import measure_cpu
from .predict import PREFETCH, best, promise, proposal

CHANGE = "replaced by millrace"
AHEAD = 4  # loader.prefetch: batches made ahead in total
HAND_S = 20e-6  # of next() per batch
MOST_TRIED = 64  # numbers of workers
OF_LOADER = (  # begins of verdict.advice() where no other setting helps
    "advice: make the ", "advice: the loader keeps up", "advice: without workers ")
EARLIER = "the run was recorded by an earlier version; record it again"


def row(summary: dict[str, Any], measure: Callable[[list[str], list[str], int], float] = measure_cpu) -> dict[str, Any]:
    """Returns the row of a recorded run: its prediction, or the `reason` why there is none."""
    entry: dict[str, Any] = next((one for one in summary["loaders"] if one["name"] == summary["loader"]), {})
    found = entry.get("counterpart")
    if found is None:
        return _impossible(EARLIER)
    if found["reason"] is not None:
        return _impossible(found["reason"])
    missing = [path for path in found["samples"] if not os.path.exists(path)]
    if missing:
        return _impossible(f"{len(missing)} of its {len(found['samples'])} sampled files are gone, "
                           f"for example {missing[0]}")
    settings = summary["what_if"]["settings"]
    if "hand" not in settings:
        return _impossible(EARLIER)
    try:
        cpu = measure(found["words"], found["samples"], settings["batch"])
        return {**_predicted(summary["what_if"], cpu, _blocked_in_dataset(entry)), "files": len(found["samples"])}
    except Error as error:
        return _impossible(error.what)
    except OSError as error:
        return _impossible(f"{error.filename or 'a sampled file'} {error.strerror}")
    except (ValueError, ArithmeticError):
        return _impossible("the recorded times cannot be replayed")


def _impossible(reason: str) -> dict[str, Any]:
    return {"change": CHANGE, "overrides": {}, "reason": reason}


def _blocked_in_dataset(entry: dict[str, Any]) -> float:
    """Returns the share of the data set in the time for which fetching was blocked."""
    blocked = {place: entry["work"][place]["blocked"] for place in ("dataset", "transform", "collate")}
    return float(blocked["dataset"] / sum(blocked.values())) if sum(blocked.values()) > 0 else 0.0


def _numbers_of_workers(cores: int) -> list[int]:
    """Returns the numbers to try: each up to MOST_TRIED, beyond that as many, spread evenly on a scale of ratios."""
    if cores <= MOST_TRIED:
        return list(range(1, cores + 1))
    return sorted({round(cores ** (i / (MOST_TRIED - 1))) for i in range(MOST_TRIED)})


def _predicted(what_if: dict[str, Any], cpu: float, blocked_in_dataset: float) -> dict[str, Any]:
    """Returns the replayed row. Waiting for storage stays as it was recorded: the files are the same."""
    settings, measured = what_if["settings"], what_if["images_per_s"]
    fetch, send, receive, hand, update = (
        Demand(one["cpu"], one["blocked"], one["threads"])
        for one in map(settings.__getitem__, ("fetch", "send", "receive", "hand", "update")))
    now = DataLoaderInput(workers=settings["num_workers"], prefetch=settings["prefetch_factor"] or PREFETCH,
                          batch=settings["batch"], cores=settings["cores"], fetch=[fetch], send=send, receive=receive,
                          tensors=settings["tensors"], tensor_wait_s=settings["tensor_wait"], hand=hand, update=update,
                          pause_s=usual_pause(fetch, settings["tensors"]))
    batch = Demand(cpu * now.batch, blocked_in_dataset * fetch.blocked_s)
    tried = [DataLoaderInput(workers=workers, prefetch=math.ceil(AHEAD / workers), batch=now.batch, cores=now.cores,
                             fetch=[batch], hand=Demand(HAND_S), update=update)
             for workers in _numbers_of_workers(now.cores)]
    rates = [replay(one).images_per_s for one in tried]
    chosen = next(one for rate, one in zip(rates, tried) if rate >= ENOUGH * max(rates))
    alone = replay(chosen.replace(update=Demand())).images_per_s
    ratio, low, high = DataLoaderRatios(now, measured, Doubts(**what_if["doubts"])).with_interval(chosen)
    return {"change": CHANGE, "overrides": {}, "reason": None, "loading_only": False, "ratio": ratio, "low": low,
            "high": high, "images_per_s": ratio * measured, "loader_images_per_s": alone,
            "loader_workers": chosen.workers, "cpu_s_per_image": cpu}


def line(found: dict[str, Any]) -> str:
    """Returns the lines below the table."""
    if found["reason"] is not None:
        return f"{CHANGE}: not predicted: {found['reason']}"
    return (f"{CHANGE}: with loader.workers={found['loader_workers']}; {1e3 * found['cpu_s_per_image']:.2f} ms of CPU per "
            f"image, measured on {found['files']} of its files")


def advice(summary: dict[str, Any], found: dict[str, Any], run: str) -> str:
    """Returns the advice of a recorded run, which is the replacement where its lower end is 5% above all others'.

    Advice on threads and on other programs stays: no rate of this record holds before it is followed.
    """
    recorded: str = summary["advice"]
    if found["reason"] is not None or found["low"] < WORTHWHILE:
        return recorded
    change = best({**summary["what_if"], "rows": [row for row in summary["what_if"]["rows"] if row is not found]})
    if change is None and not recorded.startswith(OF_LOADER):
        return recorded
    otherwise = ""
    if change is not None:
        if ENOUGH * found["low"] <= change["low"] or not recorded.startswith(f"advice: {proposal(change)}"):
            return recorded
        otherwise = f"; without it {proposal(change)}"
    entry = next(one for one in summary["loaders"] if one["name"] == summary["loader"])
    how = f"its code: pymillrace what-if {shlex.quote(run)} --show-code" if entry["counterpart"]["source"] else (
        f"no code can be shown: {entry['counterpart']['no_source'] or EARLIER}")
    return f"advice: replace the loader by millrace's: {promise(found)}; {how}{otherwise}"
