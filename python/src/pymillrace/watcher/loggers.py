"""Functions for `log=` of watch() and watching() that write the figures where others look at a training.

The client of TensorBoard, Weights & Biases or MLflow is the user's own; nothing is imported that was not asked for.
"""
from __future__ import annotations

import importlib
import time
from typing import Any

from ..errors import UsageError
from .log import Call

PREFIX = "millrace/"


def _numbers(figures: dict[str, Any]) -> dict[str, float]:
    """Returns the figures that are numbers, but for the step, by the names that they get."""
    return {PREFIX + name: value for name, value in figures.items()
            if isinstance(value, (int, float)) and name != "step"}


def log_to_tensorboard(writer: Any) -> Call:
    """Writes scalars millrace/NAME at the loop's steps to a SummaryWriter, and the verdict as text where it changes.

    `writer`: of torch.utils.tensorboard or tensorboardX, as `logger.experiment` of Lightning's TensorBoardLogger is.
    """
    verdict = ""

    def log(figures: dict[str, Any]) -> None:
        nonlocal verdict
        for name, value in _numbers(figures).items():
            writer.add_scalar(name, value, figures["step"])
        if figures["verdict"] != verdict:
            verdict = figures["verdict"]
            writer.add_text(PREFIX + "verdict", verdict, figures["step"])

    return log


def log_to_wandb(run: Any) -> Call:
    """Adds millrace/NAME to the row that a run of Weights & Biases logs next, so that its steps stay the script's.

    `run`: what wandb.init() has returned. The last figures of a loop that logs nothing itself come with run.finish().
    """
    def log(figures: dict[str, Any]) -> None:
        run.log({PREFIX + name: value for name, value in figures.items() if value is not None}, commit=False)

    return log


def log_to_mlflow(run_id: str | None = None) -> Call:
    """Writes metrics millrace/NAME at the loop's steps, and the verdict as a tag, to a run of MLflow.

    `run_id`: by default that of the active run of this thread. Raises UsageError if there is none.
    """
    mlflow = importlib.import_module("mlflow")
    metric = importlib.import_module("mlflow.entities").Metric
    active = mlflow.active_run() if run_id is None else None
    if run_id is None and active is None:
        raise UsageError("log_to_mlflow: no MLflow run is active in this thread",
                         "call mlflow.start_run() before, or give run_id=")
    to = run_id if active is None else active.info.run_id
    client = mlflow.MlflowClient()

    def log(figures: dict[str, Any]) -> None:
        now = int(1e3 * time.time())
        client.log_batch(to, metrics=[metric(name, value, now, figures["step"])
                                      for name, value in _numbers(figures).items()])
        client.set_tag(to, PREFIX + "verdict", figures["verdict"])

    return log
