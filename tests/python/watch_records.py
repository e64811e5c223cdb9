"""Records of a run as pymillrace watch leaves them, without a run: what readers of a run directory are tested with."""
import fcntl
import json
import os

from pymillrace.watcher.run_directory import HEADER

NOW = 1_800_000_000.0  # when they are read
VERDICT = ("transform-bound: 45% of load, mostly computing; load is 49% of load + update; 1.4 workers needed, "
           "you have 1")
ADVICE = "advice: try num_workers=2: 780 images/s predicted, 500 now"
ESCAPES = "\x1b]0;title\x07\x1b[2J\x9b31m\u202e\r\n\t\ud800"
DEMAND = [0.0001, 0.0, 1]


def summary_of(complete, **more):
    return {"command": "watch", "complete": complete, "loader": "train.py:28", "interrupted": False, "error": None,
            "wall_s": 74.0, "epochs": 2, "steps": 500, "images": 16_000, "load_s": 15.0, "update_s": 17.0,
            "other_s": 12.0, "first_batch_s": 0.5, "images_per_s": 500.0, "rank": 0,
            "bound": "transform", "verdict": VERDICT, "advice": ADVICE if complete else "", "world_size": 1,
            "loaders": [{"name": "train.py:28", "samples": 9600, "batch": 32}],
            "worker_activity": ["-" * 8 + "9" * 30 + "--", "-" * 8 + "90" * 15 + "--"], **more}


def replay_of():
    """The replay of a run under way, in which fetching takes three times the update."""
    return {"workers": 1, "prefetch": 2, "batch": 32, "cores": 4, "fetch": [[0.03, 0.0]] * 8, "send": DEMAND,
            "receive": DEMAND, "hand": DEMAND, "update": [0.01, 0.0, 1], "images_per_s": 1000.0,
            "blocked_in_dataset": 0.0, "batch_bytes": 1000, "collate_cpu": 0.001}


def rows_of(steps):
    """Rows of steps.csv: the first half loads long, the second hardly. The set-up before them took 12 s."""
    for step in range(1, steps + 1):
        load, update = (0.05, 0.014) if step <= steps // 2 else (0.01, 0.054)
        setup = 12.0 if step == 1 else 0
        yield f"{1 + step // 300},{step},{load},{update},{setup},32,,{setup},0,{load},{update},0,0,0,0,0\n"


def recorded(run, complete, **more):
    """Writes the records of a run of 500 steps, an epoch of 300 among them."""
    run.mkdir()
    (run / "steps.csv").write_text(HEADER + "".join(rows_of(500)))
    (run / "metrics.jsonl").write_text(json.dumps({"step": 300, "steps": 300, "whole": True}) + "\n")
    (run / "summary.json").write_text(json.dumps(summary_of(complete, **more)))
    for file in run.iterdir():
        os.utime(file, (NOW - 3, NOW - 3))
    return run


class Lock:
    """Holds the lock of a run, as its trainer does."""

    def __init__(self, run):
        self._file = open(run / "run.lock", "w")
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._file.close()
