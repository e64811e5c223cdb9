"""log= of watch() and watching(): figures of a loop while it runs; and mr.summary() for notebooks."""
import os
import subprocess
import sys
import threading
import time
import types

import pytest

import pymillrace as mr
from conftest import needs_torch, timing
from pymillrace.watcher import api, log
from watch_records import ESCAPES, recorded

FIGURES = {"step": 40, "epoch": 2, "images": 160, "load_share": 0.25, "update_share": 0.75, "load_ms": 1.0,
           "update_ms": 3.0, "step_ms": 4.0, "images_per_s": 1000.0, "workers_needed": None, "bound": "device",
           "verdict": "device-bound: load is 25% of load + update"}
NUMBERS = {f"millrace/{name}": value for name, value in FIGURES.items()
           if name not in ("step", "workers_needed", "bound", "verdict")}


@pytest.fixture
def often(monkeypatch):
    """Makes a call due at each look: at the first step after a second."""
    monkeypatch.setattr(log, "INTERVAL_S", 0.0)


def watch(run, seconds, call, steps=10**6):
    """Runs a loop of so many seconds. Loads take 1 ms, in its second half 12 ms, and updates 3 ms."""
    end = time.monotonic() + seconds

    def items():
        for step in range(steps):
            time.sleep(0.001 if time.monotonic() < end - seconds / 2 else 0.012)
            yield step

    for _ in mr.watch(items(), run=run, log=call):
        time.sleep(0.003)
        if time.monotonic() > end:
            break
    api._sessions[os.path.abspath(run)].close()


@timing
def test_figures_come_while_the_loop_runs_and_at_its_end(tmp_path, often):
    found, threads = [], []
    watch(tmp_path / "run", 4.0, lambda figures: (found.append(figures), threads.append(threading.current_thread())))
    assert len(found) >= 3 and all(set(one) == set(FIGURES) for one in found)
    steps = [one["step"] for one in found]
    assert steps == sorted(set(steps)) and found[-1]["bound"] == "unknown" and found[-1]["verdict"]
    main = threading.main_thread()
    assert main not in threads[:-1] and threads[-1] is main
    for one in found[1:-1]:  # of the steps since the call before
        assert one["load_share"] + one["update_share"] == pytest.approx(1, abs=0.1)
        assert one["step_ms"] == pytest.approx(one["load_ms"] + one["update_ms"], rel=0.1)
        assert 1 < one["load_ms"] < one["step_ms"] and 3 < one["update_ms"]
    assert found[-1]["load_ms"] > 12 > 2 * found[1]["load_ms"]


def test_a_short_loop_is_logged_at_its_end(tmp_path):
    found = []
    watch(tmp_path / "run", 60, found.append, steps=7)
    assert [(one["step"], one["epoch"], one["verdict"]) for one in found] == [(7, 1, "too short: 13 more steps")]
    watch(tmp_path / "empty", 60, found.append, steps=0)
    assert len(found) == 1


@pytest.mark.parametrize("error", (ValueError("planted"), SystemExit(3)), ids=repr)
def test_what_the_function_raises_is_noted_once_and_goes_no_further(tmp_path, often, capsys, error):
    calls = []

    def fails(figures):
        calls.append(figures)
        raise error

    watch(tmp_path / "run", 2.5, fails)
    assert len(calls) >= 3
    said = capsys.readouterr().err
    assert said.count("log=fails: ") == 1 and "the training goes on" in said and "Traceback" not in said
    assert "recording stopped" not in said and (tmp_path / "run/summary.json").exists()


def test_a_function_that_hangs_holds_nobody_up(tmp_path, often, monkeypatch):
    monkeypatch.setattr(log, "PATIENCE", 0.1)
    released, calls = threading.Event(), []

    def hangs(figures):
        calls.append(figures)
        if len(calls) == 1:
            released.wait(60)

    begin = time.monotonic()
    watch(tmp_path / "run", 2.5, hangs)
    assert time.monotonic() - begin < 20 and len(calls) == 2  # that one, and the last
    released.set()


def test_what_cannot_be_called_is_refused(tmp_path):
    with pytest.raises(mr.WatchError, match="log=int cannot be called"):
        mr.watch([1], run=tmp_path / "run", log=3)
    with pytest.raises(mr.WatchError, match="log=str cannot be called"):
        with mr.watching(run=tmp_path / "run", log="x"):
            pass
    assert not (tmp_path / "run").exists()


def test_only_rank_0_logs(tmp_path, monkeypatch):
    found = []
    monkeypatch.setattr(api.Session, "directory", property(lambda self: types.SimpleNamespace(
        rank=1, path=tmp_path, world_size=2, name=lambda *_: "x", append_rows=lambda *_: None, append=lambda *_: None,
        close=lambda: None, join=lambda: None, is_apart=False)))
    monkeypatch.setattr(api.Session, "_with_ranks", lambda self, record: record)
    watch(tmp_path / "run", 60, found.append, steps=7)
    assert found == []


@needs_torch
def test_watching_logs_the_trained_loader(tmp_path):
    import torch

    found = []
    data = torch.utils.data.TensorDataset(torch.rand(64, 3))
    with mr.watching(run=tmp_path / "run", log=found.append):
        for _ in torch.utils.data.DataLoader(data, batch_size=2):
            pass
    assert [(one["step"], one["images"]) for one in found] == [(32, 64)] and "-bound: " in found[0]["verdict"]


# Clients. Stand-ins have the calls that the real ones have; the real ones follow where they are installed.


class Calls:
    """Notes each call of its methods."""

    def __init__(self):
        self.made = []

    def __getattr__(self, name):
        return lambda *given, **named: self.made.append((name, given, named))


def test_tensorboard_gets_scalars_and_the_verdict_where_it_changes():
    writer = Calls()
    call = mr.log_to_tensorboard(writer)
    call(FIGURES)
    call({**FIGURES, "step": 50})
    scalars = [given for name, given, _ in writer.made if name == "add_scalar"]
    assert scalars == [(name, value, step) for step in (40, 50) for name, value in NUMBERS.items()]
    assert [given for name, given, _ in writer.made if name == "add_text"] == [
        ("millrace/verdict", FIGURES["verdict"], 40)]


def test_wandb_gets_a_part_of_the_scripts_next_row():
    run = Calls()
    mr.log_to_wandb(run)(FIGURES)
    values = {f"millrace/{name}": value for name, value in FIGURES.items() if value is not None}
    assert run.made == [("log", (values,), {"commit": False})]


def test_mlflow_gets_metrics_of_the_run_that_was_active(monkeypatch):
    client, active = Calls(), [types.SimpleNamespace(info=types.SimpleNamespace(run_id="a"))]
    mlflow = types.ModuleType("mlflow")
    mlflow.active_run, mlflow.MlflowClient = lambda: active[0], lambda: client
    mlflow.entities = types.ModuleType("mlflow.entities")
    mlflow.entities.Metric = lambda name, value, timestamp, step: (name, value, step)
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    monkeypatch.setitem(sys.modules, "mlflow.entities", mlflow.entities)
    call = mr.log_to_mlflow()
    active[0] = None  # as in another thread
    call(FIGURES)
    assert client.made == [
        ("log_batch", ("a",), {"metrics": [(name, value, 40) for name, value in NUMBERS.items()]}),
        ("set_tag", ("a", "millrace/verdict", FIGURES["verdict"]), {})]
    mr.log_to_mlflow("b")(FIGURES)
    assert client.made[2][1] == ("b",)
    with pytest.raises(mr.UsageError, match="no MLflow run is active"):
        mr.log_to_mlflow()


@needs_torch
def test_event_files_of_tensorboard_hold_the_figures(tmp_path):
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator",
                                 reason="NOT TESTED: tensorboard is missing")
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(tmp_path / "events")) as writer:
        watch(tmp_path / "run", 60, mr.log_to_tensorboard(writer), steps=30)
    events = reader.EventAccumulator(str(tmp_path / "events"))
    events.Reload()
    assert set(events.Tags()["scalars"]) == set(NUMBERS) - {"millrace/images_per_s"}  # numbers are no images
    assert [(one.step, one.value) for one in events.Scalars("millrace/epoch")] == [(30, 1)]
    assert b"-bound" in events.Tensors("millrace/verdict/text_summary")[0].tensor_proto.string_val[0]


def test_wandb_adds_the_figures_to_the_scripts_row(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb", reason="NOT TESTED: wandb is missing")
    monkeypatch.chdir(tmp_path)
    with wandb.init(mode="offline", dir=str(tmp_path), settings=wandb.Settings(silent=True)) as run:
        run.log({"loss": 1.0})
        watch(tmp_path / "run", 60, mr.log_to_wandb(run), steps=30)
        assert run.step == 1  # that of the script's own rows
        run.log({"loss": 0.5})
        assert run.step == 2 and run.summary["millrace/step"] == 30


def test_mlflow_keeps_the_figures(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow", reason="NOT TESTED: mlflow is missing")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # a store without a server or a database
    mlflow.set_tracking_uri(f"file://{tmp_path}/store")
    with mlflow.start_run() as run:
        watch(tmp_path / "run", 60, mr.log_to_mlflow(), steps=30)
    kept = mlflow.MlflowClient().get_run(run.info.run_id).data
    assert kept.metrics["millrace/epoch"] == 1 and "-bound" in kept.tags["millrace/verdict"]


# Notebooks


def test_a_summary_is_shown_in_notebooks_and_is_escaped(tmp_path):
    recorded(tmp_path / "run", True, loader="<script>&.py:1" + ESCAPES)
    shown = mr.summary(tmp_path / "run")
    markup = shown._repr_html_()
    assert repr(shown) == str(shown) and "500 steps" in " ".join(shown.split())
    assert max(map(len, shown.split("\n"))) <= 80
    assert markup.startswith("<pre>ended, 1 min 14 s") and markup.endswith("</pre>")
    assert "&lt;script&gt;&amp;.py:1" in markup and "<script>" not in markup and len(markup) < 4000
    with pytest.raises(mr.UsageError, match="holds no summary.json"):
        mr.summary(tmp_path / "none")


def test_a_summary_has_the_memory_of_the_run(tmp_path):
    memory = {"samples": 3, "cpu_s": 0.1, "trainer": 3 << 29, "workers": 2 << 30, "used": 12 << 30, "total": 16 << 30,
              "growth_in_epoch": None, "growth_per_epoch": None, "warning": "<b>full</b> soon"}
    recorded(tmp_path / "run", True, memory=memory)
    shown = mr.summary(tmp_path / "run")
    line = "memory at the last sample: trainer 1.5 GiB, workers 2.0 GiB; 4.0 GiB of 16.0 GiB are free"
    assert f"{line} <b>full</b> soon" in " ".join(shown.split())
    assert "&lt;b&gt;full&lt;/b&gt; soon" in shown._repr_html_()
    recorded(tmp_path / "none", True, memory=None)
    assert "memory at" not in mr.summary(tmp_path / "none")


def test_a_summary_needs_no_recorder(tmp_path):
    recorded(tmp_path / "run", True)
    code = ("import sys, pymillrace as mr; mr.summary('run')\n"
            "print('pymillrace._core' in sys.modules, 'torch' in sys.modules)")
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.stdout == "False False\n", done.stderr
