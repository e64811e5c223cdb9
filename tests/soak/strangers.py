"""Run directories made by strangers: whatever they hold, commands that read them open no connection, start no program,
load no library and write nothing outside their output.

Genuine directories are made with one home folder, and attacked with another, which has not signed them."""
import json
import os
import pathlib
import re
import resource
import shutil
import socket
import stat
import sys
import tomllib

import kills
import package
import program
import tracing
from campaign import SOURCE, Failure, Group

SOME_LINES = 40
HANGS_S = 60      # a report that takes longer hangs
PATIENCE_S = 8    # training may go on for as long as a recipe says; it is asked to end then
RAW = "\0raw:"    # begins a text that is written without quotation marks
HUGE = (
    "9" * 400,
    "1e999",
    "-0.0",
    "nan",
    "NaN",
    "Infinity",
    "null",
    "[[[[]]]]",
    "{}",
    "0x7fffffffffffffff",
     "1979-05-27")


def homes(folder):
    """Returns the environment of a user whose home is `folder`."""
    return {"HOME": str(folder), "XDG_STATE_HOME": str(folder / ".state"), "XDG_CACHE_HOME": str(folder / ".cache"),
            "XDG_CONFIG_HOME": str(folder / ".config"), "XDG_DATA_HOME": str(folder / ".data"),
            "TMPDIR": str(folder / ".tmp"), "LD_LIBRARY_PATH": "", "MILLRACE_REMOTE_AUTHORIZATION": "Bearer secret",
            "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "secret", "PYTHONDONTWRITEBYTECODE": "1"}


def make_home(folder):
    """Makes a home with files that nobody may touch. Returns their state()."""
    for name in ("", ".state", ".cache", ".config", ".data", ".tmp", "shards", "linked"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for name in ("thesis-backup.tar", "notes.txt", "linked.txt", "linked/a", "shards/other.part", "shards/backup.tar"):
        (folder / name).write_text("precious\n" * 100)
    return state(folder)


def state(folder):
    """Returns name, kind, size and time of every file outside the hidden folders, which belong to the program."""
    found = {}
    for name in sorted(folder.rglob("[!.]*")):
        if not name.relative_to(folder).parts[0].startswith("."):
            status = name.lstat()
            found[str(name.relative_to(folder))] = (stat.S_IFMT(status.st_mode), status.st_size, status.st_mtime_ns)
    return found


class Attack:
    """Means of one attack: a place, random numbers, hostile values."""

    def __init__(self, place, draw, port):
        self.draw = draw
        self.home = place.folder / "home"
        self.out = place.folder / "out"
        self.plugin = place.folder / "evil.so"
        self.fifo = place.folder / "fifo"
        self.url = f"http://127.0.0.1:{port}/set/"

    def paths(self):
        home = self.home
        return (f"{home}/notes.txt",
    f"{home}/shards",
    f"{home}/thesis-backup.tar",
    f"{home}/new.txt",
    "../../home/notes.txt",
    f"{home}/no/such/folder/x",
    "/dev/zero",
    "/dev/stdin",
    "/dev/full",
    "/proc/self/mem",
    "/",
    "",
    ".",
    "..",
    str(self.fifo),
    str(self.plugin),
    "~/notes.txt",
     "a/" * 3000)

    def links(self):
        """Returns what links of a run lead to. Files of records may be links to files elsewhere."""
        home = self.home
        return (f"{home}/linked.txt", f"{home}/linked", f"{home}/new.txt", "/dev/zero", "/dev/stdin", "/dev/full",
                "/proc/self/mem", "/", "..", str(self.fifo))

    def addresses(self):
        return (self.url, self.url + "train-{000000..999999}.tar", "s3://bucket/set/", "gs://bucket/set/",
                self.url.replace("127.0.0.1", "localhost"), f"file://{self.home}/notes.txt", "https://127.0.0.2:9/",
                self.url.replace("http://", "http://user:word@"), "//127.0.0.2:9/x", "http://[::1]:9/")

    def commands(self):
        touch = f"touch {self.home}/ran"
        return (
    touch,
    f"$({touch})",
    f"`{touch}`",
    f"x; {touch}",
    f"| {touch}",
    f"x\n{touch}",
    "{run}",
    "{x}",
     "/bin/sh")

    def texts(self):
        return (
    "\x1b[2J\x1b]0;owned\x07",
    "\x9b31m",
    "\u202e",
    "\0",
    "\r\n\r\n",
    "%s%n%p",
    "{}{0}{x:>999999}",
    "x" * 200_000,
    "</script><script>alert(1)</script>",
    "(a+)+$",
    "a" * 40 + "!",
    "--json",
    f"plugins.path={self.plugin}",
    f"data.path={self.url}",
    "augment+=hflip",
    "\ud800",
    "é",
    " ",
    "[",
    "{",
    "'",
    "%",
     "\n")

    def others(self):
        return (*(RAW + text for text in HUGE), None, True, False, [], {}, [None], [[]], {"a": 1}, 0, -1,
                1, 2, 2**31 - 1, 2**31, 2**32, 2**53, 2**63 - 1, 2**63, 2**64, 1e308, 1e-308, 0.5, -1e308)

    def value(self, old=None):
        kind = self.draw.randrange(10)
        pool = (self.paths, self.addresses, self.commands, self.texts, self.others)[kind if kind < 4 else 4]()
        value = self.draw.choice(pool)
        if isinstance(old, list) and self.draw.random() < 0.5:
            return [value, *old[1:]]
        return value


def written(document):
    """Returns JSON, with raw texts."""
    return re.sub(r'"\\u0000raw:([^"]*)"', r"\1", json.dumps(document))


def toml(recipe):
    """Returns a recipe in TOML, with raw texts."""
    def flat(table, prefix=""):
        for key, value in table.items():
            if isinstance(value, dict):
                yield from flat(value, f"{prefix}{key}.")
            else:
                yield f"{prefix}{key} = {written(value)}"

    ops = recipe.get("augment", [])
    head = flat({key: value for key, value in recipe.items() if key != "augment" or not isinstance(ops, list)})
    lines = [*head]
    for op in ops if isinstance(ops, list) else []:
        lines += ["[[augment]]", *flat(op if isinstance(op, dict) else {"op": op})]
    return "\n".join(lines) + "\n"


def fields(document, most=2):
    """Yields the place of every value in a document, as a tuple of keys; of long lists, of the first items only."""
    items = document.items() if isinstance(document, dict) else enumerate(document[:most])
    for key, value in items:
        yield (key,)
        if isinstance(value, (dict, list)):
            yield from ((key, *rest) for rest in fields(value, most))


def put(document, where, value):
    for key in where[:-1]:
        document = document[key]
    document[where[-1]] = value


def get(document, where):
    for key in where:
        document = document[key]
    return document


READERS = {".toml": (tomllib.loads, toml), ".json": (json.loads, written)}


def targets(genuine):
    """Returns every file of a directory, and every field of those that have fields."""
    found = []
    for file in sorted(genuine.rglob("*")):
        name = file.relative_to(genuine)
        if file.is_symlink() or not file.is_dir():
            found.append((name, None))
        if file.suffix in READERS:
            found += [(name, where) for where in fields(READERS[file.suffix][0](file.read_text()))]
    return found


def change_field(attack, file, where):
    """Sets one field to a hostile value."""
    reader, writer = READERS[file.suffix]
    document = reader(file.read_text())
    value = attack.value(get(document, where))
    put(document, where, value)
    file.write_text(writer(document), errors="surrogatepass")
    return f"{'.'.join(map(str, where))} = {str(value)[:80]!r}"


def hostile_recipe(attack, file):
    """Lets a recipe name a remote set, a plugin, somebody's files."""
    document = tomllib.loads(file.read_text())
    draw = attack.draw
    url = draw.choice(attack.addresses())
    change = draw.choice((
        {"data.reader": "tar", "data.path": url},
        {"data.reader": "tar", "data.path": url, "data.remote.cache": f"{attack.home}/shards",
         "data.remote.cache_bytes": draw.choice((0, 1, 10**6)), "data.remote.fetch": draw.choice(("shards", "ranges"))},
        {"plugins.path": str(attack.plugin), "data.reader": draw.choice(("evil", "idx", "folder"))},
        {"plugins.path": str(attack.plugin.parent)},
        {"data.reader": draw.choice(("folder", "manifest", "tar")), "data.path": draw.choice(attack.paths())},
        {"model.weights": draw.choice(attack.paths() + attack.addresses())},
        {"recipe": draw.choice(attack.paths() + attack.addresses())},
        {"train.strategy": "ddp", "train.ranks": 2, "data.reader": "tar", "data.path": url}))
    for key, value in change.items():
        table = document
        *parents, last = key.split(".")
        for part in parents:
            table = table.setdefault(part, {})
        table[last] = value
    file.write_text(toml(document))
    return str(change)


def hostile_design(attack, file):
    """Lets a sweep run a command, or a recipe with a plugin; it belongs to the folder where it is resumed."""
    document = json.loads(file.read_text())
    draw = attack.draw
    if "folder" in document:
        document["folder"] = str(file.parents[2])
    if document.get("command"):
        document["command"] = f"touch {attack.home}/ran; echo 1.5 {{x}}"
        document["shell"] = draw.choice(("sh", "sh", "none", "bash", str(attack.plugin)))
        if document["shell"] == "none":
            document["command"] = f"/usr/bin/touch {attack.home}/ran {{x}}"
    elif "recipe" in document:
        document["recipe"] += draw.choice(([f"plugins.path={attack.plugin}"],
    [f"data.path={attack.url}",
    "data.reader=tar"],
    [f"train.lr=1,{attack.value()}"],
     [str(attack.value())]))
    file.write_text(written(document), errors="surrogatepass")
    return f"{document.get('command') or document.get('recipe') or document.get('folder')}"


def hostile_counterpart(attack, file):
    """Lets the record of a watched loader name a plugin, an address, devices as samples."""
    document = json.loads(file.read_text())
    draw = attack.draw
    found = document["loaders"][0]["counterpart"]
    words = [f"plugins.path={attack.plugin}",
    f"data.path={attack.url}",
    "data.reader=tar",
    "augment+=evil",
    f"data.remote.cache={attack.home}/shards",
    "data.reader=evil",
    f"model.weights={attack.fifo}",
    "augment+=resize{size=[1000000,1000000]}",
    "loader.batch=2147483647",
    "augment+=hflip",
     str(attack.value())]
    found["words"] = draw.choice(([f"data.path={attack.url}", "data.reader=tar"], [words[0], "augment+=evil"],
                                  found["words"] + draw.sample(words, draw.randint(1, 3))))
    if draw.random() < 0.3:
        found["samples"] = draw.sample(attack.paths() + attack.addresses(), 3)
    file.write_text(written(document), errors="surrogatepass")
    return str(found["words"])


def schemes(run):
    """Returns the files of a directory that can be made to name something foreign, and how."""
    found = [(file, hostile_recipe) for file in sorted(run.rglob("config.toml"))]
    found += [(file, hostile_design) for file in sorted(run.glob("design.json"))] * 4
    for file in sorted(run.glob("summary.json")):
        if "loaders" in json.loads(file.read_text()):
            found = [(file, hostile_counterpart)]
    return found


def change_file(attack, file):
    """Puts something else in place of a file."""
    kind = attack.draw.choice(("fifo", "socket", "device", "link", "link", "folder", "sparse", "loop", "empty", "gone"))
    file.unlink()
    if kind == "fifo":
        os.mkfifo(file)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as one:
            here = os.open(file.parent, os.O_PATH)
            one.bind(f"/proc/self/fd/{here}/{file.name}")  # the whole path may be too long for an address
            os.close(here)
    elif kind == "device" and os.geteuid() == 0:
        os.mknod(file, 0o666 | stat.S_IFCHR, os.makedev(1, attack.draw.choice((3, 5, 7))))  # null, zero, full
    elif kind in ("device", "link"):
        kind = f"link to {attack.draw.choice(attack.links())}"
        file.symlink_to(kind[8:])
    elif kind == "folder":
        file.mkdir()
    elif kind == "sparse":
        with open(file, "wb") as one:
            one.truncate(1 << 40)
    elif kind == "loop":
        file.symlink_to(file.name)
    elif kind == "empty":
        file.touch()
    return kind


def add_outputs(attack, run):
    """Puts links where commands write."""
    name = attack.draw.choice(("report.html", "report", "run.lock", "steps.csv", "metrics.jsonl", "summary.json.tmp",
                               "checkpoints/last", "checkpoints/step-12.tmp", "index.sqlite", "index.sqlite-journal",
                               "table.csv", "runs.csv", "quarantine.jsonl", "steps.csv.open", "predictions.csv"))
    link = run / name
    if link.parent.is_dir() and not (link.is_dir() and not link.is_symlink()):
        link.unlink(missing_ok=True)
        link.symlink_to(attack.draw.choice(attack.links()[:3]))
        return f"{name} is a link"
    return f"{name} stays"


class Strangers(Group):
    """Copies a genuine directory, makes it hostile, and gives it to one command that reads such directories."""
    batch = 20
    smoke = 2
    guess_s = 8
    module = None  # of Python, in place of the program

    def missing(self, campaign):
        return tracing.missing()

    def genuine(self, place):
        """Returns the folder of genuine directories."""
        raise NotImplementedError

    def commands(self, kind, run, out, data):
        """Returns the commands for a directory, and whether a recipe file on the command line names their data."""
        raise NotImplementedError

    def run(self, place, indexes):
        genuine = self.genuine(place)
        kinds = sorted(folder.name for folder in genuine.iterdir() if folder.is_dir() and folder.name != "owner")
        fields_of = {kind: targets(genuine / kind) for kind in kinds}
        for name in ("evil.so",):
            shutil.copy(
    next(
        (place.build / "lib" / "plugins").rglob("*.so"),
        pathlib.Path("/nowhere")),
         place.folder / name)
        os.mkfifo(place.folder / "fifo")
        home = place.folder / "home"
        with socket.create_server(("127.0.0.1", 0)) as trap:  # accepts, and never answers
            for index in indexes:
                before = make_home(home)
                draw = place.draw(self.name, index)
                kind = draw.choice(kinds)
                story, wrong = self.attack(place, draw, index, genuine / kind, fields_of[kind], trap.getsockname()[1])
                after = state(home)
                wrong += [f"{name} was changed" for name in {**before, **after} if before.get(name) != after.get(name)]
                if wrong:
                    yield Failure(index, f"{story}: " + "; ".join(wrong[:3]))
                    shutil.rmtree(home)
                else:
                    shutil.rmtree(place.folder / f"case-{index}")

    def attack(self, place, draw, index, genuine, known, port):
        attack = Attack(place, draw, port)
        case = place.folder / f"case-{index}"
        run = case / "runs" / "run"
        shutil.copytree(genuine, run, symlinks=True)
        story = [genuine.name]
        if draw.random() < 0.45:
            file, change = draw.choice(schemes(run))
            story.append(f"{file.relative_to(run)}: {change(attack, file)}")
        else:
            for number in range(draw.choice((1, 1, 2))):
                # Goes through all fields and files in turn; the multiplier spreads them over the cases.
                name, where = known[(index * 7919 + number * 104729) % len(known)]
                if draw.random() < 0.25:
                    where = None
                story += self.changed(attack, run, name, where)
        if draw.random() < 0.15:
            story.append(add_outputs(attack, run))
        data = kills.idx_data(place)
        words, typed = draw.choice(self.commands(genuine.name, run, case / "out", data))
        (case / "out").mkdir()
        story.append(" ".join(str(word).replace(str(place.folder), ".") for word in words))
        wrong = self.tried(place, case, words, typed, data, port)
        return ", ".join(story), wrong

    @staticmethod
    def changed(attack, run, name, where):
        """Changes one field, or a whole file; nothing if an earlier change has removed it."""
        file = run / name
        if not os.path.lexists(file) or not stat.S_ISREG(file.lstat().st_mode) or file.lstat().st_size > 1 << 24:
            return []
        try:
            return [f"{name}: {change_field(attack, file, where) if where else change_file(attack, file)}"]
        except (KeyError, IndexError, TypeError, ValueError):
            return []

    def tried(self, place, case, words, typed, data, port):
        """Runs the command. Returns what is wrong with what it did and with its end."""
        interpreter = package.python(place) if words[0] == "-m" else None
        env = {**homes(place.folder / "home"), **(package.environment(place.build) if interpreter else {})}
        env |= {
            name: f"http://127.0.0.1:{port}"
            for name in ("AWS_ENDPOINT_URL_S3", "CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE")}
        home = place.folder / "home"
        rules = tracing.Rules(
            folder=case, execute=(str(place.program.path), sys.executable),
            load=(place.build, SOURCE / ".deps", sys.prefix, sys.base_prefix), hostile=(place.folder,),
            write=(case, *(home / name for name in (".state", ".cache", ".tmp"))), trap=port,
            unread=() if typed or words[0] != "report" else (home / "notes.txt", home / "shards", data),
            network=typed, anywhere=typed)
        long = words[0] in ("train", "eval", "bench", "profile", "sweep", "inspect") or "--live" in words
        long = long and not {"--status", "--collect"} & set(words)
        ended, found, asked = tracing.trace(
            interpreter or place.program, words, case / "trace.txt", rules, PATIENCE_S if long else HANGS_S, env=env,
            limits={resource.RLIMIT_AS: 12 << 30, resource.RLIMIT_FSIZE: 1 << 30})
        return found + judged(ended, asked, long)


def judged(ended, asked, long):
    """Returns what is wrong with the end of a command. Training that goes on is asked to end, and must do so."""
    if asked and not ended.timed_out and ended.code in (-15, 130, 143, *program.DOCUMENTED):
        wrong = [] if long else [f"hangs for more than {HANGS_S} s, until SIGTERM"]
    else:
        wrong = program.complaints(ended, most_memory=6 << 30)
        if asked and ended.timed_out:
            wrong[0] = "hangs beyond SIGTERM"
    out = ended.out.decode("utf-8", "replace")
    if strange := program.control_characters(out):
        wrong.append(f"control characters on stdout: {', '.join(strange)}")
    if (lines := ended.text().count("\n")) > SOME_LINES:
        wrong.append(f"{lines} lines on stderr")
    return [f"{line}: {ended.said(200)}" for line in wrong]


class Stranger(Strangers):
    name = "stranger"
    about = "hostile runs, sweeps and profiles to every command that reads them, under strace"
    cases = 6600

    def genuine(self, place):
        def make(folder):
            make_home(folder / "owner")
            data = f"data.path={kills.idx_data(place)}"
            small = ["mnist-lenet", data, "train.threads=1", "loader.batch=30"]
            quick = [*small, "train.device=simulated", "simulated.update_ms=0.1"]
            for words in (
                    ["train", *small, "train.epochs=2", "train.steps=10", "train.checkpoint_every=3", "--run", "run"],
                    ["eval", "run", "--predictions", "run/predictions.csv"], ["report", "run"],
                    ["sweep", "--command", "echo 1.5 {x}", "x=1,2", "--repeats", "2", "--metric", "[0-9.]+", "--plan",
                     "--run", "commands"],
                    ["sweep", "commands", "--block", "1"],
                ["sweep", "--command", "echo 1.5 {x}", "x=1,2", "--repeats", "2", "--metric", "[0-9.]+",
                 "--run", "stopped"],
                    ["sweep", *quick, "train.lr=0.01,0.02", "--repeats", "2", "--plan", "--run", "settings"],
                    ["sweep", "settings", "--block", "1"], ["sweep", "settings", "--collect"],
                    ["profile", *quick, "--seconds", "0.05", "--given", "--change", "loader.workers=1", "--run",
                     "profile"]):
                ended = place.program.run(*words, cwd=folder, env=homes(folder / "owner"))
                if ended.code != 0:
                    raise RuntimeError(f"{words[0]} failed: {ended.said()}")
            for file in (folder / "stopped" / "runs").glob("004-*"):  # leaves a run to be resumed
                shutil.rmtree(file) if file.is_dir() else file.unlink()

        return place.once("strangers", make)

    def commands(self, kind, run, out, data):
        reports = [(["report", run, *how, "-q"], False)
                   for how in (["--md"], ["--csv"], ["--json"], ["--html", out / "page.html"], [])]
        reports += [(["report", run.parent, "--md", "-q"], False), (["report", run.parent, "-q"], False)]
        if kind == "run":
            config = run / "config.toml"
            return reports + [(words, False) for words in (
                ["report", run, "--live", "--interval", "1", "-q"], ["eval", run, "--json"],
                ["eval", run, f"data.path={data}", "--json"], ["eval", run, "--predictions", out / "p.csv", "-q"],
                ["train", "--resume", "--run", run, "train.steps=12", "-q"],
                ["train", "--resume", "--run", run, "train.steps=12", f"data.path={data}", "-q"],
                ["train", "--resume", "--run", run, "train.steps=12", f"data.path={data}", "data.reader=idx",
                 "-q"])] + [
                (words, True) for words in (
                    ["inspect", config, "--plan"], ["bench", config, "--batches", "3", "--json"],
                    ["profile", config, "--seconds", "0.05", "--given", "--change", "loader.workers=1", "--run",
                     out / "profile", "-q"])]
        if kind == "profile":
            return reports
        if kind == "stopped":
            return reports[:2] + [(["sweep", "--resume", "--run", run, *how], False) for how in (["-q"], ["--json"])]
        return reports[:2] + [(["sweep", *words], False) for words in (
            ["--resume", "--run", run, "-q"], [run, "--block", "2", "-q"], [run, "--collect", "-q"], [run, "--status"],
            [run, "--collect", "--json"], [run, "--status", "--json"])]


class WhatIf(Strangers):
    name = "what-if"
    about = "hostile records of `pymillrace watch` to `what-if` and `report`, under strace"
    cases = 1500

    def missing(self, campaign):
        return tracing.missing() or package.missing(campaign.build, "torch", "torchvision", "pymillrace._watch")

    def genuine(self, place):
        def make(folder):
            make_home(folder / "owner")
            images = kills.image_data(place) / "test"
            (folder / "train.py").write_text(
                "from torch.utils.data import DataLoader\nfrom torchvision import datasets, transforms\n"
                "chain = transforms.Compose([transforms.Resize((16, 16)), transforms.ToTensor()])\n"
                f"for batch in DataLoader(datasets.ImageFolder({str(images)!r}, chain), batch_size=4): pass\n")
            ended = package.python(place).run(
                "-m", "pymillrace", "watch", "--run", folder / "watched", "--", sys.executable, folder / "train.py",
                env={**homes(folder / "owner"), **package.environment(place.build)})
            if not (folder / "watched" / "summary.json").exists():
                raise RuntimeError(f"watch failed: {ended.said()}")

        return place.once("watched", make)

    def commands(self, kind, run, out, data):
        return [(["-m", "pymillrace", "what-if", run], False)] * 4 + [(["report", run, "--md", "-q"], False)]


GROUPS = [Stranger(), WhatIf()]
