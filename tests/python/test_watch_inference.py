"""Loops that train and loops that only compute outputs have verdicts of their own, also with hidden optimizers."""
import json
import time
import warnings

import pytest

torch = pytest.importorskip("torch", reason="NOT TESTED with PyTorch: it cannot be imported", exc_type=ImportError)
from torch.utils.data import DataLoader, Dataset

import pymillrace as mr

INFERENCE = "inference, without gradients or optimizer: "


class Values(Dataset):
    def __len__(self):
        return 48

    def __getitem__(self, index):
        time.sleep(0.001)
        return torch.full((1,), float(index))


class OwnOptimizer:
    """Steps without torch's class of optimizers, as those of fastai do."""

    def __init__(self, parameters):
        self.parameters = list(parameters)

    @torch.no_grad()
    def step(self):
        for one in self.parameters:
            one -= 1e-6 * one.grad
            one.grad = None


def train(model, optimizer):
    for batch in DataLoader(Values(), 2):
        model(batch).square().sum().backward()
        optimizer.step()


def evaluate(model, loader):
    with torch.no_grad():
        return sum(model(batch).sum().item() for batch in loader)


def recorded(run):
    summary = json.loads((run / "summary.json").read_text())
    return summary, {one["name"]: one for one in summary["loaders"]}


@pytest.mark.parametrize("way", ("no_grad", "eval", "train"))
def test_a_loop_without_gradients_or_an_optimizer_is_inference(tmp_path, way):
    model = torch.nn.Linear(1, 1).train(way != "eval")
    with mr.watching(run=tmp_path / "run"):
        if way == "no_grad":
            evaluate(model, DataLoader(Values(), 2))
        else:
            for batch in DataLoader(Values(), 2):
                model(batch)
    summary, _ = recorded(tmp_path / "run")
    assert summary["verdict"].startswith(INFERENCE) == (way != "train"), summary["verdict"]
    assert "dataset-bound" in summary["verdict"]


@pytest.mark.parametrize("hidden", (False, True))
def test_each_loader_has_a_verdict_and_the_one_that_trains_is_the_main_one(tmp_path, capfd, hidden):
    model = torch.nn.Linear(1, 1)
    optimizer = OwnOptimizer(model.parameters()) if hidden else torch.optim.SGD(model.parameters(), 1e-6)
    check = DataLoader(Values(), 2)
    with mr.watching(run=tmp_path / "run"):
        evaluate(model, check)  # as Lightning's check before a training
        for _ in range(2):
            train(model, optimizer)
            evaluate(model, check)
    summary, loaders = recorded(tmp_path / "run")
    other = next(one for name, one in loaders.items() if name != summary["loader"])
    assert loaders[summary["loader"]]["updates"] == (0 if hidden else 48) and summary["steps"] == 48
    assert other["updates"] == 0 and other["verdict"].startswith(INFERENCE)
    assert summary["verdict"] == loaders[summary["loader"]]["verdict"] and "inference" not in summary["verdict"]
    assert f"  {other['name']}: {other['steps']} steps: {INFERENCE}dataset-bound" in capfd.readouterr().err
    rows = (tmp_path / "run/steps.csv").read_text().splitlines()
    assert len(rows) - 1 == 48


@pytest.mark.parametrize("way", ("module", "function", "nested", "later"))
def test_a_compiled_step_is_compiled_once_and_its_update_is_known(tmp_path, way):
    dynamo = pytest.importorskip("torch._dynamo")
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), 1e-6)
    dynamo.reset()
    before, graphs = dynamo.config.error_on_recompile, []

    def counted(graph, inputs):
        graphs.append(graph)
        return graph.forward

    def compiled(function):
        return torch.compile(function, backend=counted, fullgraph=True)

    def made():
        """Returns what trains in each way. A hook of modules would become a part of the function that is compiled."""
        if way == "module":
            return compiled(model)
        inner = compiled(model) if way == "nested" else model
        return compiled(lambda values: inner(values) * 1)

    step, enter = None if way == "later" else made(), dynamo.eval_frame._maybe_set_eval_frame

    def train_step(values):
        nonlocal step
        if step is None:
            step = made()  # in the loop
        return step(values)

    dynamo.config.error_on_recompile = True
    try:
        with mr.watching(run=tmp_path / "run"), warnings.catch_warnings():
            warnings.simplefilter("error")  # torch warns of global hooks
            train(train_step, optimizer)
    finally:
        dynamo.config.error_on_recompile = before
    assert dynamo.eval_frame._maybe_set_eval_frame is enter
    summary, _ = recorded(tmp_path / "run")
    assert len(graphs) == 1 and (summary["steps"], summary["error"]) == (24, None)
    assert summary["spans"]["update"] > summary["spans"]["loop"]
