"""Figures of a run: summary.json, the lines of metrics.jsonl, and the verdict that ends a run."""
from __future__ import annotations

import os
import platform
import sys
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

from .._watch import STEPS_FOR_VERDICT
from .breakdown import KINDS, PLACES, Breakdown
from .figures import blame, by_span, rate
from .loop_facts import OF_THAT_THREAD, LoopFacts
from .predict import replay_input, what_if
from .predict import lines as predicted_lines
from .ranks import line as straggler_line
from .run_directory import seconds, sums
from .verdict import Verdict, advice, classify, too_short
from .watched_loader import WatchedLoader

if TYPE_CHECKING:
    from .summary_record import (KindSums, KindTimes, LoaderSummary, LoaderTimes, MemoryRecord, RunFacts, RunResults,
                                 Summary, ThreadsRecord, TransformRow)


def cores() -> int:
    return len(os.sched_getaffinity(0))


CONFIG = "# Written by pymillrace watch. This file marks the folder as a run; `millrace train` cannot repeat it.\n"


def blame_what(breakdown: Breakdown) -> KindSums:
    whole = _by_kind([sum(row[i] for row in breakdown.waits) for i in range(len(KINDS))])
    return {**whole, "load_s": whole["cpu"] + whole["blocked"] + whole["cores"] + whole["unknown"]}


def _by_kind(ns: list[float]) -> KindTimes:
    cpu, blocked, cores, unknown = map(seconds, ns)  # in the order of KINDS
    return {"cpu": cpu, "blocked": blocked, "cores": cores, "unknown": unknown}


def table(rows: list[list[float]]) -> dict[str, KindTimes]:
    return {place: _by_kind(row) for place, row in zip(PLACES, rows)}


def transforms(names: list[str], breakdown: Breakdown) -> list[TransformRow]:
    """Returns a row per transform; times are None where no batch was sampled."""
    count = breakdown.sampled_samples
    return [{"name": name, "s_per_sample": seconds(wall) / count if count else None,
             "cpu_s_per_sample": seconds(cpu) / count if count else None}
            for name, (wall, cpu) in zip(names, breakdown.rows)]


def _threads(loader: WatchedLoader) -> ThreadsRecord:
    facts = loader.facts()
    return {"all": facts.threads, "trainer_pools": facts.trainer, "pools_per_worker": facts.worker,
            "cores_wanted": facts.wanted, "cores_in_load": facts.in_load, "cores_taken": facts.taken}


def _times(loader: WatchedLoader) -> LoaderTimes:
    """Returns what stands at the top of the summary too, where the loader is the main one."""
    load, update, other = sums(loader.table.total)
    gaps = loader.device  # None where CUDA was not used
    return {"workers": loader.workers, "prefetch": loader.prefetch, "batch": loader.batch,
            "epochs": loader.table.epoch, "steps": loader.table.steps, "images": loader.table.images,
            "load_s": load, "update_s": update, "other_s": other, "spans": by_span(loader.table.total),
            "blame": blame(loader.breakdown), "blame_what": blame_what(loader.breakdown),
            "device_gap_load_s": None if gaps is None else gaps.seconds,
            "device_gaps": 0 if gaps is None else gaps.gaps,
            "device_gaps_lost": 0 if gaps is None else gaps.lost + gaps.unread}


def _loader(loader: WatchedLoader, loop: LoopFacts, verdict: Verdict) -> LoaderSummary:
    breakdown, times = loader.breakdown, _times(loader)
    return {"name": loader.name, "kind": loader.kind, "dataset": loader.dataset, "samples": loader.samples,
            **times,
            "start_method": loader.start_method, "persistent_workers": loader.persistent,
            "shared_memory_needed": loader.shared_memory_needed, "free_shared_memory": loader.free_shared_memory,
            "bound": verdict.bound, "verdict": verdict.sentence, "updates": loader.table.updates,
            "takes_ahead": loader.lane is not None, "loop_waits": loop.loop_waits,
            "load_rows": {"iter": seconds(loader.table.iter_ns), "end": seconds(loader.ended_ns),
                          "next": times["load_s"] - seconds(loader.table.iter_ns + loader.ended_ns)},
            "blame_table": table(breakdown.waits), "work": table(breakdown.work),
            "transforms": transforms(loader.transforms, breakdown), "counterpart": loader.counterpart,
            "batches": {"recorded": breakdown.batches - breakdown.missing, "missing": breakdown.missing,
                        "overruns": breakdown.overruns, "sampled": breakdown.sampled_batches}}


class Run(NamedTuple):
    """Facts of a run beside its loaders."""
    wall_s: float
    rank: int
    world_size: int
    interrupted: bool
    error: str | None
    foreign_calls: int  # from other threads
    stalls: int
    deaths: int
    memory: MemoryRecord | None
    memory_warning: str | None


def make(run: Run, main: WatchedLoader, loaders: list[WatchedLoader], complete: bool) -> Summary:
    """Returns summary.json. The figures at its top are those of the main loader.

    A summary of a run that is under way is not `complete`: it has the replay's input in place of predictions, because
    replays would hold up the training, and measurements of the machine even more so.
    """
    loops = [one.loop() for one in loaders]
    verdicts = [classify(one, cores()) for one in loops]
    at, times = loaders.index(main), _times(main)
    loop, verdict = loops[at], verdicts[at]
    load, update, steps = times["load_s"], times["update_s"], times["steps"]
    predicted = what_if(loop, cores()) if complete else None
    torch = sys.modules.get("torch")
    facts: RunFacts = {
        "command": "watch", "complete": complete, "version": version(), "git": "", "host": platform.node(),
        "cores": cores(), "script": " ".join(sys.argv), "python": platform.python_version(),
        "torch": None if torch is None else str(torch.__version__), "rank": run.rank, "world_size": run.world_size,
        "recipe": "watch " + main.name, "loader": main.name, "interrupted": run.interrupted, "error": run.error,
        "wall_s": run.wall_s}
    results: RunResults = {
        "unaccounted_s": run.wall_s - (load + update + times["other_s"]),
        "load_s_per_step": load / steps if steps else None, "update_s_per_step": update / steps if steps else None,
        "first_batch_s": times["spans"]["first_batch"], "images_per_s": rate(times["images"], load, update),
        "bound": verdict.bound, "verdict": "; ".join(filter(None, (verdict.sentence, run.memory_warning))),
        "workers_needed": verdict.workers_needed, "advice": advice(loop, verdict, cores(), predicted),
        "threads": _threads(main), "other_threads_calls": run.foreign_calls, "stalls": run.stalls,
        "deaths": run.deaths, "memory": run.memory, "what_if": predicted,
        "loaders": [_loader(*one) for one in zip(loaders, loops, verdicts)]}
    record = cast("Summary", {**facts, **times, **results})
    if not complete:
        record["replay"] = replay_input(loop, cores())
    return record


@lru_cache
def version() -> str:
    from importlib import metadata
    try:
        return metadata.version("pymillrace")
    except metadata.PackageNotFoundError:
        return "uninstalled"


def _whose(record: Summary) -> str:
    """Says of which thread the shares are, where it is not the loop's own."""
    ahead = any(one["takes_ahead"] for one in record["loaders"] if one["name"] == record["loader"])
    return OF_THAT_THREAD if ahead else ""


def lines(directory: Path, record: Summary) -> list[str]:
    """Returns what a run prints at its end."""
    steps = record["steps"]
    if steps == 0:
        ended = f"; ended by {record['error']}" if record["error"] else ""
        return [f"pymillrace watch: {record['loader']} gave no batch{ended}"]
    whole = record["load_s"] + record["update_s"] + record["other_s"]
    load, update, other = (100 * part / whole for part in (record["load_s"], record["update_s"], record["other_s"]))
    text = [f"{record['loader']}: {steps} steps in {record['wall_s']:.1f} s: load {load:.0f}%, update {update:.0f}%, "
            f"other {other:.0f}%{_whose(record)}"]
    parts = sorted(((ns, name) for name, ns in record["blame"].items() if name != "load_s" and ns > 0), reverse=True)
    if parts and record["load_s"] > 0:
        text.append("  waits: " + ", ".join(f"{name} {100 * ns / record['load_s']:.0f}%" for ns, name in parts[:4]))
    if record["error"]:
        text.append(f"  ended by {record['error']}")
    text += [f"  {line}" for line in (record["verdict"], record["advice"]) if line]
    text += [f"  {one['name']}: {one['steps']} steps: {one['verdict']}" for one in record["loaders"]
             if one["name"] != record["loader"] and one["steps"] >= STEPS_FOR_VERDICT]
    if "ranks" in record:
        text.append(f"  {straggler_line(record)}")
    if record["what_if"] is not None and too_short(steps) is None:
        text += [f"  {line}" for line in predicted_lines(record["what_if"])]
    text.append(f"  records: {directory}")
    return text
