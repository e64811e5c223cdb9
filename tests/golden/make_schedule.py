"""Writes schedule.json: the learning rates of torch.optim.lr_scheduler over whole runs.

Run it with PyTorch 2.11; the tests only read its result.

    python tests/golden/make_schedule.py
"""
import json
import pathlib

import torch
from torch.optim import lr_scheduler as schedulers

LR = 0.4
# name, its options, epochs, optimizer steps per epoch
CASES = [
    dict(name="constant", epochs=2, per_epoch=3),
    dict(name="step", step_epochs=1, gamma=0.5, epochs=4, per_epoch=3),
    dict(name="step", step_epochs=3, gamma=0.1, epochs=10, per_epoch=2),
    dict(name="multistep", milestones=[2, 5, 6], gamma=0.2, epochs=8, per_epoch=3),
    dict(name="multistep", milestones=[1, 1, 3], gamma=0.1, epochs=4, per_epoch=1),  # two milestones at once
    dict(name="cosine", epochs=1, per_epoch=1),
    dict(name="cosine", epochs=3, per_epoch=7),
    dict(name="cosine", min_lr=0.05, epochs=1, per_epoch=200),
    dict(name="onecycle", epochs=1, per_epoch=1),
    dict(name="onecycle", epochs=1, per_epoch=2),
    dict(name="onecycle", epochs=1, per_epoch=3),
    dict(name="onecycle", epochs=2, per_epoch=5),
    dict(name="onecycle", epochs=3, per_epoch=33),
    dict(name="constant", warmup=1, warmup_start=0.1, epochs=2, per_epoch=5),
    dict(name="cosine", warmup=1, warmup_start=0.01, epochs=4, per_epoch=6),
    dict(name="cosine", warmup=0.5, warmup_start=0.25, min_lr=0.001, epochs=2, per_epoch=10),
    dict(name="step", warmup=1, warmup_start=0.1, step_epochs=2, gamma=0.1, epochs=6, per_epoch=4),
    dict(name="multistep", warmup=2, warmup_start=0.1, milestones=[3, 4], gamma=0.1, epochs=6, per_epoch=2),
]


def rates(case):
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=LR)
    name, per_epoch, total = case["name"], case["per_epoch"], case["epochs"] * case["per_epoch"]
    warm = round(case.get("warmup", 0) * per_epoch)

    def main(steps, begin):
        """Returns the schedule over `steps` steps that begin at step `begin` of the run."""
        if name == "step":
            length = case["step_epochs"] * per_epoch
            # Epochs count from the run's start, even if the schedule takes over later.
            return schedulers.LambdaLR(optimizer, lambda i: case["gamma"] ** ((begin + i) // length)) if begin else \
                schedulers.StepLR(optimizer, length, case["gamma"])
        if name == "multistep":
            return schedulers.MultiStepLR(optimizer, [m * per_epoch - begin for m in case["milestones"]], case["gamma"])
        if name == "cosine":
            return schedulers.CosineAnnealingLR(optimizer, steps, case.get("min_lr", 0.0))
        if name == "onecycle":
            return schedulers.OneCycleLR(optimizer, LR, total_steps=steps, cycle_momentum=False)
        return schedulers.LambdaLR(optimizer, lambda _: 1.0)

    if warm:
        grow = schedulers.LinearLR(optimizer, case["warmup_start"], 1.0, total_iters=warm)
        schedule = schedulers.SequentialLR(optimizer, [grow, main(total - warm, warm)], [warm])
    else:
        schedule = main(total, 0)
    out = []
    for i in range(total):
        out.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        if i + 1 < total:
            schedule.step()
    return out


if __name__ == "__main__":
    path = pathlib.Path(__file__).with_name("schedule.json")
    path.write_text(json.dumps(dict(torch=torch.__version__, lr=LR, cases=[dict(c, rates=rates(c)) for c in CASES]))
                    .replace('}, {', '},\n {') + "\n")
    print("wrote", path)
