"""What watching does, what it leaves alone, and what it says about loaders that it cannot see into."""
import csv
import hashlib
import json
import os
import pickle
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

numpy = pytest.importorskip("numpy", reason="NOT TESTED: NumPy is missing")
torch = pytest.importorskip("torch", reason="NOT TESTED with PyTorch: it cannot be imported", exc_type=ImportError)
from torch.utils.data import DataLoader

import pymillrace as mr
import watch_plants as plants_of
from conftest import timing
from pymillrace.watcher import watched_loader, worker, worker_activity

PROGRAM = os.environ.get("MILLRACE_PROGRAM", "")


def summary_of(run, name="summary.json"):
    return json.loads((Path(run) / name).read_text())


def rows_of(run, name="steps.csv"):
    return list(csv.DictReader(open(Path(run) / name)))


def hashes(run, workers, method="fork", persistent=False):
    """Returns a hash of every batch of two seeded epochs; watched if there is a run directory."""
    torch.manual_seed(7)
    random.seed(7)
    options = {"multiprocessing_context": method, "persistent_workers": persistent} if workers else {}
    loader = DataLoader(plants_of.RandomSamples(), batch_size=4, shuffle=True, num_workers=workers,
                        worker_init_fn=plants_of.init_that_draws, **options)
    if run is not None:
        assert mr.watch(loader, run=run) is loader
    found = [hashlib.sha256(batch.numpy().tobytes()).hexdigest() for _ in range(2) for batch in loader]
    assert loader.worker_init_fn is plants_of.init_that_draws
    return found + [float(torch.rand(1)), random.random()]


@pytest.mark.parametrize("workers, method, persistent", ((0, "", False), (2, "fork", False), (2, "fork", True),
                                                         (1, "spawn", True), (1, "forkserver", True)))
def test_batches_and_generators_are_those_of_an_unwatched_run(tmp_path, workers, method, persistent):
    assert hashes(tmp_path / "run", workers, method, persistent) == hashes(None, workers, method, persistent)
    close(tmp_path / "run")
    assert summary_of(tmp_path / "run")["loaders"][0]["batches"]["missing"] == 0


def test_the_loader_looks_unchanged(tmp_path):
    loader = DataLoader(plants_of.RandomSamples(), batch_size=4, num_workers=1)
    before = dict(loader.__dict__)
    assert mr.watch(loader, run=tmp_path / "run") is loader
    iterator = iter(loader)
    assert isinstance(iterator, torch.utils.data.dataloader._MultiProcessingDataLoaderIter)
    assert type(iterator).__name__ == "_MultiProcessingDataLoaderIter"
    assert iterator._worker_init_fn is None and loader.worker_init_fn is None
    assert loader.__dict__ == before


def test_a_later_epoch_continues_the_run(tmp_path):
    loader = DataLoader(plants_of.RandomSamples(), batch_size=4)
    for _ in range(3):
        for _ in mr.watch(loader, run=tmp_path / "run"):
            pass
    close(tmp_path / "run")
    rows = rows_of(tmp_path / "run")
    assert [int(row["step"]) for row in rows] == list(range(1, 31))
    assert {int(row["epoch"]) for row in rows} == {1, 2, 3}
    assert sum(int(row["images"]) for row in rows) == 120
    lines = [json.loads(line) for line in open(tmp_path / "run/metrics.jsonl")]
    summary = summary_of(tmp_path / "run")
    assert len(lines) == 3 and len(summary["loaders"]) == 1
    assert sum(line["load_s"] for line in lines) == pytest.approx(summary["load_s"], rel=1e-6)


def test_a_loader_rebuilt_at_the_same_line_continues_its_record(tmp_path):
    for _ in range(3):
        for _ in mr.watch(DataLoader(plants_of.RandomSamples(), batch_size=20), run=tmp_path / "run"):
            pass
    close(tmp_path / "run")
    assert [(one["epochs"], one["steps"]) for one in summary_of(tmp_path / "run")["loaders"]] == [(3, 6)]


def close(run):
    """Ends a run as the end of the process would."""
    mr.watcher.api._sessions[os.path.abspath(run)].close()


@timing
def test_validation_is_a_row_of_its_own_and_the_trained_loader_is_the_main_one(tmp_path):
    log = tmp_path / "plants"
    train = plants_of.loader_of({}, workers=0, batches=4)
    check = plants_of.loader_of({"dataset": plants_of.Plant(log, "dataset", "blocked", 25)}, workers=0, batches=2)
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    with mr.watching(run=tmp_path / "run"):
        for images, _ in check:  # as Lightning's sanity check does, before any training
            model(images)
        for step, (images, _) in enumerate(train):
            model(images).sum().backward()
            optimizer.step()
            if step == 1:
                for images, _ in check:
                    model(images)
    summary = summary_of(tmp_path / "run")
    planted = plants_of.measured(log)["dataset"].wall
    assert summary["steps"] == 4 and len(summary["loaders"]) == 3
    assert summary["spans"]["evaluate"] == pytest.approx(planted, rel=0.1)
    rows = rows_of(tmp_path / "run")
    assert len(rows) == 4
    assert [float(row["evaluate"]) > 0.02 for row in rows] == [True, True, False, False]
    names = [one["name"] for one in summary["loaders"]]
    assert all(name.startswith("test_watch.py:") for name in names) and len(set(names)) == 3
    assert summary["loader"] == names[1]


def test_loaders_are_named_by_the_line_that_iterates_over_them(tmp_path):
    text = "for _ in first:\n    pass\nfor _ in second:\n    for _ in third: pass\n"
    names = {name: plants_of.loader_of({}, workers=0, batches=1) for name in ("first", "second", "third")}
    with mr.watching(run=tmp_path / "run"):
        exec(compile(text, "/scripts/loops.py", "exec"), names)
    found = [one["name"] for one in summary_of(tmp_path / "run")["loaders"]]
    assert found == ["loops.py:1", "loops.py:3", "loops.py:4"]


def test_a_script_may_change_its_folder(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with mr.watching(run="run"):
        for _ in plants_of.loader_of({}, workers=0):
            os.chdir(tmp_path / "elsewhere")
    assert summary_of(tmp_path / "run")["steps"] == len(rows_of(tmp_path / "run")) == 6


def test_leaving_the_loop_early_ends_the_iteration(tmp_path):
    loader = plants_of.loader_of({}, workers=1, batches=8)
    with mr.watching(run=tmp_path / "run"):
        for _ in range(2):
            for step, _ in enumerate(loader):
                if step == 2:
                    break
    main = summary_of(tmp_path / "run")["loaders"][0]
    assert main["steps"] == 6 and main["epochs"] == 2 and main["batches"]["missing"] == 0


@timing
@pytest.mark.parametrize("workers", (0, 2))
def test_iterable_datasets(tmp_path, workers):
    log = tmp_path / "plants"
    loader = DataLoader(plants_of.Stream(16, plants_of.Plant(log, "dataset", "blocked", 10)), batch_size=2,
                        num_workers=workers)
    with mr.watching(run=tmp_path / "run"):
        assert sum(len(batch) for batch in loader) == 16
    work, plant = summary_of(tmp_path / "run")["loaders"][0]["work"]["dataset"], plants_of.measured(log)["dataset"]
    assert work["cpu"] + work["blocked"] == pytest.approx(plant.cpu + plant.blocked, rel=0.05)


class Pipeline:
    """Its own iterator, whose batches are lists of dictionaries, as DALI's are."""

    left = 25

    def __iter__(self):
        return self

    def __next__(self):
        if self.left == 0:
            raise StopIteration
        self.left -= 1
        return [{"data": torch.zeros(4, 2), "label": torch.zeros(4)}]


class Arrays:
    """Yields tuples of arrays, as tf.data's as_numpy_iterator() and FFCV do."""

    def __iter__(self):
        return ((numpy.zeros((4, 2)), numpy.zeros(4)) for _ in range(25))


@pytest.mark.parametrize("kind", (Pipeline, Arrays, list))
def test_of_another_iterable_only_load_and_update_are_known(tmp_path, capsys, kind):
    inner = [torch.zeros(4, 2)] * 25 if kind is list else kind()
    watched = mr.watch(inner, run=tmp_path / "run")
    if kind is list:
        assert len(watched) == 25 and watched.index(inner[0]) == 0
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    for _ in watched:
        model(torch.zeros(1, 1)).sum().backward()
        optimizer.step()
    close(tmp_path / "run")
    summary = summary_of(tmp_path / "run")
    assert (summary["steps"], summary["images"], summary["workers_needed"]) == (25, 100, None)
    assert summary["load_s"] > 0 and summary["spans"]["update"] > 0
    blame = summary["blame"]
    assert blame["unknown"] + blame["startup"] == pytest.approx(blame["load_s"], abs=1e-9)
    assert blame["unknown"] > 0 and blame["dataset"] == 0
    says = f"cannot see inside {kind.__name__}"
    assert says in summary["advice"] and says in capsys.readouterr().err
    if os.access(PROGRAM, os.X_OK):
        report = subprocess.run([PROGRAM, "report", tmp_path / "run", "--json"], capture_output=True, text=True)
        assert says in json.loads(report.stdout)["verdict"]


@timing
def test_without_schedstat_waiting_for_a_core_is_unknown_not_zero(tmp_path, monkeypatch):
    monkeypatch.setattr(worker, "SCHEDSTAT", str(tmp_path / "schedstat"))
    loader = plants_of.loader_of({"dataset": plants_of.Plant(tmp_path / "plants", "dataset", "blocked", 5)}, workers=1)
    with mr.watching(run=tmp_path / "run"):
        plants_of.train(loader, {})
    work = summary_of(tmp_path / "run")["loaders"][0]["work"]["dataset"]
    wall = plants_of.measured(tmp_path / "plants")["dataset"].wall
    assert work["cores"] == work["blocked"] == 0
    assert work["unknown"] == pytest.approx(wall, rel=0.1)


def test_where_the_fetcher_cannot_be_wrapped_the_time_is_unknown(tmp_path, monkeypatch):
    monkeypatch.setattr(worker.WorkerInit, "_install", lambda self, number: None)
    loader = plants_of.loader_of({}, workers=1)
    with mr.watching(run=tmp_path / "run"):
        plants_of.train(loader, {})
    summary = summary_of(tmp_path / "run")
    main = summary["loaders"][0]
    assert main["batches"] == {"recorded": 0, "missing": 6, "overruns": 0, "sampled": 0}
    assert summary["blame"]["unknown"] > 0 and summary["blame"]["dataset"] == 0
    assert summary["workers_needed"] is None


def slices_of(run, process):
    """Returns the slices of one process of a timeline."""
    events = json.loads((run / "timeline.json").read_text())["traceEvents"]
    return [one for one in events if one["ph"] == "X" and one["pid"] == process]


def test_a_timeline_shows_the_steps_and_what_the_worker_did_for_each(tmp_path):
    plants = {"dataset": plants_of.Plant(tmp_path / "plants", "dataset", "blocked", 5)}
    with mr.watching(run=tmp_path / "run"):
        plants_of.train(plants_of.loader_of(plants, workers=1), {})
    summary, steps = summary_of(tmp_path / "run"), slices_of(tmp_path / "run", 1)
    assert sum(one["dur"] for one in steps) * 1e-6 == pytest.approx(summary["wall_s"], rel=0.01, abs=0.02)
    for span in ("first_batch", "load", "update"):
        whole = sum(one["dur"] for one in steps if one["name"] == span)
        assert whole * 1e-6 == pytest.approx(summary["spans"][span], abs=1e-6)
    updates = {one["args"]["step"]: one for one in steps if one["name"] == "update"}
    worker = {name: [one for one in slices_of(tmp_path / "run", 2) if one["name"] == name]
              for name in ("samples", "collate", "send")}
    assert [[one["args"]["batch"] for one in rows] for rows in worker.values()] == [list(range(6))] * 3
    for samples, collate, send in zip(*worker.values()):
        assert samples["dur"] >= 3 * 5000 and send["tid"] == collate["tid"] + 1
        assert samples["ts"] + samples["dur"] <= collate["ts"] + 0.01 <= send["ts"] + 0.02
        assert send["ts"] <= updates[samples["args"]["batch"] + 1]["ts"], "a step has a batch that was sent before"


def test_what_the_pinning_thread_does_is_transfer_of_unknown_kind(tmp_path, monkeypatch):
    """With a stand-in for an accelerator, whose pinning sleeps 30 ms per batch."""
    from torch.utils.data import _utils

    def pin(data, device=None):
        time.sleep(0.03)
        return data

    monkeypatch.setattr(_utils.pin_memory, "pin_memory", pin)
    for name, value in (("is_available", True), ("current_accelerator", torch.device("cpu")),
                        ("current_device_index", 0), ("set_device_index", None)):
        monkeypatch.setattr(torch.accelerator, name, lambda *_, value=value: value)
    with mr.watching(run=tmp_path / "run"):
        for _ in DataLoader(plants_of.Samples(16), batch_size=2, num_workers=1, pin_memory=True):
            pass
        session, = mr.watcher.api._every
        assert session.main.batch_bytes > 0 and session.main.tensors == 0  # next() receives none
    main = summary_of(tmp_path / "run")["loaders"][0]
    assert main["steps"] == 8 and main["batches"]["missing"] == 0
    assert main["blame_table"]["transfer"]["unknown"] >= 0.8 * 8 * 0.03


def test_overwritten_records_are_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(watched_loader, "SLOTS", 8)
    loader = plants_of.loader_of({}, workers=2, batches=40)
    with mr.watching(run=tmp_path / "run"):
        plants_of.train(loader, {})
    batches = summary_of(tmp_path / "run")["loaders"][0]["batches"]
    assert batches["overruns"] > 0
    assert batches["recorded"] + batches["missing"] == 40 and batches["missing"] >= batches["overruns"]


@timing
def test_the_activity_of_workers_is_the_share_of_time_in_which_they_made_batches(tmp_path):
    loader = plants_of.loader_of({"dataset": plants_of.Plant(tmp_path / "plants", "dataset", "blocked", 20)}, workers=2,
                                 batches=80, batch=1)
    with mr.watching(run=tmp_path / "run"):
        for step, _ in enumerate(loader):
            time.sleep(0.02 if step < 40 else 0.05)
    first, second = summary_of(tmp_path / "run")["worker_activity"]
    for cells in (first, second):
        assert len(cells) == worker_activity.CELLS
        known = [int(one) / worker_activity.BUSY for one in cells.strip("-")]
        assert 8 <= len(known) <= 20 and 0.1 < known[-3] < 0.35 and known[-3] < known[2] <= 1, cells


def test_transforms_of_torchvision_get_a_row_each(tmp_path):
    torchvision = pytest.importorskip("torchvision", reason="NOT TESTED: torchvision is missing")
    from torchvision.transforms import v2

    for number, of in enumerate((torchvision.transforms, v2)):
        data = torchvision.datasets.FakeData(16, (3, 32, 32), 10, of.Compose(
            [of.RandomHorizontalFlip(), of.Resize(24), of.ToTensor()]))
        loader = DataLoader(data, batch_size=4, num_workers=number)
        with mr.watching(run=tmp_path / f"run{number}"):
            for _ in loader:
                pass
        main = summary_of(tmp_path / f"run{number}")["loaders"][0]
        assert [row["name"] for row in main["transforms"]] == ["RandomHorizontalFlip", "Resize", "ToTensor"]
        assert all(row["s_per_sample"] > 0 for row in main["transforms"])
        assert sum(main["work"]["transform"].values()) > 0
        assert [type(one).__name__ for one in data.transform.transforms] == ["RandomHorizontalFlip", "Resize",
                                                                             "ToTensor"]


class Breaks(plants_of.Samples):
    def __getitem__(self, index):
        if index == 7:
            raise ValueError("sample 7 is broken")
        return super().__getitem__(index)


class Dies(plants_of.Samples):
    def __getitem__(self, index):
        if index == 7:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)


def test_an_error_of_the_data_set_passes_through_and_the_record_is_kept(tmp_path):
    with pytest.raises(ValueError, match="sample 7 is broken"), mr.watching(run=tmp_path / "run"):
        for _ in DataLoader(Breaks(40), batch_size=2, num_workers=1):
            pass
    summary = summary_of(tmp_path / "run")
    assert summary["error"] == "ValueError: Caught ValueError in DataLoader worker process 0."
    assert 1 <= summary["steps"] <= 3 and len(rows_of(tmp_path / "run")) >= 1


def test_the_end_of_a_worker_is_named_and_the_record_is_kept(tmp_path, capsys):
    # The trainer sees it as a closed pipe or by torch's signal handler, whichever comes first.
    with pytest.raises((RuntimeError, ConnectionError, EOFError)) as raised, mr.watching(run=tmp_path / "run"):
        for _ in DataLoader(Dies(40), batch_size=2, num_workers=1):
            pass
    summary = summary_of(tmp_path / "run")
    note, = raised.value.__notes__
    assert re.fullmatch(r"DataLoader worker 0 \(pid \d+\) was killed by SIGKILL", note)
    assert summary["error"].startswith(type(raised.value).__name__) and summary["error"].endswith(note)
    assert note in capsys.readouterr().err
    assert summary["steps"] <= 3 and len(rows_of(tmp_path / "run")) >= 1


def test_objects_that_cannot_be_pickled_fail_as_without_watching(tmp_path):
    loader = DataLoader(plants_of.Samples(8), batch_size=2, num_workers=1, multiprocessing_context="spawn",
                        collate_fn=lambda samples: samples)
    with pytest.raises((AttributeError, pickle.PicklingError), match="lambda") as plain:
        iter(loader)
    with pytest.raises(plain.type, match="lambda"), mr.watching(run=tmp_path / "run"):
        for _ in loader:
            pass
    summary = summary_of(tmp_path / "run")
    assert summary["error"].startswith(plain.type.__name__) and summary["steps"] == 0
    assert loader.worker_init_fn is None


def test_an_interrupt_in_a_step_keeps_the_record(tmp_path):
    with pytest.raises(KeyboardInterrupt), mr.watching(run=tmp_path / "run"):
        for step, _ in enumerate(plants_of.loader_of({}, workers=0)):
            if step == 2:
                raise KeyboardInterrupt
    summary = summary_of(tmp_path / "run")
    assert summary["interrupted"] and summary["steps"] == 3 and len(rows_of(tmp_path / "run")) == 3


def test_ctrl_c_in_a_step_of_a_script_keeps_the_record(tmp_path):
    (tmp_path / "train.py").write_text("import os, signal, watch_plants\n"
                                       "if __name__ == '__main__':\n"
                                       "    for step, _ in enumerate(watch_plants.loader_of({}, workers=1)):\n"
                                       "        if step == 2:\n"
                                       "            os.kill(os.getpid(), signal.SIGINT)\n")
    done = command("--run", str(tmp_path / "run"), "--", sys.executable, "train.py", cwd=tmp_path)
    assert done.returncode == 130 and done.stderr.count("KeyboardInterrupt") == 1, done.stderr
    summary = summary_of(tmp_path / "run")
    assert summary["interrupted"] and summary["error"] is None
    assert summary["steps"] == len(rows_of(tmp_path / "run")) == 3


def test_what_is_no_loader_and_what_is_no_run_are_refused(tmp_path):
    with pytest.raises(mr.WatchError, match="int is not iterable"):
        mr.watch(3, run=tmp_path / "run")
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis/draft.tex").write_text("")
    with pytest.raises(mr.WatchError, match="files that are not a run"):
        mr.watch([1], run=tmp_path / "thesis")
    (tmp_path / "file").write_text("")
    with pytest.raises(mr.WatchError, match="a file of that name"):
        mr.watch([1], run=tmp_path / "file")
    with pytest.raises(mr.WatchError, match="File name too long; choose another"):
        mr.watch([1], run=tmp_path / ("x" * 300))


@pytest.mark.parametrize("place", ["x" * 300, "file", "file/run", "/proc/run"])
def test_the_command_refuses_such_a_place_before_the_script_runs(place, tmp_path):
    (tmp_path / "file").write_text("")
    command = [sys.executable, "-m", "pymillrace", "watch", "--run", str(tmp_path / place), "--", "echo", "ran"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(r"pymillrace: .*; choose another .*\n", done.stderr)


def test_a_directory_in_use_is_refused_and_an_earlier_run_is_kept(tmp_path, monkeypatch):
    from pymillrace.watcher import run_directory

    monkeypatch.setattr(run_directory, "PATIENCE", 0.1)
    with mr.watching(run=tmp_path / "run"):
        with pytest.raises(mr.WatchError, match=f"pid {os.getpid()} .* writes to it"):
            with mr.watching(run=tmp_path / "run"):
                pass
        for _ in plants_of.loader_of({}, workers=0):
            pass
    with mr.watching(run=tmp_path / "run"):
        pass
    assert summary_of(tmp_path / "run.1")["steps"] == 6


def test_an_iteration_in_another_thread_has_a_record_of_its_own(tmp_path):
    import threading

    loader = plants_of.loader_of({}, workers=0)
    with mr.watching(run=tmp_path / "run"):
        for _ in loader:
            pass
        thread = threading.Thread(target=lambda: sum(1 for _ in loader))
        thread.start()
        thread.join()
    summary = summary_of(tmp_path / "run")
    assert summary["steps"] == 6 and summary["other_threads_calls"] == 0
    assert [one["steps"] for one in summary["loaders"]] == [6, 6]


SCRIPT = """
import sys
import torch
import watch_plants

if __name__ == "__main__":
    loader = watch_plants.loader_of({}, workers=int(sys.argv[1]), method=sys.argv[2])
    watch_plants.train(loader, {})
    print("trained", sys.argv[1:], loader.worker_init_fn)
    sys.exit(int(sys.argv[3]))
"""


def environment(**more):
    """Returns an environment in which a script finds this folder's modules."""
    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path, **more}


def command(*words, **options):
    options.setdefault("env", environment())
    return subprocess.run([sys.executable, "-m", "pymillrace", "watch", *words], capture_output=True, text=True,
                          timeout=250, **options)


def test_the_command_watches_a_script_that_knows_nothing_of_it(tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    done = command("--run", str(tmp_path / "run"), "--", sys.executable, "train.py", "1", "spawn", "3", cwd=tmp_path)
    assert done.returncode == 3, done.stderr
    assert done.stdout == "trained ['1', 'spawn', '3'] None\n"
    assert "6 steps" in done.stderr and "too short: 14 more steps" in done.stderr
    summary = summary_of(tmp_path / "run")
    assert summary["steps"] == 6 and summary["loaders"][0]["batches"]["missing"] == 0
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith("run")) == ["run"]


def test_the_command_says_when_nothing_was_recorded(tmp_path):
    done = command("--run", str(tmp_path / "run"), "--", sys.executable, "-c", "print(1)")
    assert (done.returncode, done.stdout) == (0, "1\n") and "nothing was recorded" in done.stderr
    assert command("--", "/nonexistent/python").returncode == 2
    assert command("--run", str(tmp_path / "run")).returncode == 2


@pytest.mark.parametrize("dashes", ((), ("--",)))
def test_the_command_and_its_options_need_no_dashes_ahead(tmp_path, dashes):
    words = [*dashes, sys.executable, "-c", "import sys; print(sys.argv[1:])", "--epochs", "3", "--", "--run"]
    done = subprocess.run([sys.executable, "-m", "pymillrace", "watch", "--run", "a", *words], cwd=tmp_path,
                          capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "['--epochs', '3', '--', '--run']\n"), done.stderr


def test_help_has_no_marks_of_its_own_formats():
    done = subprocess.run([sys.executable, "-m", "pymillrace", "watch", "--help"], capture_output=True, text=True)
    assert done.returncode == 0 and "by 95% intervals" in " ".join(done.stdout.split()) and "%%" not in done.stdout


@pytest.mark.skipif(not os.access(PROGRAM, os.X_OK), reason="NOT TESTED: MILLRACE_PROGRAM names no program")
def test_millrace_report_reads_the_run(tmp_path):
    log = tmp_path / "plants"
    plants = {"dataset": plants_of.Plant(log, "dataset", "blocked", 5)}
    loader = plants_of.loader_of(plants, workers=1)
    with mr.watching(run=tmp_path / "run"):
        plants_of.train(loader, plants, epochs=2)
    done = subprocess.run([PROGRAM, "report", tmp_path / "run", "--json"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    report, summary = json.loads(done.stdout), summary_of(tmp_path / "run")
    assert report["verdict"] == summary["verdict"]
    time = {row[0]: float(row[1]) for table in report["tables"] if table["id"] == "time" for row in table["rows"]}
    for key in ("load", "update", "other"):
        assert time[key] == pytest.approx(summary[f"{key}_s"], abs=2e-3)
    for span in ("update", "loop", "first_batch"):
        assert time[f"- {span}"] == pytest.approx(summary["spans"][span], abs=2e-3)
    blame = next(figure for figure in report["figures"] if figure["id"] == "blame")
    epochs = [json.loads(line) for line in open(tmp_path / "run/metrics.jsonl")]
    parts = {  # the figure has ms per step of each epoch
        series["name"]: sum(1e-3 * ms * epoch["steps"] for ms, epoch in zip(series["y"], epochs, strict=True))
        for series in blame["series"]
    }
    assert parts["dataset"] == pytest.approx(summary["blame"]["dataset"], rel=1e-6)


@pytest.mark.skipif(not os.access(PROGRAM, os.X_OK), reason="NOT TESTED: MILLRACE_PROGRAM names no program")
def test_millrace_report_follows_a_watched_run(tmp_path):
    page, steps = tmp_path / "run/report.html", []
    with mr.watching(run=tmp_path / "run"):
        loader = DataLoader(list(range(400)), batch_size=2)
        report = None
        try:
            for step, _ in enumerate(loader):
                time.sleep(0.03)
                if step == 40:
                    report = subprocess.Popen([PROGRAM, "report", "--live", tmp_path / "run", "--interval", "1"],
                                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
                if page.exists() and (found := re.search("figures and tables of ([0-9]+)", page.read_text())):
                    steps.append(int(found[1]))
        except BaseException:
            if report is not None:
                report.kill()
            raise
    assert report.wait(30) == 0, report.stderr.read()
    assert len(set(steps)) >= 2 and steps == sorted(steps) and 0 < steps[0] < 200, steps
    assert "<dt>state</dt><dd>finished<" in page.read_text() and "<dt>steps</dt><dd>200<" in page.read_text()


@pytest.mark.skipif(not os.access(PROGRAM, os.X_OK), reason="NOT TESTED: MILLRACE_PROGRAM names no program")
def test_a_sweep_reads_the_records_that_watching_leaves(tmp_path):
    (tmp_path / "train.py").write_text("import sys, time\nimport numpy\nimport pymillrace as mr\n"
                                       "for _ in mr.watch([numpy.zeros((4, 2))] * 5, run=sys.argv[1]):\n"
                                       "    time.sleep(float(sys.argv[2]))\n")
    done = subprocess.run([PROGRAM, "sweep", "--command", f"{sys.executable} train.py {{run}} {{s}}", "s=0.01,0.05",
                           "--repeats", "1", "--metric", "images_per_s", "--run", "sweep"], capture_output=True,
                          text=True, cwd=tmp_path, env=environment())
    assert done.returncode == 0, done.stderr
    for number, (sleep, cell) in enumerate(zip((0.01, 0.05), summary_of(tmp_path / "sweep", "sweep.json")["cells"]), 1):
        summary = summary_of(tmp_path / f"sweep/runs/{number:03}-s={sleep}-r1/run")
        assert summary["images"] == 20 and summary["update_s"] >= 5 * sleep
        for key in ("images_per_s", "load_s", "update_s"):
            assert cell["runs"][0][key] == pytest.approx(summary[key])


def test_ranks_share_a_directory(tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    launch = {"WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "29511"}
    ranks = [subprocess.Popen([sys.executable, "-m", "pymillrace", "watch", "--run", str(tmp_path / "run"), "--",
                               sys.executable, "train.py", "0", "fork", "0"], cwd=tmp_path,
                              env=environment(RANK=str(rank), **launch), stdout=subprocess.DEVNULL)
             for rank in (1, 0)]
    assert [rank.wait(timeout=250) for rank in ranks] == [0, 0]
    assert len(rows_of(tmp_path / "run")) == len(rows_of(tmp_path / "run", "steps.rank1.csv")) == 6
    assert summary_of(tmp_path / "run", "summary.rank1.json")["rank"] == 1
