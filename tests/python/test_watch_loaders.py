"""Loaders that iterate in ways of their own: with a kept iterator, without DataLoader, in another thread."""
import json
import os
import pickle
import queue
import re
import subprocess
import sys
import threading
import time
import types
import warnings
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="NOT TESTED with PyTorch: it cannot be imported", exc_type=ImportError)
from torch.utils.data import DataLoader, Dataset

import pymillrace as mr
from conftest import timing
from pymillrace.watcher.command_line import PLAN
from pymillrace.watcher.other_loaders import METHODS
from watch_stand_ins import Ahead, KeptIterator, OwnLoader, ThreadLoader


class Slow(Dataset):
    def __init__(self, count, seconds=0.0):
        self.count, self.seconds = count, seconds

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        time.sleep(self.seconds)
        return torch.full((1,), float(index))


def train(loader, seconds=0.0, epochs=1):
    """Returns the values of all batches."""
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    found = []
    for _ in range(epochs):
        for batch in loader:
            found += batch.flatten().tolist()
            model(batch).sum().backward()
            time.sleep(seconds)
            optimizer.step()
    return found


def summary_of(run):
    return json.loads((run / "summary.json").read_text())


def missing(summary):
    return sum(one["batches"]["missing"] for one in summary["loaders"])


@pytest.mark.parametrize("workers", (0, 1))
def test_a_kept_iterator_is_recorded_also_after_it_was_made_anew(tmp_path, workers):
    with mr.watching(run=tmp_path / "run"):
        loader = KeptIterator(Slow(24, 0.001), batch_size=2, num_workers=workers)
        found = train(loader)
        loader.reset()
        found += train(loader)
        del loader.iterator
    assert found == [float(one) for one in range(24)] * 2
    summary = summary_of(tmp_path / "run")
    assert (summary["steps"], summary["images"], len(summary["loaders"])) == (24, 48, 1)
    assert missing(summary) == 0 and summary["loaders"][0]["work"]["dataset"]["blocked"] >= 0.8 * 24 * 2 * 0.001


@pytest.mark.parametrize("workers", (0, 1))
def test_a_loader_with_torchs_iterators_is_recorded(tmp_path, workers):
    loader = OwnLoader(Slow(48, 0.001), 2, workers)
    with mr.watching(run=tmp_path / "run"):
        found = train(loader)
    assert found == [float(one) for one in range(48)] and loader.fake.worker_init_fn.__name__ == "init_fake"
    summary = summary_of(tmp_path / "run")
    assert (summary["steps"], summary["images"], summary["workers"]) == (24, 48, workers)
    assert missing(summary) == 0 and summary["loaders"][0]["work"]["dataset"]["blocked"] >= 0.8 * 48 * 0.001


def test_a_warning_of_an_iterator_names_the_line_that_makes_it(tmp_path):
    unpicklable = Slow(4)
    unpicklable.function = lambda: None
    loader = DataLoader(unpicklable, num_workers=1, multiprocessing_context="spawn")
    iterator = torch.utils.data.dataloader._MultiProcessingDataLoaderIter
    with mr.watching(run=tmp_path / "run"), warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        with pytest.raises((AttributeError, TypeError, pickle.PicklingError)) as raised:
            iterator(loader)
    files = [one.filename for one in found if "pickle" in str(one.message)]
    if not files:
        pytest.skip("NOT TESTED: this version of torch does not warn")
    assert files == [__file__] and loader.worker_init_fn is None
    assert all("pymillrace" not in str(one.path) for one in raised.traceback)


@timing
@pytest.mark.parametrize("workers", (0, 1))
def test_batches_that_another_thread_takes_are_recorded(tmp_path, capsys, workers):
    for name, load, update, bound in (("slow loader", 0.01, 0.0, "dataset"), ("slow loop", 0.0, 0.02, "device")):
        with mr.watching(run=tmp_path / name):
            found = train(ThreadLoader(Slow(50, load), batch_size=2, num_workers=workers), update, epochs=2)
        assert found == [float(one) for one in range(50)] * 2
        summary = summary_of(tmp_path / name)
        assert (summary["steps"], summary["images"], summary["loaders"][0]["epochs"]) == (50, 100, 2)
        assert missing(summary) == 0 and summary["bound"] == bound, summary["verdict"]
        assert "batches are fetched by a thread other than the loop's" in summary["verdict"]
        assert re.search("the loop waits for batches .*% of its time, the thread that fetches batches waits for the loop",
                         summary["verdict"])
        loop = summary["loaders"][0]
        assert loop["takes_ahead"] and loop["loop_waits"] == pytest.approx(0.0 if update else 0.95, abs=0.1)
        settings = summary["what_if"]["settings"]["update"]
        assert settings["cpu"] * settings["threads"] + settings["blocked"] == pytest.approx(update, abs=0.003)
    assert "(of the thread that fetches batches)" in capsys.readouterr().err


@timing
@pytest.mark.parametrize("begins", ("here", "in the thread"))
def test_a_thread_ahead_of_the_loop_and_the_loop_are_one_pipeline(tmp_path, begins):
    """Loading 20 ms and updating 10 ms take 20 ms per batch, and two workers make 10 ms of that."""
    rates = {}
    for workers in (0, 2):
        given = {"batch_size": 2, "num_workers": workers}
        with mr.watching(run=tmp_path / str(workers)):
            data = Slow(160, 0.01)
            train(ThreadLoader(data, **given) if begins == "here" else Ahead(DataLoader(data, **given), 1), 0.01)
        rates[workers] = summary_of(tmp_path / str(workers))["what_if"]["images_per_s"]
    summary = summary_of(tmp_path / "0")
    assert summary["loaders"][0]["loop_waits"] == pytest.approx(0.5, abs=0.1)
    assert summary["workers_needed"] == pytest.approx(2.0, abs=0.3)
    row = next(one for one in summary["what_if"]["rows"] if one["change"] == "num_workers=2")
    assert row["images_per_s"] == pytest.approx(rates[2], rel=0.12)
    assert "advice: try num_workers=" in summary["advice"]


def test_an_optimizer_in_a_thread_of_its_own_leaves_the_loop_where_it_is(tmp_path):
    layer = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(layer.parameters(), 1e-3)
    with mr.watching(run=tmp_path / "run"):
        for batch in DataLoader(Slow(60), batch_size=2):
            layer(batch.reshape(-1, 1)).sum().backward()
            stepping = threading.Thread(target=optimizer.step)
            stepping.start()
            stepping.join()
    summary = summary_of(tmp_path / "run")
    assert summary["steps"] == 30 and not summary["loaders"][0]["takes_ahead"]


@timing
def test_a_queue_whose_waits_are_not_seen_has_no_predictions(tmp_path):
    class Simple(Ahead):
        def __init__(self, source):
            super().__init__(source, 0)
            self.queue = queue.SimpleQueue()

    with mr.watching(run=tmp_path / "run"):
        train(Simple(DataLoader(Slow(60, 0.002), batch_size=2)))
    summary = summary_of(tmp_path / "run")
    assert summary["loaders"][0]["takes_ahead"] and summary["steps"] == 30 and missing(summary) == 0
    assert summary["loaders"][0]["loop_waits"] is None and summary["what_if"] is None
    assert summary["workers_needed"] is None and "the loop waits for batches" not in summary["verdict"]


def test_the_wait_of_conditions_is_the_plain_one_again_after_the_run(tmp_path):
    plain = threading.Condition.wait
    with mr.watching(run=tmp_path / "run"):
        train(ThreadLoader(Slow(8), batch_size=2))
        assert threading.Condition.wait is not plain
        with pytest.raises(RuntimeError, match="cannot wait on un-acquired lock"):
            threading.Condition().wait()
    assert threading.Condition.wait is plain


def test_a_verification_ends_a_loop_whose_thread_waits_for_it(tmp_path):
    """The thread is no daemon: Python would wait for it for ever."""
    script = tmp_path / "ahead.py"
    script.write_text(f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import torch
from torch.utils.data import DataLoader
from watch_stand_ins import Ahead
layer = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(layer.parameters(), 0.1)
for _ in range(100):
    for batch in Ahead(DataLoader(torch.zeros(64, 1), batch_size=4), 1, daemon=False):
        layer(batch).sum().backward()
        optimizer.step()
print("whole")
""")
    plan = json.dumps({"steps": 40, "overrides": {}})
    done = subprocess.run([sys.executable, "-m", "pymillrace", "watch", "--run", tmp_path / "run", sys.executable, script],
                          env=os.environ | {PLAN: plan}, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0 and done.stdout == "", done.stderr
    assert 40 <= summary_of(tmp_path / "run")["steps"] <= 45


@timing
def test_threads_beside_a_training_have_records_of_their_own(tmp_path):
    check = DataLoader(Slow(4), batch_size=2)
    ahead = Ahead(DataLoader(Slow(60, 0.005), batch_size=2), 2)
    with mr.watching(run=tmp_path / "run"):
        for _ in check:
            pass
        found = train(ahead)
        for _ in check:
            pass
    assert found == [float(one) for one in range(60)]
    summary = summary_of(tmp_path / "run")
    assert summary["steps"] == 30 and summary["loader"].startswith("watch_stand_ins.py:")  # the optimizer's loop
    assert [one["steps"] for one in summary["loaders"]] == [2, 30, 2] and summary["bound"] == "dataset"


def test_threads_that_iterate_side_by_side_lose_no_batch(tmp_path):  # no lock keeps those of a free-threaded Python apart
    loaders = [DataLoader(Slow(200), batch_size=2) for _ in range(4)]
    threads = [threading.Thread(target=lambda one=one: [list(one) for _ in range(3)]) for one in loaders]
    with mr.watching(run=tmp_path / "run"):
        for thread in threads:
            thread.start()
        train(DataLoader(Slow(200), batch_size=2), epochs=3)
        for thread in threads:
            thread.join()
    summary = summary_of(tmp_path / "run")
    assert sorted((one["steps"], one["images"]) for one in summary["loaders"]) == [(300, 600)] * 5
    assert missing(summary) == 0 and summary["error"] is None


def test_an_iterator_that_two_threads_share_stays_with_the_first(tmp_path):
    with mr.watching(run=tmp_path / "run"):
        batches = iter(DataLoader(Slow(60), batch_size=2))
        first = [next(batches) for _ in range(10)]
        rest = list(Ahead(batches, 100))
    assert len(first) + len(rest) == 30
    summary = summary_of(tmp_path / "run")
    assert summary["steps"] == 10 and summary["other_threads_calls"] == 21


def test_an_error_in_another_threads_iteration_passes_through(tmp_path):
    class Broken(Slow):
        def __getitem__(self, index):
            raise ValueError("planted")

    seen = []

    class Catching(Ahead):
        def fill(self):
            try:
                super().fill()
            except ValueError as error:
                seen.append(str(error))
                self.queue.put(None)

    with mr.watching(run=tmp_path / "run"):
        for _ in DataLoader(Slow(4)):
            pass
        assert list(Catching(DataLoader(Broken(4)), 1)) == [] and seen == ["planted"]
    assert "planted" in summary_of(tmp_path / "run")["error"]


class Numbers:
    """A loader that is no torch DataLoader, made of one, as torchdata's nodes may be."""

    def __init__(self, source):
        self.source = source

    def __iter__(self):
        for one in self.source:
            time.sleep(0.002)
            yield one


def test_loaders_of_other_projects_are_recorded_and_not_what_they_are_made_of(tmp_path, monkeypatch):
    project = types.ModuleType("torchdata.nodes")
    project.Loader = type("Loader", (Numbers,), {"__iter__": Numbers.__iter__})
    monkeypatch.setitem(sys.modules, "torchdata.nodes", project)
    loader = project.Loader(DataLoader(Slow(40), batch_size=2))
    with mr.watching(run=tmp_path / "run"):
        found = train(loader, epochs=2)
        abandoned = iter(loader)
        next(abandoned)
        del abandoned
    assert found == [float(one) for one in range(40)] * 2
    summary = summary_of(tmp_path / "run")
    assert [one["kind"] for one in summary["loaders"]] == ["torchdata.Loader"] * 2
    assert (summary["steps"], summary["images"], summary["loaders"][0]["epochs"]) == (40, 80, 2)
    assert summary["loader"].startswith("test_watch_loaders.py:") and summary["load_s"] >= 0.8 * 40 * 0.002
    assert "pymillrace cannot see inside torchdata.Loader" in summary["verdict"]


def test_a_loader_that_iterates_over_another_one_is_recorded_by_that(tmp_path):
    class Prepared(DataLoader):
        """As accelerate's DataLoaderShard."""

        def __init__(self, base):
            super().__init__(base.dataset)
            self.base_dataloader = base

        def __iter__(self):
            yield from self.base_dataloader.__iter__()

    loader = Prepared(DataLoader(Slow(40), batch_size=2))
    assert mr.watch(loader, run=tmp_path / "run") is loader
    assert train(loader) == [float(one) for one in range(40)]
    mr.watcher.api._sessions[str(tmp_path / "run")].close()
    summary = summary_of(tmp_path / "run")
    assert (summary["steps"], summary["images"], len(summary["loaders"])) == (20, 40, 1)


class Ranges:
    """An iterator with state, as Grain's."""

    def __init__(self):
        self.state = 0

    def __iter__(self):
        return self

    def __next__(self):
        if self.state == 24:
            raise StopIteration
        self.state += 1
        return torch.zeros(3)


@pytest.mark.parametrize("module", METHODS)
def test_iterators_of_other_projects_are_recorded_and_keep_class_and_state(tmp_path, monkeypatch, module):
    class_, method, kind = METHODS[module]
    project = types.ModuleType(module)
    setattr(project, class_, type(class_, (), {method: lambda self: Ranges()}))
    monkeypatch.setitem(sys.modules, module, project)
    with mr.watching(run=tmp_path / "run"):
        iterator = getattr(getattr(project, class_)(), method)()
        assert isinstance(iterator, Ranges) and next(iterator).tolist() == [0.0] * 3 and iterator.state == 1
        assert len(list(iterator)) == 23
    main, = summary_of(tmp_path / "run")["loaders"]
    assert (main["kind"], main["steps"], main["images"]) == (kind, 24, 72)


PACKAGE = """
class Pipeline:
    def get_iterator(self, timeout=None):
        return iter([[1.0], [2.0], [3.0]])
    def __iter__(self):
        return self.get_iterator()
def loop(batches):
    return [one for one in batches]
"""


def watched(folder, *words):
    return subprocess.run([sys.executable, "-m", "pymillrace", "watch", "--run", "run", "--", sys.executable, *words],
                          cwd=folder, capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": f"{folder}/packages:{os.environ.get('PYTHONPATH', '')}"})


def test_a_loader_is_named_by_the_users_line_wherever_packages_are_installed(tmp_path):
    (tmp_path / "packages/spdl/pipeline").mkdir(parents=True)
    (tmp_path / "packages/spdl-1.0.dist-info").mkdir()
    (tmp_path / "packages/spdl/pipeline/__init__.py").write_text(PACKAGE)
    (tmp_path / "packages/spdl/__init__.py").write_text("")
    (tmp_path / "train.py").write_text("import torch\nfrom torch.utils.data import DataLoader\n"
                                       "from spdl.pipeline import Pipeline, loop\n"
                                       "assert loop(Pipeline()) == [[1.0], [2.0], [3.0]]\n"
                                       "loop(DataLoader(range(3)))\n")
    done = watched(tmp_path, "train.py")
    assert done.returncode == 0, done.stderr
    assert [(one["name"], one["kind"], one["steps"]) for one in summary_of(tmp_path / "run")["loaders"]] == [
        ("train.py:4", "spdl.Pipeline", 3), ("train.py:5", "DataLoader", 3)]


LOOP = "from torch.utils.data import DataLoader\ndef loop():\n    for _ in DataLoader(range(8)):\n        pass\n"


def test_the_module_that_python_runs_is_the_users_also_if_it_is_installed(tmp_path):
    package = tmp_path / "packages/trainer"
    package.mkdir(parents=True)
    (tmp_path / "packages/trainer-1.0.dist-info").mkdir()
    (package / "__init__.py").write_text("")
    (package / "engine.py").write_text(LOOP)
    (package / "main.py").write_text("import torch\nfrom trainer.engine import loop\nloop()\n")
    done = watched(tmp_path, "-m", "trainer.main")
    assert done.returncode == 0, done.stderr
    assert summary_of(tmp_path / "run")["loader"] == "engine.py:3"


def test_a_loader_that_a_script_gives_is_recorded_in_the_commands_run(tmp_path):
    (tmp_path / "train.py").write_text("import torch\nimport pymillrace as mr\n"
                                       "for _ in mr.watch([torch.ones(2)] * 30):\n    pass\n")
    done = watched(tmp_path, "train.py")
    assert done.returncode == 0 and "nothing was recorded" not in done.stderr
    assert sorted(one.name for one in tmp_path.iterdir()) == ["run", "train.py"]
    assert summary_of(tmp_path / "run")["steps"] == 30


def test_trials_with_other_projects_name_each_script():
    folder = Path(__file__).parents[2] / "bench/wild"
    listed = subprocess.run([sys.executable, folder / "run.py", "--list"], capture_output=True, text=True, check=True)
    assert sorted(listed.stdout.split()) == sorted(one.stem for one in (folder / "trials").glob("*.py"))
