"""Wrong arguments: whatever a public call gets, only the package's own errors come out, and nothing hangs."""
import dataclasses
import threading

import numpy as np
import pymillrace as mr
import pytest
from batches import SYNTHETIC, make, run_python


class Hostile:
    """Raises from whatever is asked of it."""

    def __getattr__(self, name):
        raise RuntimeError(name)

    def __repr__(self):
        raise RuntimeError("no text")


VALUES = [None, "", "x", "\udcff", "a\0b", -1, 0, 0.5, 2**31, 2**63, 2**70, 10**5000, 1e308, float("nan"), float("inf"),
          1j, True, b"", b"x", object(), Hostile(), type, len, [], {}, (), set(), [[]], [None], [2**70], ["x"] * 2,
          {"version": 1}, threading.Lock()]
NEEDED = {"size": 8, "degrees": 5, "kernel_size": 3}  # arguments of augmentations without a default


@pytest.fixture(scope="module")
def photos(data):
    return mr.Folder(data / "photos")


def first(*arguments, **options):
    """Makes a loader and takes its first batch."""
    return next(iter(mr.Loader(*arguments, **{"numpy": True, **options})))


def with_field(kind, field, value):
    needed = {one.name: NEEDED[one.name] for one in dataclasses.fields(kind) if one.default is dataclasses.MISSING}
    return kind(**{**needed, field: value})


OPTIONS = ("batch", "normalize", "rank", "world_size", "numpy", "keys", "warps", "device")
AUGMENTATIONS = [(kind, field.name) for kind in (
    mr.CenterCrop, mr.ColorJitter, mr.GaussianBlur, mr.HFlip, mr.RandomCrop, mr.RandomGrayscale, mr.RandomResizedCrop,
    mr.RandomRotation, mr.Resize, mr.VFlip) for field in dataclasses.fields(kind)]
CROP = mr.CenterCrop(8)
LOADER = make()
ORDERED = make(sampler=range(64))
next(iter(ORDERED))
ORDERED_STATE = ORDERED.state_dict()


def sampler_with(**methods):
    return type("Sampler", (), {"__iter__": lambda self: iter(range(64)), **methods})()


STATE = LOADER.state_dict()
# Calls by what they test: each gets a value, and a folder of pictures.
CALLS = {
    **{f"Loader {name}": lambda value, _, name=name: first(*SYNTHETIC, **{name: value}) for name in OPTIONS},
    "Loader world_size of rank 0": lambda value, _: first(*SYNTHETIC, rank=0, world_size=value),
    "Loader rank of 4": lambda value, _: first(*SYNTHETIC, rank=value, world_size=4),
    "Loader sampler": lambda value, _: None if value is None else first(*SYNTHETIC, sampler=value),
    "Loader sampler's index": lambda value, _: first(*SYNTHETIC, sampler=[0] * 70 + [value]),
    "Loader sampler's length": lambda value, _: len(make(sampler=sampler_with(__len__=lambda self: value))),
    "Loader sampler's set_epoch": lambda value, _: first(*SYNTHETIC, sampler=sampler_with(set_epoch=value)),
    "Loader sampler's num_replicas": lambda value, _: first(*SYNTHETIC, sampler=sampler_with(num_replicas=value)),
    "Loader sampler's iterator": lambda value, _: first(*SYNTHETIC, sampler=sampler_with(__iter__=lambda self: value)),
    "load_state_dict order": lambda value, _: ORDERED.load_state_dict({**ORDERED_STATE, "order": value}) or next(
        iter(ORDERED)),
    "Loader function": lambda value, _: make(function=value),
    "Loader recipe": lambda value, _: first(value),
    "Loader override": lambda value, _: first(*SYNTHETIC, value),
    "Loader chain": lambda value, photos: first(photos, value, batch=4),
    "Loader augmentation": lambda value, photos: first(photos, [value], batch=4),
    "Loader batch of a data set": lambda value, photos: first(photos, [CROP], batch=value),
    "Loader normalize of a data set": lambda value, photos: first(photos, [CROP], batch=4, normalize=value),
    "Loader override of a data set": lambda value, photos: first(photos, [CROP], value, batch=4),
    **{f"{kind.__name__} path": lambda value, _, kind=kind: first(kind(value), [CROP], batch=4)
       for kind in (mr.Folder, mr.Tar, mr.Manifest, mr.Idx, mr.Cifar)},
    "Folder split": lambda value, photos: first(mr.Folder(photos.path, value), [CROP], batch=4),
    **{f"{kind.__name__} {field}": lambda value, photos, kind=kind, field=field: first(
        photos, [with_field(kind, field, value), CROP], "loader.workers=0", batch=4) for kind, field in AUGMENTATIONS},
    "Normalize mean": lambda value, photos: first(photos, [CROP, mr.Normalize(value, (1, 1, 1))], batch=4),
    "Normalize std": lambda value, photos: first(photos, [CROP, mr.Normalize((0, 0, 0), value)], batch=4),
    "set_epoch": lambda value, _: LOADER.set_epoch(value) or next(iter(LOADER)),
    "sampler.set_epoch": lambda value, _: LOADER.sampler.set_epoch(value) or next(iter(LOADER)),
    "state_dict trained": lambda value, _: LOADER.state_dict(value),
    "load_state_dict": lambda value, _: LOADER.load_state_dict(value) or next(iter(LOADER)),
    **{f"load_state_dict {key}": lambda value, _, key=key: LOADER.load_state_dict({**STATE, key: value}) or next(
        iter(LOADER)) for key in ("version", "recipe", "epoch", "batch")},
    "profile": lambda value, _: LOADER.profile(value),
    "dataset.name": lambda value, _: LOADER.dataset.name(value),
    "augmentation": lambda value, _: mr.augmentation(value),
    "augmentation name": lambda value, _: mr.augmentation(name=value)(lambda image: None),
    "augmentation reach": lambda value, _: mr.augmentation(name="reaches", reach=value)(lambda image: None),
}


@pytest.mark.parametrize("call", CALLS)
def test_wrong_arguments_raise_errors_of_the_package(call, photos):
    wrong = []
    for value in VALUES:
        try:
            CALLS[call](value, photos)
        except mr.Error as error:
            assert "\n" not in str(error) and len(str(error)) < 1000
        except BaseException as error:
            wrong.append((type(value), type(error), str(error)))
    assert not wrong


@pytest.mark.parametrize("call, message", [
    (lambda: LOADER.set_epoch("1"), "epoch='1' is not a whole number"),
    (lambda: LOADER.set_epoch(2**70), "epoch=1180591620717411303424 is more than 4294967294"),
    (lambda: LOADER.load_state_dict({**STATE, "epoch": 2**70}), "epoch=1180591620717411303424 is more than"),
    (lambda: LOADER.load_state_dict({**STATE, "batch": float("inf")}), "batch=inf is not a whole number"),
    (lambda: LOADER.load_state_dict(None), "None.*give what state_dict"),
    (lambda: LOADER.dataset.name("x"), "index='x' is not a whole number"),
    (lambda: LOADER.dataset.name(-1), "no sample -1"),
    (lambda: LOADER.profile(10**5000), "samples=an object of type int is more than"),
    (lambda: make(numpy=None), "numpy=None is neither True nor False"),
    (lambda: make(keys=("x", "x")), "gives two parts of a batch one name"),
    (lambda: first(mr.Folder("."), [CROP], batch=4, normalize=2), "normalize=2 is not an mr.Normalize"),
    (lambda: first(mr.Folder("."), [mr.Resize(None)], batch=4), r"Resize\(size=None.* cannot be written in a recipe"),
    (lambda: first(mr.Folder(3), [CROP], batch=4), r"Folder\(path=3.* cannot be written in a recipe"),
    (lambda: first("mnist-lenet", "data.path=a\0b"), "contains a zero byte"),
])
def test_a_message_says_which_argument_and_why(call, message):
    with pytest.raises(mr.UsageError, match=message):
        call()


def test_whole_numbers_of_numpy_are_taken():
    loader = make()
    loader.set_epoch(np.int64(3))
    assert next(iter(loader)).epoch == 3
    loader.load_state_dict({**STATE, "epoch": np.uint8(2), "batch": np.array(1)})
    assert loader.state_dict() == {**STATE, "epoch": 2, "batch": 1}


def test_an_error_without_text_can_be_printed():
    assert str(mr.UsageError(None)) == "None" and str(mr.RunError(3, "x")) == "3 (x)"


def test_batches_that_memory_cannot_hold_are_refused(photos):
    with pytest.raises(mr.UsageError, match="4 batches of 8 images of 60000 x 60000 take 1382 GB, and"):
        mr.Loader(photos, [mr.Resize((60000, 60000))], batch=8, numpy=True)


def test_memory_that_is_short_is_an_error_of_the_run(photos):
    done = run_python("""
        import resource, sys
        import pymillrace as mr
        resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
        try:
            next(iter(mr.Loader(mr.Folder(sys.argv[1]), [mr.Resize((4000, 4000))], batch=8, numpy=True)))
        except mr.RunError as error:
            print(error)
    """, photos.path)
    assert done.stdout.startswith("not enough memory for the batches"), done.stderr


def test_a_launchers_variable_that_is_no_number_is_remarked(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "two")
    with pytest.warns(RuntimeWarning, match="WORLD_SIZE=two"):
        make()


@pytest.mark.parametrize("options, hint", [
    ({"batch_size": 32}, "loader.batch=32"), ({"num_workers": 4}, "loader.workers=4"),
    ({"shuffle": True}, "loader.shuffle=global"), ({"shuffle": False}, "loader.shuffle=none"),
    ({"drop_last": True}, "loader.drop_last=true"), ({"pin_memory": True}, "leave it out"),
    ({"prefetch_factor": 2}, "loader.prefetch=2"), ({"num_wrokers": 4}, "did you mean"),
])
def test_arguments_of_other_loaders_are_answered_with_ours(options, hint):
    with pytest.raises(mr.UsageError, match=f"Loader takes no {next(iter(options))}=") as caught:
        mr.Loader(*SYNTHETIC, numpy=True, **options)
    assert hint in caught.value.hint
    if "=" in hint:  # what the hint says works
        mr.Loader(*SYNTHETIC, hint, numpy=True).close()


def test_the_batch_size_of_a_data_set_is_its_argument(photos):
    with pytest.raises(mr.UsageError, match=r"batch_size=4 \(did you mean batch=4\?\)"):
        mr.Loader(photos, [CROP], batch_size=4, numpy=True)


def test_a_word_that_is_no_recipe_is_answered_by_what_it_is(tmp_path):
    for word, hint in (("resnet18", "it is the model of imagenet-rrc"), (str(tmp_path), f"data.path={tmp_path}"),
                       ("mine.toml", "give the path of a TOML file"), ("mnist-lenett", "did you mean mnist-lenet?")):
        with pytest.raises(mr.UsageError) as caught:
            mr.Loader(word, numpy=True)
        assert hint in caught.value.hint, word
