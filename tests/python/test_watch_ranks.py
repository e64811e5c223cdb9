"""Ranks of one launch share a directory, and rank 0 names the one that the others wait for."""
import json
import multiprocessing
import os
import subprocess
import sys
import types
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="NOT TESTED with PyTorch: it cannot be imported", exc_type=ImportError)

from torch.utils.data import DataLoader, DistributedSampler

import pymillrace as mr
import watch_plants as plants_of
from conftest import timing
from pymillrace.watcher import api, place, ranks, run_directory

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
    assert ranks.straggler([row(0, 0.010, 0.020), row(1, 0.100, 0.020)]) is None  # neither waits for the other


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
    # Rank 0 waits for rank 1 in its updates, and would find its own loader fast enough.
    of_rank_1 = json.loads((tmp_path / "run/summary.rank1.json").read_text())
    assert summary["verdict_rank"] == 1 and summary["bound"] == "dataset"
    assert summary["verdict"] == f"rank 1 holds up the others: {of_rank_1['verdict']}"
    assert [summary[key] for key in ("advice", "what_if")] == [of_rank_1[key] for key in ("advice", "what_if")]
    assert "advice: try num_workers=" in done.stderr and "the loader keeps up" not in done.stderr


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
    if sys.argv[3] == "earlier":  # a pass over the data before the ranks exist
        list(watch_plants.loader_of({}, workers=0, batches=3))
    torch.multiprocessing.start_processes(train, (sys.argv[1],), nprocs=2, start_method=sys.argv[4])
"""


def run_script(folder, script, way, *arguments):
    """Runs a script of two ranks, as "command" under `pymillrace watch`. Returns what it writes on stderr."""
    (folder / "train.py").write_text(script)
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    clean = {name: value for name, value in os.environ.items() if name not in (*place.LAUNCHERS, "WORLD_SIZE")}
    watch = [sys.executable, "-m", "pymillrace", "watch", "--run", "run", "--"] if way == "command" else []
    done = subprocess.run([*watch, sys.executable, "train.py", str(folder), way, *arguments], cwd=folder, text=True,
                          env={**clean, "PYTHONPATH": path}, stderr=subprocess.PIPE, timeout=200)
    assert done.returncode == 0, done.stderr
    assert not any(words in done.stderr for words in ("in use", "not recorded", "recording stopped")), done.stderr
    return done.stderr


def check_both_ranks(run, steps):
    """Checks that each rank has left its own complete records."""
    files = {file.name for file in run.iterdir()}
    assert {"steps.csv", "steps.rank1.csv", "summary.json", "summary.rank1.json"} <= files
    summaries = [json.loads((run / name).read_text()) for name in ("summary.json", "summary.rank1.json")]
    assert [(one["rank"], one["world_size"], one["steps"]) for one in summaries] == [(0, 2, steps), (1, 2, steps)]
    assert [one["rank"] for one in summaries[0]["ranks"]] == [0, 1]
    assert all(one["error"] is None and one["complete"] for one in summaries)


@pytest.mark.parametrize("way, method", (("command", "spawn"), ("inside", "spawn"), ("command", "fork"),
                                         ("inside", "fork")))
def test_ranks_of_multiprocessing_come_from_torch_distributed(tmp_path, way, method):
    """accelerate's debug_launcher forks its ranks."""
    stderr = run_script(tmp_path, SPAWNED, way, "once", method)
    check_both_ranks(tmp_path / "run", 24)
    assert stderr.count("records: ") == 1  # rank 0 alone prints


def test_ranks_of_mp_spawn_lie_beside_the_records_of_their_parent(tmp_path):
    run_script(tmp_path, SPAWNED, "command", "earlier", "spawn")
    check_both_ranks(tmp_path / "run.ranks", 24)
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    assert (summary["rank"], summary["world_size"], summary["steps"]) == (0, 1, 3)


LAUNCHES = """
import contextlib
import datetime
import os
import socket
import subprocess
import sys
import torch
import watch_plants
import pymillrace as mr

def launch():
    if "LOCAL_RANK" in os.environ:
        return None
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), NODE_RANK="0", LOCAL_RANK="0", WORLD_SIZE="2")
    return subprocess.Popen([sys.executable, *sys.argv], env={**os.environ, "LOCAL_RANK": "1"})

def fit(loader):  # as Lightning's does, whose launcher sets no RANK
    child = launch()
    torch.distributed.init_process_group("gloo", rank=int(os.environ["LOCAL_RANK"]), world_size=2,
                                         timeout=datetime.timedelta(seconds=60))
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    for images, _ in loader:
        model(images).sum().backward()
        optimizer.step()
    torch.distributed.destroy_process_group()
    assert child is None or child.wait() == 0

way, moment = sys.argv[2:]
loader = watch_plants.loader_of({}, workers=0, batches=24, batch=2)
if way == "given":
    loader = mr.watch(loader, run="run")
with mr.watching(run="run") if way == "inside" else contextlib.nullcontext():
    if moment == "earlier":  # a pass over the data before the ranks know of each other
        list(watch_plants.loader_of({}, workers=0, batches=3))
    fit(loader)
"""


@pytest.mark.parametrize("way, moment", (("command", "once"), ("inside", "once"), ("given", "once"),
                                         ("command", "earlier"), ("inside", "earlier")))
def test_a_launcher_inside_the_script_that_sets_no_rank(tmp_path, way, moment):
    stderr = run_script(tmp_path, LAUNCHES, way, moment)
    check_both_ranks(tmp_path / "run", 24)
    assert [file.name for file in tmp_path.glob("run*")] == ["run"] and stderr.count("records: ") == 1


LIGHTNING = """
import contextlib
import sys
import lightning
import torch
import pymillrace as mr
from test_watch_frameworks import OPTIONS, Pairs, lightning_model

if __name__ == "__main__":
    trainer = lightning.Trainer(**{**OPTIONS, "max_epochs": 1}, devices=2, strategy="ddp", default_root_dir=sys.argv[1])
    loader = torch.utils.data.DataLoader(Pairs(), 2)
    if sys.argv[2] == "given":  # the trainer makes another one from it for each rank
        mr.watch(loader, run="run")
    with mr.watching(run="run") if sys.argv[2] == "inside" else contextlib.nullcontext():
        trainer.fit(lightning_model(lightning), loader)
"""


@pytest.mark.parametrize("way", ("command", "inside", "given"))
def test_both_ranks_that_lightning_launches_are_recorded(tmp_path, way):
    pytest.importorskip("lightning", reason="NOT TESTED: lightning is missing")
    stderr = run_script(tmp_path, LIGHTNING, way)
    check_both_ranks(tmp_path / "run", 6)
    assert [file.name for file in tmp_path.glob("run*")] == ["run"] and stderr.count("records: ") == 1


def test_only_a_ranks_copy_counts_as_the_loader_that_was_given(tmp_path):
    data = plants_of.Samples(8)
    given = mr.watch(DataLoader(data, batch_size=2), run=tmp_path / "run")
    sampler = DistributedSampler(data, num_replicas=2, rank=0)
    others = (DataLoader(data, batch_size=2), DataLoader(data, batch_size=4, sampler=sampler),
              DataLoader(plants_of.Samples(8), batch_size=2, sampler=sampler))
    for loader in others:
        list(loader)
    assert api._given[given].table.steps == 0
    list(DataLoader(data, batch_size=2, sampler=sampler))
    assert api._given[given].table.steps == 2
    api._given[given].session.close()


ACTORS = """
import datetime
import os
import pathlib
import subprocess
import sys
import time
import torch
import watch_plants
import pymillrace as mr

folder, way, *rank = sys.argv[1:]
if not rank:  # starts processes that know nothing of their ranks, as Ray starts actors
    actors = []
    for one in ("1", "0"):
        actors.append(subprocess.Popen([sys.executable, *sys.argv, one]))
        while not pathlib.Path(f"opened{one}").exists() and actors[-1].poll() is None:
            time.sleep(0.01)
    sys.exit(max(actor.wait() for actor in actors))
with mr.watching(run="run"):
    pathlib.Path(f"opened{rank[0]}").touch()
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=int(rank[0]), world_size=2,
                                         timeout=datetime.timedelta(seconds=60))
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    for images, _ in watch_plants.loader_of({}, workers=0, batches=24, batch=2):
        model(images).sum().backward()
        optimizer.step()
    torch.distributed.destroy_process_group()
"""


def test_a_rank_that_has_opened_the_directory_leaves_it_to_rank_0(tmp_path):
    run_script(tmp_path, ACTORS, "inside")
    check_both_ranks(tmp_path / "run", 24)
    assert [file.name for file in tmp_path.glob("run*")] == ["run"]


# A watch for each rank

EACH = """
import datetime
import os
import sys
import time
import torch
import watch_plants

rank, steps, late_s, together = int(os.environ["OMPI_COMM_WORLD_RANK"]), int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
if together == "together":
    torch.distributed.init_process_group("gloo", init_method=f"file://{os.getcwd()}/meet", rank=rank, world_size=2,
                                         timeout=datetime.timedelta(seconds=60))
loader = watch_plants.loader_of({}, workers=0, batches=steps, batch=2)
if rank == 0:
    time.sleep(late_s)
model = torch.nn.Linear(1, 1)
if together == "together":
    model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), 1e-3)
began = time.monotonic()
for images, _ in loader:
    model(images).sum().backward()
    optimizer.step()
    time.sleep(float(sys.argv[5]))
print(f"rank {rank} took {time.monotonic() - began:.1f} s", flush=True)
if rank == 0:
    time.sleep(float(sys.argv[4]))  # as for a checkpoint
"""


def run_each(folder, *arguments):
    """Runs two ranks, each under a watch of its own, as mpirun does. Returns what each writes on stderr, and stdout."""
    (folder / "train.py").write_text(EACH)
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    clean = {name: value for name, value in os.environ.items() if name not in (*place.LAUNCHERS, "WORLD_SIZE")}
    ranks_of = [subprocess.Popen(
        [sys.executable, "-m", "pymillrace", "watch", "--run", "run", "--", sys.executable, "train.py", *arguments],
        cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**clean, "PYTHONPATH": path, "OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_SIZE": "2"})
        for rank in (0, 1)]
    ended = [one.communicate(timeout=200) for one in ranks_of]
    assert [one.returncode for one in ranks_of] == [0, 0], ended
    return ended


def test_a_watch_for_each_rank_makes_one_run(tmp_path):
    """Ranks that meet at a file have no variable in common."""
    ended = run_each(tmp_path, "24", "0", "together", "0", "0")
    check_both_ranks(tmp_path / "run", 24)
    assert [one[1].count("records: ") for one in ended] == [1, 0], ended
    assert ended[1][1] == ""
    assert sorted(file.name for file in tmp_path.glob("run*")) == ["run"]


def test_no_rank_waits_for_rank_0_and_an_earlier_run_is_kept(tmp_path):
    for steps in (24, 36):
        ended = run_each(tmp_path, str(steps), "2", "apart", "0", "0.1")
        assert float(ended[1][0].split()[3]) < 0.1 * steps + 1.5, ended  # rank 1 begins while rank 0 has not
    check_both_ranks(tmp_path / "run", 36)
    check_both_ranks(tmp_path / "run.1", 24)
    assert sorted(file.name for file in tmp_path.glob("run*")) == ["run", "run.1"]
    assert len((tmp_path / "run.1/steps.rank1.csv").read_text().splitlines()) == 25


def test_a_rank_that_ends_first_says_nothing_of_rank_0s_run(tmp_path):
    ended = run_each(tmp_path, "24", "0", "apart", "3", "0")
    check_both_ranks(tmp_path / "run", 24)
    assert ended[1][1] == "" and "cut off" not in ended[0][1], ended


def test_a_rank_without_rank_0_says_where_its_records_lie(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(run_directory, "END_PATIENCE", 0.1)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with mr.watching(run=tmp_path / "run"):
        list(plants_of.loader_of({}, workers=0, batches=24, batch=2))
    found, = tmp_path.iterdir()
    assert found.name == f"run.rank1-{os.getpid()}" and json.loads((found / "summary.rank1.json").read_text())["steps"] == 24
    assert f"its records are in {found};" in capsys.readouterr().err


RAISES = """
import sys
import torch
import watch_plants

def train(rank):
    for step, _ in enumerate(watch_plants.loader_of({}, workers=0, batches=24, batch=2)):
        if step == 11:
            raise ValueError("a fault of the script")

if __name__ == "__main__":
    torch.multiprocessing.spawn(train, nprocs=1)
"""


def test_an_error_that_mp_spawn_catches_is_recorded(tmp_path):
    (tmp_path / "train.py").write_text(RAISES)
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run([sys.executable, "-m", "pymillrace", "watch", "--run", "run", "--", sys.executable, "train.py"],
                          cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=200)
    assert done.returncode == 1 and "ended by ValueError: a fault of the script" in done.stderr, done.stderr
    assert json.loads((tmp_path / "run/summary.json").read_text())["error"] == "ValueError: a fault of the script"


# Places

@pytest.mark.parametrize("variables, expected, known", (
    ({}, (0, 1), True),
    ({"RANK": "3", "WORLD_SIZE": "4"}, (3, 4), True),
    ({"LOCAL_RANK": "1", "NODE_RANK": "0", "WORLD_SIZE": "2"}, (1, 2), False),
    ({"LOCAL_RANK": "1", "NODE_RANK": "2", "LOCAL_WORLD_SIZE": "4", "WORLD_SIZE": "12"}, (9, 12), False),
    ({"LOCAL_RANK": "1", "GROUP_RANK": "1", "LOCAL_WORLD_SIZE": "2", "WORLD_SIZE": "4"}, (3, 4), False),
    ({"LOCAL_RANK": "1"}, (0, 1), False),
    ({"RANK": "1"}, (0, 1), False),
    ({"RANK": "first", "WORLD_SIZE": ""}, (0, 1), True),
    ({"SLURM_PROCID": "1"}, (0, 1), False),
    ({"SLURM_PROCID": "1", "SLURM_NTASKS": "2"}, (0, 1), False),  # a batch script's own process
    ({"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2"}, (1, 2), False),
    ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, (1, 2), False),
    ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "RANK": "3", "WORLD_SIZE": "4"}, (3, 4), True),
    ({"PMI_RANK": "2", "PMI_SIZE": "3"}, (2, 3), False),
))
def test_the_place_of_the_environment(monkeypatch, variables, expected, known):
    for name in (*place.LAUNCHERS, *sum(place.TASKS, ()), "GROUP_RANK", "LOCAL_WORLD_SIZE", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert (place.place(), place.place_is_known()) == (expected, known)


def test_a_process_that_does_not_know_its_rank_yet_is_not_in_use(tmp_path, monkeypatch):
    from pymillrace.watcher import api
    from pymillrace.watcher.session import Session

    monkeypatch.setattr(run_directory, "PATIENCE", 0.1)
    monkeypatch.setattr(multiprocessing, "parent_process", lambda: types.SimpleNamespace(pid=1))
    first, second = Session(tmp_path / "run"), Session(tmp_path / "run")
    assert api._opens(first) and api._opens(second)
    assert second.directory.path.name == f"run.pid{os.getpid()}" and first.directory.path.name == "run"
    first.close()
    second.close()
