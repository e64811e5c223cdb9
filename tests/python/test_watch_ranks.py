"""Ranks of one launch share a directory, and rank 0 names the one that the others wait for."""
import json
import multiprocessing
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="NOT TESTED with PyTorch: it cannot be imported", exc_type=ImportError)

import watch_plants as plants_of
from conftest import timing
from pymillrace.watcher import ranks

SCRIPT = """
import os
import sys
import torch
import watch_plants

if __name__ == "__main__":
    torch.distributed.init_process_group("gloo")
    sleeps = int(os.environ["RANK"]) == 1
    plants = {"dataset": watch_plants.Plant(sys.argv[1], "dataset", "blocked", 20)} if sleeps else {}
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    for images, _ in watch_plants.loader_of(plants, workers=0, batches=24, batch=2):
        model(images).sum().backward()
        optimizer.step()
    torch.distributed.destroy_process_group()
"""


def row(rank, load, update):
    return {"rank": rank, "steps": 10, "load_s_per_step": load, "update_s_per_step": update, "images_per_s": 1.0,
            "bound": "dataset"}


def test_the_rank_that_loads_longest_is_the_straggler():
    rows = [row(0, 0.010, 0.110), row(1, 0.100, 0.020), row(2, 0.012, 0.108)]
    found = ranks.straggler(rows)
    assert found["rank"] == 1 and found["excess_s_per_step"] == pytest.approx(0.089)
    assert "straggler: rank 1 loads 100.0 ms per step, 89.0 ms more" in ranks.line(
        {"straggler": found, "ranks": rows, "world_size": 4})
    assert "1 ranks left no complete summary" in ranks.line({"straggler": None, "ranks": rows, "world_size": 4})
    assert ranks.straggler([row(0, 0.100, 0.020), row(1, 0.105, 0.015)]) is None
    assert ranks.straggler([row(0, 0.100, 0.020)]) is None


@timing
def test_under_torchrun_each_rank_has_a_file_and_the_straggler_is_named(tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    words = [sys.executable, "-m", "pymillrace", "watch", "--run", str(tmp_path / "run"), "--", sys.executable, "-m",
             "torch.distributed.run", "--standalone", "--nproc-per-node=2", "train.py", str(tmp_path / "plants")]
    done = subprocess.run(words, cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, stderr=subprocess.PIPE,
                          text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    files = {file.name for file in (tmp_path / "run").iterdir()}
    assert {f"{stem}{rank}.{kind}" for stem, kind in (("steps", "csv"), ("summary", "json"), ("timeline", "json"))
            for rank in ("", ".rank1")} <= files
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    assert [one["rank"] for one in summary["ranks"]] == [0, 1]
    assert summary["straggler"]["rank"] == 1 and summary["straggler"]["bound"] == "dataset"
    slept = plants_of.measured(tmp_path / "plants")["dataset"].wall / 24
    assert summary["straggler"]["excess_s_per_step"] == pytest.approx(slept, rel=0.2)
    assert "straggler: rank 1 loads" in done.stderr


SPAWNED = """
import sys
import torch
import watch_plants
import pymillrace as mr

def train(rank, folder):
    def go():
        torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
        plants = {"dataset": watch_plants.Plant(f"{folder}/plants", "dataset", "blocked", 5)} if rank else {}
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))
        optimizer = torch.optim.SGD(model.parameters(), 1e-3)
        for images, _ in watch_plants.loader_of(plants, workers=0, batches=24, batch=2):
            model(images).sum().backward()
            optimizer.step()
        torch.distributed.destroy_process_group()

    if sys.argv[2] == "command":
        go()
    else:
        with mr.watching(run=f"{folder}/run"):  # before the ranks know of each other
            go()

if __name__ == "__main__":
    torch.multiprocessing.spawn(train, (sys.argv[1],), nprocs=2)
"""


@pytest.mark.parametrize("way", ("command", "inside"))
def test_ranks_of_mp_spawn_come_from_torch_distributed(tmp_path, way):
    (tmp_path / "train.py").write_text(SPAWNED)
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    watch = [sys.executable, "-m", "pymillrace", "watch", "--run", "run", "--"] if way == "command" else []
    done = subprocess.run([*watch, sys.executable, "train.py", str(tmp_path), way], cwd=tmp_path, text=True,
                          env={**os.environ, "PYTHONPATH": path}, stderr=subprocess.PIPE, timeout=200)
    assert done.returncode == 0 and "in use" not in done.stderr and "recording stopped" not in done.stderr, done.stderr
    files = {file.name for file in (tmp_path / "run").iterdir()}
    assert {"summary.json", "summary.rank1.json", "steps.rank1.csv"} <= files
    summaries = [json.loads((tmp_path / "run" / name).read_text()) for name in ("summary.json", "summary.rank1.json")]
    assert [(one["rank"], one["world_size"], one["steps"]) for one in summaries] == [(0, 2, 24), (1, 2, 24)]
    assert [one["rank"] for one in summaries[0]["ranks"]] == [0, 1]
    assert done.stderr.count("records: ") == 1  # rank 0 alone prints


def test_a_process_that_does_not_know_its_rank_yet_is_not_in_use(tmp_path, monkeypatch):
    from pymillrace.watcher import api, run_directory
    from pymillrace.watcher.session import Session

    monkeypatch.setattr(run_directory, "PATIENCE", 0.1)
    monkeypatch.setattr(multiprocessing, "parent_process", lambda: "spawned")
    first, second = Session(tmp_path / "run"), Session(tmp_path / "run")
    assert api._opens(first) and api._opens(second)
    assert second.directory.path.name == f"run.pid{os.getpid()}" and first.directory.path.name == "run"
    first.close()
    second.close()
