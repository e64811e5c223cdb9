"""Verification of predictions: which runs count, what they score, and a script that is run again with other arguments."""
import csv
import itertools
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="NOT TESTED with PyTorch: it cannot be imported", exc_type=ImportError)

import pymillrace as mr
from conftest import timing
from torch.utils.data import DataLoader

from pymillrace import _predict
from pymillrace.watcher import plan, verify
from pymillrace.watcher.command import main
from pymillrace.watcher.command_line import PLAN
from pymillrace.watcher.summary import cores
from pymillrace.watcher.verify import TimedRun, counted_steps, measure, rate_of, score, warm_up_of


def test_each_block_runs_every_change_between_two_baselines():
    order = _predict.verification_order(3, 4, 1)
    assert [sorted(block) for block in order] == [[0, 1, 2]] * 4
    assert order == _predict.verification_order(3, 4, 1) and len({tuple(block) for block in order}) > 1
    seen, ratio = [], itertools.cycle((1.0, 1.1, 1.2))

    def run(change):
        seen.append(change)
        return TimedRun(change, 100.0 if change is None else 100.0 * (change + 2) * next(ratio), others=0.01)

    result = measure(order, run)
    assert len(seen) == 4 * 7
    for number, block in enumerate(order):
        runs = seen[7 * number:7 * number + 7]
        assert runs[::2] == [None] * 4 and runs[1::2] == block
    assert all(change + 2 <= result.ratios[change] <= 1.2 * (change + 2) for change in range(3)) and not result.void


def test_a_change_whose_ratio_is_settled_needs_no_further_block():
    result = measure([[0]] * 5, lambda change: TimedRun(change, 50.0 if change is None else 100.0, 0.0))
    assert result.ratios == {0: 2} and result.valid_blocks == {0: 2} and len(result.runs) == 6


def test_a_baseline_that_drifts_counts_as_the_mean_of_both_sides():
    rates = iter((100.0, 300.0, 200.0))
    assert measure([[0]], lambda change: TimedRun(change, next(rates), 0.0)).ratios == {0: 2}


def test_void_runs_are_repeated_and_never_counted():
    # Others take 10.1% beside the second and third run; the third attempt at the change is valid.
    others = iter((0.0, 0.101, 0.101, 0.1, 0.0, 0.0, 0.0))
    result = measure([[0], [0]], lambda change: TimedRun(change, 50.0 if change is None else 100.0, next(others, 0.0)))
    assert [run.void for run in result.runs[:4]] == [False, True, True, False]
    assert result.valid_blocks == {0: 2} and result.ratios == {0: 2} and not result.void
    nothing = measure([[0], [0]], lambda change: TimedRun(change, 50.0, 0.5))
    assert nothing.void and nothing.ratios == {0: None} and nothing.stopped is None
    assert len(nothing.runs) == 3  # a machine that is busy for a whole block
    unknown = measure([[0]], lambda change: TimedRun(change, 50.0, None))
    assert not unknown.void  # an unknown share does not make a run void


def test_half_of_the_blocks_are_too_few():
    def with_void_blocks(count):
        tries = iter([0.5] * 3 * count)
        return measure([[0]] * 3, lambda change: TimedRun(change, 50.0, next(tries, 0.0) if change == 0 else 0.0))

    assert with_void_blocks(2).void and with_void_blocks(2).valid_blocks == {0: 1}
    assert not with_void_blocks(1).void and with_void_blocks(1).ratios == {0: 1}


def test_a_change_that_fails_is_not_run_again_and_the_others_count():
    seen = []

    def run(change):
        seen.append(change)
        if change == 0:
            return TimedRun(change, 0.0, None, "it ended with exit code 3")
        return TimedRun(change, 50.0 if change is None else 100.0, others=0.01)

    result = measure([[0, 1], [1, 0]], run)
    assert seen == [None, 0, 1, None, None, 1, None]
    assert result.ratios == {0: None, 1: 2} and result.failed == {0: "it ended with exit code 3"}
    assert not result.void and result.valid_blocks == {0: 0, 1: 2} and result.stopped is None
    only = measure([[0], [0]], run)
    assert only.void and only.failed and seen[7:] == [None, 0]


def test_a_baseline_that_fails_ends_the_runs_and_keeps_the_results():
    baselines = iter((50.0, 50.0, None))

    def run(change):
        rate = 100.0 if change is not None else next(baselines)
        return TimedRun(change, rate or 0.0, 0.01, None if rate else "it ended with exit code 3")

    result = measure([[0], [0], [0]], run)
    assert result.valid_blocks == {0: 1} and result.stopped == "it ended with exit code 3" and result.void


def test_changes_of_less_than_a_fifth_do_not_count():
    def outcome(predicted, measured, low=None, high=None):
        return {"predicted": predicted, "measured": measured, "low": low, "high": high}

    found = score([outcome(2.2, 2.0, 1.9, 2.3), outcome(1.05, 1.19, 1.0, 1.1), outcome(0.5, 0.4)])
    assert found["counted"] == 2 and (found["with_interval"], found["held"]) == (2, 1)
    assert found["median_error"] == pytest.approx((0.1 + 0.25) / 2) and found["worst_error"] == pytest.approx(0.25)
    assert found["skill"] == pytest.approx(1 - (0.1 + 0.25) / (0.5 + 1.5))
    assert score([outcome(4.0, 1.1)])["counted"] == 1, "a predicted effect that was not measured counts"
    assert score([outcome(1.0, 1.0)]) == {"counted": 0, "median_error": None, "worst_error": None, "skill": None,
                                          "with_interval": 0, "held": 0}


def outcome(change, measured, low, high):
    return {"change": change, "predicted": None, "low": None, "high": None, "measured": measured, "measured_low": low,
            "measured_high": high, "error": None, "valid_blocks": 3, "failed": None}


@pytest.mark.parametrize("outcomes, expected", (
    ([("a", 1.2, 1.1, 1.3), ("b", 1.46, 1.23, 1.73), ("c", 1.9, 0.9, 4.0)],
     "advice: b: 1.46 times the images/s, as measured (1.23 to 1.73)"),
    ([("c", 1.9, 0.9, 4.0), ("d", 1.3, None, None)],
     "advice: keep what you have; no change was measured to gain 5% for sure")))
def test_the_change_that_surely_gained_most_is_advised(outcomes, expected):
    record = {"void": False, "void_runs": 0, "runs": 9, "stopped": None, "outcomes": [outcome(*one) for one in outcomes],
              "score": {"counted": 0, "with_interval": 0, "held": 0}}
    text = verify.lines(record)
    assert text[-1] == expected
    assert "no change with a prediction had an effect of 20% or more, predicted or measured: nothing counts" in text
    assert not any(line.startswith("advice") for line in verify.lines({**record, "void": True}))


def test_a_measured_ratio_has_an_interval_from_two_blocks_on():
    rates = iter([10.0, 20.0, 10.0, 10.0, 25.0, 10.0])
    result = measure([[0], [0]], lambda change: TimedRun(change, next(rates), 0.0))
    low, high = result.intervals[0]
    assert low < 2.0 < result.ratios[0] < 2.5 < high
    assert measure([[0]], lambda change: TimedRun(change, 10.0, 0.0)).intervals == {0: None}


def test_the_middle_window_counts_and_few_steps_count_as_a_whole():
    steady = [(4, 0.1)] * 100
    assert rate_of(steady) == pytest.approx(40)
    assert rate_of([(4, 5.0), *steady]) == pytest.approx(40)  # an interruption stays in its window
    assert rate_of([(4, 0.1), (4, 0.3)]) == pytest.approx(20)


def test_warm_up_lasts_until_little_comes_from_stock():
    settings = {"num_workers": 2, "prefetch_factor": 2}
    assert warm_up_of(settings, {"num_workers": 4}) == 8 * 4 * 2 and warm_up_of(settings, {}) == 8 * 2 * 2
    assert warm_up_of(settings, {"prefetch_factor": 8}) == 8 * 2 * 8
    assert warm_up_of({"num_workers": 0, "prefetch_factor": None}, {}) == 8
    assert warm_up_of({"num_workers": 0, "prefetch_factor": None}, {"num_workers": 1}) == 8 * 2


def test_a_run_that_ends_early_counts_its_later_half(tmp_path):
    def steps(count, warm_up):
        rows = "".join(f"{i},1.0,0.0\n" for i in range(count))
        (tmp_path / "steps.csv").write_text("images,load_s,update_s\n" + rows)
        return [images for images, _ in counted_steps(tmp_path, warm_up, 20)]

    assert steps(100, 40) == list(range(40, 60))  # what ends a run belongs to its last step, which does not count
    assert steps(100, 80) == list(range(80, 100)) and steps(99, 80) == list(range(49, 99))
    assert steps(100, 240) == list(range(50, 100))
    assert steps(10, 240) == [8, 9] and steps(8, 240) == steps(8, 8) == []


SCRIPT = """
import sys
import watch_plants

if __name__ == "__main__":
    plants = {"dataset": watch_plants.Plant(sys.argv[1], "dataset", "blocked", 80),
              "update": watch_plants.Plant(sys.argv[1], "update", "blocked", 40)}
    watch_plants.train(watch_plants.loader_of(plants, workers=0, batches=1000, batch=1), plants)
"""


def what_if(*words, cwd):
    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.run([sys.executable, "-m", "pymillrace", "what-if", *words], capture_output=True, text=True,
                          timeout=250, env={**os.environ, "PYTHONPATH": path}, cwd=cwd)


@timing
def test_a_script_is_run_again_with_other_workers(tmp_path, monkeypatch):
    monkeypatch.setattr(verify, "busy_s", lambda: None)  # other programs repeat no run
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]))
    (tmp_path / "train.py").write_text(SCRIPT)
    words = [sys.executable, str(tmp_path / "train.py"), str(tmp_path / "plants")]
    record = verify.verify(words, tmp_path / "check", steps=14, blocks=1, given=["num_workers=2"])
    predictions = tmp_path / "check/predictions.json"
    assert record == json.loads((tmp_path / "check/verification.json").read_text())
    assert predictions.stat().st_mtime_ns < (tmp_path / "check/002.log").stat().st_mtime_ns
    rows = json.loads(predictions.read_text())["what_if"]["rows"]
    changes = {row["change"] for row in rows if row["overrides"] and not row["loading_only"]}
    assert changes == {f"num_workers={one}" for one in {1, 2, cores()} if one <= 2 * cores()}
    warm_up = json.loads(predictions.read_text())["warm_up"]
    assert [(run["change"], run["steps"]) for run in record["timed_runs"]] == [
        (None, 14), ("num_workers=2", 14), (None, 14)]
    assert warm_up["baseline"] == verify.WARM_UP and warm_up["num_workers=2"] == 32
    for number, before in enumerate((verify.WARM_UP, 8, 32, 8), 1):
        assert json.loads((tmp_path / f"check/{number:03}/summary.json").read_text())["steps"] == before + 14 + 1
    outcome, = record["outcomes"]  # 120 ms per step without workers, 40 with two
    assert outcome["measured"] == pytest.approx(120 / 40, rel=0.25) and abs(outcome["error"]) < 0.25
    score, held, advice = verify.lines(record)[-3:]
    assert record["score"]["counted"] == 1 and "counted changes: 1; median error" in score
    assert held == f"{record['score']['held']} of 1 measured ratio lie within the 90% interval of their prediction"
    assert advice.startswith("advice: ")
    table = what_if("check/001", cwd=tmp_path)
    assert table.returncode == 0 and "num_workers=2" in table.stdout and "advice: try" in table.stdout


WITH_MILLRACE = """
import sys, time
import torch
import pymillrace as mr

model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), 1e-6)
loader = mr.Loader(mr.Folder(PHOTOS), [mr.Resize((8, 8))], batch=1)
for _ in range(100):
    for images, labels in loader:
        model(images.mean().reshape(1)).sum().backward()
        time.sleep(0.04)
        optimizer.step()
"""


@timing
def test_a_changed_script_runs_beside_the_first(tmp_path, monkeypatch, data):
    monkeypatch.setattr(verify, "busy_s", lambda: None)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]))
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "changed.py").write_text(SCRIPT.replace('"blocked", 80', '"blocked", 20'))
    words = [sys.executable, str(tmp_path / "train.py"), str(tmp_path / "plants")]
    record = verify.verify(words, tmp_path / "check", steps=14, blocks=1, other=str(tmp_path / "changed.py"))
    assert [run["change"] for run in record["timed_runs"]] == [None, f"with {tmp_path}/changed.py", None]
    outcome, = record["outcomes"]  # 120 ms per step, then 60
    assert outcome["predicted"] is None and outcome["measured"] == pytest.approx(2, rel=0.25)
    assert json.loads((tmp_path / "check/predictions.json").read_text())["with"]["change"] == outcome["change"]
    both = verify.verify(words, tmp_path / "both", steps=14, blocks=1, given=["num_workers=2"],
                         other=str(tmp_path / "changed.py"))
    assert [one["change"] for one in both["outcomes"]] == ["num_workers=2", outcome["change"]]
    (tmp_path / "millrace.py").write_text(WITH_MILLRACE.replace("PHOTOS", repr(str(data / "photos"))))
    own = verify.verify(words, tmp_path / "own", steps=14, blocks=1, other=str(tmp_path / "millrace.py"))
    assert own["outcomes"][0]["failed"] is None and own["outcomes"][0]["measured"] == pytest.approx(120 / 40, rel=0.3)


@pytest.mark.parametrize("words, other, text", (
    (["python", "train.py"], "nowhere.py", "there is no such file"), (["python", "-m", "train"], "train.py", "names a script")))
def test_a_changed_script_needs_a_file_in_place_of_one(tmp_path, monkeypatch, words, other, text):
    monkeypatch.chdir(tmp_path)
    Path("train.py").touch()
    with pytest.raises(mr.UsageError, match=text):
        verify.verify(words, tmp_path / "check", steps=5, blocks=1, other=other)
    assert not (tmp_path / "check").exists()


@pytest.mark.parametrize("overrides, workers, prefetch", (({"num_workers": 0}, 0, None), ({"num_workers": 1}, 1, 3),
                                                          ({"prefetch_factor": 4}, 2, 4)))
def test_arguments_that_torch_refuses_without_workers_are_left_out(monkeypatch, overrides, workers, prefetch):
    class Mine(DataLoader):
        pass

    monkeypatch.setenv(PLAN, json.dumps({"steps": 1, "overrides": overrides}))
    plan.override_arguments(Mine)
    more = {"multiprocessing_context": "spawn", "persistent_workers": True, "prefetch_factor": 3}
    data = list(range(8))
    for loader in (Mine(data, 2, num_workers=2, timeout=50, **more),
                   Mine(data, 2, False, None, None, 2, None, False, False, 50, **more)):
        assert (loader.num_workers, loader.prefetch_factor, loader.batch_size) == (workers, prefetch, 2)
        assert (loader.timeout, loader.persistent_workers) == ((50, True) if workers else (0, False))
        if workers == 0:
            assert len(list(loader)) == 4
    if "prefetch_factor" in overrides:
        assert Mine(data, 2).prefetch_factor is None  # it has no workers
    with pytest.raises(TypeError, match="colour"):
        Mine(data, colour=1)


def test_the_end_of_a_plan_is_no_part_of_a_step(tmp_path, monkeypatch):
    """A loop that no optimizer of torch's has stepped in, as fastai's: watch looks for one among all objects."""
    from pymillrace.watcher import session

    def search():
        time.sleep(0.3)
        return False

    monkeypatch.setenv(PLAN, json.dumps({"steps": 21, "overrides": {}}))
    monkeypatch.setattr(session, "an_optimizer_exists", search)
    with pytest.raises(SystemExit), mr.watching(run=tmp_path / "run"):
        for _ in DataLoader(list(range(100)), 2):
            time.sleep(0.001)
    with open(tmp_path / "run/steps.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    assert len(rows) == 21 and float(rows[-1]["log"]) > 0.3 and float(rows[-1]["update_s"]) < 0.15
    assert summary["what_if"]["images_per_s"] > 2 / 0.0143  # 300 ms in 21 steps
    assert abs(summary["unaccounted_s"]) < 0.05


OWN = """
from watch_stand_ins import OwnLoader

class DataLoader(OwnLoader):
    def __init__(self, dataset, bs=4, num_workers=0, **others):
        assert not others
        super().__init__(dataset, bs, num_workers)
"""


@pytest.mark.parametrize("package, reached", (("fastai", True), ("slowai", False)))
def test_a_change_that_does_not_reach_the_loader_is_not_measured(tmp_path, monkeypatch, package, reached):
    """Only fastai's class is known among those that are no torch DataLoader and use its iterators."""
    monkeypatch.setattr(verify, "busy_s", lambda: None)
    folders = [str(tmp_path), str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(folders))
    (tmp_path / package / "data").mkdir(parents=True)
    (tmp_path / package / "data/load.py").write_text(OWN)
    (tmp_path / "train.py").write_text(f"import torch\nfrom {package}.data.load import DataLoader\n"
                                       "for images in DataLoader([torch.zeros(1)] * 400):\n    pass\n")
    record = verify.verify([sys.executable, str(tmp_path / "train.py")], tmp_path / "check", steps=20, blocks=1,
                           given=["num_workers=1"])
    outcome, = record["outcomes"]
    if reached:
        made = json.loads((tmp_path / "check/003/summary.json").read_text())["what_if"]["rows"]
        assert [row["change"] for row in made if row["change"].startswith("prefetch_factor")] == []
        assert outcome["failed"] is None and outcome["measured"] > 0
        assert json.loads((tmp_path / "check/003/summary.json").read_text())["workers"] == 1
    else:
        assert "num_workers=1 did not reach the loader, which ran with num_workers=0" in outcome["failed"]
        assert outcome["measured"] is None and record["score"] is None


def test_fastais_loader_takes_the_changes(monkeypatch):
    load = pytest.importorskip("fastai.data.load", reason="NOT TESTED with fastai: it is not installed")
    monkeypatch.setenv(PLAN, json.dumps({"steps": 1, "overrides": {"num_workers": 2}}))
    monkeypatch.setattr(load.DataLoader, "__init__", load.DataLoader.__init__)  # put back afterwards
    plan.override_arguments(load.DataLoader)
    loader = load.DataLoader(list(range(8)), bs=2, after_item=lambda one: one + 1)
    assert loader.fake_l.num_workers == 2
    assert [batch.tolist() for batch in loader] == [[1, 2], [3, 4], [5, 6], [7, 8]]


FAILING = """
import sys
import torch
import watch_plants

if __name__ == "__main__":
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    for images, _ in watch_plants.loader_of({}, workers=0, batches=40):  # a check before the training
        model(images)
    loader = watch_plants.loader_of({}, workers=0, batches=60)
    if loader.num_workers == 1:
        sys.exit("planted: one worker is too few")
    for images, _ in loader:
        model(images).sum().backward()
        optimizer.step()
"""


def test_the_trained_loader_is_measured_and_a_failing_change_is_shown(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(verify, "busy_s", lambda: None)  # other programs repeat no run
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]))
    (tmp_path / "train.py").write_text(FAILING)
    code = main(["what-if", "--verify", "--run", str(tmp_path / "check"), "--steps", "5", "--blocks", "1", "--change",
                 "num_workers=1", "--", sys.executable, str(tmp_path / "train.py")])
    assert code == 1
    record = json.loads((tmp_path / "check/verification.json").read_text())
    outcome, = record["outcomes"]
    assert "exit code 1" in outcome["failed"] and outcome["measured"] is None and record["stopped"] is None
    assert [run["failed"] is None for run in record["timed_runs"]] == [True, False]
    assert "num_workers=1 failed: " in capsys.readouterr().out
    for name in ("001", "002"):
        summary = json.loads((tmp_path / f"check/{name}/summary.json").read_text())
        assert summary["spans"]["update"] > 0 and summary["steps"] < 40
        assert [one["steps"] for one in summary["loaders"]].count(40) == 1


HANGS = """
import json
import pathlib
import sys
import time
import torch
from torch.utils.data import DataLoader

loader = DataLoader([torch.zeros(1)] * 400, num_workers=0)
if loader.num_workers:  # as a data set whose own threads do not outlive a fork: its wait is reported again and again
    run = max(pathlib.Path(sys.argv[1]).glob("*.log")).with_suffix("")
    run.mkdir()
    (run / "stalls.jsonl").write_text("".join(json.dumps(
        {"loader": "train.py:18", "step": 0, "waited_s": one}) + "\\n" for one in (60.0, 120.0)))
    time.sleep(100)
for images in loader:
    pass
"""


def test_a_change_that_hangs_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(verify, "busy_s", lambda: None)
    (tmp_path / "train.py").write_text(HANGS)
    begin = time.monotonic()
    words = [sys.executable, str(tmp_path / "train.py"), str(tmp_path / "check")]
    record = verify.verify(words, tmp_path / "check", steps=20, blocks=1, given=["num_workers=1"])
    outcome, = record["outcomes"]
    assert "got no batch for 120 s and was ended" in outcome["failed"] and record["stopped"] is None
    assert time.monotonic() - begin < 60


@pytest.mark.parametrize("waits, expected", (
    ([], None), ([(3, 60.0)], None), ([(3, 10.0), (3, 20.0)], 20.0), ([(3, 30.0), (7, 11.0), (7, 22.0)], 22.0),
    ([(3, 11.0), (7, 25.0)], None), ([(3, 30.0), (7, 11.0)], None)))
def test_one_wait_that_is_reported_twice_is_a_stall(tmp_path, waits, expected):
    stall = verify.Stall(tmp_path)
    assert not stall.is_there()
    (tmp_path / "stalls.jsonl").write_text("".join(
        json.dumps({"loader": "a.py:1", "step": step, "waited_s": waited}) + "\n" for step, waited in waits))
    assert stall.is_there() == (expected is not None) and stall.waited_s == expected
    (tmp_path / "stalls.jsonl").write_text("[]\n{")
    assert not verify.Stall(tmp_path).is_there()


WHAT_IF = {"settings": {"num_workers": 0, "prefetch_factor": None},
           "rows": [{"change": "num_workers=1", "overrides": {"num_workers": 1}, "loading_only": False, "ratio": 1.5,
                     "low": 1.4, "high": 1.6}]}


def test_predictions_lie_on_the_disk_before_a_change_runs(tmp_path, monkeypatch):
    events = []

    def run(self, overrides, warm_up=8, other=False):
        self.started += 1
        events.append(overrides)
        self.latest.mkdir()
        (self.latest / "steps.csv").write_text("images,load_s,update_s\n" + "4,0.1,0.1\n" * 40)
        return {"what_if": WHAT_IF}, 0.0

    def fsync(file, sync=os.fsync):
        path = Path(os.readlink(f"/proc/self/fd/{file}"))
        assert json.loads(path.read_text()), "the whole file is synchronised"
        events.append(path.name)
        sync(file)

    monkeypatch.setattr(verify.Script, "run", run)
    monkeypatch.setattr(os, "fsync", fsync)
    verify.verify(["train"], tmp_path, steps=10, blocks=1)
    assert events == [{}, "predictions.json", {}, {"num_workers": 1}, {}, "verification.json"]
    assert json.loads((tmp_path / "predictions.json").read_text())["what_if"] == WHAT_IF


def test_wrong_usage_is_named(tmp_path):
    for words, text in ((("nowhere",), "nowhere holds no summary.json"), ((), "give one run directory"),
                        (("--with", "a.py", "nowhere"), "--with needs --verify"),
                        (("--verify",), "nothing to run"), (("--verify", "--steps", "1", "--", "x"), "at least 2")):
        done = what_if(*words, cwd=tmp_path)
        assert done.returncode == 2 and text in done.stderr and "Traceback" not in done.stderr


def test_scripts_that_fail_or_record_nothing_end_the_verification(tmp_path):
    with pytest.raises(mr.WatchError, match="exit code 3.*messages are in"):
        verify.verify([sys.executable, "-c", "import sys; sys.exit(3)"], tmp_path / "a", steps=5, blocks=1)
    with pytest.raises(mr.WatchError, match="left no record"):
        verify.verify([sys.executable, "-c", "pass"], tmp_path / "b", steps=5, blocks=1)
    with pytest.raises(mr.WatchError, match="is not empty"):
        verify.verify([sys.executable, "-c", "pass"], tmp_path / "b", steps=5, blocks=1)
