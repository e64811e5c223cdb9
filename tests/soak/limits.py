"""Full disks, few descriptors, little memory: expects a clear line and exit code 1, and no incomplete files."""
import os
import resource
import shutil
import signal
import subprocess

import bits
import formats
import kills
import program
from campaign import Failure, Group

TIMEOUT = 120


def can_mount():
    """Returns whether a small file system can be mounted in a private mount namespace."""
    ended = subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"],
                           capture_output=True, check=False) if shutil.which("unshare") else None
    return ended is not None and ended.returncode == 0


def photos(place):
    def make(folder):
        draw = place.draw("photos")
        for i in range(40):
            target = folder / "train" / f"class-{i % 2}"
            target.mkdir(parents=True, exist_ok=True)
            (target / f"{i}.png").write_bytes(formats.png(draw, 64, 64))

    return place.once("photos", make)


def finished_run(place):
    kills.GROUPS[0].reference(place, 0)
    return place.shared / "kill-0" / "run"


def ordinary(place, kind, target):
    """Returns a command that writes to, or reads for, `target`."""
    idx = f"data.path={kills.idx_data(place)}"
    train = ["train", "mnist-lenet", idx, "train.threads=1", "loader.batch=30", "train.epochs=2",
             "train.checkpoint_every=3", "--resume", "--run", target / "run"]
    return {
        "train": train,
        "launch": ["launch", "-n", "2", "--", *train, "train.strategy=ddp", "train.timeout=20"],
        "sweep": ["sweep", "mnist-lenet", idx, "train.threads=1", "loader.batch=30",
                  "train.lr=0.01,0.02", "train.epochs=1", "--resume", "--run", target / "run"],
        "make": ["data", "make", "digits", target / "digits", "--train", "400", "--test", "100",
                 "--force"],
        "pack": ["data", "pack", photos(place), target / "packed", "--force"],
        "dump": ["bench", "mnist-lenet", idx, "--dump", target / "dump", "--hash", "--json"],
        "bench": ["bench", "overhead", "data.reader=folder", f"data.path={photos(place)}",
                  "augment+=random_resized_crop{size=16}", "loader.batch=8", "loader.workers=4", "--hash", "--json"],
        "verify": ["data", "verify", photos(place), "--json"],
        "report": ["report", finished_run(place), "--html", target / "page.html"],
    }[kind]


class Limited(Group):
    kinds = ()

    def reference(self, place, kind):
        """Runs the command without limits. Returns its output folder, and how it ended."""
        def make(folder):
            (folder / "out").mkdir()
            ended = place.program.run(*ordinary(place, kind, folder / "out"), timeout=TIMEOUT)
            if ended.code != 0:
                raise RuntimeError(f"{kind} failed with nothing short: {ended.said()}")
            (folder / "stdout").write_bytes(ended.out)

        return place.once(f"limits-{kind}", make)

    def run(self, place, indexes):
        for index in indexes:
            draw = place.draw(self.name, index)
            kind = draw.choice(self.kinds)
            try:
                wrong = list(self.attempt(place, draw, index, kind, self.reference(place, kind)))
            except RuntimeError as error:
                wrong = [str(error)]
            if wrong:
                yield Failure(index, "; ".join(wrong[:3]))

    def attempt(self, place, draw, index, kind, reference):
        raise NotImplementedError


def size_of(folder):
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def contents(folder):
    """Returns the digests of a command's output. Of an index, which contains its archive's time, only that it is there."""
    return {str(file.relative_to(folder)): "an index" if file.suffix == ".index" else bits.digest(file)
            for file in sorted(folder.rglob("*")) if file.is_file()}


def compared(kind, reference, target):
    """Returns how the command's output differs from that of the unlimited one."""
    out = reference / "out"
    if kind in ("train", "launch"):
        return bits.compare(bits.bits_of(out / "run"), target / "run")
    if kind == "sweep":
        sweep = kills.Sweep()
        return bits.differences(sweep.bits(out / "run"), sweep.bits(target / "run"))
    if kind in ("make", "pack", "dump"):
        return bits.differences(contents(out), contents(target))
    return []


class Disk(Limited):
    name = "disk"
    about = "a disk that is full after a random number of bytes; then there is room again"
    cases = 30
    smoke = 2
    guess_s = 5
    kinds = ("train", "train", "train", "launch", "sweep", "make", "pack", "dump", "report")

    def missing(self, campaign):
        self.mounts = can_mount()
        if not self.mounts:
            self.about += " (RLIMIT_FSIZE in place of a full file system: none can be mounted)"
        return ""

    def attempt(self, place, draw, index, kind, reference):
        target = place.folder / f"target-{index}"
        target.mkdir()
        needed = size_of(reference / "out")
        room = draw.randrange(1, int(1.2 * needed))
        words = ordinary(place, kind, target)
        if self.mounts:
            ended, again = self.on_small_disk(place, target, room, words)
        else:
            ended = place.program.run(*words, timeout=TIMEOUT,
                                      limits={resource.RLIMIT_FSIZE: room})
            again = place.program.run(*words, timeout=TIMEOUT)
        story = f"{kind} with room for {room:,} of {needed:,} bytes"
        wrong = program.complaints(ended, codes=(0, 1))
        wrong += [f"then with room: {line}: {again.said()}"
                  for line in program.complaints(again, codes=(0,))]
        wrong = wrong or compared(kind, reference, target) + bits.temporaries(target)
        return [f"{story}: {line}: {ended.said()}" for line in wrong]

    def on_small_disk(self, place, target, room, words):
        """Runs the command on a file system of `room` bytes, and again after it has grown; then copies its output to
        `target`."""
        disk = place.folder / "disk"
        disk.mkdir(exist_ok=True)
        paths = [str(place.folder / name) for name in ("first.code", "copy")]
        words = [str(word).replace(str(target), str(disk)) for word in words]
        # One child, so that both starts see the same mount.
        script = ('mount -t tmpfs -o size="$1" none "$2" && shift || exit 99\n'
                  'disk=$1 code=$2 copy=$3; shift 3\n'
                  '"$@"; echo $? >"$code"\n'
                  'echo "-- again" >&2; mount -o remount,size=1g "$disk"\n'
                  '"$@" >/dev/null; last=$?\n'
                  'cp -a "$disk" "$copy"; exit $last')
        ended = place.program.run(
            *words, timeout=2 * TIMEOUT,
            prefix=["unshare", "-m", "bash", "-c", script, "disk", str(room), str(disk), *paths])
        first, _, second = ended.err.partition(b"-- again\n")
        code = int((place.folder / "first.code").read_text())
        os.remove(paths[0])
        target.rmdir()
        os.rename(paths[1], target)
        # bash reports a signal as 128 + its number.
        code = 128 - code if code > 130 else code
        return (program.Ended(words, code, ended.out, first, ended.seconds, 0, ended.timed_out),
                program.Ended(words, ended.code, b"", second, ended.seconds, 0, ended.timed_out))


class Descriptors(Limited):
    name = "descriptors"
    about = "four to 64 file descriptors (`ulimit -n`)"
    cases = 60
    smoke = 2
    guess_s = 1.5
    kinds = ("train", "train", "launch", "sweep", "make", "pack", "dump", "bench", "verify", "report")

    def excused(self, kind, ended):
        """Returns whether this end is not the program's fault."""
        return False

    def limits(self, draw):
        number = draw.randint(4, 64) if draw.random() < 0.5 else draw.randint(4, 24)
        return {resource.RLIMIT_NOFILE: number}, f"{number} descriptors"

    def attempt(self, place, draw, index, kind, reference):
        target = place.folder / f"target-{index}"
        target.mkdir()
        limits, story = self.limits(draw)
        words = ordinary(place, kind, target)
        ended = place.program.run(*words, timeout=TIMEOUT, limits=limits)
        if ended.code == 127 and program.LINKER in ended.text():
            return []  # the program never started
        # A library that does not fit in memory counts as a missing backend or plugin.
        exits = (0, 1, 3, 4) if b"cannot be loaded" in ended.err + ended.out else (0, 1)
        wrong = [] if self.excused(kind, ended) else program.complaints(ended, codes=exits)
        if not wrong and ended.code == 0:
            wrong = compared(kind, reference, target)
            if kind in ("bench", "verify") and not same_output(kind, reference, ended):
                wrong.append("its output is not that of the undisturbed command")
        if not wrong and ended.code != 0 and kind in ("train", "launch", "sweep"):
            again = place.program.run(*words, timeout=TIMEOUT)
            wrong = [f"then without a limit: {line}: {again.said()}"
                     for line in program.complaints(again, codes=(0,))]
            wrong = wrong or compared(kind, reference, target) + bits.temporaries(target)
        return [f"{kind} with {story}: {line}: {ended.said()}" for line in wrong]


def same_output(kind, reference, ended):
    before = bits.read_json(reference / "stdout")
    key = {"bench": "batch_hash", "verify": "splits"}[kind]
    return before[key] == (ended.document() or {}).get(key)


class Memory(Descriptors):
    name = "memory"
    about = "address space of 15 MB to 3 GB (`ulimit -v`)"

    def excused(self, kind, ended):
        """Excuses oneDNN, which LibTorch uses for convolutions and which crashes without memory for its generated
        code."""
        return kind == "train" and ended.code == -signal.SIGSEGV

    def limits(self, draw):
        size = int(15e6 * 200 ** draw.random())
        return {resource.RLIMIT_AS: size}, f"{size / 1e6:.0f} MB of address space"


GROUPS = [Disk(), Descriptors(), Memory()]
