"""LeNet-5's training step (batch 64, 28x28, SGD with momentum) in PyTorch, the ordinary way, and in
millrace with LibTorch's ops and with the native ones, one step of each in turn in one process, on
one core. Starts from the same weights, checks that the losses of the first 20 steps agree to 1e-4,
prints one JSON object. Needs the torch that millrace was built with.

    taskset -c 1 python bench/lenet_step.py build/lib/libmillrace_torch.so
"""
import argparse
import ctypes
import json
import statistics
import time

import torch
from torch import nn

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("library")
parser.add_argument("--rounds", type=int, default=500)
parser.add_argument("--batch", type=int, default=64)
args = parser.parse_args()

SEED = 4
COMPARED = 20
torch.set_num_threads(1)

library = ctypes.CDLL(args.library, mode=ctypes.RTLD_GLOBAL)
library.millrace_lenet_new.restype = ctypes.c_void_p
library.millrace_lenet_new.argtypes = [ctypes.c_int, ctypes.c_uint64]
library.millrace_lenet_step.restype = ctypes.c_float
library.millrace_lenet_step.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]


def python_steps():
    torch.manual_seed(SEED)
    model = nn.Sequential(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5),
                          nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(400, 120), nn.ReLU(),
                          nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loss_of = nn.CrossEntropyLoss()

    def step(images, labels):
        optimizer.zero_grad()
        loss = loss_of(model(images), labels)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def our_steps(native):
    lenet = library.millrace_lenet_new(native, SEED)
    return lambda images, labels: library.millrace_lenet_step(lenet, images.data_ptr(), labels.data_ptr(),
                                                              len(labels))


sides = {"pytorch": python_steps(), "millrace_torch": our_steps(0), "millrace_native": our_steps(1)}
torch.manual_seed(3)
images = torch.randn(args.batch, 1, 28, 28)
labels = torch.randint(10, (args.batch,))

worst = 0.0
for _ in range(COMPARED):
    losses = [step(images, labels) for step in sides.values()]
    worst = max([worst] + [abs(loss / losses[0] - 1) for loss in losses])
assert worst <= 1e-4, f"losses differ by {worst}"

wall = {name: [] for name in sides}
cpu = {name: [] for name in sides}
for _ in range(args.rounds):
    for name, step in sides.items():
        wall_begin, cpu_begin = time.perf_counter(), time.process_time()
        step(images, labels)
        wall[name].append(1e3 * (time.perf_counter() - wall_begin))
        cpu[name].append(1e3 * (time.process_time() - cpu_begin))

report = {"torch": torch.__version__, "batch": args.batch, "rounds": args.rounds, "loss_difference": worst}
for name in sides:
    report[name] = {"ms_least": min(wall[name]), "ms_median": statistics.median(wall[name]),
                    "cpu_ms_median": statistics.median(cpu[name])}
for kind in ("ms_least", "cpu_ms_median"):
    report["native_of_pytorch_" + kind] = report["millrace_native"][kind] / report["pytorch"][kind]
print(json.dumps(report, indent=2))
