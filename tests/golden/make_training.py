"""Writes training.json: the losses of PyTorch's own training over 20 steps and more (contract Faithful training).

One case per option: optimizers, label smoothing, clipping, averaged weights, accumulation; and whole models with
batch norm. Mixed precision is separate: see mixed(). Weights come from the tensors' names (make_models.py), images
and labels from the samples' numbers (make_lenet_losses.py), so that only the losses are stored. Run it with PyTorch
2.11 and torchvision 0.26 on a CPU; the tests only read its result.

    python tests/golden/make_training.py
"""
import json
import pathlib

import torch
from torch import nn
from torch.nn import functional as F

from make_lenet_losses import LeNet, formula
from make_models import CLASSES, fill, number, resnet_cifar, vgg_cifar

LENET = dict(model="lenet5", channels=1, side=28, samples=150, batch=32, epochs=4, lr=0.02, momentum=0.9)
MAKERS = {
    "lenet5": lambda: LeNet(5, 2, 0, 1, 400),
    "resnet18": lambda: resnet_cifar("resnet18"),
    "vgg_cifar": vgg_cifar,
}
CASES = [
    dict(LENET, name="sgd_nesterov", nesterov=True, weight_decay=5e-4),
    dict(LENET, name="adam", optimizer="adam", lr=0.001),
    dict(LENET, name="adam_weight_decay", optimizer="adam", lr=0.001, weight_decay=0.01, beta1=0.8, beta2=0.99, eps=1e-6),
    dict(LENET, name="adamw", optimizer="adamw", lr=0.001, weight_decay=0.1),
    dict(LENET, name="label_smoothing", label_smoothing=0.1),
    dict(LENET, name="clip", clip=0.5),
    dict(LENET, name="accumulate", accumulate=2),  # 5 batches per epoch; the last, of 22, has its own window
    dict(LENET, name="accumulate_tail", accumulate=2, samples=118, epochs=5, clip=2.5),  # 32 + 32, 32 + 22
    dict(LENET, name="everything", optimizer="adamw", lr=0.001, weight_decay=0.05, label_smoothing=0.1, clip=0.5,
         ema=0.9, accumulate=2),
    # Rates at which rounding stays small: batch norm over few values multiplies it by the size of a step. With 0.001,
    # PyTorch's own losses in float differ by up to 3% (ResNet) and 170% (VGG) from those in double; with these rates by
    # less than 1e-5.
    dict(name="resnet18_ema", model="resnet18", variant="cifar", channels=3, side=16, samples=32, batch=8, epochs=5,
         lr=2e-6, momentum=0.9, ema=0.9),
    dict(name="vgg_cifar", model="vgg_cifar", channels=3, side=32, samples=16, batch=8, epochs=10, lr=1e-8,
         momentum=0.9),
]


def optimizer_of(case, parameters):
    name, decay = case.get("optimizer", "sgd"), case.get("weight_decay", 0.0)
    if name == "sgd":
        return torch.optim.SGD(parameters, lr=case["lr"], momentum=case["momentum"], weight_decay=decay,
                               nesterov=case.get("nesterov", False))
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[name]
    return kind(parameters, lr=case["lr"], betas=(case.get("beta1", 0.9), case.get("beta2", 0.999)),
                eps=case.get("eps", 1e-8), weight_decay=decay)


def samples_of(case):
    channels, side, samples = case["channels"], case["side"], case["samples"]
    pixels = channels * side * side
    images = torch.stack([formula(pixels, 1000 + i, 2.0) for i in range(samples)]).view(-1, channels, side, side)
    return images, torch.arange(samples) * 7 % CLASSES


def mixed(case):
    """Results of every step of an f32 run computed in bf16: the loss, and the norm of each parameter's gradient.

    A run in bf16 is reproducible on one kind of processor only: kernels round sums in different places, a weight's
    last bit changes its rounded value, and the steps multiply the difference. The weights of an f32 run agree on
    all processors to 1e-6. Each step therefore starts from those, and no difference outlives its step.
    """
    net = MAKERS[case["model"]]()
    fill(net)
    images, labels = samples_of(case)
    parameters = dict(net.named_parameters())
    optimizer = optimizer_of(case, list(net.parameters()))
    steps = []
    for _ in range(case["epochs"]):
        for x, y in zip(images.split(case["batch"]), labels.split(case["batch"])):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = F.cross_entropy(net(x).float(), y)
            gradients = torch.autograd.grad(loss, list(parameters.values()))
            steps.append(dict(loss=number(loss.detach()),
                              gradients={n: number(g.norm()) for n, g in zip(parameters, gradients)}))
            optimizer.zero_grad()
            F.cross_entropy(net(x), y).backward()
            optimizer.step()
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        loss_sum = number(F.cross_entropy(net(images).double(), labels, reduction="sum"))
    print("mixed losses", steps[0]["loss"], "...", steps[-1]["loss"], loss_sum, flush=True)
    return dict(case, steps=steps, loss_sum=loss_sum)


def run(case):
    net = MAKERS[case["model"]]()
    fill(net)
    for module in net.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    averages = None
    if "ema" in case:  # as in torchvision's reference training
        decay = case["ema"]
        averages = torch.optim.swa_utils.AveragedModel(
            net, avg_fn=lambda average, value, _: decay * average + (1 - decay) * value, use_buffers=True)
    images, labels = samples_of(case)
    parameters = list(net.parameters())
    optimizer = optimizer_of(case, parameters)
    smoothing, accumulate = case.get("label_smoothing", 0.0), case.get("accumulate", 1)
    losses, clipped = [], 0
    for _ in range(case["epochs"]):
        batches = list(zip(images.split(case["batch"]), labels.split(case["batch"])))
        for begin in range(0, len(batches), accumulate):
            window = batches[begin:begin + accumulate]
            count = sum(len(y) for _, y in window)
            optimizer.zero_grad()
            for x, y in window:
                loss = F.cross_entropy(net(x), y, label_smoothing=smoothing)
                (loss * (len(y) / count)).backward()
                losses.append(number(loss.detach()))
            if "clip" in case:
                clipped += int(nn.utils.clip_grad_norm_(parameters, case["clip"]) > case["clip"])
            optimizer.step()
            if averages is not None:
                averages.update_parameters(net)
    tested = net if averages is None else averages.module
    with torch.no_grad():
        logits = tested.eval()(images).double()
        evaluation = dict(loss_sum=number(F.cross_entropy(logits, labels, reduction="sum")),
                          top1=int((logits.argmax(1) == labels).sum()))
    print(case["name"], "losses", losses[0], "...", losses[-1], "clipped", clipped, evaluation, flush=True)
    return dict(case, losses=losses, evaluation=evaluation)


if __name__ == "__main__":
    torch.set_num_threads(1)
    out = pathlib.Path(__file__).with_name("training.json")
    result = dict(torch=torch.__version__, classes=CLASSES, cases=[run(c) for c in CASES], bf16=mixed(LENET))
    out.write_text(json.dumps(result, indent=1) + "\n")
    print("wrote", out)
