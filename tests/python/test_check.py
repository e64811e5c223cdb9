"""mr.check(): what is wrong with an augmentation in Python is found, each by its line, and nothing else."""
import os
import re
import signal
import threading
import time

import numpy as np
import pymillrace as mr
import pytest
from batches import SYNTHETIC

CHECKS = ["parameters", "images", "reach", "same result", "threads", "leaks", "cost"]


@mr.augmentation
def checked_speckle(image, rng):
    image[rng.random(image.shape[:2]) < 0.1] = 255


@mr.augmentation(reach="pointwise")
def checked_negate(image):
    return 255 - image


@mr.augmentation
def checked_red(image):
    image[..., 2] //= 2


def failures_of(op, **options):
    """Returns {check: what it says} of the checks that fail."""
    with pytest.raises(mr.DataError) as error:
        mr.check(op, **options)
    first, *lines = error.value.what.splitlines()
    assert first == f"{op.name}: {len(lines)} of {len(CHECKS)} checks failed"
    return dict(re.fullmatch(rf"failed   {op.name}: (.*?)  +(.*)", line).groups() for line in lines)


@pytest.mark.parametrize("op", (checked_speckle, checked_negate, "checked_speckle"))
def test_a_sound_augmentation_passes_each_check(op):
    lines = []
    assert mr.check(op, report=lines.append) is None
    name = op if isinstance(op, str) else op.name
    assert [re.fullmatch(rf"ok       {name}: (.*?)  +.*", line)[1] for line in lines] == CHECKS


def test_state_between_calls_is_found():
    calls = [0]

    @mr.augmentation
    def checked_counts(image):
        calls[0] += 1
        image[0, 0] = calls[0] % 251

    found = failures_of(checked_counts)
    assert set(found) == {"same result", "threads"}
    assert "the same call gives two results" in found["same result"]


def test_random_numbers_from_elsewhere_are_found():
    @mr.augmentation
    def checked_draws(image, rng):
        image[0, 0] = np.random.randint(256)

    assert set(failures_of(checked_draws)) == {"same result", "threads"}


def test_memory_that_threads_share_is_found():
    shared = np.zeros(1, np.uint8)

    @mr.augmentation
    def checked_shares(image):
        shared[0] = image[0, 0, 0]
        time.sleep(0)  # other threads run
        image[0, 0] = ~shared[0]

    found = failures_of(checked_shares)
    assert set(found) == {"threads"} and "what other threads do" in found["threads"]


def test_kept_images_are_found():
    kept = []

    @mr.augmentation
    def checked_keeps(image):
        kept.append(image)

    found = failures_of(checked_keeps)
    assert set(found) == {"leaks"} and re.fullmatch(r"a call loses \d+ bytes a time", found["leaks"])


@pytest.mark.parametrize("function, what", (
    (lambda image: image * 0.5, "it returned float64 of shape (224, 224, 3) instead of uint8"),
    (lambda image: image[0], "it returned uint8 of shape (224, 3) instead of uint8 of shape (224, 224, 3)"),
    (lambda image: 5, "it returned an object of type int instead of uint8")))
def test_another_type_or_shape_is_found(function, what):
    found = failures_of(mr.augmentation(name="checked_changes")(function))
    assert set(found) == {"images"} and what in found["images"]
    assert found["images"].startswith("it rejects every image, up to 224x224: checked_changes: ")


def test_an_exception_on_some_images_is_found_unless_it_is_meant():
    found = failures_of(checked_red)
    assert set(found) == {"images"}
    assert re.match(r"it rejects 88 of 176 images, the first: checked_red: IndexError: .*\(test_check.py:\d+\).*"
                    r"\(1x1 gray, number 0, defaults\)", found["images"])
    lines = []
    mr.check(checked_red, may_raise=True, report=lines.append)
    assert "88 rejected, the last: checked_red: IndexError" in lines[CHECKS.index("images")]

    @mr.augmentation
    def checked_single(image):
        assert image.shape[:2] != (1, 1), "too small"

    assert "checked_single: AssertionError: too small" in failures_of(checked_single)["images"]


def test_a_reach_that_is_too_small_is_found():
    @mr.augmentation(reach="pointwise")
    def checked_shift(image):
        return np.roll(image, 1, axis=1)

    assert "it declares pointwise, but pixel" in failures_of(checked_shift)["reach"]


@pytest.mark.parametrize("op, what", (
    (mr.HFlip(), "is no augmentation written in Python"), (np.flip, "is no augmentation written in Python"),
    ("hflip", "no augmentation in Python is called hflip"), ("\udcff", "is no augmentation written in Python")))
def test_what_cannot_be_checked_is_refused(op, what):
    with pytest.raises(mr.UsageError, match=what):
        mr.check(op)


@pytest.mark.parametrize("options", ({"report": 3}, {"may_raise": 1}))
def test_wrong_arguments_are_refused(options):
    name, = options
    with pytest.raises(mr.UsageError, match=f"{name}={options[name]} is n"):
        mr.check(checked_negate, **options)


def test_functions_are_defined_and_loaders_made_meanwhile():
    made = []

    @mr.augmentation
    def checked_defines(image):
        if not made:
            made.append(mr.augmentation(name="checked_inner")(np.flipud))
            next(iter(mr.Loader(*SYNTHETIC, "augment+=checked_inner", numpy=True)))

    mr.check(checked_defines)


def interrupted(function):
    """Checks the function, which sets an event when Ctrl-C is to come. Returns the seconds from then on."""
    begun = threading.Event()
    at = []

    def interrupt():
        begun.wait()
        at.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        mr.check(mr.augmentation(name=f"checked_{function.__name__}")(lambda image: function(begun)))
    return time.monotonic() - at[0]


def test_ctrl_c_ends_a_check():
    def spins(begun):
        begun.set()
        while True:
            pass

    assert interrupted(spins) < 10


def test_ctrl_c_ends_a_check_on_several_threads():
    lock, inside = threading.Lock(), [0]

    def sleeps(begun):
        with lock:
            inside[0] += 1
            others = inside[0] > 1
        if others:
            begun.set()
        time.sleep(0.5 if others else 0.002)  # of 192 such calls
        with lock:
            inside[0] -= 1

    assert interrupted(sleeps) < 10
