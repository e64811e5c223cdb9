#!/usr/bin/env python3
"""Do predictions for other projects' loops come true?

    campaign.py DIR [--minutes M] [--blocks N] [--steps N] [--only TRIAL ...]

Each trial of run.py whose loader can be seen into runs under `pymillrace what-if --verify`: with images that sleep and
with images that compute, and from 0 and from 1 worker. DIR keeps a folder for each such case. A case that is complete
there is not run again, and none is begun after M minutes: the same command continues. Run it on a machine that nobody
else uses; runs beside which others took more than a tenth of the CPU time are void.

Prints a row per case and the totals over all complete cases: the changes that count (a predicted or measured effect of
20%), the median and the 95th percentile of their errors, how many measured ratios lie within their 90% intervals, void
runs, and how often the advice gained what its interval said. The goals are a median of 4%, a 95th percentile of 12%,
85 to 95% within the intervals, and 100 changes that count. The exit code is 0 once all cases are complete, else 1.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

from run import HERE, TRIALS, version

from pymillrace.watcher.predict import best
from pymillrace._watch import COUNTED_EFFECT

# Nothing is predicted where no DataLoader makes the batches.
NOT_PREDICTED = ("torchdata_nodes", "spdl_pipeline", "grain_loader", "tf_data", "dali_pipeline",
                 "ffcv_loader")
DELAYS_MS = {"sleep": 8.0, "cpu": 4.0}  # per image
COUNT = 2000  # images: two epochs of 500 steps are more than a run's steps after its warm-up


def cases(names):
    """Returns (trial, kind, workers)."""
    return [(name, kind, workers) for kind in DELAYS_MS for name in names if name not in NOT_PREDICTED
            for workers in TRIALS[name].workers]


def verify(folder, case, options):
    """Runs a case in a new folder. Returns its exit code; the program's output is kept beside."""
    name, kind, workers = case
    shutil.rmtree(folder, ignore_errors=True)
    work = folder / "work"
    work.mkdir(parents=True)
    environment = {**os.environ, "WILD_KIND": kind, "WILD_DELAY_MS": str(DELAYS_MS[kind]), "WILD_COUNT": str(COUNT),
                   "WILD_WORKERS": str(workers), "WILD_LOSSES": str(work / "losses.json"), "OMP_NUM_THREADS": "1",
                   "PYTHONPATH": os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]),
                   "HOME": str(work), "YOLO_OFFLINE": "1", "HF_HUB_OFFLINE": "1"}
    words = [sys.executable, "-m", "pymillrace", "what-if", "--verify", "--run", str(folder / "runs"), "--steps",
             str(options.steps), "--blocks", str(options.blocks), "--", sys.executable, str(HERE / f"trials/{name}.py")]
    with open(folder / "output.txt", "w", encoding="utf-8") as output:
        code = subprocess.run(words, cwd=work, env=environment, stdout=output, stderr=output).returncode
    shutil.rmtree(work)  # what the trial has generated
    return code


def read(folder):
    """Returns predictions and verification of a complete case; None of another."""
    try:
        return [json.loads((folder / f"runs/{name}.json").read_text()) for name in ("predictions", "verification")]
    except OSError:
        return None


def counts(one):
    return one["error"] is not None and max(abs(one["predicted"] - 1), abs(one["measured"] - 1)) >= COUNTED_EFFECT


def advice_of(predictions, outcomes):
    """Returns the change that is advised and its outcome, if it was measured."""
    change = best(predictions["what_if"])
    return next((one for one in outcomes if change and one["change"] == change["change"] and one["measured"]), None)


def row(case, found):
    """Returns the case's line of the table."""
    name, kind, workers = case
    begin = f"| {name} | {TRIALS[name].package} {version(TRIALS[name].package)} | {kind} | {workers} | "
    predictions, verification = found
    outcomes = verification["outcomes"]
    errors = [abs(one["error"]) for one in outcomes if counts(one)]
    known = [one for one in outcomes if one["low"] is not None and one["measured"] is not None]
    held = sum(one["low"] <= one["measured"] <= one["high"] for one in known)
    advised = advice_of(predictions, outcomes)
    gain = "-" if advised is None else f"{advised['change']}: {advised['predicted']:.2f}, {advised['measured']:.2f}"
    median = f"{statistics.median(errors):.1%}" if errors else "-"
    failed = "; ".join(one["failed"] for one in outcomes if one["failed"])
    return (f"{begin}{len(errors)} | {median} | {held} of {len(known)} | {gain} | {verification['void_runs']} of "
            f"{verification['runs']} | {failed or '-'} |")


def totals(found):
    """Returns the lines below the table."""
    outcomes = [one for _, verification in found for one in verification["outcomes"]]
    errors = sorted(abs(one["error"]) for one in outcomes if counts(one))
    known = [one for one in outcomes if one["low"] is not None and one["measured"] is not None]
    held = sum(one["low"] <= one["measured"] <= one["high"] for one in known)
    advised = [advice_of(predictions, verification["outcomes"]) for predictions, verification in found]
    followed = [one for one in advised if one is not None]
    text = [f"{len(found)} cases; void runs: {sum(one['void_runs'] for _, one in found)} of "
            f"{sum(one['runs'] for _, one in found)}; failed changes: {sum(bool(one['failed']) for one in outcomes)}"]
    if errors:
        text.append(f"changes that count: {len(errors)}; median error {statistics.median(errors):.1%}, 95th percentile "
                    f"{errors[min(len(errors) - 1, int(0.95 * len(errors)))]:.1%}, worst {errors[-1]:.1%}")
    if known:
        text.append(f"within their 90% intervals: {held} of {len(known)} ({held / len(known):.0%})")
    if followed:
        gained = sum(one["measured"] >= one["low"] for one in followed)
        text.append(f"advice: {len(followed)} followed, {gained} gained what the lower end says or more")
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=lambda text: Path(text).resolve(), metavar="DIR")
    parser.add_argument("--minutes", type=float, default=1e9, help="after which no case is begun")
    parser.add_argument("--blocks", type=int, default=3)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--only", nargs="*", choices=TRIALS)
    options = parser.parse_args()
    begin, missing = time.monotonic(), 0
    found = {}
    print("| trial | version | images | workers | count | median error | held | advice: predicted, measured | void | "
          "failed |\n" + "| --- " * 10 + "|")
    for case in cases(options.only or TRIALS):
        folder = options.folder / "-".join(map(str, case))
        if read(folder) is None and version(TRIALS[case[0]].package) is not None and \
                time.monotonic() - begin < 60 * options.minutes:
            verify(folder, case, options)
        if (results := read(folder)) is None:
            missing += 1
            print(f"| {case[0]} | | {case[1]} | {case[2]} | not complete |", flush=True)
            continue
        found[case] = results
        print(row(case, results), flush=True)
    print("\n" + "\n".join(totals(list(found.values()))))
    if missing:
        print(f"{missing} cases are not complete")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
