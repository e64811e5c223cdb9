#!/usr/bin/env python3
"""Trains with other projects' loaders, unmodified, under `pymillrace watch`: run.py [--only NAME ...] [--list]

Each trial of trials/ runs twice with 0 and with 1 worker, on the CPU: alone, and watched. The data set waits some ms
per sample, which the watched run's verdict must name where it can see inside of the loader. Checked are the exit codes,
the losses (equal, bit by bit), the number of steps, the place of the verdict, and that a line of the trial or of
common.py names the loader. Prints a table in Markdown; the exit code is 1 if a check failed.

Packages are those of requirements.txt, which names exact versions: pip install --target DIR --no-deps -r
requirements.txt. They, torch and pymillrace are found through PYTHONPATH. FFCV is not among them: it must be
compiled, as bench/peers/setup.sh does. Nor is DeepSpeed: it imports torch while it is installed (DS_BUILD_OPS=0 pip
install --target DIR --no-deps --no-build-isolation deepspeed==0.19.8). A trial whose package is missing is printed as
not tried.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
LIMIT_S = 300


class Trial(NamedTuple):
    package: str
    steps: int  # of the training loader
    workers: tuple[int, ...] = (0, 1)
    place: str = "dataset"  # of the verdict
    delay_ms: float = 8.0


TRIALS = {
    "plain": Trial("torch", 48, (0, 1, 2)),
    "ultralytics_classify": Trial("ultralytics", 48, (0,), delay_ms=160),  # uses no workers without a GPU
    "fastai_learner": Trial("fastai", 48),
    "monai_threads": Trial("monai", 48, place="transform"),
    "webdataset_shards": Trial("webdataset", 48),
    "torchdata_nodes": Trial("torchdata", 48, (1,), "unknown"),
    "timm_epochs": Trial("timm", 48),
    "litdata_stream": Trial("litdata", 48),
    "spdl_pipeline": Trial("spdl_core", 24, (1,), "unknown"),
    "lightning_fit": Trial("lightning", 48),
    "accelerate_loop": Trial("accelerate", 48),
    "transformers_trainer": Trial("transformers", 48),
    "schedulefree_sgd": Trial("schedulefree", 48),
    "ignite_engine": Trial("pytorch-ignite", 48),
    "skorch_classifier": Trial("skorch", 48),
    "keras_fit": Trial("keras", 49),  # one more to build the model
    "mmengine_runner": Trial("mmengine-lite", 48),
    "torchtnt_unit": Trial("torchtnt", 48),
    "poutyne_model": Trial("poutyne", 48),
    "geometric_graphs": Trial("torch-geometric", 48),
    "detection_targets": Trial("torch", 48),
    "queue_of_patches": Trial("torch", 48, (0,)),
    "kornia_transforms": Trial("kornia", 48, delay_ms=40),  # beside the time of its transforms
    "hf_datasets": Trial("datasets", 48),
    "mosaicml_streaming": Trial("mosaicml-streaming", 48),
    "grain_loader": Trial("grain", 48, (0,), "unknown"),
    "tf_data": Trial("tensorflow-cpu", 48, (0,), "unknown"),
    "dali_pipeline": Trial("nvidia-dali-cuda130", 48, (0,), "unknown"),
    "ffcv_loader": Trial("ffcv", 48, (0,), "unknown"),
    "deepspeed_zero": Trial("deepspeed", 48),
    "metric_learning": Trial("pytorch-metric-learning", 48),
    "compiled_step": Trial("torch", 48, delay_ms=80),  # beside the time of compiling
}


def version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def execute(words: list[str], folder: Path, workers: int, delay_ms: float
            ) -> tuple[subprocess.CompletedProcess[str], list[float]]:
    """Runs a trial in an empty folder. Returns its end and its losses."""
    folder.mkdir()
    losses = folder / "losses.json"
    path = os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=LIMIT_S, env={
        **os.environ, "PYTHONPATH": path, "WILD_LOSSES": str(losses), "WILD_DELAY_MS": str(delay_ms),
        "WILD_WORKERS": str(workers), "HOME": str(folder), "YOLO_OFFLINE": "1", "HF_HUB_OFFLINE": "1"})
    return done, json.loads(losses.read_text()) if losses.exists() else []


def attempt(name: str, trial: Trial, workers: int, folder: Path) -> tuple[str, str, str]:
    """Returns a loader's name, its verdict, and what was wrong."""
    script = str(HERE / "trials" / f"{name}.py")
    alone, expected = execute([sys.executable, script], folder / "alone", workers, trial.delay_ms)
    if alone.returncode or not expected:
        return "", "", f"does not run unwatched: {alone.stderr.strip().splitlines()[-1:]}"
    run = folder / "run"
    watched, found = execute([sys.executable, "-m", "pymillrace", "watch", "--quiet", "--run", str(run), "--",
                              sys.executable, script], folder / "watched", workers, trial.delay_ms)
    wrong = []
    if watched.returncode:
        wrong.append(f"exit code {watched.returncode}")
    if found != expected:
        wrong.append("other losses")
    if "recording stopped" in watched.stderr:
        wrong.append("the recording stopped")
    try:
        summary = json.loads((run / "summary.json").read_text())
    except OSError:
        return "", "", "; ".join([*wrong, "nothing was recorded"])
    if summary["steps"] != trial.steps:
        wrong.append(f"{summary['steps']} steps instead of {trial.steps}")
    if summary["bound"] != trial.place:
        wrong.append(f"{summary['bound']} instead of {trial.place}")
    if not summary["loader"].startswith(f"{name}.py:") and not summary["loader"].startswith("common.py:"):
        wrong.append("named by no line of the trial")
    return summary["loader"], summary["verdict"], "; ".join(wrong)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="*", choices=TRIALS)
    parser.add_argument("--list", action="store_true", help="names the trials")
    chosen = parser.parse_args()
    if chosen.list:
        print("\n".join(TRIALS))
        return 0
    failed = 0
    print("| trial | version | workers | loader | verdict | check |\n| --- | --- | --- | --- | --- | --- |")
    for name in chosen.only or TRIALS:
        trial = TRIALS[name]
        known = version(trial.package)
        for workers in trial.workers:
            if known is None:
                print(f"| {name} | {trial.package} is missing | {workers} | | | not tried |", flush=True)
                continue
            with tempfile.TemporaryDirectory(prefix="wild-") as folder:
                loader, verdict, wrong = attempt(name, trial, workers, Path(folder))
            failed += bool(wrong)
            print(f"| {name} | {trial.package} {known} | {workers} | {loader} | {verdict} | {wrong or 'ok'} |",
                  flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
