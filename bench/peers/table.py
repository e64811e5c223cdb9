#!/usr/bin/env python3
"""Compares millrace with other loaders: in one run, taking turns, on one core, in images per CPU-second. Writes a
Markdown table.

    python3 bench/peers/table.py --data DIR --install            the peers into DIR/environments, the data into DIR
    python3 bench/peers/table.py --data DIR --out docs/results/peers.md  all workloads, about half an hour
    python3 bench/peers/table.py --data DIR --workloads w1,w4 --peers torchvision,dali --quick

Build first: cmake -S . -B build && ninja -C build millrace decode_alone warp_alone copy_alone. README.md in this
folder says what each peer does and how it is measured.
"""
import argparse
import glob
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from typing import Callable, Optional

import report
from measure import Failed, adopt_orphans, run
from workloads import OURS, PEERS, WORKS, YARDSTICKS

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
# Largest allowed deviation of a mean and of a spread's ratio, because draws and samples differ.
TOLERANCE = 0.06
CHECKED = {"w4": 1000}
CHECKED_ELSE = 12_800


@dataclass
class Entry:
    """One row: how to run `units` of it (epochs, passes or images), and the results."""
    name: str
    kind: str  # ours, peer, yardstick
    command: Callable
    environment: dict = field(default_factory=dict)
    against: Optional[str] = None
    peer: object = None
    unit_rate: float = 1.0  # units per CPU-second
    check: Optional[dict] = None
    remarks: list = field(default_factory=list)
    rates: list = field(default_factory=list)   # images per CPU-second, one per round
    ratios: list = field(default_factory=list)  # our rate over this one, in the same turn
    batch_us: list = field(default_factory=list)
    peak_rss: int = 0
    failure: Optional[str] = None


class Table:
    def __init__(self, arguments):
        self.arguments = arguments
        self.window = 0.6 if arguments.quick else 2.5  # CPU seconds between a short and a long run
        self.rounds = arguments.rounds or (2 if arguments.quick else 5)
        self.versions = {}

    # --- running

    def python(self, environment):
        return os.path.join(self.arguments.env, environment, "bin", "python")

    def peer_environment(self, environment):
        """Returns the environment without GPUs and further threads. torch's wheel looks for CUDA's libraries even
        without a GPU."""
        packages = os.path.join(self.arguments.env, "main", "lib", "python3.11", "site-packages", "nvidia", "*", "lib")
        cuda = os.environ.get("CUDA_HOME", "/usr/local/cuda")
        folders = [f"{cuda}/lib64", f"{cuda}/extras/CUPTI/lib64", *glob.glob(packages)]
        return {"LD_LIBRARY_PATH": ":".join(folders), "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3",
                "OMP_NUM_THREADS": "1", "NO_ALBUMENTATIONS_UPDATE": "1", "PYTHONWARNINGS": "ignore"}

    def run(self, entry, units, cores=None):
        return run(entry.command(units), cores or str(self.arguments.core), entry.environment, self.arguments.timeout)

    def attempt(self, entry, what):
        """Returns `what()`, or a failure for the table."""
        if entry.failure is None:
            try:
                return what()
            except (Failed, OSError, subprocess.CalledProcessError) as error:
                entry.failure = self.without_paths(str(error))
                print(f"  {entry.name}: failed: {entry.failure}", file=sys.stderr, flush=True)
        return None

    def without_paths(self, text):
        for path, name in ((self.arguments.env, "ENVIRONMENTS"), (self.arguments.data, "DIR"), (ROOT + "/", "")):
            text = text.replace(path, name)
        return text.replace("|", "/")

    # --- entries

    def entries(self, work):
        arguments = self.arguments
        program = os.path.join(arguments.build, "millrace")
        rows = []
        for ours in OURS:
            if work.name in ours.works:
                start = [program, "bench", ours.recipe, *(key.format(data=arguments.data) for key in ours.keys), "--json"]
                rows.append(Entry(ours.name, "ours", lambda n, start=start: [*start, f"bench.epochs={n}"],
                                  against="millrace"))
        for yardstick in YARDSTICKS:
            if work.name in yardstick.works:
                start = [os.path.join(arguments.build, yardstick.program),
                         yardstick.works[work.name].format(data=arguments.data), "--passes"]
                rows.append(Entry(yardstick.name, "yardstick", lambda n, start=start: [*start, str(n)],
                                  against="millrace"))
        for peer in PEERS:
            if work.name in peer.works and (arguments.peers is None or peer.family in arguments.peers):
                rows.append(self.peer_entry(peer, work))
        return [row for row in rows if arguments.rows is None or row.name in ("millrace", *arguments.rows)]

    def peer_entry(self, peer, work):
        start = [self.python(peer.environment), os.path.join(HERE, "feed.py"), peer.name, work.name, self.arguments.data]
        entry = Entry(peer.name, "peer", lambda n: [*start, "--images", *map(str, n)], peer=peer, against=peer.against,
                      environment=self.peer_environment(peer.environment))
        if not os.path.exists(start[0]):
            entry.failure = f"environment {peer.environment} is not installed"
        return entry

    # --- checks, which also estimate how much work fills a window

    def check_ours(self, entry, work):
        with tempfile.TemporaryDirectory() as folder:
            dump = os.path.join(folder, "batches")
            run([*entry.command(1), "--dump", dump], str(self.arguments.core))
            described = run([self.python("main"), os.path.join(HERE, "feed.py"), work.name, "--dump", dump, "--check",
                             str(CHECKED.get(work.name, CHECKED_ELSE))], str(self.arguments.core))
        entry.check = described.answer["check"]
        self.find_rate(entry)

    def check_peer(self, entry, work):
        command = [*entry.command(())[:-1], "--check", str(CHECKED.get(work.name, CHECKED_ELSE))]
        answer = run(command, str(self.arguments.core), entry.environment, self.arguments.timeout).answer
        entry.check, entry.unit_rate = answer["check"], answer["rate"]
        self.versions[entry.peer.environment] = self.versions.get(entry.peer.environment, {}) | answer["versions"]

    def find_rate(self, entry):
        """Increases the units until the difference from one unit takes a tenth of a second."""
        units, one = 2, self.run(entry, 1).cpu_s
        while (spent := self.run(entry, units).cpu_s - one) < 0.1 and units < 1 << 14:
            units *= 4
        entry.unit_rate = (units - 1) / max(spent, 1e-3)

    def compare(self, entry, reference, work):
        """Rejects batches that differ from the reference's by more than the draws; reports other differences."""
        mine, other = entry.check, reference.check
        if (mine["shape"], mine["dtype"]) != (other["shape"], other["dtype"]):
            raise Failed(f"{mine['dtype']} {mine['shape']} where {reference.name} gives {other['dtype']} {other['shape']}")
        for key, differs in (("mean", lambda a, b, std: abs(a - b) / std), ("std", lambda a, b, std: abs(a / b - 1))):
            worst = max(differs(a, b, std) for a, b, std in zip(mine[key], other[key], other["std"]))
            if worst > TOLERANCE:
                raise Failed(f"{key} {mine[key]} where {reference.name} has {other[key]}: not the same work")
        detail = mine["detail"] / other["detail"] - 1
        if abs(detail) > 0.03:
            entry.remarks.append(f"neighbouring pixels differ {100 * detail:+.0f}%")
        if not mine["contiguous"]:
            entry.remarks.append("not contiguous")
        if entry.peer is not None and work.name in entry.peer.remarks:
            entry.remarks.append(entry.peer.remarks[work.name])

    # --- timing

    def turn(self, entry, work):
        """Images per CPU-second and CPU microseconds per batch, of a long run minus a short one."""
        short = max(1, round(0.4 * self.window * entry.unit_rate))
        long = max(1, round(self.window * entry.unit_rate))
        if entry.kind == "peer":  # measures the longer part itself, because its start-up would drown the difference
            usage = self.run(entry, (short, long))
            images, seconds, batches = usage.images, usage.answer["cpu_s"], usage.images / work.batch
        else:
            few, usage = self.run(entry, short), self.run(entry, short + long)
            images, seconds = usage.images - few.images, usage.cpu_s - few.cpu_s
            # An epoch's last batch may be short.
            batches = usage.answer["batches"] - few.answer["batches"] if entry.kind == "ours" else images / work.batch
        if seconds <= 0:
            raise Failed(f"{images} more images took {seconds:.3f} s: too short a window")
        entry.peak_rss = max(entry.peak_rss, usage.peak_rss)
        return images / seconds, 1e6 * seconds / batches

    def measure(self, work):
        print(f"{work.title}", file=sys.stderr, flush=True)
        entries = self.entries(work)
        self.read_files(work)
        for entry in entries:
            if entry.kind == "yardstick":
                self.attempt(entry, lambda: self.find_rate(entry))
            else:
                check = self.check_ours if entry.kind == "ours" else self.check_peer
                self.attempt(entry, lambda: check(entry, work))
        checked = [entry for entry in entries if entry.check]
        for entry in checked[1:]:
            self.attempt(entry, lambda: self.compare(entry, checked[0], work))
        if checked and checked[0].kind == "peer":
            print(f"  compared with {checked[0].name}: ours has no result", file=sys.stderr, flush=True)

        ours = {entry.name: entry for entry in entries if entry.kind == "ours"}
        for number in range(self.rounds):
            for entry in entries:
                base = ours[entry.against]
                if entry is base and len(entries) > 1:
                    continue  # takes turns with each of the others
                self.pair(entry, base, work, base_first=number % 2 == 1)
            print(f"  round {number + 1} of {self.rounds}", file=sys.stderr, flush=True)
        return entries

    def pair(self, entry, base, work, base_first):
        results = {}
        for one in [base, entry] if base_first else [entry, base]:
            if result := self.attempt(one, lambda: self.turn(one, work)):
                results[one.name] = result
                one.rates.append(result[0])
                one.batch_us.append(result[1])
        if entry is not base and len(results) == 2:
            entry.ratios.append(results[base.name][0] / results[entry.name][0])

    def read_files(self, work):
        """Reads the files into the page cache."""
        folders = {"w1": ["mnist"], "w6": ["mnist"], "w2": ["cifar-bin"], "w3": ["cifar-jpeg", "cifar-tar"],
                   "w4": ["imagenet"]}[work.name]
        for folder in [*folders, "ffcv"]:
            for place, _, names in os.walk(os.path.join(self.arguments.data, folder)):
                for name in names:
                    with open(os.path.join(place, name), "rb") as file:
                        while file.read(1 << 22):
                            pass

    def scaling(self):
        """Compares W4 with one and two workers to one and two plain decode threads: wall time, both cores."""
        entries = {entry.name: entry for entry in self.entries(WORKS["w4"]) if entry.kind != "peer"}
        runs = {"millrace": [], "decode": []}
        memory = 0
        ours, decode = entries["millrace"], entries["libjpeg-turbo's decode alone"]
        cores = ",".join(map(str, sorted(os.sched_getaffinity(0))[:2]))
        both = Entry("two workers", "ours", lambda n: [*ours.command(n), "loader.workers=2"])
        double = Entry("two threads", "yardstick", lambda n: [*decode.command(n), "--threads", "2"])
        for entry in (ours, decode):
            self.attempt(entry, lambda: self.find_rate(entry))
        for _ in range(self.rounds):
            for name, one, two in (("decode", decode, double), ("millrace", ours, both)):
                units = max(1, round(2 * self.window * one.unit_rate))

                def gain():
                    single, pair = self.run(one, units, cores), self.run(two, units, cores)
                    return single.answer["images_per_s"], pair.answer["images_per_s"], pair.peak_rss
                if result := self.attempt(one, gain):
                    runs[name].append(result[:2])
                    memory = max(memory, result[2]) if name == "millrace" else memory
        return {"runs": runs, "memory": memory, "failure": ours.failure or decode.failure}


def require_programs(arguments):
    """Ends with one line if a program of ours has not been built: tools/quickstart builds no yardsticks."""
    programs = ["millrace", *(one.program for one in YARDSTICKS if set(one.works) & set(arguments.workloads))]
    if missing := [name for name in programs if not os.path.exists(os.path.join(arguments.build, name))]:
        sys.exit(f"error: {arguments.build} has no {', '.join(missing)}\n"
                 f"  build them: ninja -C {shlex.quote(arguments.build)} {' '.join(missing)}")


def prepare(table):
    arguments = table.arguments
    command = [table.python("main"), os.path.join(HERE, "prepare.py"), arguments.data]
    command += ["--source", arguments.source] if arguments.source else ["--millrace",
                                                                         os.path.join(arguments.build, "millrace")]
    subprocess.run(command, check=True)
    environment = os.environ | table.peer_environment("main")
    if subprocess.run([command[0], "-c", "import ffcv"], env=environment, capture_output=True).returncode == 0:
        subprocess.run([command[0], os.path.join(HERE, "prepare_ffcv.py"), arguments.data], env=environment, check=True,
                       capture_output=True)


def names(known):
    def parse(text):
        chosen = text.split(",")
        if unknown := sorted(set(chosen) - set(known)):
            raise argparse.ArgumentTypeError(f"{', '.join(unknown)} is none of {', '.join(known)}")
        return chosen
    return parse


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    families = sorted({peer.family for peer in PEERS})
    parser.add_argument("--data", required=True, help="folder for the prepared data, made where it is not there")
    parser.add_argument("--source", help="folder with mnist/*.gz, cifar10-jpeg.tar.xz, imagenet-sample-250.tar; "
                                         "without it the data is generated")
    parser.add_argument("--env", help="folder of the peers' environments (DATA/environments)")
    parser.add_argument("--install", action="store_true", help="install the peers, prepare the data, and end")
    parser.add_argument("--build", default=os.path.join(ROOT, "build"), help="folder of millrace and the yardsticks")
    parser.add_argument("--workloads", type=names(WORKS), default=list(WORKS), help=",".join(WORKS))
    parser.add_argument("--peers", type=lambda t: [] if t == "none" else names(families)(t),
                        help=f"{','.join(families)}, or none; all of them by default")
    parser.add_argument("--rows", nargs="+", metavar="NAME", help="only millrace and these rows of the table")
    parser.add_argument("--quick", action="store_true", help="short windows and two rounds: to see that it works")
    parser.add_argument("--rounds", type=int, help="5, or 2 with --quick")
    parser.add_argument("--core", type=int, default=max(os.sched_getaffinity(0)), help="the core that all runs share")
    parser.add_argument("--timeout", type=int, default=300, help="seconds for one process")
    parser.add_argument("--out", help="write the table here, not to standard output")
    parser.add_argument("--json", help="write every measurement here")
    arguments = parser.parse_args()
    for key in ("data", "env", "build"):
        if getattr(arguments, key):
            setattr(arguments, key, os.path.abspath(getattr(arguments, key)))
    arguments.env = arguments.env or os.path.join(arguments.data, "environments")
    return arguments


def main():
    arguments = parse_arguments()
    require_programs(arguments)
    table = Table(arguments)
    if arguments.install:
        subprocess.run(["bash", os.path.join(HERE, "setup.sh"), arguments.env], check=True)
    if not os.path.exists(table.python("main")):
        sys.exit(f"error: {arguments.env} has no environment main\n  --install makes it, --env names one that is there")
    prepare(table)
    if arguments.install:
        return
    adopt_orphans()
    state = report.Machine(ROOT)
    begin = time.monotonic()
    results = {name: table.measure(WORKS[name]) for name in arguments.workloads}
    scaling = table.scaling() if "w4" in arguments.workloads and arguments.rows is None else None
    text = report.markdown(table, results, scaling, state.end(time.monotonic() - begin))
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(report.plain(results, scaling), file, indent=1)
    if arguments.out:
        with open(arguments.out, "w") as file:
            file.write(text)
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
