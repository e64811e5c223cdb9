"""Tests the classes that tools/python_classes.py makes from the declarations of the built-in augmentations."""
import dataclasses
import json
import os
import pathlib
import subprocess
import sys

import pymillrace as mr
import pytest
from pymillrace import builtin_ops

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "tools/python_classes.py"
CLASSES = {name: getattr(mr, name) for name in builtin_ops.__all__}
REQUIRED = dataclasses.MISSING

# Arguments in order, which calls by position rely on. A class may get more of them at the end.
SIGNATURES = {
    "RandomResizedCrop": {"size": REQUIRED, "scale": (0.08, 1), "ratio": (3 / 4, 4 / 3), "interpolation": "bilinear",
                          "antialias": True},
    "Resize": {"size": REQUIRED, "interpolation": "bilinear", "max_size": 0, "antialias": True},
    "CenterCrop": {"size": REQUIRED},
    "RandomCrop": {"size": REQUIRED, "padding": 0, "pad_if_needed": False, "fill": 0},
    "HFlip": {"p": 0.5},
    "VFlip": {"p": 0.5},
    "ColorJitter": {"brightness": 0, "contrast": 0, "saturation": 0, "hue": 0},
    "RandomGrayscale": {"p": 0.1},
    "Pad": {"padding": REQUIRED, "fill": 0, "padding_mode": "constant"},
    "RandomRotation": {"degrees": REQUIRED, "interpolation": "nearest", "fill": 0, "center": ()},
    "RandomAffine": {"degrees": REQUIRED, "translate": 0, "scale": 1, "shear": 0, "interpolation": "nearest", "fill": 0,
                     "center": ()},
    "RandomPerspective": {"distortion_scale": 0.5, "p": 0.5, "interpolation": "bilinear", "fill": 0},
    "ElasticTransform": {"alpha": 50, "sigma": 5, "interpolation": "bilinear", "fill": 0},
    "GaussianBlur": {"kernel_size": REQUIRED, "sigma": (0.1, 2)},
    "RandomAdjustSharpness": {"sharpness_factor": REQUIRED, "p": 0.5},
    "RandomInvert": {"p": 0.5},
    "RandomPosterize": {"bits": REQUIRED, "p": 0.5},
    "RandomSolarize": {"threshold": REQUIRED, "p": 0.5},
    "RandomAutocontrast": {"p": 0.5},
    "RandomEqualize": {"p": 0.5},
    "GaussianNoise": {"mean": 0, "sigma": 0.1, "clip": True},
    "JPEG": {"quality": REQUIRED, "p": 1},
    "RandomErasing": {"p": 0.5, "scale": (0.02, 0.33), "ratio": (0.3, 3.3), "value": 0, "mode": "value"},
    "AutoAugment": {"policy": "imagenet", "interpolation": "nearest", "fill": 0},
    "RandAugment": {"num_ops": 2, "magnitude": 9, "num_magnitude_bins": 31, "interpolation": "nearest", "fill": 0},
    "TrivialAugmentWide": {"num_magnitude_bins": 31, "interpolation": "nearest", "fill": 0},
    "RandomApply": {"transforms": REQUIRED, "p": 0.5},
}


def arguments(kind):
    return {field.name: field.default for field in dataclasses.fields(kind)}


def least(kind):
    """Returns an object with the arguments that it requires and no others."""
    needed = {"transforms": [mr.VFlip()], "kernel_size": 3, "bits": 4, "degrees": 15, "threshold": 128, "factor": 2}
    return kind(**{name: needed.get(name, 8 if name != "turn" else 0.25)
                   for name, default in arguments(kind).items() if default is REQUIRED})


def test_the_files_are_those_that_the_declarations_make():
    made = subprocess.run([sys.executable, str(SCRIPT), os.environ["MILLRACE_PROGRAM"], "--check"], capture_output=True,
                          text=True)
    assert (made.returncode, made.stderr) == (0, "")


def test_every_built_in_op_has_one_class():
    told = subprocess.run([os.environ["MILLRACE_PROGRAM"], "plugins", "info", "augmentations", "--json"],
                          capture_output=True, check=True)
    names = [unit["name"] for unit in json.loads(told.stdout)["units"]]
    assert sorted(kind._op for kind in CLASSES.values()) == sorted(names)
    assert set(CLASSES) <= set(mr.__all__)


@pytest.mark.parametrize("name", SIGNATURES)
def test_arguments_keep_their_order_and_defaults(name):
    found = list(arguments(CLASSES[name]).items())
    assert found[:len(SIGNATURES[name])] == list(SIGNATURES[name].items())
    assert REQUIRED not in [default for _, default in found[len(SIGNATURES[name]):]]


@pytest.mark.parametrize("name", CLASSES)
def test_each_class_documents_its_arguments_and_makes_an_op(name):
    kind = CLASSES[name]
    for argument, default in arguments(kind).items():
        line = next(line for line in kind.__doc__.splitlines() if line.strip().startswith(f"{argument}: "))
        text = " ".join(kind.__doc__[kind.__doc__.index(line):].split())
        shown = f'"{default}"' if isinstance(default, str) else str(default).replace(".0,", ",").replace(".0)", ")")
        assert default is REQUIRED or f"default {shown}" in text
    words = ["data.reader=synthetic", "data.synthetic.count=64", "loader.batch=8", least(kind).override()]
    if kind is mr.CopyPaste:
        with pytest.raises(mr.UsageError, match="pastes objects by their masks"):
            mr.Loader(*words, numpy=True)
    else:
        assert len(mr.Loader(*words, numpy=True)) == 8


def test_a_class_that_applies_others_knows_its_parts():
    inner = mr.RandomApply([mr.HFlip(), mr.RandomApply([mr.VFlip()])], p=0.25)
    assert inner.parts() == [mr.HFlip(), mr.VFlip()] and mr.HFlip().parts() == [mr.HFlip()]
    assert inner.override() == "augment+=random_apply{p=0.25,ops=hflip{p=0.5};random_apply{p=0.5,ops=vflip{p=0.5}}}"
