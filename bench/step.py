"""Times a model's training step (SGD with momentum) in PyTorch, with the default memory format and with channels_last,
and in millrace with LibTorch's ops and, if the model has them, with the native ones. Takes one step of each by
turns in one process, on one core, from the same weights, and prints one JSON object. Checks first that the losses
agree with PyTorch's to 1e-4: LeNet's for 20 steps, ResNet-18's for 5 with PyTorch's in channels_last. Batch norm
over few images magnifies rounding: within PyTorch itself, planes and channels_last differ by 1e-3 at the third
step. Needs the torch that millrace was built with; resnet18 also needs torchvision.

    taskset -c 1 python bench/step.py build/lib/libmillrace_bench.so
    taskset -c 1 python bench/step.py build/lib/libmillrace_bench.so --model resnet18 --batch 8 --rounds 30
"""
import argparse
import ctypes
import json
import statistics
import time

import torch
from torch import nn

SEED = 4


def lenet5():
    return nn.Sequential(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(),
                         nn.MaxPool2d(2), nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(),
                         nn.Linear(84, 10))


def resnet18():
    import torchvision
    return torchvision.models.resnet18(num_classes=10)


# builder, channels, side of an image, whether millrace has native ops for it, which losses ours follow, for how many
# steps
MODELS = {"lenet5": (lenet5, 1, 28, True, "pytorch", 20),
          "resnet18": (resnet18, 3, 224, False, "pytorch_channels_last", 5)}

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("library")
parser.add_argument("--model", choices=MODELS, default="lenet5")
parser.add_argument("--rounds", type=int, default=500)
parser.add_argument("--batch", type=int, default=64)
args = parser.parse_args()

build, CHANNELS, SIDE, HAS_NATIVE, REFERENCE, COMPARED = MODELS[args.model]
torch.set_num_threads(1)

library = ctypes.CDLL(args.library, mode=ctypes.RTLD_GLOBAL)
library.millrace_model_new.restype = ctypes.c_void_p
library.millrace_model_new.argtypes = [ctypes.c_char_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int, ctypes.c_uint64]
library.millrace_model_step.restype = ctypes.c_float
library.millrace_model_step.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64,
                                        ctypes.c_void_p, ctypes.c_int64]


def python_steps(layout):
    torch.manual_seed(SEED)
    model = build().to(memory_format=layout)
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
    model = library.millrace_model_new(args.model.encode(), CHANNELS, SIDE, native, SEED)
    assert model, f"millrace has no {args.model}"
    return lambda images, labels: library.millrace_model_step(model, images.data_ptr(), CHANNELS, SIDE,
                                                              labels.data_ptr(), len(labels))


sides = {"pytorch": python_steps(torch.contiguous_format),
         "pytorch_channels_last": python_steps(torch.channels_last), "millrace_torch": our_steps(0)}
if HAS_NATIVE:
    sides["millrace_native"] = our_steps(1)
ours = [name for name in sides if name.startswith("millrace")]
torch.manual_seed(3)
images = torch.randn(args.batch, CHANNELS, SIDE, SIDE)
labels = torch.randint(10, (args.batch,))

worst = 0.0
for _ in range(COMPARED):
    losses = {name: step(images, labels) for name, step in sides.items()}
    expected = losses[REFERENCE]
    worst = max([worst] + [abs(losses[name] - expected) / expected for name in ours])
assert worst <= 1e-4, f"losses differ by {worst}"

wall = {name: [] for name in sides}
cpu = {name: [] for name in sides}
for _ in range(args.rounds):
    for name, step in sides.items():
        wall_begin, cpu_begin = time.perf_counter(), time.process_time()
        step(images, labels)
        wall[name].append(1e3 * (time.perf_counter() - wall_begin))
        cpu[name].append(1e3 * (time.process_time() - cpu_begin))

report = {"torch": torch.__version__, "model": args.model, "batch": args.batch, "rounds": args.rounds,
          "loss_difference": worst}
for name in sides:
    report[name] = {"ms_least": min(wall[name]), "ms_median": statistics.median(wall[name]),
                    "cpu_ms_median": statistics.median(cpu[name])}
for name in ours:
    for kind in ("ms_least", "cpu_ms_median"):
        report[f"{name}_of_pytorch_{kind}"] = report[name][kind] / report["pytorch"][kind]
print(json.dumps(report, indent=2))
