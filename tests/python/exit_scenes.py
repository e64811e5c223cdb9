"""Ends while daemon threads are in the package: exit_scenes.py SCENE SECONDS [PORT]. Started by test_exit.py.

Two or more threads do what the scene says again and again; the main thread ends that long after they have begun.
"""
import sys
import threading
import time

import pymillrace as mr

WORDS = ("mnist-lenet", "data.reader=synthetic", "data.synthetic.channels=1", "data.synthetic.count=1000")
begun = threading.Event()


def make(*overrides, **options):
    return mr.Loader(*WORDS, *overrides, **{"numpy": True, **options})


@mr.augmentation
def naps(image):
    begun.set()
    time.sleep(0.001)


@mr.augmentation
def sleeps(image):
    begun.set()
    time.sleep(1000)


@mr.augmentation
def computes(image):
    begun.set()
    sum(range(1000))


def iterate(*overrides):
    loader = make(*overrides)
    while True:
        for _ in loader:
            begun.set()


def make_and_drop():
    while True:
        next(iter(make("loader.workers=1")))
        begun.set()


def names():
    batch = next(iter(make()))
    while True:
        assert batch.names
        begun.set()


def profile():
    loader = make("augment+=naps")
    while True:
        loader.profile(3)


def share(loader=make()):
    while True:
        try:
            for _ in loader:
                begun.set()
        except mr.RunError:  # another thread is in it
            pass


def open_remote():
    threading.Timer(0.05, begun.set).start()
    mr.Loader(mr.Tar(f"http://127.0.0.1:{sys.argv[3]}/set.tar"), [mr.CenterCrop(32)], batch=4, numpy=True)


SCENES = {
    "iterates": iterate,
    "iterates without workers": lambda: iterate("loader.workers=0"),
    "waits": lambda: iterate("data.storage.latency=50", "loader.batch=4"),
    "naps": lambda: iterate("augment+=naps"),
    "naps without workers": lambda: iterate("augment+=naps", "loader.workers=0"),
    "computes": lambda: iterate("augment+=computes"),
    "sleeps": lambda: iterate("augment+=sleeps"),
    "sleeps without workers": lambda: iterate("augment+=sleeps", "loader.workers=0"),
    "makes and drops": make_and_drop,
    "names": names,
    "profiles": profile,
    "shares a loader": share,
    "opens a server's data": open_remote,
}

if __name__ == "__main__":
    scene, moment = sys.argv[1], float(sys.argv[2])
    for _ in range(4 if scene == "shares a loader" else 2):
        threading.Thread(target=SCENES[scene], daemon=True).start()
    begun.wait(20)
    time.sleep(moment)
