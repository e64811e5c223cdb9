"""Augmentations that Numba compiles: the same bytes without Python's lock, and one line for what fails."""
import re
import threading
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("numba", reason="NOT TESTED with Numba: it cannot be imported", exc_type=ImportError)

import pymillrace as mr
from batches import SYNTHETIC, hash_of

CROP = mr.RandomResizedCrop(32)


def draws(image, rng):
    """Draws in each documented way."""
    light = rng.uniform(0.5, 1.5)
    for y in range(image.shape[0]):
        for x in range(image.shape[1]):
            for c in range(image.shape[2]):
                level = image[y, x, c] * light + rng.normal(0.0, 4.0) + 8 * rng.random() + rng.integers(-3, 4)
                image[y, x, c] = int(min(255.0, max(0.0, level)))


def negates(image):
    for y in range(image.shape[0]):
        for x in range(image.shape[1]):
            for c in range(image.shape[2]):
                image[y, x, c] = 255 - image[y, x, c]


def turns(image, rng):
    return image[::-1] if rng.random() < 0.5 else image


def fails(image, rng):
    if rng.integers(0, 7) == 0:
        raise ValueError("one in seven")
    negated = ~image[0, 0, 0]
    image[0, 0, 0] = negated


@pytest.fixture(scope="module")
def photos(data):
    return mr.Folder(data / "photos")


def defined(function, compiled):
    """Defines it under one name: random numbers depend on that too."""
    return mr.augmentation(name=f"case_{function.__name__}", compile=compiled)(function)


def make(photos, op, *overrides):
    return mr.Loader(photos, [CROP, op], "output.dtype=u8", *overrides, batch=16, numpy=True)


@pytest.mark.parametrize("function", (draws, negates, turns))
def test_a_compiled_function_gives_the_bytes_of_the_function(photos, function):
    expected = hash_of(make(photos, defined(function, False)))
    op = defined(function, True)
    for workers in (0, 3):
        assert hash_of(make(photos, op, f"loader.workers={workers}")) == expected


def test_gray_images_have_one_channel():
    first = []
    for compiled in (False, True):
        @mr.augmentation(name="case_gray", compile=compiled)
        def gray(image, rng):
            image[:, :, image.shape[2] - 1] = rng.integers(0, 256)

        first.append(next(iter(mr.Loader(*SYNTHETIC, "augment+=case_gray", "output.dtype=u8", numpy=True))).images)
    assert np.array_equal(*first) and len(np.unique(first[0])) > 1


def test_an_exception_fails_its_sample_and_no_other(photos):
    def kept(op):
        loader = make(photos, op, "loader.on_error=skip", "loader.workers=2")
        return {int(sample): image.tobytes() for batch in loader for sample, image in zip(batch.samples, batch.images)}

    op = defined(fails, True)
    with pytest.raises(mr.DataError, match="case_fails: the compiled function raised an exception"):
        list(make(photos, op))
    found = kept(op)
    assert found == kept(defined(fails, False)) and 0 < len(found) < len(make(photos, op).dataset)


def test_an_image_of_another_shape_fails_its_sample(photos):
    def halves(image):
        return image[::2]

    with pytest.raises(mr.DataError, match="case_halves: it returned an image of another shape than 32x32x3"):
        list(make(photos, defined(halves, True)))


def test_what_numba_refuses_is_one_line_with_its_reason():
    def reads(image):
        open("/dev/null")

    def other(image):
        return image.astype(np.float32)

    with pytest.raises(mr.UsageError) as error:
        defined(reads, True)
    what = error.value.what
    assert what.startswith("augmentation case_reads cannot be compiled: ") and "\n" not in what and len(what) < 200
    assert "open" in what and "(test_augmentations_compiled.py:" in what
    with pytest.raises(mr.UsageError, match="returns array"):
        defined(other, True)

    def trips(image):
        image[0] ^= 255  # an error in Numba's own rules

    with pytest.raises(mr.UsageError, match="case_trips cannot be compiled: "):
        defined(trips, True)


def test_the_interpreter_runs_while_a_compiled_function_does(photos):
    def repeats(image):
        for _ in range(2000):
            for y in range(image.shape[0]):
                for x in range(image.shape[1]):
                    image[y, x, 0] = (image[y, x, 0] * 5 + x) & 255

    op = defined(repeats, True)
    loader = make(photos, op, "loader.workers=1")
    ended = threading.Event()
    thread = threading.Thread(target=lambda: (next(iter(loader)), ended.set()))
    thread.start()
    turns = 0
    while not ended.wait(0.0005):
        turns += 1
    thread.join()
    assert turns > 10 and op.calls > 0 and op.seconds > 0 and op.waited_s == 0


def beyond(image):
    image[image.shape[0], 0, 0] = 7


def reads_beyond(image):
    image[0, 0, 0] = image[image.shape[0], 0, 0]


def draws_elsewhere(image, rng):
    image[0, 0, 0] = np.random.randint(0, 256)


def raises_on_rows(image):
    if image.shape[0] == 1:
        raise ValueError("one row")


def halves_rows(image):
    return image[::2]


@pytest.mark.parametrize("function, check, what", (
    (beyond, "images", "it writes past the image: 1 bytes behind its end"),
    (reads_beyond, "same result", "the result depends on where memory lies"),
    (draws_elsewhere, "same result", "the same call gives two results"),
    (raises_on_rows, "images", "case_raises_on_rows: the compiled function raised an exception"),
    (halves_rows, "images", "case_halves_rows: it returned an image of another shape than 5x3x1")))
def test_a_check_finds_what_is_wrong(function, check, what):
    with pytest.raises(mr.DataError) as error:
        mr.check(defined(function, True))
    begin = f"failed   case_{function.__name__}: {check} "
    line, = (line for line in error.value.what.splitlines() if line.startswith(begin))
    assert what in line


def test_a_check_passes_what_is_sound():
    for function in (draws, negates, turns):
        mr.check(defined(function, True))


def test_the_documents_function_compiles(photos):
    page = (Path(__file__).parents[2] / "docs/how-to/python.md").read_text()
    code, = re.findall(r"^```text\n(@mr.augmentation\(compile=True\)\n.*?)^```$", page, re.MULTILINE | re.DOTALL)
    names = {"mr": mr}
    exec(code, names)
    mr.check(names["fade"])
    assert len(next(iter(make(photos, names["fade"]))).images) == 16
