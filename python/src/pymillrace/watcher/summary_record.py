"""The summary of a watched run: its keys, their types, units and meanings.

mypy checks by it what summary.py writes. The table of docs/reference/records.md and the JSON schema beside that are made
from it (tests/python/test_summary_record.py). Nothing imports it at run time.
"""
from __future__ import annotations

from typing import Annotated, NamedTuple, TypedDict


class About(NamedTuple):
    """What a key holds, in Markdown, and its unit."""
    meaning: str
    unit: str = ""


class KindTimes(TypedDict):
    cpu: Annotated[float, About("computing", "s")]
    blocked: Annotated[float, About("blocked: storage, locks, sleeping", "s")]
    cores: Annotated[float, About("ready, but without a core", "s")]
    unknown: Annotated[float, About("where the system does not tell", "s")]


class KindSums(KindTimes):
    load_s: Annotated[float, About("their sum", "s")]


class LoadRows(TypedDict):
    iter: Annotated[float, About("in `iter()`, which starts workers", "s")]
    end: Annotated[float, About("in calls of `next()` that ended an epoch", "s")]
    next: Annotated[float, About("in all others", "s")]


class TransformRow(TypedDict):
    name: Annotated[str, About("its class or function")]
    s_per_sample: Annotated[float | None, About("its time; null where no batch was sampled", "s")]
    cpu_s_per_sample: Annotated[float | None, About("its CPU time", "s")]


class Source(TypedDict):
    folder: Annotated[str, About("root of torchvision's ImageFolder")]
    images: Annotated[int, About("in that folder", "images")]
    batch: Annotated[int, About("`batch_size` of the DataLoader", "images")]
    shuffle: Annotated[bool, About("whether an epoch is shuffled; otherwise it is in order")]
    drop_last: Annotated[bool, About("whether a last batch with fewer images is left out")]


class Counterpart(TypedDict):
    words: Annotated[list[str], About("the transforms, as overrides of a recipe")]
    samples: Annotated[list[str], About("up to 64 paths of files")]
    reason: Annotated[str | None, About("why there is no counterpart; null where there is one")]
    source: Annotated[Source | None, About("folder and order of the images, for `--show-code`")]
    no_source: Annotated[str | None, About("why there is no code to show; null where there is")]


class Batches(TypedDict):
    recorded: Annotated[int, About("whose records were read", "batches")]
    missing: Annotated[int, About("without a record", "batches")]
    overruns: Annotated[int, About("of these: overwritten before they were read", "batches")]
    sampled: Annotated[int, About("whose transforms were timed", "batches")]


class LoaderTimes(TypedDict):
    """Keys of a loader, of which the main loader's stand at the top too."""
    workers: Annotated[int, About("`num_workers`", "workers")]
    prefetch: Annotated[int, About("`prefetch_factor`; 0 without workers", "batches")]
    batch: Annotated[int, About("`batch_size`; 0 where it is unknown", "samples")]
    epochs: Annotated[int, About("iterations that have begun", "epochs")]
    steps: Annotated[int, About("batches that the loop got", "steps")]
    images: Annotated[int, About("samples in them", "images")]
    load_s: Annotated[float, About("in load spans", "s")]
    update_s: Annotated[float, About("in update spans", "s")]
    other_s: Annotated[float, About("in other spans", "s")]
    spans: Annotated[dict[str, float], About("per [span](#spans)", "s")]
    blame: Annotated[dict[str, float], About("load by [part](../how-to/watch.md#parts), and their sum, `load_s`", "s")]
    blame_what: Annotated[KindSums, About("load by kind")]
    device_gap_load_s: Annotated[float | None, About("with CUDA: the device waited for data; else null", "s")]
    device_gaps: Annotated[int, About("waits measured for that: the first 256, then one in eight", "waits")]
    device_gaps_lost: Annotated[int, About("waits that no measurement stands for", "waits")]


class LoaderFacts(TypedDict):
    name: Annotated[str, About("file and line where it was made or is iterated over")]
    kind: Annotated[str, About("`DataLoader`, or the class of an iterable that pymillrace cannot see inside")]
    dataset: Annotated[str, About("class of the data set")]
    samples: Annotated[int | None, About("its length, where it has one", "samples")]
    start_method: Annotated[str, About("of the workers; empty without")]
    persistent_workers: Annotated[bool, About("the argument")]
    shared_memory_needed: Annotated[int | None, About("tensors of all batches in flight; null without workers", "bytes")]
    free_shared_memory: Annotated[int | None, About("of `/dev/shm`, when the workers first began", "bytes")]


class LoaderResults(TypedDict):
    bound: Annotated[str, About("what limits its loop: a [part](../how-to/watch.md#parts) of loading, `device` or "
                                "`unknown`")]
    verdict: Annotated[str, About("the same as a sentence")]
    updates: Annotated[int, About("steps of optimizers in its loop", "steps")]
    takes_ahead: Annotated[bool, About("a thread other than the loop's takes the batches: load and update are that "
                                       "thread's time in `next()` and between")]
    loop_waits: Annotated[float | None, About("share of its time for which the loop then waits for batches; null where "
                                              "that is unknown")]
    load_rows: Annotated[LoadRows, About("`load_s` by call")]
    blame_table: Annotated[dict[str, KindTimes], About("load by part and kind")]
    work: Annotated[dict[str, KindTimes], About("what the workers did, whether it was waited for or not")]
    transforms: Annotated[list[TransformRow], About("those that were found, in their order")]
    counterpart: Annotated[Counterpart | None, About("what `what-if` needs to replace the loader by millrace's")]
    batches: Annotated[Batches, About("numbers of batches")]


class LoaderSummary(LoaderFacts, LoaderTimes, LoaderResults):
    """A loader of a run."""


class DemandRecord(TypedDict):
    cpu: Annotated[float, About("on a core, each of its threads", "s")]
    blocked: Annotated[float, About("blocked", "s")]
    threads: Annotated[int, About("that take the CPU seconds", "threads")]


class SettingsRecord(TypedDict):
    num_workers: Annotated[int, About("worker processes", "workers")]
    prefetch_factor: Annotated[int | None, About("null without workers", "batches")]
    batch: Annotated[int, About("mean size of a batch", "samples")]
    cores: Annotated[int, About("that the process may run on", "cores")]
    fetch: Annotated[DemandRecord, About("of making a batch: data set, transforms, collate")]
    send: Annotated[DemandRecord, About("of sending it")]
    receive: Annotated[DemandRecord, About("of receiving it in `next()`")]
    tensors: Annotated[int, About("of a batch; 0: unknown. Records before 2026-11-30 have none", "tensors")]
    tensor_wait: Annotated[float, About("blocked in `next()` for the worker's thread that hands over its tensors, which "
                                        "`receive` leaves out. Records before 2026-11-30 have none", "s")]
    hand: Annotated[DemandRecord, About("of `next()` itself")]
    update: Annotated[DemandRecord, About("of a step's update. In several threads beside workers it is without the CPU "
                                          "seconds for which they waited for each other")]


class DoubtsRecord(TypedDict):
    fetch: Annotated[float, About("relative half width of the 90% interval of a batch's length; 0 where it is unknown")]
    update: Annotated[float, About("likewise, of an update's length")]
    spinning: Annotated[float, About("the CPU time that was measured for the update over that in `settings`")]


class SharedMemoryRecord(TypedDict):
    make: Annotated[float, About("CPU seconds that shared memory costs the maker of a batch", "s")]
    take: Annotated[float, About("and its user", "s")]


class ChangeTimes(TypedDict, total=False):
    saved_s_per_epoch: Annotated[float, About("of `persistent_workers=True` alone: the start-up that it saves", "s")]


class ChangeRecord(ChangeTimes):
    change: Annotated[str, About("the change, as it is printed")]
    overrides: Annotated[dict[str, int | bool], About("arguments that it sets; empty for faster storage")]
    ratio: Annotated[float | None, About("images/s over those of the run; null where nobody can tell, as for numbers of "
                                         "threads")]
    low: Annotated[float | None, About("its 90% interval ([how it is made](../explanation/what-if.md#of-a-watched-loop));"
                                       " null with `ratio`, missing in records of 0.2")]
    high: Annotated[float | None, About("likewise")]
    loading_only: Annotated[bool, About("the ratio is the loader's alone: the update with it is unknown")]
    images_per_s: Annotated[float | None, About("predicted; null with `loading_only`", "images/s")]
    loader_images_per_s: Annotated[float | None, About("predicted for a loop without an update", "images/s")]


class WhatIfRecord(TypedDict):
    images_per_s: Annotated[float, About("measured, without the first batch and the first two updates", "images/s")]
    loader_images_per_s: Annotated[float, About("of the loader alone, by a replay", "images/s")]
    replay_images_per_s: Annotated[float, About("of the run, by a replay", "images/s")]
    settings: Annotated[SettingsRecord, About("input of the replay")]
    doubts: Annotated[DoubtsRecord, About("from which intervals are made")]
    transfer_assumed: Annotated[bool, About("nothing was sent, so that `send` and `receive` are assumed")]
    shared_memory: Annotated[SharedMemoryRecord, About("measured on this machine")]
    rows: Annotated[list[ChangeRecord], About("a change each")]


class ReplayRecord(TypedDict):
    """Input of predictions that are still to be made; its demands are lists of cpu, blocked and threads."""
    workers: Annotated[int, About("as in `what_if.settings`", "workers")]
    prefetch: Annotated[int, About("likewise", "batches")]
    batch: Annotated[int, About("likewise", "samples")]
    cores: Annotated[int, About("likewise", "cores")]
    fetch: Annotated[list[list[float]], About("CPU and blocked seconds of the latest batches", "s")]
    send: Annotated[list[float], About("CPU and blocked seconds, threads")]
    receive: Annotated[list[float], About("likewise")]
    hand: Annotated[list[float], About("likewise")]
    update: Annotated[list[float], About("likewise")]
    takes_prefetch: Annotated[bool, About("`prefetch_factor` is an argument of the loader")]
    batch_bytes: Annotated[int, About("of the first batch", "bytes")]
    collate_cpu: Annotated[float, About("CPU seconds of collate per batch", "s")]
    images_per_s: Annotated[float, About("measured", "images/s")]
    blocked_in_dataset: Annotated[float, About("the data set's share of blocked time")]
    update_s: Annotated[float, About("length of an update; 0 where it was not measured with its CPU time", "s")]
    fetch_error: Annotated[float, About("`what_if.doubts.fetch`")]
    update_error: Annotated[float, About("`what_if.doubts.update`")]
    shards: Annotated[int, About("of the data set, of which a worker needs one or more; 0: unknown", "shards")]
    ahead: Annotated[int, About("of a thread other than the loop's that takes batches; 0: there is none. Records "
                                "before 2026-11-29 have none", "batches")]
    tensors: Annotated[int, About("of the first batch; 0: unknown. Records before 2026-11-30 have none", "tensors")]


class ThreadsRecord(TypedDict):
    """Means over the run, of threads that want a core for a tenth of the time or more."""
    all: Annotated[float, About("of trainer and workers", "threads")]
    trainer_pools: Annotated[float, About("of the trainer, which the script did not start itself", "threads")]
    pools_per_worker: Annotated[float, About("of a worker, besides the one that makes batches", "threads")]
    cores_wanted: Annotated[float, About("by all threads", "cores")]
    cores_in_load: Annotated[float, About("used by the trainer's other threads during `next()`", "cores")]
    cores_taken: Annotated[float | None, About("share of the cores' time that other programs used; null where it is "
                                               "unknown")]


class GrowthRecord(TypedDict):
    trainer: Annotated[int, About("its set size", "bytes")]
    workers: Annotated[int, About("theirs", "bytes")]


class MemoryRecord(TypedDict):
    samples: Annotated[int, About("of memory", "samples")]
    cpu_s: Annotated[float, About("that they took", "s")]
    trainer: Annotated[int, About("proportional set size at the last sample", "bytes")]
    workers: Annotated[int, About("likewise, of all workers", "bytes")]
    used: Annotated[int, About("of the machine or the control group", "bytes")]
    total: Annotated[int, About("likewise", "bytes")]
    growth_in_epoch: Annotated[GrowthRecord | None, About("from the first to the last sample of the latest epoch that "
                                                          "has two")]
    growth_per_epoch: Annotated[float | None, About("by the largest samples of finished epochs from the second one on; "
                                                    "null before four of these", "bytes")]
    warning: Annotated[str | None, About("the latest line")]


class RankRow(TypedDict):
    rank: Annotated[int, About("its number")]
    steps: Annotated[int, About("steps of its main loader", "steps")]
    load_s_per_step: Annotated[float, About("load, without the first batch", "s")]
    update_s_per_step: Annotated[float, About("update", "s")]
    images_per_s: Annotated[float | None, About("images over load + update", "images/s")]
    bound: Annotated[str, About("its `bound`")]


class StragglerRecord(RankRow):
    excess_s_per_step: Annotated[float, About("load beyond the median of the other ranks", "s")]


class ConclusionRecord(TypedDict):
    bound: Annotated[str, About("as at the top of the file")]
    verdict: Annotated[str, About("likewise")]
    workers_needed: Annotated[float | None, About("likewise", "workers")]
    advice: Annotated[str, About("likewise")]
    what_if: Annotated[WhatIfRecord | None, About("likewise")]


class SometimesWritten(TypedDict, total=False):
    replay: Annotated[ReplayRecord | None, About("where `complete` is false, in place of `what_if`: what `pymillrace "
                                                 "what-if` makes the predictions from; null where the records do not "
                                                 "suffice")]
    worker_activity: Annotated[list[str] | None, About(
        "when the main loader's workers made batches: a text per worker (of the first 64) with a character per quarter "
        "of a second of the latest 10 s, from `0` (idle) to `9` (busy), `-` where it is not known yet; null without "
        "workers")]
    ranks: Annotated[list[RankRow], About("with several ranks, in rank 0's file: a row each")]
    straggler: Annotated[StragglerRecord | None, About("likewise: the rank that the others wait for")]
    verdict_rank: Annotated[int, About("in rank 0's file, if another rank holds up the others: that rank, whose `bound`, "
                                       "`verdict`, `workers_needed`, `advice` and `what_if` the file has")]
    of_rank_0: Annotated[ConclusionRecord, About("likewise: what rank 0 itself has concluded")]


class RunFacts(TypedDict):
    command: Annotated[str, About("`watch`")]
    complete: Annotated[bool, About(
        "true in the summary that a run writes at its end. While it goes on, it writes one with false, after a second "
        "and then at least 10 s apart, so that a run that is killed leaves a verdict of what was recorded. Records "
        "without the key, of 0.2, are complete")]
    version: Annotated[str, About("version of pymillrace")]
    git: Annotated[str, About("empty")]
    host: Annotated[str, About("host name")]
    cores: Annotated[int, About("that the process may run on", "cores")]
    script: Annotated[str, About("the command line of the script")]
    python: Annotated[str, About("version of Python")]
    torch: Annotated[str | None, About("version of PyTorch")]
    rank: Annotated[int, About("whose file it is")]
    world_size: Annotated[int, About("number of ranks", "ranks")]
    recipe: Annotated[str, About("`watch` and the name of the main loader")]
    loader: Annotated[str, About("name of the main loader: the first in whose loop an optimizer stepped, else the first")]
    interrupted: Annotated[bool, About("a signal or the user ended the run")]
    error: Annotated[str | None, About("the exception that ended it")]
    wall_s: Annotated[float, About("from the first loader's recording to the summary", "s")]


class RunResults(TypedDict):
    unaccounted_s: Annotated[float, About("`wall_s` minus the sum of all spans", "s")]
    load_s_per_step: Annotated[float | None, About("mean over all steps, with the first batch", "s")]
    update_s_per_step: Annotated[float | None, About("mean over all steps", "s")]
    first_batch_s: Annotated[float, About("wait for the first batch", "s")]
    images_per_s: Annotated[float | None, About("images over load + update", "images/s")]
    bound: Annotated[str, About("what limits the main loader's loop, as in `loaders[]`")]
    verdict: Annotated[str, About("the same as a sentence, and the warning of memory")]
    workers_needed: Annotated[float | None, About("that would hide the loading; null where that is unknown", "workers")]
    advice: Annotated[str, About("one line: what to try first; empty after fewer than 20 steps")]
    threads: Annotated[ThreadsRecord, About("numbers of threads")]
    other_threads_calls: Annotated[int, About("calls of watched iterators from threads that are not recorded: the "
                                              "iterator began in another", "calls")]
    stalls: Annotated[int, About("reports in `stalls.jsonl` ([below](#stalls-and-deaths))", "reports")]
    deaths: Annotated[int, About("reports in `deaths.jsonl` ([below](#stalls-and-deaths))", "reports")]
    memory: Annotated[MemoryRecord | None, About("null without samples")]
    what_if: Annotated[WhatIfRecord | None, About("predictions; null where the records do not suffice")]
    loaders: Annotated[list[LoaderSummary], About("one object per loader")]


class Summary(RunFacts, LoaderTimes, RunResults, SometimesWritten):
    """The figures at the top are those of the main loader."""
