"""Writes models.json: results of torchvision's models for weights and images that both languages compute.

No weights are stored: element i of a tensor is a function of its name and i (formula.h, model_formula.h in
tests/torch). For each model it stores a digest of all names and shapes, the logits in evaluation, and, in training
without dropout and in double, the loss and the norms of gradients and of running statistics; also a few of the
initial weights for seed 0. Run it with PyTorch 2.11 and torchvision 0.26 on a CPU; the tests only read its result.

    python tests/golden/make_models.py
"""
import json
import math
import pathlib

import numpy as np
import torch
import torchvision
from torch import nn
from torch.nn import functional as F

CLASSES, SEED = 10, 0


def fnv1a(data, bits):
    """Returns the FNV-1a hash of bytes."""
    value, prime = (0x811C9DC5, 0x01000193) if bits == 32 else (0xCBF29CE484222325, 0x100000001B3)
    for byte in data:
        value = ((value ^ byte) * prime) & ((1 << bits) - 1)
    return value


def formula(shape, name, scale):
    """Returns floats in [-scale / 2, scale / 2) from their index and the name's hash."""
    out = np.empty(math.prod(shape), dtype=np.float32)
    salt = np.uint32(fnv1a(name.encode(), 32) * 0x10001 & 0xFFFFFFFF)
    for begin in range(0, out.size, 1 << 20):
        h = np.arange(begin, min(begin + (1 << 20), out.size), dtype=np.uint32)
        h += salt
        h *= np.uint32(0x9E3779B1)
        h = (h ^ (h >> np.uint32(15))) * np.uint32(0x85EBCA77)
        h ^= h >> np.uint32(13)
        out[begin:begin + h.size] = ((h >> np.uint32(8)).astype(np.float32) * np.float32(2**-24)
                                     - np.float32(0.5)) * np.float32(scale)
    return torch.from_numpy(out).view(shape)


def fill(net):
    """Fills weights with He's standard deviations, so that deep networks neither vanish nor overflow; variances near
    1."""
    with torch.no_grad():
        for name, value in net.state_dict().items():
            if value.dim() >= 2:
                value.copy_(formula(value.shape, name, math.sqrt(24 / math.prod(value.shape[1:]))))
            elif name.endswith("num_batches_tracked"):
                value.zero_()
            elif name.endswith((".weight", "running_var")):  # batch norm
                value.copy_(1 + formula(value.shape, name, 0.5))
            else:
                value.copy_(formula(value.shape, name, 0.25))


class Vgg(torchvision.models.VGG):
    """torchvision's convolutions under another head."""

    def __init__(self, name, head):
        features = getattr(torchvision.models, name)(num_classes=1).features
        super().__init__(features, num_classes=1)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.classifier = head


def vgg_cifar():
    """Builds it layer by layer in order, so that its initial weights are comparable."""
    net, channels = nn.Sequential(), 3
    features = nn.Sequential()
    for width, count in ((64, 2), (128, 2), (256, 4), (512, 4), (512, 4)):
        for _ in range(count):
            features.extend([nn.Conv2d(channels, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()])
            channels = width
        features.append(nn.MaxPool2d(2))
    net.add_module("features", features)
    net.add_module("flatten", nn.Flatten())
    net.add_module("classifier", nn.Sequential(nn.Linear(512, 256), nn.ReLU(), nn.Dropout(0.5), nn.Linear(256, 128),
                                               nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, CLASSES)))
    return net


def resnet_cifar(name):
    net = getattr(torchvision.models, name)(num_classes=CLASSES)
    net.conv1 = nn.Conv2d(3, 64, 3, 1, 1, bias=False)
    net.maxpool = nn.Identity()
    return net


def named(**layers):
    net = nn.Sequential()
    for name, layer in layers.items():
        net.add_module(name, layer)
    return net


def plain(name):
    return lambda: getattr(torchvision.models, name)(num_classes=CLASSES)


def mlp(pixels):
    return lambda: named(flatten=nn.Flatten(), fc1=nn.Linear(pixels, 128), relu=nn.ReLU(), fc2=nn.Linear(128, CLASSES))


def simple_conv():
    return named(conv1=nn.Conv2d(3, 6, 3, padding=1), relu1=nn.ReLU(), flatten=nn.Flatten(),
                 fc1=nn.Linear(6 * 32 * 32, 128), relu2=nn.ReLU(), fc2=nn.Linear(128, CLASSES))


# model, variant, side of the images, maker, whether the maker initialises in the model's own order
CASES = [(name, "imagenet", 64, plain(name), True)
         for name in ("vgg16", "vgg16_bn", "vgg19", "vgg19_bn", "resnet18", "resnet34", "resnet50")] + [
    ("vgg16_bn", "cifar", 32, lambda: Vgg("vgg16_bn", nn.Sequential(nn.Linear(512, CLASSES))), False),
    ("vgg19", "cifar", 40, lambda: Vgg("vgg19", nn.Sequential(nn.Linear(512, CLASSES))), False),
    ("resnet18", "cifar", 32, lambda: resnet_cifar("resnet18"), False),
    ("resnet50", "cifar", 32, lambda: resnet_cifar("resnet50"), False),
    ("vgg_cifar", "imagenet", 32, vgg_cifar, True),
    ("linear", "imagenet", 32, lambda: named(flatten=nn.Flatten(), fc=nn.Linear(3 * 32 * 32, CLASSES)), True),
    ("mlp", "imagenet", 32, mlp(3 * 32 * 32), True),
    ("simple_conv", "imagenet", 32, simple_conv, True),
]
IMAGES = 4


def number(value):
    return float(f"{torch.as_tensor(value).item():.9g}")


def some(names, count):
    """Returns `count` of the names, evenly spread, including the first and the last."""
    names = sorted(names)
    return sorted({names[round(i * (len(names) - 1) / (count - 1))] for i in range(count)})


def run(model, variant, side, make, same_order):
    torch.manual_seed(SEED)
    net = make()
    state = net.state_dict()
    parameters = dict(net.named_parameters())
    result = dict(model=model, variant=variant, side=side)
    if same_order:
        result["initial"] = {n: [number(parameters[n].flatten()[0]), number(parameters[n].flatten()[-1])]
                             for n in some(parameters, 6)}
    text = "".join(f"{n}:{','.join(map(str, state[n].shape))};" for n in sorted(state))
    result["names"] = f"{fnv1a(text.encode(), 64):016x}"
    fill(net)
    images = formula((IMAGES, 3, side, side), "images", 2.0)
    labels = torch.arange(IMAGES) * 7 % CLASSES
    with torch.no_grad():
        result["logits"] = [number(v) for v in net.eval()(images).flatten()]
    net.double().train()  # batch norm over few values magnifies f32's rounding
    parameters = dict(net.named_parameters())
    for module in net.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    loss = F.cross_entropy(net(images.double()), labels)
    loss.backward()
    result["loss"] = number(loss)
    norms = {n: number(p.grad.norm()) for n, p in parameters.items()}
    least = 1e-6 * max(norms.values())  # gradients of a bias before batch norm are rounding errors only
    result["gradients"] = {n: norms[n] for n in some((n for n in norms if norms[n] > least), 8)}
    buffers = {n: b for n, b in net.named_buffers() if "running" in n}
    result["buffers"] = {n: number(buffers[n].norm()) for n in some(buffers, 4)} if buffers else {}
    print(model, variant, "loss", result["loss"], "logits to", max(map(abs, result["logits"])), flush=True)
    return result


if __name__ == "__main__":
    torch.set_num_threads(1)
    out = pathlib.Path(__file__).with_name("models.json")
    result = dict(torch=torch.__version__, torchvision=torchvision.__version__, classes=CLASSES, seed=SEED, images=IMAGES,
                  cases=[run(*case) for case in CASES])
    out.write_text(json.dumps(result, indent=1) + "\n")
    print("wrote", out)
