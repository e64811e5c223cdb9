"""The comparison as data: workloads, our runs of them, peers, yardsticks and goals.

Imports nothing, because the table and the peers read it in different Python environments.
"""
from dataclasses import dataclass, field
from typing import Optional


@dataclass(frozen=True)
class Work:
    """The output that every loader must deliver. `shape` is a sample's, planes first unless the workload says
    otherwise."""
    name: str
    title: str
    batch: int
    shape: tuple
    mean: tuple = ()
    std: tuple = ()
    dtype: str = "float32"


WORKS = {work.name: work for work in (
    Work("w1", "W1: MNIST, random affine (15°, 0.1, 0.8-1.2, nearest), normalise, batch 64",
         64, (1, 28, 28), (0.1307,), (0.3081,)),
    Work("w2", "W2: CIFAR-10 arrays, padded crop, flip, normalise, batch 128",
         128, (3, 32, 32), (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    Work("w3", "W3: CIFAR-10 as 32x32 JPEG files, padded crop, flip, normalise, batch 128",
         128, (3, 32, 32), (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    Work("w4", "W4: ImageNet's JPEGs, random resized crop to 224, flip, normalise, batch 32",
         32, (3, 224, 224), (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    Work("w6", "W6: MNIST's bytes into batches of 64, nothing else",
         64, (28, 28), dtype="uint8"),
)}


@dataclass(frozen=True)
class Ours:
    """A run of `millrace bench`; {data} is the folder of data."""
    name: str
    recipe: str
    keys: tuple
    works: tuple


_ONE = "loader.workers=1"
OURS = (
    Ours("millrace", "mnist-lenet", ("data.path={data}/mnist", _ONE), ("w1",)),
    Ours("millrace", "cifar10-crop-flip", ("data.reader=cifar", "data.path={data}/cifar-bin", _ONE), ("w2",)),
    Ours("millrace", "cifar10-crop-flip", ("data.reader=folder", "data.path={data}/cifar-jpeg", _ONE), ("w3",)),
    Ours("millrace, tar", "cifar10-crop-flip", ("data.reader=tar", "data.path={data}/cifar-tar", _ONE), ("w3",)),
    Ours("millrace", "imagenet-rrc", ("data.reader=folder", "data.path={data}/imagenet", _ONE), ("w4",)),
    Ours("millrace, decode.scale=dct", "imagenet-rrc",
         ("data.reader=folder", "data.path={data}/imagenet", "decode.scale=dct", _ONE), ("w4",)),
    Ours("millrace", "overhead", ("data.path={data}/mnist", "loader.workers=0"), ("w6",)),
    Ours("millrace, 1 worker", "overhead", ("data.path={data}/mnist", _ONE), ("w6",)),
)


@dataclass(frozen=True)
class Peer:
    """`module`:`function` makes an endless run of batches; --peers selects by `family`."""
    name: str
    family: str
    function: str
    works: tuple
    environment: str = "main"
    against: str = "millrace"
    options: dict = field(default_factory=dict)
    remarks: dict = field(default_factory=dict)  # workload -> how its work differs from the others'

    @property
    def module(self):
        return {"pillow-simd": "torchvision", "tf.data": "tensorflow"}.get(self.family, self.family) + "_peer"


_FFCV = {"w3": "fast DCT, own file", "w4": "fast DCT, INTER_AREA, own file"}
PEERS = (
    Peer("pymillrace.Loader", "pymillrace", "loader", ("w1", "w2", "w3", "w4", "w6")),
    Peer("pymillrace.Loader, tensors", "pymillrace", "loader", ("w1", "w2", "w3", "w4", "w6"),
         options={"numpy": False}),
    Peer("torchvision", "torchvision", "pil", ("w1", "w2", "w3", "w4")),
    Peer("torchvision on Pillow-SIMD", "pillow-simd", "pil", ("w4",), environment="simd"),
    Peer("torchvision v2 on tensors", "torchvision", "tensors", ("w2", "w3", "w4")),
    Peer("torch, grid_sample per batch", "torchvision", "grid_sample", ("w1",)),
    Peer("DataLoader", "torchvision", "nothing", ("w6",)),
    Peer("DataLoader, 1 worker", "torchvision", "nothing", ("w6",), against="millrace, 1 worker",
         options={"workers": 1}),
    Peer("DALI", "dali", "pipeline", ("w1", "w2", "w3", "w4", "w6")),
    Peer("DALI, tar", "dali", "pipeline", ("w3",), against="millrace, tar", options={"tar": True}),
    Peer("DALI, no antialias", "dali", "pipeline", ("w4",), options={"antialias": False},
         remarks={"w4": "aliases when it shrinks"}),
    Peer("FFCV", "ffcv", "loader", ("w2", "w3", "w4", "w6"), remarks=_FFCV),
    Peer("FFCV, view of HWC", "ffcv", "loader", ("w2", "w3", "w4"), options={"view": True}, remarks=_FFCV),
    Peer("tf.data", "tf.data", "dataset", ("w1", "w2", "w3", "w4", "w6"), environment="tf"),
    Peer("albumentations", "albumentations", "dataset", ("w1", "w4"), remarks={"w4": "aliases when it shrinks"}),
    Peer("SPDL with torchvision", "spdl", "pipeline", ("w3", "w4")),
    Peer("Grain", "grain", "dataset", ("w4", "w6")),
)


@dataclass(frozen=True)
class Yardstick:
    """A program of ours that does only the work itself; works: workload -> its arguments."""
    name: str
    program: str
    works: dict


YARDSTICKS = (
    Yardstick("cv::warpAffine and convertTo alone", "warp_alone", {"w1": "{data}/mnist/train-images-idx3-ubyte"}),
    Yardstick("libjpeg-turbo's decode alone", "decode_alone", {"w3": "{data}/cifar-jpeg/train", "w4": "{data}/imagenet"}),
    Yardstick("memcpy alone", "copy_alone", {"w6": "{data}/mnist/train-images-idx3-ubyte"}),
)


@dataclass(frozen=True)
class Goal:
    """`ours` must reach `least` times `of` (a yardstick), or `least` images per CPU-second."""
    work: str
    ours: str
    least: float
    of: Optional[str] = None


GOALS = (
    Goal("w1", "millrace", 2.0, "cv::warpAffine and convertTo alone"),
    Goal("w1", "millrace", 1_000_000),
    Goal("w2", "millrace", 500_000),
    Goal("w3", "millrace", 0.75, "libjpeg-turbo's decode alone"),
    Goal("w3", "millrace, tar", 0.85, "libjpeg-turbo's decode alone"),
    Goal("w4", "millrace", 1.2, "libjpeg-turbo's decode alone"),
)
# Microseconds of CPU per batch beyond the copy.
OVERHEAD_GOALS = {"millrace": 10, "millrace, 1 worker": 30}
# Goals of two workers on W4: share of two plain decode threads' gain, resident MB.
SCALING_GOALS = {"share": 0.9, "memory": 150}
