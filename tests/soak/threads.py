"""Python's exit while daemon threads iterate over a Loader or sleep in an augmentation: the script's own exit code, no
signal, no word on stderr."""
import signal
import time

import kills
import package
from campaign import Failure, Group

SCRIPT = '''import os, random, signal, sys, threading, time
import pymillrace as mr

draw = random.Random({seed})

@mr.augmentation
def slow(image, rng):
    time.sleep({sleep})

def work():
    loader = mr.Loader("mnist-lenet", "data.path={data}", "loader.batch=4", "loader.workers={workers}",
                       "loader.shuffle=none", {more} numpy=True)
    for epoch in range(10**6):
        for batch in loader:
            {body}

for _ in range({threads}):
    threading.Thread(target=work, daemon={daemon}).start()
print("ready", flush=True)
time.sleep({moment})
{end}
'''
# A signal that arrives after Python has checked for signals and before the system call is noticed only when the sleep
# ends. Short sleeps tell that from a signal that is lost.
SLEEP = "while True: time.sleep(0.1)"
ENDS = {
    "return": ("", 0), "exit": ("sys.exit(7)", 7), "error": ("raise ValueError('planted')", 1),
    "atexit": ("import atexit; atexit.register(time.sleep, 0.05); sys.exit(3)", 3), "_exit": ("os._exit(5)", 5),
    "SIGTERM": (SLEEP, -signal.SIGTERM), "SIGINT": (SLEEP, -signal.SIGINT),
}
BODIES = ("pass", "time.sleep(0.001)", "batch.images.sum()", "kept = list(batch)", "sum(i * i for i in range(20000))")


class Exit(Group):
    name = "threads"
    about = "Python ends while daemon threads load: exit code, stderr, in time"
    cases = 1000
    batch = 10
    smoke = 2
    guess_s = 6

    def missing(self, campaign):
        return package.missing(campaign.build, "numpy", "pymillrace._watch")

    def run(self, place, indexes):
        for index in indexes:
            draw = place.draw(self.name, index)
            how = draw.choice(sorted(ENDS))
            text, code = ENDS[how]
            augmented = draw.random() < 0.6
            threads, workers = draw.randint(1, 4), draw.choice((0, 1, 2))
            script = place.folder / f"{index}.py"
            script.write_text(SCRIPT.format(
                seed=index, sleep=draw.choice((0, 0.001, 0.05, 5)), data=kills.idx_data(place), workers=workers,
                more='"augment+=slow",' if augmented else "", body=draw.choice(BODIES), threads=threads, daemon=True,
                moment=draw.choice((0, draw.random() * 0.02, draw.random() * 0.5)), end=text))
            child = package.python(place).start("-B", script, env=package.environment(place.build))
            if how.startswith("SIG"):
                deadline = time.monotonic() + 30
                while child.running() and b"ready" not in child._out.read_bytes() and time.monotonic() < deadline:
                    time.sleep(0.005)
                time.sleep(draw.random() * 0.3)
                child.send(signal.Signals[how])
            wrong = self.verdict(child.wait(30), code, how)
            if wrong:
                yield Failure(index, f"{how}, {threads} threads, {workers} workers, "
                                     f"{'an' if augmented else 'no'} augmentation in Python: " + "; ".join(wrong))

    def verdict(self, ended, code, how):
        """Returns what is wrong with the end of a script that should have had this exit code."""
        wrong = []
        if how == "SIGINT" and ended.code == 1 and "KeyboardInterrupt" in ended.text():
            code = 1  # a thread that executes text meanwhile, as imports do, resets Python's flag for -SIGINT
        if ended.timed_out:
            wrong.append("still running after 30 s")
        elif ended.code != code:
            wrong.append(f"exit code {ended.code}, expected {code}")
        expected = {"error": "ValueError: planted", "SIGINT": "KeyboardInterrupt"}.get(how)
        text = ended.text()
        # What the script raised is Python's own to print.
        if expected and text.startswith("Traceback") and text.count("Traceback") == 1 and expected in text:
            text = ""
        if text:
            wrong.append(f"stderr: {ended.said()}")
        return wrong


GROUPS = [Exit()]
