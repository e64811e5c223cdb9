#!/usr/bin/env python3
"""Measures what checkpoints cost a training run: checkpoints.py --program PATH... [--every N,M,...] [--rounds N]

Trains each model without checkpoints in the epoch and with one every N steps, with each of the programs (an older build
beside a newer one, for example), interleaved, for a number of rounds. Counts the time of all steps but the first ten and
the last, by the rows of steps.csv: each row lasts until the next begins, so waits for checkpoints are in them. Prints
medians over the rounds: milliseconds per step, of these in the checkpoint span, per checkpoint, and how long one took to
write beside the training, where the program says so. Checkpoints go to the file system of --folder."""
import argparse
import csv
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import tempfile

RECIPES = pathlib.Path(__file__).resolve().parent.parent / "recipes"
WARM_UP = 10  # steps that are not counted
MODELS = {
    "lenet5": ["mnist-lenet.toml", "loader.batch=64"],
    "resnet18": ["cifar10-resnet50.toml", "model.name=resnet18", "loader.batch=16", "train.momentum=0.9"],
}


def train(program, model, data, every, steps, folder):
    run = folder / "run"
    shutil.rmtree(run, ignore_errors=True)
    kind = "digits" if MODELS[model][0].startswith("mnist") else "objects"
    subprocess.run([program, "train", RECIPES / MODELS[model][0], *MODELS[model][1:], f"data.path={data / kind}",
                    f"train.steps={steps}", "eval.every=0", "train.epochs=1000", f"train.checkpoint_every={every}",
                    "--run", run, "--quiet"], check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    with open(run / "steps.csv", newline="") as table:
        rows = list(csv.DictReader(table))[WARM_UP:-1]
    total = sum(float(row[key]) for row in rows for key in ("load_s", "update_s", "other_s"))
    waited = sum(float(row["checkpoint"]) for row in rows)
    checkpoints = sum(1 for row in rows if every and int(row["step"]) % every == 0)
    summary = json.loads((run / "summary.json").read_text())
    wrote = summary.get("checkpoints", {})
    size = sum(path.stat().st_size for path in (run / "checkpoints/last/").iterdir())
    return {"step": total / len(rows), "wait": waited / len(rows), "each": waited / max(1, checkpoints),
            "write": wrote["write_s"] / wrote["written"] if wrote.get("written") else None, "bytes": size}


def median(results, key, scale=1e3):
    values = [result[key] for result in results if result[key] is not None]
    return f"{scale * statistics.median(values):.3f}" if values else "-"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", action="append", required=True, help="path of millrace; may be repeated")
    parser.add_argument("--every", default="0,50,10", help="steps between checkpoints; 0: none (0,50,10)")
    parser.add_argument("--models", default="lenet5,resnet18", help="of " + ", ".join(MODELS))
    parser.add_argument("--steps", type=int, default=0, help="default: 900 for lenet5, 60 for resnet18")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=pathlib.Path, help="where the runs are kept; default: the temporary folder")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.folder, prefix="millrace-checkpoints-") as name:
        folder = pathlib.Path(name)
        subprocess.run([args.program[0], "data", "make", "digits", folder / "digits", "--quiet"], check=True)
        subprocess.run([args.program[0], "data", "make", "objects", folder / "objects", "--quiet"], check=True)
        print(f"load average before: {os.getloadavg()[0]:.2f}")
        print("| model | every | program | ms per step | of these waiting | ms per checkpoint | ms to write | MB |\n"
              "| --- | --- | --- | --- | --- | --- | --- | --- |")
        for model in args.models.split(","):
            steps = args.steps or {"lenet5": 900}.get(model, 60)
            cells = [(every, program) for every in map(int, args.every.split(",")) for program in args.program]
            results = {cell: [] for cell in cells}
            for turn in range(args.rounds):
                for cell in cells if turn % 2 == 0 else reversed(cells):
                    results[cell].append(train(cell[1], model, folder, cell[0], steps, folder))
            for (every, program), one in results.items():
                label = chr(ord("A") + args.program.index(program))
                print(f"| {model} | {every or 'never'} | {label} | {median(one, 'step')} | {median(one, 'wait')} | "
                      f"{median(one, 'each') if every else '-'} | {median(one, 'write') if every else '-'} | "
                      f"{median(one, 'bytes', 1e-6)} |")
    for label, program in enumerate(args.program):
        print(f"{chr(ord('A') + label)}: {program}")


if __name__ == "__main__":
    main()
