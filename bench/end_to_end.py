"""Compares recipe mnist-lenet with the same run in PyTorch (torch_lenet.py), taking turns: seconds per epoch, load and
update per step, with one thread for torch on both sides.

    python3 bench/end_to_end.py --data DIR --python PYTHON [--rounds 3]

DIR holds MNIST's IDX files; PYTHON is an interpreter with torch and torchvision. Prints nothing unless both sides
learn (top-1 of at least 96% after two epochs).
"""
import argparse
import json
import os
import statistics
import subprocess
import tempfile

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--data", required=True)
parser.add_argument("--python", required=True)
parser.add_argument("--rounds", type=int, default=3)
parser.add_argument("--workers", default="0,1,2")
args = parser.parse_args()
here = os.path.dirname(os.path.abspath(__file__))
EPOCHS = 2


def pytorch(workers):
    text = subprocess.run([args.python, os.path.join(here, "torch_lenet.py"), "--data", args.data, "--workers",
                           str(workers), "--epochs", str(EPOCHS)], check=True, capture_output=True, text=True).stdout
    lines = [json.loads(line) for line in text.splitlines()]
    return lines[EPOCHS - 1] | lines[-1]


def millrace(workers):
    with tempfile.TemporaryDirectory() as folder:
        run = os.path.join(folder, "run")
        subprocess.run([os.path.join(here, "..", "build", "millrace"), "train", "mnist-lenet", f"data.path={args.data}",
                        f"loader.workers={workers}", "train.threads=1", f"train.epochs={EPOCHS}", "-q",
                        "eval.every=0", "--run", run], check=True, capture_output=True)
        with open(os.path.join(run, "metrics.jsonl")) as lines:
            last = [json.loads(line) for line in lines][-1]
        return {"s": last["wall_s"] - last["spans"]["evaluate"], "load_ms": 1e3 * last["load_s"] / last["steps"],
                "update_ms": 1e3 * last["update_s"] / last["steps"], "top1": last["top1"]}


results = {}
for _ in range(args.rounds):
    for workers in map(int, args.workers.split(",")):
        for side in (pytorch, millrace):
            outcome = side(workers)
            if outcome["top1"] < 0.96:
                raise SystemExit(f"{side.__name__} with {workers} workers reached only {outcome['top1']:.4f}")
            results.setdefault((side.__name__, workers), []).append(outcome)

print(f"second epoch of {EPOCHS}, median of {args.rounds} rounds, sides taking turns")
print("| | workers | s per epoch | load, ms per step | update, ms per step | top-1 |\n| --- | --- | --- | --- | --- | --- |")
for (side, workers), outcomes in sorted(results.items(), key=lambda item: (item[0][1], item[0][0])):
    middle = {key: statistics.median(o[key] for o in outcomes) for key in outcomes[0] if key != "epoch"}
    print(f"| {side} | {workers} | {middle['s']:.2f} | {middle['load_ms']:.4f} | {middle['update_ms']:.3f} | "
          f"{100 * middle['top1']:.2f}% |")
for workers in map(int, args.workers.split(",")):
    pairs = list(zip(results[("pytorch", workers)], results[("millrace", workers)]))
    for key in ("s", "load_ms", "update_ms"):
        print(f"workers={workers}: PyTorch's {key} / millrace's {key} = "
              f"{statistics.median(p[key] / m[key] for p, m in pairs):.2f}")
