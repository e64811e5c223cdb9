"""What bench/gpu/run does on a GPU: stages of runs, cheapest first. A run is one command with its own limit of time.
Words in braces are filled in by the machine: {data}, {scratch}, {root}, {python}."""
from dataclasses import dataclass, field

STAGE_LIMIT_S = 8 * 60


@dataclass
class Run:
    name: str
    command: list
    limit_s: int
    kind: str = "train"  # train: keeps the summary; text: keeps the end of the output; json: one JSON document;
    # smi: keeps a field per word of the command, which nvidia-smi is asked for one by one
    after: str = ""  # a run whose failure makes this one pointless; one that has not been run yet is run first
    kill_after_steps: int = 0  # ends the run with SIGKILL once that many steps are in its table, then resumes it
    tool: str = ""  # a program that may be missing: the run is then skipped
    module: str = ""  # a Python module that may be missing, likewise
    keep: int = 0  # losses of the first steps that are kept


@dataclass
class Stage:
    name: str
    about: str
    runs: list = field(default_factory=list)


def train(name, recipe, *keys, limit_s=60, **more):
    data = {"mnist": "data.path={data}", "cifar": "data.path={objects}"}.get(recipe[:5], "data.path={photos}")
    command = ["{root}/millrace", "train", recipe, data, "train.device=cuda", "train.threads=1", *keys,
               "--run", "{scratch}/" + name, "--quiet"]
    return Run(name, command, limit_s, **more)


LENET = "mnist-lenet"
EXACT = ("train.tf32=off", "train.deterministic=true")
# Data is always normalised one way or the other; both must give the CPU's losses.
CLOCKS = {"sync": (), "async": ("train.clock=async",), "graphs": ("train.clock=async", "train.cuda_graphs=on"),
          "step": ("train.clock=async", "train.cuda_graphs=step")}
# A word with a bar names a field as newer drivers call it, and then as older ones do.
SMI = ["name", "driver_version", "memory.total", "clocks.sm", "temperature.gpu", "power.draw",
       "clocks_event_reasons.active|clocks_throttle_reasons.active"]
WARM_UP_LIMIT_S = 180  # a device that was idle, a file system that has read nothing
GOAL_RUNS = 5
RANK_RUNS = 3  # of one rank
GOAL_EPOCHS = 10  # of the recipe
# Costs of keys: both values in turn, on LeNet (an epoch) or ResNet-50 (100 steps), each step one graph, since launches
# would hide the difference.
COSTS = [("parts", LENET, "train.device_parts", "true", "false", 3),
         ("deterministic", LENET, "train.deterministic", "true", "false", 3),
         ("channels-last", LENET, "train.channels_last", "on", "off", 3),
         ("channels-last-bf16", LENET, "train.amp=bf16 train.channels_last", "on", "off", 3),
         ("deterministic-resnet50", "cifar10-resnet50", "train.deterministic", "true", "false", 3),
         ("benchmark-resnet50", "cifar10-resnet50", "train.cudnn_benchmark", "true", "false", 1),
         ("channels-last-resnet50", "cifar10-resnet50", "train.channels_last", "on", "off", 3),
         ("layout-resnet50", "cifar10-resnet50", "output.layout", "hwc", "chw", 3)]


def warm_up():
    """Starts the device and reads what the runs need. Its time counts for nothing."""
    return train("warm-up", LENET, "train.steps=20", "eval.every=0", limit_s=WARM_UP_LIMIT_S)


def first_look():
    yield Run("nvidia-smi", SMI, 20, "smi", tool="nvidia-smi")
    yield Run("doctor", ["{root}/millrace", "doctor", "--json", "--storage", "{scratch}"], 60, "json")
    yield Run("ldd", ["ldd", "{root}/lib/libmillrace_cuda.so"], 20, "text", tool="ldd")
    yield train("steps20", LENET, "train.steps=20", "eval.every=0", "train.log_every=1", keep=20)
    yield train("steps20-cpu", LENET, "train.steps=20", "eval.every=0", "train.device=cpu", keep=20)


def device_tests():
    # Each in its own process: the module must come before LibTorch's first call.
    for name in ("FollowsTheCpusByEitherClock", "GraphsFollowTheEagerRun", "GraphsDrawWhatEagerStepsDo",
                 "GraphsOfARankFollowItsEagerRun",
                 "ReplicasFollowTheCpu", "ABatchThatDoesNotFitIsToldWithOneThatWould"):
        yield Run("test-" + name, ["{root}/torch_test", "--gtest_filter=CudaTraining." + name], 60, "text")
    yield Run("test-native", ["{root}/torch_test", "--gtest_filter=Shapes/NativeCuda.*"], 60, "text")
    yield Run("test-batch-norm", ["{root}/torch_test", "--gtest_filter=BatchNorm/TogetherOnCuda.*"], 60, "text")
    for tool in ("memcheck", "racecheck"):
        yield Run("sanitizer-" + tool,
                  ["compute-sanitizer", "--tool", tool, "--error-exitcode", "9", "{root}/torch_test",
                   "--gtest_filter=Shapes/NativeCuda.*/0"], 90, "text", after="test-native", tool="compute-sanitizer")
    whole = train("sanitizer-training", LENET, "train.steps=12", "eval.every=0", "output.normalize=device",
                  *CLOCKS["step"], limit_s=120)
    yield Run(whole.name, ["compute-sanitizer", "--tool", "memcheck", "--error-exitcode", "9", *whole.command], 120,
              "text", tool="compute-sanitizer")
    yield Run("watch", ["{python}", "{root}/bench/gpu/watch_cuda.py"], 120, "json",
              module="nanobind_backend")  # which pymillrace needs


def modes():
    for normalize in ("loader", "device"):
        for clock, keys in CLOCKS.items():
            yield train(f"mode-{clock}-{normalize}", LENET, "train.epochs=2", "output.normalize=" + normalize, *keys,
                        *EXACT, limit_s=60, keep=20)
    yield train("mode-cpu", LENET, "train.steps=20", "eval.every=0", "train.device=cpu", *EXACT[:1], keep=20)
    for amp in ("bf16", "f16"):
        yield train("amp-" + amp, LENET, "train.epochs=2", "train.amp=" + amp)
    yield train("ddp", LENET, "train.epochs=1", "train.strategy=ddp", "train.ranks=1")
    yield train("ddp-step", LENET, "train.epochs=1", "train.strategy=ddp", "train.ranks=1", *CLOCKS["step"])
    yield train("whole", LENET, "train.epochs=2", "train.checkpoint_every=50", *EXACT)
    yield train("killed", LENET, "train.epochs=2", "train.checkpoint_every=50", *EXACT,
                kill_after_steps=120, limit_s=90)


def tables():
    for workers in (0, 1, 2, 4):
        for clock, keys in (("eager", ()), *list(CLOCKS.items())[1:]):
            yield train(f"s4-{clock}-{workers}", LENET, "train.epochs=2", f"loader.workers={workers}", *keys,
                        limit_s=60)


# Runs whose limit is known, and the bounds that name it.
PHOTOS = ("loader.batch=64", "train.amp=bf16", "output.normalize=device", *CLOCKS["step"])
LIMITS = [("delay-next", LENET, ("train.steps=200", "train.clock=async", "debug.next_ms=5"),
           "5 ms in each wait for a batch", {"overhead"}),
          ("delay-forward", LENET, ("train.steps=200", "train.clock=async", "debug.forward_ms=5"),
           "5 ms in each forward pass on the host", {"host"}),
          ("launches", LENET, ("train.steps=400", "train.clock=async"), "LeNet's launches", {"host"}),
          ("one-worker", "imagenet-rrc", (*PHOTOS, "train.epochs=10", "train.steps=60", "loader.workers=1"),
           "one worker for photographs", {"decode"}),
          ("slow-storage", "imagenet-rrc", (*PHOTOS, "train.epochs=10", "train.steps=60", "loader.workers=8",
                                           "data.storage.bandwidth=40"),
           "storage of 40 MB/s", {"storage"}),
          ("slow-device", "cifar10-resnet50", (*PHOTOS, "train.steps=150", "loader.workers=4"),
           "ResNet-50's own work", {"device"})]


def limits():
    for name, recipe, keys, _, _ in LIMITS:
        yield train("limit-" + name, recipe, "eval.every=0", *keys, limit_s=90)


def costs():
    for name, recipe, key, one, other, pairs in COSTS:
        length = ("train.epochs=1", "loader.workers=4", "train.cuda_graphs=step") if recipe == LENET else (
            "train.steps=100", "train.amp=bf16", "output.normalize=device", "train.cuda_graphs=step")
        for pair in range(1, pairs + 1):
            for value in (one, other):
                yield train(f"{name}-{value}-{pair}", recipe, *length, "eval.every=0", "train.clock=async",
                            *f"{key}={value}".split())


def clocks(when):
    return Run("clocks-" + when, SMI, 20, "smi", tool="nvidia-smi")


def lenet_goals():
    """S4 as its source has it, ten epochs, and two epochs of its peer in turn, with clocks and temperature."""
    yield clocks("before-lenet")
    for seed in range(GOAL_RUNS):
        yield train(f"goal-{seed}", LENET, f"seed={seed}", "loader.workers=8", "output.normalize=device",
                    "eval.every=0", *CLOCKS["step"])
        yield train(f"goal512-{seed}", LENET, f"seed={seed}", "loader.workers=8", "loader.batch=512",
                    "output.normalize=device", "eval.every=0", *CLOCKS["step"])
        # The peer's first epoch also starts the device and the workers; the second one counts.
        yield Run(f"torch-goal-{seed}", ["{python}", "{root}/bench/torch_lenet.py", "--data", "{data}", "--device",
                                         "cuda", "--workers", "8", "--epochs", "2"], 60, "text",
                  module="torchvision")
    yield clocks("after-lenet")


def resnet_goals():
    """ResNet-50 beside PyTorch, likewise."""
    yield clocks("before-resnet")
    for name, runs, keys, options in (
            ("resnet", GOAL_RUNS, (), ()),
            ("ddp-resnet", RANK_RUNS, ("train.strategy=ddp", "train.ranks=1", "train.sync_batchnorm=false"), ("--ddp",))):
        for seed in range(runs):
            yield train(f"{name}-{seed}", "cifar10-resnet50", f"seed={seed}", "train.epochs=2", "eval.every=0",
                        "train.amp=bf16", "train.cudnn_benchmark=true", "output.normalize=device", "output.layout=hwc",
                        "loader.workers=8", *CLOCKS["step"], *keys, limit_s=90)
            yield Run(f"torch-{name}-{seed}", ["{python}", "{root}/bench/gpu/torch_resnet50.py", "--data", "{objects}",
                                               "--graphs", *options, "--epochs", "2"], 90, "json")
    # As most people run it: no graph, one step after the other.
    yield train("eager-resnet", "cifar10-resnet50", "train.epochs=2", "eval.every=0", "train.amp=bf16",
                "train.cudnn_benchmark=true", "output.normalize=device", "output.layout=hwc", "loader.workers=8",
                limit_s=90)
    yield Run("torch-eager-resnet", ["{python}", "{root}/bench/gpu/torch_resnet50.py", "--data", "{objects}", "--epochs",
                                     "2"], 90, "json")
    yield clocks("after-resnet")


def large_models():
    for recipe in ("cifar10-resnet50", "cifar10-vgg19"):
        for amp in ("off", "bf16"):
            yield train(f"{recipe}-{amp}", recipe, "train.steps=200", "eval.every=0", "train.amp=" + amp,
                        "train.clock=async", "output.normalize=device", limit_s=90)
    yield Run("profile", ["{root}/millrace", "profile", "imagenet-rrc", "data.path={photos}", "train.device=cuda", *PHOTOS,
                          "loader.workers=2", "--given", *(word for workers in (1, 4, 8) for word in (
                              "--change", f"loader.workers={workers}")), "--verify", "--blocks", "2",
                          "--run", "{scratch}/profile", "--json"], 180, "json")


def stages():
    return [Stage("first", "what is there, twenty steps, the device tests", [*first_look(), *device_tests()]),
            Stage("goals", "S4's goals and ResNet-50's", [*lenet_goals(), *resnet_goals()]),
            Stage("modes", "clocks, graphs, precision, NCCL, resumption; what keys cost", [*modes(), *costs()]),
            Stage("tables", "step times, known limits, larger models, predictions",
                  [*limits(), *tables(), *large_models()])]


def all_runs():
    return [run for stage in stages() for run in stage.runs]


def shapes():
    """Runs without a device that write every document that the tables are made of."""
    simulated = ("train.device=simulated", "simulated.update_ms=0.2")
    yield train("shape-cpu", LENET, "train.device=cpu", "train.steps=1", limit_s=120)
    yield train("shape-device", LENET, *simulated, "train.clock=async", "train.steps=20", "eval.every=0")
    yield Run("shape-profile", ["{root}/millrace", "profile", LENET, "data.path={data}", *simulated, "--seconds", "0.05",
                                "--given", "--change", "loader.workers=0", "--run", "{scratch}/shape-profile", "--json"],
              120, "json")
