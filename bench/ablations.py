#!/usr/bin/env python3
"""Measures the effect of each optimisation of the pipeline, one setting at a time; writes docs/results/ablations.md.

    python3 bench/ablations.py --data DIR --out docs/results/ablations.md
    python3 bench/ablations.py --only fused,grain --rounds 3

DIR is the output of bench/peers/prepare.py: mnist/, cifar-bin/, cifar-jpeg/, imagenet/. Without it digits and
photos are generated. Batches are compared before anything is timed, and a variant with wrong batches ends the
program. CPU time is the process's: that of a long run minus that of one epoch.
"""
import argparse
import operator
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
sys.path.insert(0, os.path.join(HERE, "peers"))
from measure import Failed, run  # noqa: E402
from report import Machine, middle, number, times  # noqa: E402

COMPARED_BYTES = 1 << 24  # compared part of a dump: the first 16 MiB of levels suffice for their mean difference


@dataclass
class Variant:
    name: str
    keys: tuple
    environment: dict = field(default_factory=dict)
    remark: str = ""
    epochs: int = 1  # epochs by which the longer run exceeds the shorter
    results: list = field(default_factory=list)  # one per round, in the group's unit


@dataclass
class Group:
    """Variants that take turns; the first is the reference."""
    title: str
    recipe: str
    keys: tuple
    variants: list
    workers: int = 1
    cores: int = 1
    unit: str = "rate"  # or batch, wall
    differs: tuple = ()  # smallest and largest allowed mean difference of levels; empty: equal bytes

    def __post_init__(self):
        self.keys = (*self.keys, f"loader.workers={self.workers}") if self.workers is not None else self.keys


def variants(key, *values):
    return [Variant(f"`{key}={value}`", (f"{key}={value}",)) for value in values]


class Sets:
    """Folders of the data: prepared or generated."""

    def __init__(self, program, given, scratch):
        self.program, self.scratch = program, scratch
        if given:
            self.origin = "as bench/peers/prepare.py prepares it"
            note = os.path.join(given, "origin.txt")
            if os.path.exists(note):
                with open(note) as file:
                    self.origin = file.read().strip()
            self.mnist, self.cifar, self.small, self.photos = (
                os.path.join(given, name) for name in ("mnist", "cifar-bin", "cifar-jpeg", "imagenet"))
        else:
            self.origin = "generated: drawn digits, random bytes for CIFAR-10, drawn photos, also for small JPEGs"
            self.mnist, self.cifar, self.photos = (
                os.path.join(scratch, name) for name in ("digits", "cifar", "photos"))
            self.small = self.photos
            make(program, "make", "digits", self.mnist, "--train", "20000", "--test", "100")
            make(program, "make", "photos", self.photos, "--count", "375")
            self.draw_cifar()
        for path in (self.mnist, self.cifar, self.small, self.photos):
            if not os.path.isdir(path):
                sys.exit(f"error: {path} is missing\n  bench/peers/prepare.py makes it; without --data it is generated")

    def packed(self):
        """Packs the small JPEGs of the test split into an archive."""
        path = os.path.join(self.scratch, "packed")
        os.makedirs(path)
        make(self.program, "pack", self.small, os.path.join(path, "test-000000.tar"), "--split", "test")
        return path

    def draw_cifar(self):
        os.makedirs(self.cifar)
        bits = random.Random(1)
        for name in (*(f"data_batch_{k}.bin" for k in range(1, 6)), "test_batch.bin"):
            with open(os.path.join(self.cifar, name), "wb") as file:
                for k in range(2000):
                    file.write(bytes([k % 10]) + bits.randbytes(3 * 32 * 32))


def make(program, *words):
    if subprocess.run([program, "data", *words], stdout=subprocess.DEVNULL).returncode != 0:
        sys.exit(f"error: millrace data {' '.join(words)} failed")


def fused(sets):
    """Fusing geometric operations: `resample`

Consecutive geometric augmentations become one pass over the pixels (`once`), or each is a pass of its own (`stepwise`).
Flips, crops and a single warp give the same bytes either way; a reduction stays a separate pass before a warp. Two
warps give different bytes, because `stepwise` rounds and blurs twice."""
    def group(title, recipe, path, ops, differs=(), *keys):
        return Group(title, recipe, (f"data.path={path}", *keys, *(f"augment+={op}" for op in ops)),
                     variants("resample", "once", "stepwise"), differs=differs)
    crop_rotate = ("random_crop{size=[224],pad_if_needed=true}",
                   "random_rotation{degrees=[30],interpolation=bilinear}")
    yield group("MNIST: random_affine (nearest), hflip, padded random_crop", "mnist-lenet", sets.mnist,
                ("hflip", "random_crop{size=[28],padding=[2]}"))
    yield group("Photos: random_resized_crop, hflip, random_rotation (bilinear)", "imagenet-rrc", sets.photos,
                ("random_rotation{degrees=[30],interpolation=bilinear}",))
    yield group("Photos: random_crop, random_rotation, random_affine (both bilinear)", "imagenet-rrc", sets.photos,
                (*crop_rotate, "random_affine{degrees=[0],translate=[0.1],scale=[0.8,1.2],shear=[10],"
                               "interpolation=bilinear}"), (0.01, 3),
                "augment.random_resized_crop.enabled=false", "augment.hflip.enabled=false")


def region(sets):
    """Decoding only the region that is read: `decode.region`

The decoder gets the window that the first pass reads, and skips the rest. Same bytes."""
    yield Group("Photos: random_resized_crop to 224, hflip", "imagenet-rrc", (f"data.path={sets.photos}",),
                variants("decode.region", "off", "on"))


def scale(sets):
    """Downscaling in the decoder: `decode.scale`

With `dct`, a JPEG that is reduced by a factor of two or more is decoded at 1/2, 1/4 or 1/8. The result is approximate,
so this is not the default. Crops to 224 of images of 500 x 375 seldom shrink that far; crops to 64 often do."""
    for side in (224, 64):
        yield Group(f"Photos: random_resized_crop to {side}, hflip", "imagenet-rrc",
                    (f"data.path={sets.photos}", f"augment.random_resized_crop.size={side}"),
                    variants("decode.scale", "exact", "dct"), differs=(0, 2))


def grain(sets):
    """Samples per work unit: `loader.grain`

The number of samples that a worker takes at a time; 0 chooses it from the measured cost. Small units cost messages.
Large ones leave other workers idle, which CPU time does not show. Same bytes."""
    for threads in (1, 2):
        for title, recipe, path in (("MNIST's bytes, batch 64", "overhead", sets.mnist),
                                    ("MNIST, random affine, batch 64", "mnist-lenet", sets.mnist),
                                    ("Photos, batch 32", "imagenet-rrc", sets.photos)):
            yield Group(f"{title}, {threads} worker" + "s" * (threads > 1), recipe, (f"data.path={path}",),
                        variants("loader.grain", 0, 1, 4, 16, 64), workers=threads, cores=threads, unit="batch")


def simd(sets):
    """SIMD level: `MILLRACE_SIMD`

This affects millrace's kernels only; libjpeg-turbo chooses its own level. Same bytes."""
    for title, recipe, keys in (
            ("W1: MNIST, random affine", "mnist-lenet", (f"data.path={sets.mnist}",)),
            ("W2: CIFAR-10 arrays, padded crop, flip", "cifar10-crop-flip", (f"data.path={sets.cifar}",)),
            ("W4: photos, random_resized_crop to 224, flip", "imagenet-rrc", (f"data.path={sets.photos}",))):
        yield Group(title, recipe, keys, [Variant(f"`{level}`", (), {"MILLRACE_SIMD": level})
                                          for level in ("scalar", "avx2", "avx512")])


def cache(sets):
    """Storage format and cache: `data.reader` and `data.cache`

Small JPEGs as files or in one archive made by `millrace data pack`, from the system's page cache (`os`) or from the
process's own memory (`ram`). Same bytes."""
    packed = sets.packed()
    yield Group("JPEGs of the test split, padded crop to 32, flip, batch 64", "cifar10-crop-flip",
                ("data.split=test", "loader.batch=64"),
                [Variant(f"`data.reader={reader} data.cache={kind}`",
                         (f"data.reader={reader}", f"data.path={path}", f"data.cache={kind}"))
                 for reader, path in (("folder", sets.small), ("tar", packed)) for kind in ("os", "ram")])


def workers(sets):
    """Number of workers: `loader.workers`

All variants have two cores. With 0 workers, the thread that requests a batch makes it. Images per second of wall time.
Same bytes."""
    yield Group("W4: photos, random_resized_crop to 224, flip", "imagenet-rrc", (f"data.path={sets.photos}",),
                variants("loader.workers", 0, 1, 2), workers=None, cores=2, unit="wall")


ABLATIONS = {"fused": fused, "region": region, "scale": scale, "grain": grain, "simd": simd, "cache": cache,
             "workers": workers}


class Bench:
    """Runs `millrace bench`, checks it, and times its variants in turns."""

    def __init__(self, program, window):
        self.program, self.window = program, window
        self.cores = [str(core) for core in sorted(os.sched_getaffinity(0))]

    def run(self, group, variant, *more):
        command = [self.program, "bench", group.recipe, *group.keys, *variant.keys, *more, "--json"]
        return run(command, ",".join(self.cores[-group.cores:]), variant.environment)

    def check(self, group):
        """Removes variants that this processor cannot run. Ends the program if batches are wrong."""
        first = None
        for variant in list(group.variants):
            try:
                answer = self.run(group, variant, "--hash").answer
            except Failed as refusal:
                if "this processor can do" not in str(refusal):
                    raise
                print(f"  {variant.name} left out: {refusal}", file=sys.stderr)
                group.variants.remove(variant)
                continue
            if answer["failed"]:
                raise Failed(f"{answer['failed']} samples failed with {variant.name}")
            variant.epochs = max(1, round(self.window / max(answer["cpu_s"], 1e-3)))
            first = first or answer
            if not group.differs and answer["batch_hash"] != first["batch_hash"]:
                raise Failed(f"{variant.name} changes the batches: {answer['batch_hash']}, not {first['batch_hash']}")
        if group.differs:
            self.check_levels(group)

    def check_levels(self, group):
        """Checks that the mean difference of levels is within its limits."""
        first, *others = [self.levels(group, variant) for variant in group.variants]
        for variant, levels in zip(group.variants[1:], others):
            counts = Counter(map(operator.sub, first, levels))
            mean = sum(abs(difference) * count for difference, count in counts.items()) / len(levels)
            least, most = group.differs
            if not least <= mean <= most:
                raise Failed(f"{variant.name}: {mean:.3f} levels away in the mean, not within {least:g} to {most:g}")
            large = sum(count for difference, count in counts.items() if abs(difference) > 8) / len(levels)
            variant.remark = f"levels differ by {mean:.2f} on average; {100 * large:.1f}% of them by more than 8"

    def levels(self, group, variant):
        with tempfile.TemporaryDirectory() as folder:
            dump = os.path.join(folder, "levels")
            self.run(group, variant, "output.dtype=u8", "output.mean=[0.0]", "output.std=[1.0]", "--dump", dump)
            with open(dump, "rb") as file:
                return file.read(COMPARED_BYTES)

    def turn(self, group, variant):
        few, many = (self.run(group, variant, f"bench.epochs={n}") for n in (1, 1 + variant.epochs))
        images, batches = (many.answer[key] - few.answer[key] for key in ("images", "batches"))
        wall = group.unit == "wall"
        seconds = many.answer["wall_s"] - few.answer["wall_s"] if wall else many.cpu_s - few.cpu_s
        if seconds <= 0:
            raise Failed(f"{variant.name}: {images} more images took {seconds:.3f} s: choose a longer --window")
        return 1e6 * seconds / batches if group.unit == "batch" else images / seconds

    def time(self, groups, rounds):
        for k in range(rounds):
            for group in groups:
                for variant in group.variants if k % 2 == 0 else reversed(group.variants):
                    variant.results.append(self.turn(group, variant))
            print(f"  round {k + 1} of {rounds}", file=sys.stderr, flush=True)


UNITS = {"rate": "images per CPU-second", "batch": "µs of CPU per batch", "wall": "images per second"}


def table(group):
    remarks = any(variant.remark for variant in group.variants)
    yield f"| {group.title} | {UNITS[group.unit]} | ratio to the first |" + " |" * remarks
    yield "| --- | --- | --- |" + " --- |" * remarks
    base = group.variants[0].results
    for variant in group.variants:
        shares = [own / first for own, first in zip(variant.results, base)]
        ratio = "1" if variant is group.variants[0] else middle(shares, times)
        yield f"| {variant.name} | {middle(variant.results, number)} | {ratio} |" + f" {variant.remark} |" * remarks


INTRODUCTION = """# Ablations: the effect of each optimisation

This page lists how much each part of the pipeline contributes to its speed. Every table compares variants of one
setting under `millrace bench`. One command makes the whole page.

- Variants take turns. Every turn is a new process, and every other round runs in the opposite order.
- A cell is the median over the rounds, with the smallest and the largest value in brackets. A ratio compares two turns
  of one round.
- CPU time is user and system time of the process: a long run minus a run of one epoch. With one worker, the worker and
  the thread that takes the batches share one core.
- Files are in the page cache.
- Before anything is timed, the batches are compared. "Same bytes" means that an epoch has the same hash with every
  variant.
"""


def markdown(blocks, arguments, machine, origin):
    yield INTRODUCTION
    *lines, _, _ = machine.lines(arguments.rounds, arguments.window, False, "", origin, {})
    yield from lines
    if os.getloadavg()[0] > 2 * os.cpu_count():
        yield "- Other programs kept the machine busy: do not trust images per second or small differences"
    options = "" if arguments.only == list(ABLATIONS) else f" --only {','.join(arguments.only)}"
    yield f"- `python3 bench/ablations.py{' --data DIR' * bool(arguments.data)}{options} --rounds {arguments.rounds}`"
    for ablation, groups in blocks:
        heading, text = ablation.__doc__.split("\n\n", 1)
        yield f"\n## {heading}\n\n{text}\n"
        for k, group in enumerate(groups):
            yield from ([""] if k else [])
            yield from table(group)


def names(text):
    chosen = text.split(",")
    if unknown := sorted(set(chosen) - set(ABLATIONS)):
        raise argparse.ArgumentTypeError(f"{', '.join(unknown)} is none of {', '.join(ABLATIONS)}")
    return chosen


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder of prepared data; without it data are generated")
    parser.add_argument("--only", type=names, default=list(ABLATIONS), help=",".join(ABLATIONS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--window", type=float, default=0.3, help="CPU seconds that are timed per turn")
    parser.add_argument("--build", default=os.path.join(ROOT, "build"), help="folder of millrace")
    parser.add_argument("--out", help="write the tables here, not to standard output")
    arguments = parser.parse_args()
    arguments.data = arguments.data and os.path.abspath(arguments.data)
    return arguments


def main():
    arguments = parse_arguments()
    machine, begin = Machine(ROOT), time.monotonic()
    program = os.path.abspath(os.path.join(arguments.build, "millrace"))
    if not os.path.exists(program):
        sys.exit(f"error: {program} is missing\n  ninja -C build millrace makes it, --build names another folder")
    with tempfile.TemporaryDirectory() as scratch:
        sets = Sets(program, arguments.data, scratch)
        bench = Bench(program, arguments.window)
        blocks = []
        for name in arguments.only:
            print(name, file=sys.stderr, flush=True)
            groups = list(ABLATIONS[name](sets))
            try:
                for group in groups:
                    bench.check(group)
                bench.time(groups, arguments.rounds)
            except Failed as failure:
                sys.exit(f"error: {name}: {failure}")
            blocks.append((ABLATIONS[name], groups))
    text = "\n".join(markdown(blocks, arguments, machine.end(time.monotonic() - begin), sets.origin)) + "\n"
    if arguments.out:
        with open(arguments.out, "w") as file:
            file.write(text)
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
