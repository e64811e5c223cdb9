"""Tests that watch, what-if and compare load neither the data pipeline nor more modules than they use."""
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

import pymillrace as mr
from conftest import needs_torch

SCRIPT = """
import torch
from torch.utils.data import DataLoader, TensorDataset

for batch in DataLoader(TensorDataset(torch.rand(128, 3)), batch_size=4):
    pass
"""
MOST_MODULES = 150  # beyond those of an empty program; Python 3.11 loads up to 115
HEAVY = re.compile(r"(torch|numpy|multiprocessing|pymillrace\.(_core|builtin_ops|translation|watcher\.api))(\.|$)")


@pytest.fixture
def without_pipeline(tmp_path):
    """An environment whose package has no data pipeline."""
    package = tmp_path / "packages" / "pymillrace"
    package.mkdir(parents=True)
    for path in pathlib.Path(mr.__file__).parent.iterdir():
        if not path.name.startswith(("_core", "__pycache__")):
            (package / path.name).symlink_to(path.resolve())
    return {**os.environ, "PYTHONPATH": f"{package.parent}:{os.environ.get('PYTHONPATH', '')}"}


def pymillrace(*words, **more):
    return subprocess.run([sys.executable, "-m", "pymillrace", *map(str, words)], capture_output=True, text=True,
                          timeout=120, **more)


def imported(*words, **more):
    """Returns the modules that Python imports for a command, or for nothing."""
    command = ("-m", "pymillrace", *words) if words else ("-c", "pass")
    done = subprocess.run([sys.executable, "-X", "importtime", *map(str, command)], capture_output=True, text=True,
                          timeout=120, **more)
    return set(re.findall(r"^import time:.*\| +(\S+)$", done.stderr, re.M))


@needs_torch
def test_commands_on_records_need_no_data_pipeline(without_pipeline, tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    options = {"env": without_pipeline, "cwd": tmp_path}
    watched = pymillrace("watch", "--run", "run", "--", sys.executable, "train.py", **options)
    assert watched.returncode == 0 and "records: " in watched.stderr, watched.stderr
    compared = pymillrace("compare", "run", "run", **options)
    assert compared.returncode == 0 and "images/s" in compared.stdout, compared.stderr
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    assert summary["steps"] == 32
    summary["loaders"][0]["counterpart"] = {"words": ["augment+=hflip{p=0.5}"], "samples": [str(tmp_path / "train.py")],
                                            "reason": None}
    (tmp_path / "run/summary.json").write_text(json.dumps(summary))
    predicted = pymillrace("what-if", "run", **options)
    assert predicted.returncode == 0 and "num_workers=1" in predicted.stdout, predicted.stderr
    assert "\nreplaced by millrace: not predicted: this installation has no data pipeline" in predicted.stdout


@needs_torch
def test_a_package_for_another_interpreter_is_refused_and_its_training_goes_on(tmp_path):
    flags = ("import importlib.machinery, sys\nsys.abiflags = 't'\n"  # as Python 3.99t says of itself
             "importlib.machinery.EXTENSION_SUFFIXES.insert(0, '.cpython-399t.so')\n")
    refused = subprocess.run([sys.executable, "-c", f"{flags}import pymillrace"], capture_output=True, text=True, timeout=60)
    reason = ("this pymillrace was built for a Python with its lock (GIL), and this one is free-threaded: install it there "
              "from its source")
    assert refused.stderr.endswith(f"ImportError: {reason}\n")
    (tmp_path / "train.py").write_text(f"{flags}{SCRIPT}print('trained')\n")
    watched = pymillrace("watch", "--run", "run", sys.executable, "train.py", cwd=tmp_path)
    assert watched.returncode == 0 and watched.stdout == "trained\n"
    assert f"pymillrace watch: not recorded: {reason}; the training goes on\n" in watched.stderr
    assert "recording stopped" not in watched.stderr


@pytest.mark.parametrize("words", (("watch", "--", "true"), ("compare", "none", "none"), ("what-if", "none")))
def test_commands_on_records_import_little(tmp_path, words):
    found = imported(*words, cwd=tmp_path) - imported(cwd=tmp_path)
    assert "pymillrace.watcher.command" in found
    assert not sorted(filter(HEAVY.match, found))
    assert len(found) <= MOST_MODULES
