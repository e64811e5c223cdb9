"""Augmentations that are Python functions."""
import gc
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import traceback
import weakref

import numpy as np
import pymillrace as mr
import pytest
from batches import SYNTHETIC, hash_of

CROP = mr.RandomResizedCrop(32)


@mr.augmentation
def speckle(image, rng):
    """Sets some pixels to white."""
    image[rng.random(image.shape[:2]) < 0.1] = 255


@mr.augmentation(reach="pointwise")
def negate(image):
    return 255 - image


@mr.augmentation(name="named_op")
def some_function(image, rng=None):
    assert rng is None
    return image


@pytest.fixture(scope="module")
def photos(data):
    return mr.Folder(data / "photos")


def make(photos, chain, *overrides, **options):
    return mr.Loader(photos, chain, "output.dtype=u8", *overrides, **{"batch": 16, "numpy": True, **options})


def levels(photos, chain, *overrides):
    return {(batch.epoch, int(sample)): image for batch in make(photos, chain, *overrides)
            for sample, image in zip(batch.samples, batch.images)}


def test_a_function_changes_the_pixels_where_it_stands_in_the_chain(photos):
    plain, inverted = levels(photos, [CROP]), levels(photos, [CROP, negate])
    assert all(np.array_equal(inverted[key], 255 - plain[key]) for key in plain)
    before = negate.calls
    recipe = levels(photos, [CROP, negate, mr.HFlip(1)])
    assert all(np.array_equal(recipe[key], inverted[key][:, :, ::-1]) for key in plain)
    assert negate.calls - before >= len(plain)
    assert negate.seconds > 0 and negate.waited_s > 0
    assert np.array_equal(negate(np.full((1, 1, 3), 5, np.uint8)), np.full((1, 1, 3), 250, np.uint8))


def test_any_number_of_workers_gives_the_same_bytes(photos):
    chain = [CROP, speckle, negate]
    expected = hash_of(make(photos, chain, "loader.workers=0"))
    for workers in (1, 2, 3):
        assert hash_of(make(photos, chain, f"loader.workers={workers}")) == expected
    assert hash_of(make(photos, chain, "seed=2")) != expected
    loader = make(photos, chain, "loader.workers=2")
    first, second = (levels_of(loader), levels_of(loader))
    assert any(not np.array_equal(first[key], second[key]) for key in first)  # another epoch draws anew


def test_augmentations_are_told_apart():
    assert speckle != negate and speckle == speckle and len({speckle, negate, some_function}) == 3
    assert repr(some_function) == "<augmentation named_op>"


def levels_of(loader):
    return {int(sample): image for batch in loader for sample, image in zip(batch.samples, batch.images)}


def test_a_recipe_names_it_and_gray_images_have_one_channel():
    shapes = set()

    @mr.augmentation
    def look(image):
        shapes.add((image.shape, image.dtype, image.flags.writeable, image.flags.owndata))

    next(iter(mr.Loader(*SYNTHETIC, "augment+=look", numpy=True)))
    assert shapes == {((32, 32, 1), np.dtype(np.uint8), True, True)}


def test_the_array_that_a_function_keeps_is_its_own(photos):
    kept = []

    @mr.augmentation
    def keep(image):
        kept.append((image, image.copy()))

    list(make(photos, [CROP, keep], "loader.workers=2"))
    assert len(kept) >= len(make(photos, [CROP]).dataset)  # and of batches that were made ahead
    assert all(np.array_equal(image, copy) for image, copy in kept)


@mr.augmentation
def fussy(image):
    if image[0, 0, 0] % 3 == 0:
        raise ValueError("too\nred")


def test_an_exception_is_one_bad_sample(photos):
    for workers in (0, 2):
        loader = make(photos, [CROP, fussy], "loader.on_error=skip", f"loader.workers={workers}")
        good = sum(len(batch.labels) for batch in loader)
        assert loader.failures and good + len(loader.failures) == len(loader.dataset)
        for failure in loader.failures:
            assert failure.name.endswith(".jpg")
            assert re.fullmatch(r"fussy: ValueError: too \(test_augmentations.py:\d+\)", failure.reason)
        with pytest.raises(mr.DataError, match=r"\.jpg: fussy: ValueError: too .*fix the function fussy"):
            list(make(photos, [CROP, fussy], f"loader.workers={workers}"))


def test_what_a_function_raised_is_the_cause_with_its_traceback(photos):
    def inner(image):
        raise KeyError("no level")

    @mr.augmentation
    def deep(image):
        inner(image)

    for workers in (0, 2):
        loader = make(photos, [CROP, deep], f"loader.workers={workers}")
        for raising in (lambda: list(loader), lambda: loader.profile(1)):
            with pytest.raises(mr.DataError, match="deep: KeyError") as caught:
                raising()
            cause = caught.value.__cause__
            assert isinstance(cause, KeyError) and cause.args == ("no level",)
            names = [frame.name for frame in traceback.extract_tb(cause.__traceback__)]
            assert names[-2:] == ["deep", "inner"]


def test_no_exceptions_of_skipped_samples_pile_up(photos):
    class Odd(ValueError):  # built-in exceptions take no weak references
        pass

    raised = []

    @mr.augmentation
    def odd(image):
        error = Odd(f"number {len(raised)}")
        raised.append(weakref.ref(error))
        raise error

    loader = make(photos, [CROP, odd], "loader.on_error=skip", "loader.workers=0")
    list(loader)
    gc.collect()
    assert len(raised) > 20 and sum(one() is not None for one in raised) <= 16


@pytest.mark.parametrize("result, message", [
    (np.zeros((2, 2, 3), np.uint8), r"uint8 of shape \(2, 2, 3\) instead of uint8 of shape \(32, 32, 3\)"),
    (np.zeros((32, 32, 3)), "returned float64"), (3, "an object of type int"),
])
def test_a_wrong_result_is_named(photos, result, message):
    @mr.augmentation
    def wrong(image):
        return result

    with pytest.raises(mr.DataError, match=f"jpg: wrong: it .*{message}"):
        list(make(photos, [CROP, wrong]))


def test_an_exit_in_a_function_is_a_failure_and_ends_nothing(photos):
    @mr.augmentation
    def leaves(image):
        sys.exit(3)

    with pytest.raises(mr.DataError, match="leaves: SystemExit: 3"):
        list(make(photos, [CROP, leaves], "loader.workers=2"))


def test_a_new_definition_serves_new_loaders_only(photos):
    def define(level):
        @mr.augmentation
        def paint(image):
            image[...] = level
        return paint

    old = make(photos, [CROP, define(7)])
    new = make(photos, [CROP, define(9)])
    assert {int(level) for batch in old for level in np.unique(batch.images)} == {7}
    assert {int(level) for batch in new for level in np.unique(batch.images)} == {9}
    with pytest.raises(mr.UsageError, match="paint was defined with another reach"):
        mr.augmentation(name="paint", reach="pointwise")(lambda image: None)


@pytest.mark.parametrize("make_one, message", [
    (lambda: mr.augmentation(name="hflip")(lambda image: None), "augmentation hflip already exists"),
    (lambda: mr.augmentation(lambda image: None), "'<lambda>' cannot be the name"),
    (lambda: mr.augmentation(name="f", reach="far")(lambda image: None), "reach='far'.*pointwise, global"),
    (lambda: mr.augmentation(name="f")(lambda: None), "f does not take one or two arguments"),
    (lambda: mr.augmentation(name="f")(lambda a, b, c: None), "f does not take one or two arguments"),
    (lambda: mr.augmentation(3), "cannot be the name|is not a function"),
])
def test_bad_definitions_are_refused(make_one, message):
    with pytest.raises(mr.UsageError, match=message):
        make_one()


def test_workers_take_the_lock_while_next_waits(photos):
    """A function that waits for the consumer's thread to have waited: next() must not hold the interpreter lock."""
    ran = threading.Event()

    @mr.augmentation
    def notes(image):
        ran.set()

    loader = make(photos, [CROP, notes], "loader.workers=2")
    next(iter(loader))
    assert ran.is_set()
    loader.close()


def test_the_profile_shows_its_cost_beside_the_others(photos):
    loader = make(photos, [CROP, mr.GaussianBlur(5), negate, mr.HFlip()])
    rows = loader.profile(8)
    steps = {row.step: row for row in rows}
    assert {"decode", "pass", "negate"} <= set(steps), rows
    assert any(row.step == "gaussian_blur" or "gaussian_blur" in row.ops for row in rows)
    assert all(row.s_per_sample > 0 for row in rows)
    assert str(steps["negate"]).startswith("negate  ") and "µs" in str(steps["negate"])
    with pytest.raises(mr.UsageError, match="at least one sample"):
        loader.profile(0)
    with pytest.raises(mr.DataError, match="fussy: ValueError"):
        make(photos, [CROP, fussy]).profile(96)


def run(code, photos, **options):
    return subprocess.run([sys.executable, "-c", textwrap.dedent(code), str(photos.path)], capture_output=True, text=True,
                          timeout=120, **options)


HEAD = """
    import os, signal, sys, threading, time
    import pymillrace as mr

    def make(op, workers):
        return mr.Loader(mr.Folder(sys.argv[1]), [mr.RandomResizedCrop(32), op], f"loader.workers={workers}", batch=16,
                         numpy=True)
"""


@pytest.mark.parametrize("ending", ["pass", "sys.exit(0)", "del loader, batches", "loader.close()"])
def test_a_process_ends_while_workers_compute(photos, ending):
    done = run(HEAD + f"""
    @mr.augmentation
    def slow(image):
        sum(range(100_000))

    loader = make(slow, 2)
    batches = iter(loader)
    next(batches)
    print("one", flush=True)
    {ending}
    """, photos)
    assert (done.returncode, done.stdout, done.stderr) == (0, "one\n", "")


def test_a_function_that_never_returns_does_not_keep_a_process_alive(photos):
    done = run(HEAD + """
    @mr.augmentation
    def stuck(image):
        begun.set()
        time.sleep(1000)

    begun = threading.Event()
    loader = make(stuck, 2)
    batches = iter(loader)
    threading.Thread(target=lambda: (begun.wait(), os.kill(os.getpid(), signal.SIGINT)), daemon=True).start()
    try:
        next(batches)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    """, photos)
    assert (done.returncode, done.stdout, done.stderr) == (0, "interrupted\n", "")


def test_a_function_that_computes_forever_does_not_keep_a_process_alive(photos):
    done = run(HEAD + """
    @mr.augmentation
    def spins(image):
        begun.set()
        while True:
            pass

    begun = threading.Event()
    loader = make(spins, 2)
    batches = iter(loader)
    threading.Thread(target=lambda: (begun.wait(), os.kill(os.getpid(), signal.SIGINT)), daemon=True).start()
    try:
        next(batches)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    """, photos)
    assert (done.returncode, done.stdout, done.stderr) == (0, "interrupted\n", "")


def test_ctrl_c_in_a_function_without_workers_is_no_bad_sample(photos):
    done = run(HEAD + """
    @mr.augmentation
    def once(image):
        calls.append(0)
        if len(calls) == 20:
            signal.raise_signal(signal.SIGINT)

    calls = []
    loader = mr.Loader(mr.Folder(sys.argv[1]), [mr.RandomResizedCrop(32), once], "loader.workers=0",
                       "loader.on_error=skip", batch=16, numpy=True)
    try:
        for batch in loader:
            print(len(batch.labels), flush=True)
    except KeyboardInterrupt:
        state = loader.state_dict()
        print("interrupted after", state["batch"], len(calls), loader.failures)
    loader.load_state_dict(state)
    print(sum(len(batch.labels) for batch in loader) + 16 == len(loader.dataset), loader.failures)
    """, photos)
    assert (done.stdout, done.stderr) == ("16\ninterrupted after 1 20 []\nTrue []\n", ""), done.stderr


def test_long_messages_in_any_script_are_cut_between_characters(photos):
    @mr.augmentation
    def verbose(image):
        raise ValueError("\N{GRINNING FACE}" * 400)

    loader = mr.Loader(photos, [mr.RandomResizedCrop(32), verbose], "loader.workers=0", batch=4, numpy=True)
    with pytest.raises(mr.DataError, match="verbose: ValueError: \N{GRINNING FACE}{40,}"):
        next(iter(loader))


def test_a_forked_child_ends_and_makes_loaders_of_its_own(photos):
    done = run(HEAD + """
    @mr.augmentation
    def dim(image):
        return image // 2

    loader = make(dim, 2)
    batches = iter(loader)
    next(batches)
    child = os.fork()
    if child == 0:
        own = sum(len(batch.labels) for batch in make(dim, 1))
        mr.augmentation(name="late")(lambda image: None)
        print("child", own, flush=True)
        sys.exit(5)
    print("code", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), sum(len(batch.labels) for batch in batches) + 16)
    """, photos)
    count = len(make(photos, [CROP]).dataset)
    assert (done.stdout, done.stderr) == (f"child {count}\ncode 5 {count}\n", "")


def test_loaders_on_other_threads_and_definitions_do_not_disturb_each_other(photos):
    expected, found = hash_of(make(photos, [CROP, negate])), []

    def load():
        found.append(hash_of(make(photos, [CROP, negate], "loader.workers=2")))

    threads = [threading.Thread(target=load) for _ in range(4)]
    for number, thread in enumerate(threads):
        thread.start()
        mr.augmentation(name=f"beside_{number}")(lambda image: None)
    for thread in threads:
        thread.join(60)
    assert found == [expected] * 4
