"""Oracle: what two runs of the same recipe must have in common, bit for bit, except for times."""
import csv
import hashlib
import json
import os
import pathlib

SUMMARY = ("parameters_hash", "batch", "steps", "images", "epochs", "failed", "train_loss", "train_top1",
           "test_loss", "top1", "top5", "per_class")
METRICS = ("epoch", "step", "images", "lr", "train_loss", "train_top1", "test_loss", "top1", "top5")
STEPS = ("epoch", "step", "images", "loss")


def read_json(path):
    return json.loads(pathlib.Path(path).read_text())


def columns_of(path, names):
    """Returns the named columns of a CSV file as text."""
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    return {name: [row.get(name) for row in rows] for name in names}


def digest(path):
    return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()


def bits_of(run):
    """Returns the parts of a run directory that do not depend on the clock, as {name: value}."""
    run = pathlib.Path(run)
    summary = read_json(run / "summary.json")
    bits = {f"summary.json {name}": summary.get(name) for name in SUMMARY}
    for line, text in enumerate((run / "metrics.jsonl").read_text().splitlines(), 1):
        epoch = json.loads(text)
        bits.update({f"metrics.jsonl:{line} {name}": epoch.get(name) for name in METRICS})
    for file in sorted(run.glob("steps*.csv")):
        for name, column in columns_of(file, STEPS).items():
            bits[f"{file.name} {name}"] = column
    for file in sorted(run.glob("quarantine*.jsonl")):
        bits[file.name] = file.read_text()
    # Its position.json repeats what the files above say.
    last = run / "checkpoints" / "last"
    bits["checkpoints/last"] = os.readlink(last)
    for file in sorted(last.glob("*.safetensors")):
        bits[f"checkpoints/last/{file.name}"] = digest(file)
    return bits


def first_difference(name, one, other):
    if isinstance(one, list) and isinstance(other, list):
        if len(one) != len(other):
            return f"{name}: {len(other)} values, expected {len(one)}"
        at = next(i for i in range(len(one)) if one[i] != other[i])
        return f"{name}, row {at + 1}: {other[at]}, expected {one[at]}"
    return f"{name}: {str(other)[:200]}, expected {str(one)[:200]}"


def differences(expected, found):
    """Returns a line for each difference between `found` and `expected`, both from bits_of()."""
    return [first_difference(name, expected.get(name, "nothing"), found.get(name, "nothing"))
            for name in {**expected, **found} if expected.get(name) != found.get(name)]


def compare(expected, run):
    """Returns the differences() of a run directory; a missing or damaged file counts as one."""
    try:
        return differences(expected, bits_of(run))
    except (OSError, ValueError, KeyError) as error:
        return [f"the records cannot be read: {error}"]


def temporaries(folder):
    """Returns files that a finished command should not have left behind."""
    return [f"left behind: {path.relative_to(folder)}"
            for path in sorted(pathlib.Path(folder).rglob("*")) if ".tmp" in path.name]
