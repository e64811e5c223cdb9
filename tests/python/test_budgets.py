"""Budgets of watch and comparisons of runs: intervals, exit codes, what is printed."""
import json
import math
import random
import subprocess
import sys

import pytest

from pymillrace._predict import t_quantile
from pymillrace.errors import DataError, UsageError
from pymillrace.watcher import batch_means, budget, compare, estimates
from pymillrace.watcher.batch_means import Estimate
from pymillrace.watcher.estimates import Steps

HEADER = "epoch,step,load_s,update_s,other_s,images\n"


def table(path, rows, images=4):
    path.write_text(HEADER + "".join(f"1,{i + 1},{load!r},{update!r},0,{images}\n" for i, (load, update) in enumerate(rows)))


def record(directory, rows, world_size=1, **more):
    """Writes a run whose loop has these seconds of load and update."""
    directory.mkdir()
    summary = {"command": "watch", "complete": True, "loader": "train", "loaders": [{"name": "train"}],
               "world_size": world_size, "workers": 2, "batch": 4, "script": "train.py", **more}
    (directory / "summary.json").write_text(json.dumps(summary))
    table(directory / "steps.csv", rows)
    return directory


def varied(load, update, count=200, seed=1):
    numbers = random.Random(seed)
    return [(9.0, update)] + [(load * numbers.uniform(0.8, 1.2), update * numbers.uniform(0.8, 1.2)) for _ in range(count)]


def test_quantiles_are_students():
    for freedom, level, quantile in ((9, 0.95, 2.2622), (19, 0.95, 2.0930), (19, 0.99, 2.8609), (1e9, 0.95, 1.9600)):
        assert t_quantile(freedom, level) == pytest.approx(quantile, rel=2e-3)


@pytest.mark.parametrize("correlation", (0.0, 0.6, -0.4))
def test_intervals_hold_the_ratio_of_steps_that_depend_on_each_other(correlation):
    numbers, held = random.Random(7), 0
    for _ in range(400):
        above, below, state = [], [], 0.0
        for _ in range(400):
            state = correlation * state + math.sqrt(1 - correlation**2) * numbers.gauss(0, 1)
            load = 0.01 * math.exp(0.3 * state)
            above.append(load)
            below.append(load + 0.02 * numbers.uniform(0.9, 1.1))
        mean = 0.01 * math.exp(0.045)
        low, high = batch_means.ratio(above, below).interval()
        held += low <= mean / (mean + 0.02) <= high
    assert 0.9 <= held / 400 <= 0.99


def test_steps_beyond_whole_batches_are_left_out_at_the_begin():
    found = batch_means.ratio([1000.0, *[1.0, 3.0] * 100], [1.0] * 201)
    assert found == Estimate(2.0, 0.0, batch_means.BATCHES - 1)


def test_the_first_steps_do_not_count(tmp_path):
    run = estimates.read(record(tmp_path / "run", [(9.0, 0.1), (0.1, 9.0)] + [(0.01, 0.03)] * 40))
    assert run.ranks[0].share().value == pytest.approx(0.25)
    assert run.ranks[0].rate().value == pytest.approx(100)
    assert run.ranks[0].wait().value == pytest.approx(0.01) and run.ranks[0].work().value == pytest.approx(0.03)


@pytest.mark.parametrize("max_load, wait, rate, baseline, said", [
    ("10", None, None, False, "10%"), ("0%", None, None, False, "10%"), ("101%", None, None, False, "10%"),
    ("nan%", None, None, False, "10%"), (None, "5", None, False, "5ms"), (None, "110%", None, False, "--baseline RUN"),
    (None, "-5ms", None, False, "5ms"), (None, None, "95%", False, "--baseline RUN"), (None, None, "fast", False, "1500"),
    ("10%", None, None, True, "--min-images-per-s 95%")])
def test_budgets_that_mean_nothing_are_refused(max_load, wait, rate, baseline, said):
    with pytest.raises(UsageError, match=said):
        budget.parse(max_load, wait, rate, baseline)


@pytest.mark.parametrize("options, code, said", [
    (("40%", None, None), 0, "kept"), (("20%", None, None), 5, "exceeded"), (("25%", None, None), 6, "undecided"),
    ((None, "11ms", None), 0, "kept"), ((None, "9ms", None), 5, "exceeded"), ((None, "10.0ms", None), 6, "undecided"),
    ((None, None, "90"), 0, "kept"), ((None, None, "110"), 5, "exceeded"), ((None, None, "100"), 6, "undecided"),
    (("25%", "9ms", None), 5, "undecided")])
def test_a_budget_is_judged_by_the_interval(tmp_path, options, code, said):
    run = estimates.read(record(tmp_path / "run", varied(0.01, 0.03)))
    found, lines = budget.judge(budget.parse(*options, False), run, None)
    assert found == code and said in lines[0] and "95% interval" in lines[0]


def test_a_share_of_the_baseline_knows_both_runs_variation(tmp_path):
    before, same, slower = (estimates.read(record(tmp_path / name, varied(load, 0.03, seed=seed)))
                            for name, load, seed in (("a", 0.01, 1), ("b", 0.01, 2), ("c", 0.02, 3)))
    for rate, run, code in (("95%", same, 0), ("95%", slower, 5), ("100%", same, 6)):
        assert budget.judge(budget.parse(None, None, rate, True), run, before)[0] == code
    assert budget.judge(budget.parse(None, "120%", None, True), same, before)[0] == 0
    assert budget.judge(budget.parse(None, "120%", None, True), slower, before)[0] == 5


def test_the_worst_rank_is_judged(tmp_path):
    run = record(tmp_path / "run", varied(0.001, 0.03), world_size=2)
    table(run / "steps.rank1.csv", varied(0.02, 0.03))
    code, lines = budget.judge(budget.parse("10%", None, None, False), estimates.read(run), None)
    assert code == 5 and "rank 1: load is 4" in lines[0]


def test_a_missing_rank_decides_nothing(tmp_path):
    run = record(tmp_path / "run", varied(0.001, 0.03), world_size=2)
    code, lines = budget.judge(budget.parse("10%", None, None, False), estimates.read(run), None)
    assert code == 6 and "no steps of rank 1" in lines[0]
    with pytest.raises(UsageError, match="no steps of rank 1"):
        compare.compare(run, run)


def test_the_loader_that_trains_is_judged_whichever_comes_first(tmp_path):
    torch = pytest.importorskip("torch", reason="NOT TESTED with PyTorch: it cannot be imported", exc_type=ImportError)
    import pymillrace as mr
    from torch.utils.data import DataLoader, TensorDataset

    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    with mr.watching(run=tmp_path / "run"):
        for _ in DataLoader(TensorDataset(torch.zeros(90, 1))):
            pass
        for (batch,) in DataLoader(TensorDataset(torch.zeros(120, 1)), batch_size=4):
            model(batch).sum().backward()
            optimizer.step()
    run = estimates.read(tmp_path / "run")
    assert set(run.ranks[0].images) == {4.0} and len(run.ranks[0].images) == 28


def test_too_few_steps_decide_nothing(tmp_path):
    code, lines = budget.of_run(budget.parse("10%", None, None, False), record(tmp_path / "run", varied(0.5, 0.03, 18)), None)
    assert code == 6 and "19 steps" in lines[0] and "20 are needed" in lines[0]
    code, lines = budget.of_run(budget.parse("10%", None, None, False), tmp_path / "none", None)
    assert code == 6 and "nothing was recorded" in lines[0]


@pytest.mark.parametrize("row", ["1,2,x,0.1,0,4", "1,2,-1,0.1,0,4", "1,2,nan,0.1,0,4", "1,2,1e300,0.1,0,4", "1,2,0.1,0.1,0,inf",
                                 "\xff", "1,2,0.1"])
def test_a_table_that_is_none_is_refused(tmp_path, row):
    run = record(tmp_path / "run", varied(0.01, 0.03))
    (run / "steps.csv").write_bytes((HEADER + "1,1,0.1,0.1,0,4\n").encode() + row.encode("latin-1") + b",0,4\n")
    with pytest.raises(DataError, match="steps.csv is no table of steps") as caught:
        estimates.read(run)
    assert "\n" not in str(caught.value)


def test_a_run_of_another_kind_is_refused(tmp_path):
    with pytest.raises(DataError, match="no run of pymillrace watch"):
        estimates.read(record(tmp_path / "run", varied(0.01, 0.03), command="train"))


def test_a_comparison_names_differences_and_their_size(tmp_path):
    runs = compare.compare(record(tmp_path / "a", varied(0.01, 0.03)),
                           record(tmp_path / "b", varied(0.002, 0.03, seed=2), workers=8))
    rows = {row.name: row for row in compare.rows(*runs)}
    assert rows["images/s"].verdict == "higher" and rows["load per step"].verdict == "lower"
    assert rows["update per step"].verdict == "no difference found"
    value, low, high = rows["images/s"].ratio
    assert low < value < high and value == pytest.approx(0.04 / 0.032, rel=0.02)
    text = "\n".join(compare.lines(*runs))
    assert "num_workers: 2 before, 8 after" in text
    document = json.loads(compare.document(*runs))
    assert document["rows"][0]["ratio"]["value"] == value and document["settings"][0]["name"] == "num_workers"


def test_equal_loops_are_rarely_told_apart():
    def steps(seed):
        rows = varied(0.01, 0.03, 100, seed)[1:]
        return Steps(0, [load for load, _ in rows], [update for _, update in rows], [4.0] * len(rows), len(rows))

    alarms = sum(compare.Row("images/s", "", 1.0, steps(2 * i).rate(), steps(2 * i + 1).rate()).verdict !=
                 "no difference found" for i in range(300))
    assert alarms / 300 < 0.09


def test_a_table_for_a_pull_request_quotes_what_a_run_says(tmp_path):
    runs = compare.compare(record(tmp_path / "a", varied(0.01, 0.03)),
                           record(tmp_path / "b", varied(0.01, 0.03), script="[x](http://example.org) | `x`"))
    line = next(line for line in compare.markdown(*runs) if line.startswith("- script"))
    assert "\\[x\\]\\(http" in line and "\\|" in line and "\\`x\\`" in line


SCRIPT = """
import sys, time, torch
from torch.utils.data import DataLoader, Dataset

class Slow(Dataset):
    def __len__(self): return 4 * int(sys.argv[1])
    def __getitem__(self, index): time.sleep(0.002); return torch.zeros(4)

model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), 1e-3)
for batch in DataLoader(Slow(), batch_size=4):
    model(batch).sum().backward(); optimizer.step()
sys.exit(int(sys.argv[2]))
"""


def test_the_command_ends_with_what_the_budgets_say(tmp_path):
    pytest.importorskip("torch", reason="NOT TESTED with PyTorch: it cannot be imported", exc_type=ImportError)
    (tmp_path / "train.py").write_text(SCRIPT)

    def watch(name, options, steps, code):
        return subprocess.run([sys.executable, "-m", "pymillrace", "watch", "--run", name, "--quiet", *options, "--",
                               sys.executable, "train.py", str(steps), str(code)], cwd=tmp_path, capture_output=True,
                              text=True, check=False)

    exceeded = watch("one", ["--max-load", "10%"], 40, 0)
    assert exceeded.returncode == 5 and "--max-load 10% is exceeded: load is " in exceeded.stderr
    kept = watch("two", ["--max-wait", "1s", "--min-images-per-s", "10%", "--baseline", "one"], 40, 0)
    assert kept.returncode == 0 and kept.stderr.count(" is kept: ") == 2
    assert watch("three", ["--max-load", "10%"], 40, 3).returncode == 3  # the script's own
    refused = watch("four", ["--max-load", "10"], 40, 0)
    assert refused.returncode == 2 and refused.stderr.count("\n") == 1
    assert not (tmp_path / "four").exists()
    compared = subprocess.run([sys.executable, "-m", "pymillrace", "compare", "one", "two"], cwd=tmp_path,
                              capture_output=True, text=True, check=False)
    assert compared.returncode == 0 and "images/s" in compared.stdout
