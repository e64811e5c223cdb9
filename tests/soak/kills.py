"""Kills and resumes runs, ranks and sweeps, which must end with the bits of an uninterrupted one."""
import os
import shutil
import signal
import time

import bits
import formats
import program
from campaign import Failure, Group

MISSED = "it had ended"
VARIANTS = 12  # recipes, each with one uninterrupted run as its reference


def idx_data(place):
    return place.once("idx", formats.write_idx_set)


def image_data(place):
    return place.once("images", formats.write_image_set)


def recipe_words(draw, place):
    """Returns a random training of some 30 steps with much state."""
    words = ["train.threads=1", f"loader.workers={draw.choice((0, 1, 2))}",
             f"seed={draw.randrange(1000)}", f"loader.shuffle={draw.choice(('global', 'window:50'))}",
             f"train.optimizer={draw.choice(('sgd', 'adam', 'adamw'))}",
             f"train.schedule={draw.choice(('constant', 'cosine', 'onecycle', 'step'))}",
             f"train.ema={draw.choice((0, 0.9))}", f"train.accumulate={draw.choice((1, 1, 2, 3))}",
             f"train.checkpoint_every={draw.choice((0, 1, 2, 3, 5))}",
             f"train.checkpoint_keep={draw.choice((1, 2, 3))}", f"train.clip={draw.choice((0, 1))}",
             f"train.amp={draw.choice(('off', 'off', 'bf16'))}", "train.lr=0.002",
             f"train.label_smoothing={draw.choice((0, 0.1))}",
             f"loader.drop_last={draw.choice(('true', 'false'))}",
             f"eval.every={draw.choice((0, 1, 2))}",
             f"train.tensorboard={draw.choice(('true', 'false'))}"]
    if draw.random() < 0.6:
        return ["mnist-lenet", f"data.path={idx_data(place)}", "loader.batch=30", "train.epochs=4",
                *words]
    on_error = draw.choice(("skip", "replace"))
    return ["cifar10-lenet", "data.reader=folder", f"data.path={image_data(place)}",
            "model.classes=3", "loader.batch=17", "train.epochs=4", f"loader.on_error={on_error}",
            "augment+=random_crop{size=32,padding=4}", "augment+=hflip",
            *(["augment+=mixup"] if draw.random() < 0.5 else []), *words]


class Chains(Group):
    """Kills and restarts a command several times, then lets it finish."""
    most_kills = 4
    timeout = 300
    checkpoint = "checkpoints/*.tmp"  # a checkpoint that is being written

    def words(self, place, variant):
        """Returns the command, except for its output folder."""
        raise NotImplementedError

    def bits(self, folder):
        raise NotImplementedError

    def slowly(self):
        """Returns words that make the command last long enough to be hit, and change no bit."""
        return ["debug.log_ms=20"]

    def reference(self, place, variant):
        """Returns the bits of the uninterrupted command, and its seconds with slowly()."""
        name = f"{self.name}-{variant}"

        def make(folder):
            began = time.monotonic()
            ended = place.program.run(*self.words(place, variant), *self.slowly(), "--run",
                                      folder / "run", timeout=self.timeout)
            if ended.code != 0:
                raise RuntimeError(f"the uninterrupted run failed: {ended.said()}")
            (folder / "seconds").write_text(str(time.monotonic() - began))

        folder = place.once(name, make)
        return self.bits(folder / "run"), float((folder / "seconds").read_text())

    def run(self, place, indexes):
        for index in indexes:
            draw = place.draw(self.name, index)
            variant = index % VARIANTS
            try:
                expected, seconds = self.reference(place, variant)
            except RuntimeError as error:
                yield Failure(index, str(error))
                continue
            run = place.folder / f"run-{index}"
            words = [*self.words(place, variant), "--resume", "--run", run]
            story = []
            for _ in range(draw.randint(1, self.most_kills)):
                story.append(self.kill(place, draw, words, run, seconds))
                if story == [MISSED]:  # killed too late, and nothing to resume: tries once more
                    shutil.rmtree(run)
                    seconds /= 2
                elif story[-1] == MISSED or story[-1].startswith("!"):
                    break
            found = story.pop()[1:].split("\n") if story[-1].startswith("!") else []
            if not found:
                ended = place.program.run(*words, timeout=self.timeout)
                found = program.complaints(ended, codes=(0,))
                found = [f"{line}: {ended.said()}" for line in found]
                found = found or self.verdict(expected, run)
            if found:
                yield Failure(index, "; then ".join((f"variant {variant}", *story, *found[:3])))

    def verdict(self, expected, run):
        try:
            return bits.differences(expected, self.bits(run)) + bits.temporaries(run)
        except (OSError, ValueError, KeyError) as error:
            return [f"the records cannot be read: {error!r}"]

    def kill(self, place, draw, words, run, seconds):
        """Starts the command and kills it. Returns how, with a leading ! if that went wrong."""
        child = place.program.start(*words, *self.slowly())
        deadline = time.monotonic() + draw.uniform(0, seconds)
        # Aims at the critical moment: while a checkpoint is being written.
        writing = draw.random() < 0.3
        victim = self.victim(draw)
        while child.running() and time.monotonic() < deadline:
            time.sleep(0.002)
        while writing and child.running() and not any(run.glob(self.checkpoint)):
            time.sleep(0.0005)
        hit = child.running()
        how = self.hit(child, victim)
        ended = child.wait(60)
        where = (f"{how} after {ended.seconds:.2f} s{' in a checkpoint' if writing else ''}" if hit
                 else MISSED)
        if left := child.left():
            return f"!{where}: {len(left)} processes are left"
        if wrong := self.ending(ended, how):
            return f"!{where}: {'; '.join(wrong)}: {ended.said()}"
        return where

    def victim(self, draw):
        return signal.SIGKILL if draw.random() < 0.85 else draw.choice(
            (signal.SIGTERM, signal.SIGINT))

    def hit(self, child, victim):
        child.send(victim)
        return victim.name

    def ending(self, ended, how):
        """Returns what is wrong with how a killed command ended."""
        if ended.code == -signal.SIGKILL and how == "SIGKILL" and not ended.timed_out:
            return []
        # Before main() begins, a signal has its default effect.
        if ended.code == -signal.Signals[how] and not ended.err:
            return []
        return program.complaints(ended, codes=(0, 130))


class Kill(Chains):
    name = "kill"
    about = "runs killed (kill -9, SIGTERM, Ctrl-C) and resumed, up to four times each"
    cases = 100
    guess_s = 6

    def words(self, place, variant):
        return ["train", *recipe_words(place.draw("recipe", variant), place)]

    def bits(self, folder):
        return bits.bits_of(folder)


class Launch(Chains):
    name = "launch"
    about = "`launch -n 3`: a rank or the launcher killed, then resumed"
    cases = 50
    guess_s = 15
    most_kills = 2

    def words(self, place, variant):
        draw = place.draw("launched", variant)
        return ["launch", "-n", "3", "--", "train", *recipe_words(draw, place),
                "train.strategy=ddp", "train.timeout=20"]

    def bits(self, folder):
        return bits.bits_of(folder)

    def victim(self, draw):
        return draw.choice(("rank 0", "rank 1", "rank 2", "rank 1", "launcher", "SIGTERM"))

    def hit(self, child, victim):
        if victim == "launcher":
            child.send(signal.SIGKILL)
            return "SIGKILL"
        if victim == "SIGTERM":
            child.send(signal.SIGTERM)
            return victim
        ranks = program.children_of(child.pid)
        if len(ranks) < 3:
            child.send(signal.SIGKILL)
            return "SIGKILL"
        try:
            os.kill(ranks[int(victim[-1])], signal.SIGKILL)
        except ProcessLookupError:
            pass
        return victim

    def ending(self, ended, how):
        if not how.startswith("rank"):
            return super().ending(ended, how)
        return program.complaints(ended, codes=(0, 1))


class Sweep(Chains):
    name = "sweep"
    about = "sweeps killed and resumed: no finished run again, each run's bits"
    cases = 20
    guess_s = 25

    def words(self, place, variant):
        draw = place.draw("swept", variant)
        return ["sweep", "mnist-lenet", f"data.path={idx_data(place)}", "train.threads=1",
                "train.epochs=1", "loader.batch=20", f"loader.workers={draw.choice((0, 1, 2))}",
                f"train.lr=0.01,{draw.choice((0.02, 0.03))}", "--repeats", "3"]

    checkpoint = "runs/*/checkpoints/*.tmp"

    def slowly(self):
        return []

    def bits(self, folder):
        """Returns the bits of a sweep's runs by their overrides, and when each finished."""
        found = {}
        for summary in sorted((folder / "runs").glob("*/summary.json")):
            run = summary.parent
            if bits.read_json(summary).get("interrupted"):
                continue
            name = run.name.partition("-")[2]
            found.update({f"{name} {key}": value for key, value in bits.bits_of(run).items()})
        return found

    def kill(self, place, draw, words, run, seconds):
        before = finished(run)
        story = super().kill(place, draw, words, run, seconds)
        after = finished(run)
        again = [name for name, when in before.items() if after.get(name) != when]
        return f"!{story}: finished runs were run again: {', '.join(again)}" if again else story


def finished(sweep):
    """Returns when each finished run of a sweep was written."""
    return {summary.parent.name: summary.stat().st_mtime_ns
            for summary in (sweep / "runs").glob("*/summary.json")
            if not bits.read_json(summary).get("interrupted")}


GROUPS = [Kill(), Launch(), Sweep()]
