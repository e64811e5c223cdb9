"""Ranks of one launch: rank 0 collects their summaries and names the straggler.

Ranks that train together wait for each other inside their updates, so every rank's steps take the same time. The rank
that waits longest for its loader is the one that the others wait for.
"""
from __future__ import annotations

import json
import statistics
import time
from pathlib import Path
from typing import Any

PATIENCE = 10.0  # seconds to wait for the other ranks' summaries
STRAGGLES = 0.1  # of a step: load beyond that of the other ranks' median


def summary_name(rank: int) -> str:
    return "summary.json" if rank == 0 else f"summary.rank{rank}.json"


def _row(summary: dict[str, Any]) -> dict[str, Any]:
    steps = max(1, summary["steps"] - 1)
    return {"rank": summary["rank"], "steps": summary["steps"],
            "load_s_per_step": (summary["load_s"] - summary["first_batch_s"]) / steps,
            "update_s_per_step": summary["update_s"] / max(1, summary["steps"]),
            "images_per_s": summary["images_per_s"], "bound": summary["bound"]}


def collect(directory: Path, own: dict[str, Any], world: int) -> list[dict[str, Any]]:
    """Returns a row per rank that has written its summary within PATIENCE, rank 0's first."""
    rows, deadline = [_row(own)], time.monotonic() + PATIENCE
    for rank in range(1, world):
        while True:
            try:
                rows.append(_row(json.loads((directory / summary_name(rank)).read_text())))
                break
            except (OSError, ValueError):
                if time.monotonic() > deadline:
                    break
                time.sleep(0.02)
    return rows


def straggler(rows: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Returns the row of the rank that delays the others by its loading; None if there is none."""
    if len(rows) < 2:
        return None
    slowest = max(rows, key=lambda row: float(row["load_s_per_step"]))
    others = statistics.median(row["load_s_per_step"] for row in rows if row is not slowest)
    step = statistics.median(row["load_s_per_step"] + row["update_s_per_step"] for row in rows)
    excess = slowest["load_s_per_step"] - others
    return {**slowest, "excess_s_per_step": excess} if excess > STRAGGLES * step else None


def line(record: dict[str, Any]) -> str:
    """Returns what a run of several ranks prints."""
    found, rows = record["straggler"], record["ranks"]
    missing = record["world_size"] - len(rows)
    tail = f"; {missing} ranks left no summary" if missing else ""
    if found is None:
        return f"ranks: {len(rows)}, no straggler in loading{tail}"
    return (f"straggler: rank {found['rank']} loads {1e3 * found['load_s_per_step']:.1f} ms per step, "
            f"{1e3 * found['excess_s_per_step']:.1f} ms more than the others, which wait for it; "
            f"it is {found['bound']}-bound{tail}")
