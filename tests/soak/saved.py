"""Damaged checkpoints, run records and recipes: rejected by name, or without any effect."""
import resource
import shutil

import bits
import kills
import mutate
import program
from campaign import SOURCE, Failure, Group
from inputs import checked


def training(place, *more):
    return ["train", "mnist-lenet", f"data.path={kills.idx_data(place)}", "train.threads=1",
            "loader.batch=30", "train.epochs=2", "train.ema=0.9", "train.optimizer=adamw",
            "train.checkpoint_every=3", *more]


def started(place):
    """Returns a run at its tenth of 14 steps, and the same run at its end."""
    def make(folder):
        for name, more in (("part", ["train.steps=10"]), ("whole", [])):
            ended = place.program.run(*training(place, *more), "--run", folder / name)
            if ended.code != 0:
                raise RuntimeError(f"the undamaged run failed: {ended.said()}")
        ended = evaluated(place, folder / "part")
        (folder / "eval.json").write_bytes(ended.out)

    return place.once("started", make)


def evaluated(place, run):
    return place.program.run("eval", run, "train.threads=1", "--json")


def findings(document):
    """Returns an evaluation's results, without its device and speed."""
    return {key: value for key, value in document.items()
            if key not in ("weights", "dataset") and not key.endswith("_s")}


def spoil(file, draw, tokens, mend=None):
    """Damages a file in place. Returns False if that changed nothing."""
    before = file.read_bytes()
    if draw.random() < 0.3:  # bit flips, as by a failing disk
        after = bytearray(before)
        after[draw.randrange(len(after))] ^= 1 << draw.randrange(8)
    else:
        after = mutate.mutated(before, draw, tokens)
        if mend is not None and draw.random() < 0.5:
            after = mend(after)
    file.write_bytes(after)
    return after != before


class Saved(Group):
    """Copies a run, damages one of its files, and resumes it."""
    cases = 1000
    batch = 10
    smoke = 1
    origin = "part"

    def run(self, place, indexes):
        runs = started(place)
        for index in indexes:
            run = place.folder / f"run-{index}"
            shutil.copytree(runs / self.origin, run, symlinks=True)
            wrong = list(self.damage(place, place.draw(self.name, index), run, runs / "whole"))
            if wrong:
                yield Failure(index, "; ".join(wrong[:3]))
            else:
                shutil.rmtree(run)


class Checkpoint(Saved):
    name = "checkpoint"
    about = "damaged checkpoints (safetensors, position.json): `train --resume`, `eval`"
    guess_s = 8
    words = (b'"F32"', b'"I64"', b'"BF16"', b'"U8"', b"data_offsets", b"shape", b"__metadata__",
             b"[0,0]", b"9" * 19, b"{", b"}", b"-1", b"1e308", b"null", b"conv1.weight")

    def damage(self, place, draw, run, whole):
        last = run / "checkpoints" / "last"
        file = draw.choice(sorted(last.iterdir()))
        spoil(file, draw, self.words,
              mutate.with_safetensors_length if file.suffix == ".safetensors" else None)
        wrong = []
        if draw.random() < 0.5:
            ended = checked(place, wrong, f"eval, damaged {file.name}", "eval", run,
                            "train.threads=1", "--json")
            before = bits.read_json(whole.parent / "eval.json")
            if ended.code == 0 and not wrong and findings(ended.document()) != findings(before):
                wrong.append(f"damaged {file.name} was evaluated, with another result")
            return wrong
        ended = checked(place, wrong, f"resume, damaged {file.name}", "train", "--resume", "--run",
                        run, "train.steps=0")
        if ended.code == 0:
            found = bits.compare(bits.bits_of(whole), run)
            wrong += [f"damaged {file.name} was taken: {line}" for line in found[:2]]
        elif ended.code == 3 and file.name not in ended.text():
            wrong.append(f"damaged {file.name} is not named: {ended.said()}")
        return wrong


class RunFiles(Saved):
    name = "records"
    about = "damaged records of a run: `report`, `train --resume`"
    guess_s = 2
    words = (b"null", b"[]", b"{}", b'"x"', b"-1", b"1e999", b"NaN", b"true", b",", b"\n", b'"',
             b"step", b"loss", b"epoch", b"\x1b[2J", b"\xff", b"9" * 400, b"[" * 100_000,
             b"a." * 50_000)
    files = ("config.toml", "metrics.jsonl", "summary.json", "steps.csv")

    def damage(self, place, draw, run, whole):
        file = run / draw.choice(self.files)
        spoil(file, draw, self.words)
        wrong = []
        codes = (0, 2, 3) if file.name == "config.toml" else (0, 3)
        how = draw.choice((["--md"], ["--csv"], ["--html", run / "page.html"], ["--json"]))
        checked(place, wrong, f"report {how[0]}, damaged {file.name}", "report", run, *how,
                codes=codes)
        if draw.random() < 0.1:
            # A recipe changed to another valid one may diverge: exit code 1.
            checked(place, wrong, f"resume, damaged {file.name}", "train", "--resume", "--run", run,
                    "train.steps=0", "train.epochs=2", "train.threads=1",
                    codes=(0, 1, 2, 3) if file.name == "config.toml" else (0, 3))
        return wrong


class Recipe(Group):
    name = "recipe"
    about = "damaged TOML recipes: `inspect --plan`, `bench` on made-up images"
    cases = 1000
    batch = 10
    smoke = 3
    guess_s = 1
    words = (b"[[augment]]", b"[loader]", b"[data]", b"op = ", b'"resize"', b'"random_affine"',
             b'"random_apply"', b'"mixup"', b"size = 4", b"p = 0.5", b"true", b"nan", b"inf", b"-1",
             b"1e309", b"0x7fffffffffffffff", b'"""', b"'''", b"{", b"}", b"[" * 20_000,
             b"a." * 50_000, b"a." * 50_000 + b"b = 1\n", b"\0", b"\xff", b"\x1b[31m", b"# ",
             b"size = [224, 224]\n", b"scale = [0.08, 1.0]\n", b"x" * 200_000)

    def run(self, place, indexes):
        texts = [file.read_bytes() for file in sorted((SOURCE / "recipes").glob("*.toml"))]
        # Four gigabytes: an accepted recipe may ask for much, and then fails with exit code 1.
        limits = {resource.RLIMIT_AS: 4 << 30}
        for index in indexes:
            draw = place.draw(self.name, index)
            file = place.folder / f"{index}.toml"
            # Leaves out comments, which are half of a recipe and make damage without effect.
            text = b"\n".join(line for line in draw.choice(texts).split(b"\n")
                              if not line.startswith(b"#"))
            file.write_bytes(mutate.mutated(text, draw, self.words, texts))
            wrong = []
            data = ["data.reader=synthetic", "data.synthetic.count=12", "data.synthetic.width=48",
                    "data.synthetic.height=40", "data.storage.latency=0", "data.storage.iops=0",
                    "data.storage.bandwidth=0", "loader.mode=normal"]
            checked(place, wrong, "plan", "inspect", file, *data, "--plan", codes=(0, 1, 2, 3),
                    limits=limits)
            ended = checked(place, wrong, "bench", "bench", file, *data, "loader.batch=4",
                            "loader.prefetch=2", "loader.workers=1", "bench.epochs=1",
                            "bench.first_batch=0", codes=(0, 1, 2, 3), limits=limits)
            if ended.code == 1 and "memory" not in ended.text():
                wrong.append(f"bench: exit code 1 for a recipe: {ended.said()}")
            if wrong:
                yield Failure(index, "; ".join(wrong[:3]))


GROUPS = [Checkpoint(), RunFiles(), Recipe()]
