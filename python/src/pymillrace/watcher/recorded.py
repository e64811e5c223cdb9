"""summary.json of a watched run, as what-if reads it: checked, and reduced to the fields that are used."""
from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .._predict import DataLoaderInput
from .._watch import STEPS_FOR_VERDICT
from ..errors import DataError
from . import closing
from .fields import MOST_RATE, MOST_SECONDS, MOST_STEPS, Field
from .plan import OF_THREADS
from .predict import MOST_TENSORS, MOST_THREADS, best, predictions_from, proposal, quick_predictions, recorded_from
from .records import NotARecord, read_json
from .run_directory import is_complete
from .verdict import too_short
from .words import allowed_words

MOST_WORKERS, MOST_OUTSTANDING, MOST_CORES, MOST_BATCH = 2048, 16384, 2048, 1 << 31
MOST_DEMAND_S = 1e6
MOST_REPLAYED = 1024  # batches outstanding in a replay
MOST_ROWS, MOST_LOADERS, MOST_SAMPLES = 256, 4096, 64
OVERRIDES = ("num_workers", "prefetch_factor", "batch_size", "persistent_workers", *OF_THREADS)
PLACES = ("dataset", "transform", "collate")


def read_summary(file: Path) -> Field:
    """Returns what a summary.json holds. Raises OSError if it does not exist, and DataError if it is not a summary."""
    try:
        summary = Field(read_json(file), file)
    except (FileNotFoundError, NotADirectoryError):
        raise
    except NotARecord as error:
        raise DataError(f"{file} {error.strerror}", "give the directory of a run of pymillrace watch") from None
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error.strerror}", "check its permissions and the disk") from None
    if not isinstance(summary.value, dict):
        raise summary.refuse("an object")
    return summary


def advice_of(summary: Field) -> str:
    """Returns the recorded advice; of a run under way the best of some predictions, which its records lack."""
    given = None if is_complete(summary.value) else recorded_from(summary["replay"].value)
    predicted = None if given is None or _is_long(given[0]) else quick_predictions(*given)
    change = None if predicted is None else best(predicted)
    return summary["advice"].text() if change is None else f"advice: {proposal(change)}"


def _is_long(given: DataLoaderInput) -> bool:
    """Returns whether replays with as many workers as there are, or as cores, would take seconds."""
    return max(given.workers, given.cores) * given.prefetch > MOST_REPLAYED


def checked(summary: Field) -> dict[str, Any]:
    """Returns the advice, the predictions (None where the records did not suffice) and the main loader.

    After too few steps it returns no predictions, and says in `missing` how many are left.
    """
    steps = summary["steps"].whole(0, MOST_STEPS) if summary["steps"] else STEPS_FOR_VERDICT  # 0.1 had no such key
    if (missing := too_short(steps)) is not None:
        return {"what_if": None, "missing": missing}
    if is_complete(summary.value):
        predicted: Mapping[str, Any] | None = predictions(summary["what_if"]) if summary["what_if"] else None
        advice = summary["advice"].text() if predicted else ""
    else:  # the run was cut off: its last summary has what predictions are made of
        predicted = predictions_from(summary["replay"].value)
        advice = closing.cut_off(summary["steps"].whole(0, MOST_STEPS))
    if predicted is None:
        return {"what_if": None}
    name = summary["loader"].text()
    main = [one for one in summary["loaders"].items(MOST_LOADERS) if one["name"].value == name][:1]
    return {"advice": advice, "what_if": predicted, "loader": name,
            "loaders": [{"name": name, **_loader(one)} for one in main]}


def predictions(found: Field) -> dict[str, Any]:
    return {"images_per_s": found["images_per_s"].number(0, MOST_RATE),
            "loader_images_per_s": found["loader_images_per_s"].number(0, MOST_RATE),
            "settings": _settings(found["settings"]), "doubts": _doubts(found["doubts"]),
            "rows": [_row(one) for one in found["rows"].items(MOST_ROWS)]}


def _doubts(found: Field) -> dict[str, float]:
    """Returns what is known of the demands' intervals; nothing of a run of 0.2."""
    return {name: found[name].number(0, MOST_RATE) for name in ("fetch", "update", "spinning")} if found else {}


def _settings(found: Field) -> dict[str, Any]:
    workers, prefetch = found["num_workers"].whole(0, MOST_WORKERS), found["prefetch_factor"]
    return {"num_workers": workers,
            "prefetch_factor": prefetch.whole(1, MOST_OUTSTANDING // max(1, workers)) if prefetch else None,
            "batch": found["batch"].whole(1, MOST_BATCH), "cores": found["cores"].whole(1, MOST_CORES),
            **{name: _demand(found[name]) for name in ("fetch", "send", "receive", "update")},
            # Later versions have these.
            "tensors": found["tensors"].whole(0, MOST_TENSORS) if found["tensors"] else 0,
            "tensor_wait": found["tensor_wait"].number(0, MOST_DEMAND_S) if found["tensor_wait"] else 0.0,
            **({"hand": _demand(found["hand"])} if found["hand"] else {})}


def _demand(found: Field) -> dict[str, Any]:
    return {"cpu": found["cpu"].number(0, MOST_DEMAND_S), "blocked": found["blocked"].number(0, MOST_DEMAND_S),
            "threads": found["threads"].whole(1, MOST_THREADS)}


def _row(found: Field) -> dict[str, Any]:
    def rate(name: str) -> float | None:
        return found[name].number(0, MOST_RATE) if found[name] else None

    def override(name: str, value: Field) -> int:
        return value.flag() if name == "persistent_workers" else value.whole(0, MOST_BATCH)

    given = found["overrides"]
    row = {"change": found["change"].text(128), "ratio": rate("ratio"), "low": rate("low"), "high": rate("high"),
           "loading_only": found["loading_only"].flag(), "images_per_s": rate("images_per_s"),
           "loader_images_per_s": rate("loader_images_per_s"),
           "overrides": {name: override(name, given[name]) for name in OVERRIDES if given[name]}}
    saved = found["saved_s_per_epoch"]
    return {**row, "saved_s_per_epoch": saved.number(0, MOST_SECONDS)} if saved else row


def _loader(found: Field) -> dict[str, Any]:
    work = {place: {"blocked": found["work"][place]["blocked"].number(0, MOST_SECONDS)} for place in PLACES}
    return {"work": work, "counterpart": _counterpart(found["counterpart"])}


def _counterpart(found: Field) -> dict[str, Any] | None:
    if not found:
        return None
    if found["reason"]:
        return {"reason": found["reason"].text()}
    source = found["source"]
    return {"reason": None, "words": allowed_words(found["words"]),
            "samples": [_local_path(one) for one in found["samples"].items(MOST_SAMPLES)],
            "no_source": found["no_source"].text() if found["no_source"] else None,
            "source": _source(source) if source else None}


def _source(found: Field) -> dict[str, Any]:
    return {"folder": _local_path(found["folder"]), "images": found["images"].whole(0, MOST_STEPS),
            "batch": found["batch"].whole(1, MOST_BATCH), "shuffle": found["shuffle"].flag(),
            "drop_last": found["drop_last"].flag()}


def _local_path(found: Field) -> str:
    path = found.text()
    try:
        if path.startswith("/") and b"\0" not in os.fsencode(path):
            return path
    except UnicodeError:
        pass
    raise found.refuse("the absolute path of a local file")
