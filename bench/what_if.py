#!/usr/bin/env python3
"""Checks `millrace profile` where loading binds: how far are its predictions from the runs that follow?

    what_if.py MILLRACE PHOTOS [--setups loader,storage,model] [--blocks N] [--seconds S] [--run DIR]

PHOTOS is a folder of JPEG files as data.reader=folder reads it. Each set-up is one `profile --verify`: of a loader of one
worker, of a slow disk, of a small model that trains on the CPU and, if it is named, of ResNet-18 on a CUDA device. Every
change that counts by the profile's own rules (an effect of at least 20%, no arithmetic of the simulated device) is pooled.
Prints Markdown. Needs idle cores. On a larger machine, set-ups may run side by side, each on cores of its own (taskset).
"""
import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

SIZE = "augment.random_resized_crop.size"
MORE_WORK = ("augment+=gaussian_blur", "augment+=color_jitter", "augment+=elastic", "decode.jpeg=libjpeg")
ON_A_DISK = ("data.storage.bandwidth=40", "data.storage.bandwidth=20", "data.storage.latency=12",
             "data.storage.latency=12 loader.io_threads=16", "loader.io_threads=4", "data.storage.latency=6",
             "data.storage.latency=6 loader.io_threads=8", "data.storage.bandwidth=10",
             "data.storage.bandwidth=160", "data.storage.bandwidth=320 loader.workers=1")
SETUPS = {
    "loader": (("train.device=simulated", "simulated.update_ms=5", "loader.workers=1"),
               (f"{SIZE}=112", f"{SIZE}=320", f"{SIZE}=448", f"{SIZE}=112 loader.workers=2", f"{SIZE}=320 loader.workers=2",
                f"{SIZE}=448 loader.workers=2",
                *(f"{change} loader.workers=2" for change in ("augment+=gaussian_blur", "augment+=elastic",
                                                              "decode.jpeg=libjpeg")), *MORE_WORK)),
    "storage": (("train.device=simulated", "simulated.update_ms=20", "data.storage.bandwidth=80",
                 "data.storage.latency=3"), ON_A_DISK),
    "device": (("train.device=cuda", "loader.batch=64", "train.amp=bf16", "output.normalize=device", "train.clock=async",
                "train.cuda_graphs=step", "loader.workers=1"),
               (*(f"loader.workers={workers}" for workers in (2, 3, 4, 5)), f"{SIZE}=112",
                "augment+=gaussian_blur loader.workers=2", "augment+=color_jitter loader.workers=4", *MORE_WORK)),
    "model": (("train.device=cpu", "train.threads=1", "model.name=simple_conv", f"{SIZE}=64", "loader.workers=1"),
              (f"{SIZE}=48", f"{SIZE}=96", f"{SIZE}=96 loader.workers=2", f"{SIZE}=128", f"{SIZE}=128 loader.workers=2", "augment+=gaussian_blur loader.workers=2",
               "augment+=elastic loader.workers=2", *MORE_WORK)),
}


def profile(options, setup, run):
    """Profiles a set-up, verifies it, and returns the profile's summary."""
    keys, changes = SETUPS[setup]
    command = [options.millrace, "profile", "imagenet-rrc", f"data.path={options.photos}", *keys, "--verify", "--quiet",
               "--blocks", str(options.blocks), "--seconds", str(options.seconds), "--run", str(run)]
    if setup == "device":  # each run starts the device: only what is named here
        command.append("--given")
    for change in changes:
        command += ["--change", change]
    if subprocess.run(command, stdout=subprocess.DEVNULL).returncode != 0:
        sys.exit(f"what_if.py: the profile of set-up {setup} failed; its records are in {run}")
    summary = json.loads((run / "summary.json").read_text())
    if summary["verification"]["held"] is None:
        sys.exit(f"what_if.py: other programs disturbed the verification of set-up {setup}: a selection of its changes is "
                 f"no score; its records are in {run}")
    return summary


def quantile(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def row(name, errors, held, measured):
    if not errors:
        return f"| {name} | 0 | | | | {held} of {measured} |"
    return (f"| {name} | {len(errors)} | {statistics.median(errors):.1%} | {quantile(errors, 0.95):.1%} | "
            f"{max(errors):.1%} | {held} of {measured} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("millrace")
    parser.add_argument("photos", type=Path)
    parser.add_argument("--setups", default="loader,storage,model", help="of " + ", ".join(SETUPS))
    parser.add_argument("--blocks", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--run", type=Path, help="folder of the profiles' records (a temporary one)")
    options = parser.parse_args()
    folder = options.run or Path(tempfile.mkdtemp(prefix="what-if-"))
    rows, changes, pooled, all_held, all_measured = [], [], [], 0, 0
    for setup in options.setups.split(","):
        summary = profile(options, setup, folder / setup)
        measured = [one for one in summary["what_if"] if one["measured"] is not None]
        errors = [abs(one["error"]) for one in measured if one["counted"]]
        verification = summary["verification"]
        rows.append(row(setup, errors, verification["held"], verification["with_interval"]))
        changes += [(setup, one) for one in measured if one["counted"]]
        pooled += errors
        all_held += verification["held"]
        all_measured += verification["with_interval"]
    print("| set-up | changes that count | median error | 95th percentile | largest | ratios in their interval |")
    print("| --- | --- | --- | --- | --- | --- |")
    print("\n".join([*rows, row("all", pooled, all_held, all_measured)]))
    print("\n| set-up | change | predicted | 90% | measured | error |\n| --- | --- | --- | --- | --- | --- |")
    for setup, one in changes:
        print(f"| {setup} | `{' '.join(one['change'])}` | {one['predicted_ratio']:.3f} | "
              f"{one['predicted_low']:.3f} to {one['predicted_high']:.3f} | {one['measured_ratio']:.3f} | {one['error']:+.1%} |")


if __name__ == "__main__":
    main()
