"""Times ResNet-50 on CIFAR-10 in PyTorch as fast as its own means allow, beside recipe cifar10-resnet50: images stay on
the device as bytes, so that nothing is loaded; channels_last, autocast, and the whole step as one CUDA graph. Needs
torch alone.

    python3 bench/gpu/torch_resnet50.py --data FOLDER [--amp off|bf16] [--graphs] [--ddp] [--epochs N] [--steps N]

--ddp makes it one rank of DistributedDataParallel over NCCL.

FOLDER holds CIFAR-10's data_batch_1.bin to data_batch_5.bin, or what `millrace data make objects` writes. Prints one
JSON document: seconds per epoch and per step, the first epoch apart. The random crop of 32 from 32 has no effect and is
left out."""
import argparse
import json
import os
import pathlib
import statistics
import tempfile
import time

import torch
from torch import nn

MEAN = STD = 0.5


class Bottleneck(nn.Module):
    def __init__(self, channels, width, stride):
        super().__init__()
        out = 4 * width
        self.body = nn.Sequential(
            nn.Conv2d(channels, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, out, 1, bias=False), nn.BatchNorm2d(out))
        self.short = nn.Identity() if stride == 1 and channels == out else nn.Sequential(
            nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        return torch.relu(self.body(x) + self.short(x))


def resnet50(classes):
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for stage, blocks in enumerate((3, 4, 6, 3)):
        for block in range(blocks):
            layers.append(Bottleneck(channels, 64 << stage, 2 if stage > 0 and block == 0 else 1))
            channels = 4 * (64 << stage)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))


def cifar(folder):
    """Returns images as N x 3 x 32 x 32 bytes, and labels."""
    files = sorted(pathlib.Path(folder).rglob("data_batch_*.bin"))
    if not files:
        raise SystemExit(f"{folder}: there is no data_batch_1.bin")
    read = [torch.frombuffer(bytearray(file.read_bytes()), dtype=torch.uint8) for file in files]
    rows = torch.cat(read).view(-1, 3073)
    return rows[:, 1:].reshape(-1, 3, 32, 32), rows[:, 0].long()


class Steps:
    """Steps of SGD on given batches, eager or as a graph."""

    def __init__(self, device, amp, batch, ddp):
        self.model = resnet50(10).to(device, memory_format=torch.channels_last)
        self.side = torch.cuda.Stream() if device != "cpu" else None
        self.warm_ups = 3
        if ddp:  # as PyTorch's notes on CUDA graphs ask for it
            self.warm_ups = 11
            with torch.cuda.stream(self.side):
                self.model = nn.parallel.DistributedDataParallel(self.model, gradient_as_bucket_view=True)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.001, momentum=0.9, fused=True)
        self.device, self.amp = device, amp
        self.images = torch.zeros(batch, 3, 32, 32, dtype=torch.uint8, device=device)
        self.labels = torch.zeros(batch, dtype=torch.long, device=device)
        self.flips = torch.zeros(batch, 1, 1, 1, dtype=torch.bool, device=device)
        self.graph = None

    def work(self):
        x = torch.where(self.flips, self.images.flip(3), self.images)
        x = ((x.float() / 255 - MEAN) / STD).contiguous(memory_format=torch.channels_last)
        with torch.autocast(self.device, torch.bfloat16, enabled=self.amp == "bf16"):
            loss = nn.functional.cross_entropy(self.model(x), self.labels)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    def capture(self):
        self.side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.side):
            for _ in range(self.warm_ups):
                self.work()
        torch.cuda.current_stream().wait_stream(self.side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, stream=self.side):
            self.work()

    def step(self, images, labels):
        self.images.copy_(images)
        self.labels.copy_(labels)
        self.flips.bernoulli_(0.5)
        if self.graph is not None:
            self.graph.replay()
        else:
            self.work()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--amp", choices=["off", "bf16"], default="bf16")
    parser.add_argument("--graphs", action="store_true")
    parser.add_argument("--ddp", action="store_true")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=0, help="per epoch at most; 0: all full batches")
    args = parser.parse_args()

    torch.manual_seed(0)
    # Sets what train.cudnn_benchmark=true and train.tf32=conv set in the runs beside it.
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = True
    torch.backends.cuda.matmul.allow_tf32 = False
    images, labels = (part.to(args.device) for part in cifar(args.data))
    count = len(images) // args.batch
    count = min(count, args.steps) if args.steps else count
    if count == 0:
        raise SystemExit(f"{len(images)} images are less than a batch of {args.batch}")
    if args.ddp:
        os.environ["TORCH_NCCL_ASYNC_ERROR_HANDLING"] = "0"
        place = tempfile.NamedTemporaryFile(prefix="torch-resnet50-")  # lives as long as the process
        torch.distributed.init_process_group("nccl", init_method="file://" + place.name, rank=0, world_size=1)
    steps = Steps(args.device, args.amp, args.batch, args.ddp)
    epochs = []
    for _ in range(args.epochs):
        begin = time.perf_counter()
        order = torch.randperm(len(images), device=args.device)
        if args.graphs and steps.graph is None:
            steps.capture()
        for batch in order[: count * args.batch].split(args.batch):
            steps.step(images[batch], labels[batch])
        if args.device != "cpu":
            torch.cuda.synchronize()
        epochs.append(time.perf_counter() - begin)
    print(json.dumps({"torch": torch.__version__, "amp": args.amp, "graphs": args.graphs, "ddp": args.ddp, "steps": count,
                      "first_epoch_s": epochs[0], "epoch_s": statistics.median(epochs[1:] or epochs),
                      "step_s": statistics.median(epochs[1:] or epochs) / count}), flush=True)
    if args.ddp:
        steps.graph = None  # NCCL waits for graphs that hold its work
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
