"""When each worker made batches lately, from its records: what `pymillrace top` draws as a line per worker.

Took 0.1 ms of CPU time for 100 batches in the 10 s and 3 ms for 4096, beside the trainer's thread (Zen 4, 2026-11-28).
"""
from __future__ import annotations

from .._watch import RecordRing

CELLS, CELL_NS = 40, 250_000_000  # 10 s, as between two summaries of a run under way
BUSY = 9  # digit of a cell that the worker spent on batches; 0: none of it
MOST_WORKERS = 64  # whose activity is kept


def of_workers(workers: int, records: RecordRing | None, now: int) -> list[str] | None:
    """Returns a text per worker with a character per cell, up to `now`: the ninths of it that went into batches.

    It is "-" before the first batch and after the last that the worker has completed: another one may be under way.
    None without workers' records. `now`: as of perf_counter_ns().
    """
    if not workers or records is None:
        return None
    since, count = now - CELLS * CELL_NS, min(workers, MOST_WORKERS)
    batches: list[list[tuple[int, int]]] = [[] for _ in range(count)]
    for _, _, worker, begin, _, end, _, _ in records.made():
        if 0 <= worker < count and begin < end <= now and end > since:
            batches[worker].append((max(begin - since, 0), end - since))
    return [_cells(one) for one in batches]


def _cells(batches: list[tuple[int, int]]) -> str:
    """Returns a character per cell, from begin and end of each batch in ns since the first cell."""
    if not batches:
        return "-" * CELLS
    busy = [0] * CELLS
    for begin, end in batches:
        first, last = begin // CELL_NS, (end - 1) // CELL_NS
        if first == last:
            busy[first] += end - begin
            continue
        busy[first] += (first + 1) * CELL_NS - begin
        busy[last] += end - last * CELL_NS
        busy[first + 1:last] = [CELL_NS] * (last - first - 1)
    first, last = min(batches)[0] // CELL_NS, (max(end for _, end in batches) - 1) // CELL_NS
    return "".join(str(round(BUSY * min(1.0, ns / CELL_NS))) if first <= cell <= last else "-"
                   for cell, ns in enumerate(busy))
