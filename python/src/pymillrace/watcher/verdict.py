"""Verdict and advice: what limits a loop, and the one change to try first."""
from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .._predict import USUAL_TENSORS
from .._watch import LOAD_THAT_BINDS, STEPS_FOR_VERDICT, WORTHWHILE, load_that_binds
from .breakdown import COLLATE, DATASET, KINDS, NOWHERE, PLACES, TRANSFORM
from .loop_facts import NEVER_WAITS, LoopFacts
from .predict import best, proposal
from .threads import IN_LOAD
from .threads import rows as thread_rows

OWN = "mr.Loader"  # kind of millrace's own loader
SMALL_TENSOR = 1 << 20  # bytes below which sending a tensor takes the time of its messages, not of its values
SHARE_TO_TELL = 0.05  # of load + update: with as large a difference, the sentence says what was left out


@dataclass
class Verdict:
    bound: str  # a place, or "device"
    kind: str  # what most of that place's time was
    sentence: str
    workers_needed: float | None


def _cores(cores: int) -> str:
    return f"{cores} core{'s' * (cores != 1)}"


def _percent(part: float) -> str:
    if 0 < part < 0.0005:
        return "under 0.1%"
    return f"{100 * part:.1f}%" if part < 0.0995 else f"{100 * part:.0f}%"


def workers_needed(loop: LoopFacts) -> float | None:
    """Returns the workers that would hide load behind this update; None if it cannot be known."""
    work, update_s = loop.breakdown.work, loop.loop_update_s
    if not update_s or not loop.sees_inside or loop.generator or loop.breakdown.missing or sum(work[NOWHERE]) > 0:
        return None
    busy = sum(sum(work[place]) - work[place][2] for place in (DATASET, TRANSFORM, COLLATE))
    return 1e-9 * busy / (max(1, loop.steps) * update_s)


def _device_gap_share(loop: LoopFacts, steady: float) -> float | None:
    """Returns the share of the steady time in which the device waited for data; None if too few waits were measured."""
    device = loop.device
    if device is None or steady <= 0 or device.count < 2 or 2 * device.count < loop.steps:
        return None
    return (device.seconds - device.first_s) / (device.count - 1) * (loop.steps - 1) / steady


def classify(loop: LoopFacts, cores: int) -> Verdict:
    """Names the place that load was spent on. Leaves the run's first wait out, as `millrace train` does."""
    needed = workers_needed(loop)
    if (missing := too_short(loop.steps)) is not None:
        return Verdict("unknown", "unknown", missing, needed)
    verdict = _classify(loop, needed, cores)
    facts = loop.threads
    if loop.infers:
        verdict.sentence = f"inference, without gradients or optimizer: {verdict.sentence}"
    if facts.oversubscribed(cores):
        verdict.sentence = f"oversubscribed: {round(facts.threads)} threads on {_cores(cores)}; {verdict.sentence}"
    return verdict


def too_short(steps: int) -> str | None:
    """Says what is missing until there is a verdict; None if nothing is."""
    missing = STEPS_FOR_VERDICT - steps
    return f"too short: {missing} more step{'s' * (missing != 1)}" if missing > 0 else None


def _classify(loop: LoopFacts, needed: float | None, cores: int) -> Verdict:
    steady = loop.breakdown.steady
    load, update, share = 1e-9 * sum(steady), loop.steps * loop.mean_update_s, loop.share_of_load
    tail = "" if loop.sees_inside or loop.kind == OWN else f"; pymillrace cannot see inside {loop.kind}"
    if share - load / (load + loop.update_s or 1.0) >= SHARE_TO_TELL:
        tail = f"; its first {loop.first_steps} updates, which took {loop.first_update_s:.2g} s, are left out{tail}"
    if needed is not None:
        have = f"you have {loop.workers}" if loop.workers else "you have none"
        on = f" on {_cores(cores)}" if needed > cores else ""
        tail += f"; {'under 0.1' if needed < 0.1 else f'{needed:.1f}'} workers needed, {have}{on}"
    if loop.alternates:
        tail += ("; the loop alternates between it and another loader, for which waiting counts as update and which "
                 "predictions leave unchanged")
    gap = _device_gap_share(loop, load + update)
    if gap is not None and gap < LOAD_THAT_BINDS:
        return Verdict("device", "", f"device-bound: the device waited for data for {_percent(gap)} of load + update; "
                       f"on the host, load is {_percent(share)} of load + update{tail}", needed)
    limit = load_that_binds(bool(loop.workers) or not loop.sees_inside)
    of_loop = f"load is {_percent(share)} of load + update"
    if loop.takes_ahead:
        tail += "; batches are fetched by a thread other than the loop's"
        of_loop = f"the thread that fetches batches waits for the loop {_percent(1 - share)} of its time"
        limit = NEVER_WAITS
        if loop.loop_waits is not None:
            share, limit = loop.loop_waits, load_that_binds(True)
            of_loop = f"the loop waits for batches {_percent(share)} of its time, {of_loop}"
    if (gap is None and share < limit) or load <= 0:
        both = not loop.workers and loop.sees_inside and not loop.takes_ahead and share >= LOAD_THAT_BINDS
        inline = "without workers, load and update alternate, and update takes longer: " if both else ""
        return Verdict("device", "", f"device-bound: {inline}{of_loop}{tail}", needed)
    place = max(range(len(PLACES)), key=lambda one: steady[one])
    of_kind = loop.breakdown.waits[place]
    kind = KINDS[max(range(len(KINDS)), key=lambda one: of_kind[one])]
    if place == NOWHERE:
        return Verdict("unknown", "unknown", f"load-bound: {of_loop}; "
                       f"what the loader did meanwhile is unknown{tail}", needed)
    words = {"cpu": "computing", "blocked": "blocked (storage, locks, sleeping)", "cores": "waiting for a core",
             "unknown": "of unknown kind"}
    return Verdict(PLACES[place], kind, f"{PLACES[place]}-bound: {_percent(steady[place] / sum(steady))} of load, "
                   f"mostly {words[kind]}; {of_loop}{tail}", needed)


def advice(loop: LoopFacts, verdict: Verdict, cores: int, predicted: Mapping[str, Any] | None) -> str:
    """Returns one line: what to try first; nothing after too few steps.

    `predicted`: the predictions, where the records suffice for them.
    """
    if too_short(loop.steps) is not None:
        return ""
    change, facts = None if predicted is None else best(predicted), loop.threads
    if not loop.sees_inside:
        gain = "a faster loader would not help" if verdict.bound == "device" else "try a faster loader"
        if loop.kind == OWN:
            how = "" if verdict.bound == "device" else ": more loader.workers, or cheaper ops"
            return f"advice: {gain}{how}; loader.profile() tells what each op takes"
        return f"advice: {gain}; pymillrace cannot see inside {loop.kind}, it recorded load and update only"
    if facts.cores_are_taken and (verdict.kind == "cores" or _has_fewer_workers(change, loop)):
        return (f"advice: other programs use {100 * (facts.taken or 0):.0f}% of the {_cores(cores)} that this one may "
                "run on; measure on an idle machine")
    shared = facts.taken is None and verdict.kind == "cores"  # with whom is unknown: no reason for fewer workers
    if shared and predicted is not None and _has_fewer_workers(change, loop):
        change = best({**predicted, "rows": [row for row in predicted["rows"] if not _has_fewer_workers(row, loop)]})
    if (fewer := _fewer_threads(loop, verdict, cores, change)) is not None:
        waits = verdict.kind == "blocked" and not facts.oversubscribed(cores)
        if change is None or not waits:  # more workers shorten waits for storage, other threads do not
            return fewer
    covered = verdict.bound == "device" and loop.device is not None  # the replay knows nothing of queued work
    if change is not None and verdict.bound != "startup" and not covered:
        return f"advice: {proposal(change)}{_slowest(loop, verdict)}{_shards(loop, change)}"
    share = loop.share_of_load
    if verdict.bound == "device" and not covered and not loop.takes_ahead and share >= LOAD_THAT_BINDS:
        place = max((DATASET, TRANSFORM, COLLATE), key=lambda one: loop.breakdown.steady[one])
        return (f"advice: without workers the loop waits for all of load, {_percent(share)} of load + update: make the "
                f"{PLACES[place]} cheaper; no other setting is sure to gain {100 * (WORTHWHILE - 1):.0f}%"
                f"{_threads_of_update(loop, cores)}")
    if verdict.bound == "device":
        return ("advice: the loader keeps up; a faster model or device would help, a faster loader would not"
                f"{_threads_of_update(loop, cores)}")
    if loop.generator:
        return ("advice: make the generator that the data set reads from faster, for example with more threads of its own; "
                "the DataLoader's workers cannot share it")
    if verdict.bound == "startup":
        if loop.workers and not loop.persistent and loop.epoch > 1:
            return "advice: set persistent_workers=True, so that workers start once and not in every epoch"
        return "advice: most of load is start-up; watch a longer run"
    if verdict.bound == "handover":
        return "advice: batches are handed over too often: use larger batches"
    if verdict.bound == "transfer" and loop.batch_bytes < SMALL_TENSOR * max(1, loop.tensors):
        if loop.tensors > USUAL_TENSORS:  # larger batches may have more of them
            return f"advice: batches of {loop.tensors} tensors are expensive to send: put their values into fewer tensors"
        return "advice: batches are expensive to send: put their values into fewer tensors, or use larger batches"
    if verdict.bound == "transfer":
        return "advice: batches are expensive to send: keep images uint8 until they are on the device"
    if shared:
        workers = f"{loop.workers} worker{'s' * (loop.workers != 1)}, " if loop.workers else ""
        return (f"advice: {workers}the training loop and perhaps other programs or ranks share {_cores(cores)}: make "
                "the work cheaper, or measure on an idle machine")
    if verdict.kind == "cores" and loop.workers < cores:  # others take few of them
        return (f"advice: this training's own threads wait for each other on {_cores(cores)}: use fewer of them, or make "
                "the work cheaper")
    if verdict.kind == "cores":
        return (f"advice: {loop.workers} workers and the training loop share {cores} cores: use fewer workers, "
                "or make the work cheaper")
    wanted = math.ceil(verdict.workers_needed) if verdict.workers_needed is not None else None
    room = wanted if verdict.kind == "blocked" or wanted is None else min(wanted, max(1, cores - 1))
    cheaper = f"advice: make the {verdict.bound} cheaper{_slowest(loop, verdict)}"
    if room is not None and 0 < loop.shards <= loop.workers < room:
        return f"{cheaper}, or divide the data set into more shards: it has {loop.shards}, and each worker needs one"
    if room is None or room <= loop.workers:
        return f"{cheaper}; more workers have no core to run on"
    if predicted is not None:
        return f"{cheaper}; no other setting is sure to gain {100 * (WORTHWHILE - 1):.0f}%"
    room = min(room, loop.shards or room)
    return f"advice: try num_workers={room}{_slowest(loop, verdict)}"


def _has_fewer_workers(change: dict[str, Any] | None, loop: LoopFacts) -> bool:
    return change is not None and change["overrides"].get("num_workers", loop.workers) < loop.workers


def _fewer_threads(loop: LoopFacts, verdict: Verdict, cores: int, change: dict[str, Any] | None) -> str | None:
    """Returns the advice to set numbers of threads, where other threads compute while the loop waits for data."""
    facts = loop.threads
    rows = thread_rows(facts, loop.workers, cores)
    in_load = facts.pools_in_load >= IN_LOAD and not loop.workers
    if not rows or verdict.bound == "device" or not (in_load or facts.oversubscribed(cores)):
        return None
    why = (f"{round(facts.threads)} threads want {_cores(cores)}" if facts.oversubscribed(cores) else
           f"other threads compute for {100 * facts.pools_in_load:.0f}% of the time of load")
    names = " or ".join(row["change"] for row in rows)
    if facts.worker >= 0.5 and rows[-1]["change"] == "OMP_NUM_THREADS=1":  # they may be Python's own
        names += " (if the workers' threads are a library's)"
    then = f"; then {change['change']}" if change is not None else ""
    return f"advice: try {names}: {why}; pymillrace what-if --verify measures what that gives{then}"


def _threads_of_update(loop: LoopFacts, cores: int) -> str:
    """Says which numbers of threads to measure, where the update computes on the CPU with several: it may lose by them."""
    names = [row["change"] for row in thread_rows(loop.threads, loop.workers, cores) if "threads" in row["overrides"]]
    if not names or loop.device is not None:
        return ""
    return f"; pymillrace what-if --verify measures whether the update is faster with {' or '.join(names)}"


def _shards(loop: LoopFacts, change: Mapping[str, Any]) -> str:
    """Says what more workers need where no record tells whether the data set can feed them."""
    if not loop.iterable or loop.shards or change["overrides"].get("num_workers", 0) <= max(1, loop.workers):
        return ""
    return "; this IterableDataset must divide its samples among so many workers"


def _slowest(loop: LoopFacts, verdict: Verdict) -> str:
    walls = [wall for wall, _ in loop.breakdown.rows]
    if verdict.bound != "transform" or not any(walls):
        return ""
    slowest = max(range(len(walls)), key=walls.__getitem__)
    part = walls[slowest] / sum(walls)
    return f" ({loop.transforms[slowest]} takes {100 * part:.0f}% of the transforms' time)"
