"""Damaged data sets through every reader and `data verify`.

Nothing may crash, hang or end with an undocumented code, and readers and verify must agree: sets that verify calls
sound can be read, and files that it names fail.
"""
import gzip
import json
import os
import pathlib
import tarfile

import formats
import mutate
import program
from campaign import Failure, Group

TIMEOUT = 120


def checked(place, failures, label, *words, codes=(0, 3), **options):
    """Runs the program and appends to `failures` what is wrong with its end."""
    ended = place.program.run(*words, timeout=TIMEOUT, **options)
    wrong = program.complaints(ended, codes=codes)
    if not wrong and ended.code == 0 and "--json" in words and ended.document() is None:
        wrong = ["--json gave no JSON"]
    failures.extend(f"{label}: {line}: {ended.said()}" for line in wrong)
    return ended


def bench(place, failures, label, reader, path, *more, **options):
    return checked(place, failures, label, "bench", "overhead", "model.classes=0",
                   f"data.reader={reader}", f"data.path={path}",
                   "loader.shuffle=none", "--hash", "--json", *more, **options)


class ImageFiles(Group):
    """A format of images: many damaged files in one data set, in a folder, an archive and a list."""
    cases = 1000
    batch = 50
    smoke = 3
    guess_s = 3

    def __init__(self, kind):
        self.name = kind
        self.kind = kind
        self.about = f"damaged {kind.upper()} files: folder, tar and manifest against `data verify`"

    def seeds(self, place):
        return formats.IMAGES[self.kind](place.draw("seeds", self.kind))

    def damaged(self, place, index, seeds):
        draw = place.draw(self.name, index)
        data = mutate.mutated(draw.choice(seeds), draw, formats.TOKENS[self.kind], seeds)
        return mutate.with_png_sums(data) if self.kind == "png" and draw.random() < 0.7 else data

    def run(self, place, indexes):
        seeds = self.seeds(place)
        files = {index: self.damaged(place, index, seeds) for index in indexes}
        wrong = self.try_files(place, files, "all")
        if wrong and len(files) > 1:
            # Finds the failing file by trying each alone; failures that need several files count as the first one's.
            alone = {index: self.try_files(place, {index: data}, index)
                     for index, data in files.items()}
            if any(alone.values()):
                wrong = []
            for index, texts in alone.items():
                if texts:
                    yield Failure(index, "; ".join(texts[:3]))
        if wrong:
            company = f" in a batch of {len(files)}" if len(files) > 1 else ""
            yield Failure(indexes[0], "; ".join(wrong[:3]) + company)

    def try_files(self, place, files, name):
        """Returns what is wrong with how the program handles these files."""
        root = place.folder / f"set-{name}"
        members = write_sets(root, {f"{index:05}.{self.kind}": data
                                    for index, data in files.items()})
        wrong = []
        ended = checked(place, wrong, "verify", "data", "verify", root / "folder", "--json")
        document = json_of(ended)
        if document is None:
            return wrong
        bad = {pathlib.Path(problem["where"]).name for problem in document["problems"]}
        resize = "augment+=resize{size=[16,16]}"
        batch = f"loader.batch={min(8, len(files))}"
        read = [resize, "decode.region=off", batch, "loader.on_error=skip"]
        sets = (("folder", root / "folder"), ("tar", root / "set.tar"),
                ("manifest", root / "set.csv"))
        hashes = {}
        for reader, path in sets:
            for workers in (0, 2) if reader == "folder" else (2,):
                label = f"{reader}, {workers} workers"
                ended = bench(place, wrong, label, reader, path, *read, f"loader.workers={workers}")
                if figures := ended.document() if ended.code == 0 else None:
                    hashes[label] = figures["batch_hash"]
                    if figures["failed"] != len(bad):
                        wrong.append(f"{label}: {figures['failed']} samples failed, verify names "
                                     f"{len(bad)}")
        if len(set(hashes.values())) > 1:
            wrong.append(f"batches differ: {hashes}")
        sound = {file: data for file, data in members.items() if file not in bad}
        if sound and not wrong:
            write_sets(root / "sound", sound)
            bench(place, wrong, "what verify calls sound", "folder", root / "sound" / "folder",
                  resize, "loader.batch=1", "loader.workers=2", "loader.on_error=fail", codes=(0,))
        return wrong


class Jpeg(ImageFiles):
    """JPEG's variants come from the fuzzer's seeds, which libjpeg-turbo writes."""

    def __init__(self):
        super().__init__("jpeg")

    def missing(self, campaign):
        fuzzer = campaign.build / "fuzz_jpeg"
        return "" if fuzzer.exists() else f"{fuzzer} writes its seeds and is not there: build it"

    def seeds(self, place):
        def make(folder):
            fuzzer = program.Program(place.build / "fuzz_jpeg", place.folder)
            ended = fuzzer.run("--write-seeds", folder)
            if ended.code != 0:
                raise RuntimeError(f"fuzz_jpeg --write-seeds: {ended.said()}")

        return [file.read_bytes() for file in sorted(place.once("jpeg", make).iterdir())]


def json_of(ended):
    """Returns verify's report; it must say sound exactly if verify ends with 0."""
    document = ended.document()
    if isinstance(document, dict) and document.get("sound") == (ended.code == 0):
        return document
    return None


def write_sets(root, files):
    """Writes the same samples as a folder, an archive and a manifest, in the same order; returns their contents."""
    folder = root / "folder" / "train" / "a"
    folder.mkdir(parents=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    members = []
    for name, data in files.items():
        members += [(f"{name}", data), (f"{name.partition('.')[0]}.cls", b"0")]
    (root / "set.tar").write_bytes(formats.tar(members, tarfile.USTAR_FORMAT))
    (root / "set.csv").write_text(
        "path,label\n" + "".join(f"folder/train/a/{name},0\n" for name in files))
    return files


class WholeSets(Group):
    """A format in which one damaged file is the whole data set."""
    cases = 1000
    batch = 10
    smoke = 3
    guess_s = 1
    reader = ""

    def write(self, draw, folder):
        """Makes a damaged set in `folder`. Returns its data.path."""
        raise NotImplementedError

    def run(self, place, indexes):
        for index in indexes:
            folder = place.folder / f"set-{index}"
            folder.mkdir()
            path = self.write(place.draw(self.name, index), folder)
            if wrong := self.try_set(place, path):
                yield Failure(index, "; ".join(wrong[:3]))

    def try_set(self, place, path):
        """Returns what is wrong with how the program handles this set."""
        wrong = []
        ended = checked(place, wrong, "verify", "data", "verify", path, "--json")
        document = json_of(ended)
        if document is None and not wrong:
            wrong.append(f"verify: exit code {ended.code} and no report that fits it")
        sound = document is not None and document["sound"]
        trained = sound and any(split["name"] == "train" for split in document["splits"])
        hashes = set()
        for on_error, workers in (("fail", 2), ("skip", 0), ("skip", 2)):
            label = f"{self.reader}, on_error={on_error}, {workers} workers"
            ended = bench(place, wrong, label, self.reader, path, "augment+=resize{size=[16,16]}",
                          "decode.region=off", "loader.batch=1", f"loader.on_error={on_error}",
                          f"loader.workers={workers}", codes=(0,) if trained else (0, 3))
            if ended.code == 0 and (figures := ended.document()):
                hashes.add(figures["batch_hash"])
            elif ended.code == 3 and on_error == "skip":
                break  # rejected as a whole, with any number of workers
        if len(hashes) > 1:
            wrong.append(f"batches differ: {hashes}")
        return wrong


class Idx(WholeSets):
    name = "idx"
    reader = "idx"
    about = "damaged IDX files (MNIST's format): `bench` against `data verify`"
    ending = ""

    def packed(self, draw, data):
        return data

    def write(self, draw, folder):
        files = {"images-idx3": formats.idx_images(draw), "labels-idx1": formats.idx_labels()}
        victim = draw.choice(sorted(files))
        files[victim] = mutate.mutated(files[victim], draw, (b"\0\0\x08\x01", b"\0\0\x08\x03"))
        for name, data in files.items():
            packed = self.packed(draw if name == victim else None, data)
            (folder / f"train-{name}-ubyte{self.ending}").write_bytes(packed)
        return folder


class IdxGzip(Idx):
    name = "gz"
    about = "damaged gzip files of IDX: `bench` against `data verify`"
    ending = ".gz"

    def packed(self, draw, data):
        """Damages the packed contents in half of the cases, the packing in the others."""
        if draw is None:
            return gzip.compress(data, 6, mtime=0)
        packed = gzip.compress(data, draw.randrange(10), mtime=0)
        return packed if draw.random() < 0.3 else mutate.mutated(packed, draw, (b"\x1f\x8b\x08",))


class Cifar(WholeSets):
    name = "cifar"
    reader = "cifar"
    about = "damaged CIFAR binary files: `bench` against `data verify`"

    def write(self, draw, folder):
        wide = draw.random() < 0.3
        names = ["train.bin", "test.bin"] if wide else [
            *(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]
        home = folder / ("cifar-100-binary" if wide else "cifar-10-batches-bin")
        home.mkdir()
        victim = draw.choice(names[:-1])
        for name in names:
            data = formats.cifar(draw, 1)
            data = b"\0" + data if wide else data
            (home / name).write_bytes(mutate.mutated(data, draw) if name == victim else data)
        return folder


class Tar(WholeSets):
    name = "tar"
    reader = "tar"
    about = "damaged tar archives: `bench` against `data verify`"

    def write(self, draw, folder):
        image = formats.bmp(draw, 8, 8)
        long = "n" * draw.choice((3, 99, 101, 160))
        members = [("a/x.bmp", image), ("a/x.cls", b"1"), (f"a/{long}.bmp", image),
                   (f"a/{long}.cls", b"0"), ("p.bmp", image), ("p.json", b'{"label": 3}'),
                   ("p.txt", b"text")]
        form = draw.choice((tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT))
        data = mutate.mutated(
            formats.tar(members, tarfile.PAX_FORMAT if len(long) > 90 else form), draw,
            (b"ustar\0", b"././@LongLink", b"30 path=../../x.bmp\n", b"\0" * 512, b"77777777777",
             b"\x80\0\0\0\0\0\0\0\xff\xff\xff\xff"))
        if draw.random() < 0.6:
            data = mutate.with_tar_sums(data)
        path = folder / "set.tar"
        path.write_bytes(data)
        return path


class Manifest(WholeSets):
    name = "manifest"
    reader = "manifest"
    about = "damaged manifests (CSV, JSON lines): `bench` against `data verify`"
    words = (b'"', b'""', b",", b"\r\n", b"\n", b"\0", b"path", b"label", b"split", b"train",
             b"test", b"../", b"/dev/zero", b"/dev/stdin", b"9" * 30, b"-1", b"1999999999", b"1e3",
             b"{", b"}", b"[" * 200, b"\xef\xbb\xbf", b"\xff\xfe", b"\x1b[2J", b"null")

    def write(self, draw, folder):
        for name in ("a.bmp", "b,c.bmp", "d.bmp"):
            (folder / name).write_bytes(formats.bmp(draw, 8, 8))
        label = draw.choice((("0", "1", "0"), ("cat", "dog", "cat")))
        if draw.random() < 0.5:
            path = folder / "set.csv"
            text = (f"path,label,split\na.bmp,{label[0]},train\n\"b,c.bmp\",{label[1]},train\n"
                    f"d.bmp,{label[2]},test\n")
        else:
            path = folder / "set.jsonl"
            text = "".join(json.dumps({"path": name, "label": one}) + "\n"
                           for name, one in zip(("a.bmp", "b,c.bmp", "d.bmp"), label))
        path.write_bytes(mutate.mutated(text.encode(), draw, self.words))
        return path


class Names(WholeSets):
    """Odd names of classes and files, and special files in place of images."""
    name = "names"
    reader = "folder"
    about = "odd names and file types in image folders: `bench`, `data verify`, `data pack`"
    parts = (b"a", b"\xff\xfe", b"\n", b"\x1b[31m", b"\t", b"\r", b" ", b"'", b'"', b"\\", b"\x7f",
             "\u202e".encode(), "e\u0301".encode(), b"-", b"--json", b".", b"..", b"%s%n", b"{}",
             b"$(x)", b"*", b"?", b",", b":", b";", b"#", b"\xc3", b"\xe2\x80", b"class", b"0")

    def odd_name(self, draw, ending=b""):
        name = b"".join(draw.choice(self.parts) for _ in range(draw.randint(1, 6)))
        if draw.random() < 0.05:
            name = name * 255
        name = name[:255 - len(ending)] + ending
        return b"dots" if name in (b".", b"..") else name

    def write(self, draw, folder):
        root = bytes(folder / "set") + b"/train"
        for _ in range(draw.randint(1, 4)):
            home = root + b"/" + self.odd_name(draw)
            if draw.random() < 0.2:
                home += b"/" + self.odd_name(draw)
            os.makedirs(home, exist_ok=True)
            for _ in range(draw.randint(0, 3)):
                path = home + b"/" + self.odd_name(draw, draw.choice((b".bmp", b".BMP", b".jpg", b"")))
                if not os.path.lexists(path):
                    self.put(draw, path)
        return folder / "set"

    def put(self, draw, path):
        kind = draw.random()
        if kind < 0.75:
            pathlib.Path(os.fsdecode(path)).write_bytes(formats.bmp(draw, 8, 8))
        elif kind < 0.8:
            os.symlink(draw.choice((path, b"/nowhere", b"/dev/zero", b"..", b"/proc/self/mem")), path)
        elif kind < 0.85:
            os.mkfifo(path)
        elif kind < 0.9:
            os.mkdir(path)
        else:
            pathlib.Path(os.fsdecode(path)).write_bytes(b"")

    def try_set(self, place, path):
        wrong = super().try_set(place, path)
        target = path.parent / "packed"
        ended = checked(place, wrong, "pack", "data", "pack", path, target, "--json",
                        codes=(0, 2, 3))
        if ended.code == 0:
            before, after = (
                json_of(checked(place, wrong, "verify", "data", "verify", one, "--json"))
                for one in (path, target))
            classes = [[split["classes"] for split in document["splits"]] if document else None
                       for document in (before, after)]
            if classes[0] != classes[1]:
                wrong.append(f"packed classes {classes[1]}, expected {classes[0]}")
        return wrong


GROUPS = [Idx(), IdxGzip(), Cifar(), Jpeg(), *(ImageFiles(kind) for kind in formats.IMAGES), Tar(),
          Manifest(), Names()]
