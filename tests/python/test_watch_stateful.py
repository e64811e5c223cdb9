"""torchdata's StatefulDataLoader, which has iterators and workers of its own, is watched as a DataLoader is."""
import json
import subprocess
import sys

import pytest

pytest.importorskip("torch", reason="NOT TESTED with PyTorch: it cannot be imported", exc_type=ImportError)
stateful = pytest.importorskip("torchdata.stateful_dataloader", reason="NOT TESTED: torchdata is missing")

import torch

import pymillrace as mr
import watch_plants as plants_of
from conftest import timing
from pymillrace.watcher.command_line import PLAN, watched_environment


def loader_of(workers, plant=plants_of.NoPlant(), **options):
    torch.manual_seed(3)
    return stateful.StatefulDataLoader(plants_of.Samples(24, plant), batch_size=3, num_workers=workers, shuffle=True,
                                       collate_fn=plants_of.Collate(plants_of.NoPlant()), **options)


def main_of(run):
    summary = json.loads((run / "summary.json").read_text())
    return summary["loaders"][0]


@timing
@pytest.mark.parametrize("workers, persistent", ((0, False), (2, False), (2, True)))
def test_its_workers_are_seen_inside(tmp_path, workers, persistent):
    log = tmp_path / "plants"
    loader = loader_of(workers, plants_of.Plant(log, "dataset", "blocked", 12), persistent_workers=persistent)
    assert mr.watch(loader, run=tmp_path / "run") is loader
    with mr.watching(run=tmp_path / "all"):
        for _ in range(2):
            plants_of.train(loader, {})
    mr.watcher.api._sessions[str(tmp_path / "run")].close()
    main, plant = main_of(tmp_path / "run"), plants_of.measured(log)["dataset"]
    assert (main["workers"], main["steps"], main["epochs"]) == (workers, 16, 2)
    assert main["batches"] == {**main["batches"], "recorded": 16, "missing": 0}
    assert main["work"]["dataset"]["unknown"] == 0
    assert main["work"]["dataset"]["blocked"] == pytest.approx(plant.blocked, rel=0.05)


@pytest.mark.parametrize("workers", (0, 2))
def test_it_resumes_with_the_same_batches_and_states_as_without(tmp_path, workers):
    def run():
        """Returns the batches behind a state of the third, and that state."""
        first = loader_of(workers)
        batches = iter(first)
        for _ in range(3):
            next(batches)
        state = first.state_dict()
        del batches
        second = loader_of(workers)
        second.load_state_dict(state)
        return [images.flatten().tolist() for images, _ in second], state

    plain = run()
    with mr.watching(run=tmp_path / "run"):
        watched = run()
    assert plain[0] == watched[0] and len(plain[0]) == 5
    assert json.dumps(plain[1], default=str) == json.dumps(watched[1], default=str)
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    assert [(one["steps"], one["batches"]["missing"]) for one in summary["loaders"]] == [(3, 0), (5, 0)]


def test_the_command_watches_a_script_that_imports_it_later(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("import torch\n"
                      "from torchdata.stateful_dataloader import StatefulDataLoader\n"
                      "for batch in StatefulDataLoader(list(range(8)), batch_size=2):\n"
                      "    pass\n")
    command = [sys.executable, "-m", "pymillrace", "watch", "--run", str(tmp_path / "run"), "--", sys.executable,
               str(script)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done
    main = main_of(tmp_path / "run")
    assert main["name"] == "train.py:3" and main["steps"] == main["batches"]["recorded"] == 4


def test_what_if_reaches_its_constructor(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("from torchdata.stateful_dataloader import StatefulDataLoader\n"
                      "from torch.utils.data import DataLoader\n"
                      "for kind in (StatefulDataLoader, DataLoader):\n"
                      "    loader = kind([1] * 8, 2, num_workers=2, prefetch_factor=3, persistent_workers=True)\n"
                      "    print(loader.num_workers, loader.prefetch_factor, loader.batch_size)\n")
    for overrides, expected in (({"num_workers": 0}, "0 None 2"), ({"num_workers": 1, "prefetch_factor": 5}, "1 5 2")):
        plan = {PLAN: json.dumps({"steps": 9, "overrides": overrides})}
        done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True,
                              env={**watched_environment(tmp_path / "run"), **plan})
        assert done.stdout.splitlines() == [expected, expected], done.stderr
