"""What the tests of the Python package share: the program, generated data sets, PyTorch."""
import os
import pathlib
import subprocess

import pytest

PROGRAM = os.environ.get("MILLRACE_PROGRAM", "")


def has_torch():
    try:
        import torch  # noqa: F401
    except (ImportError, OSError):
        return False
    return True


# Compares clocks. Other programs may disturb one attempt; a defect fails all.
timing = pytest.mark.flaky(reruns=4, reruns_delay=0.5)
needs_torch = pytest.mark.skipif(not has_torch(), reason="NOT TESTED with PyTorch: it cannot be imported")


@pytest.fixture(scope="session")
def program():
    """The program millrace of the same build."""
    if not os.access(PROGRAM, os.X_OK):
        pytest.skip("MILLRACE_PROGRAM names no program")
    return PROGRAM


@pytest.fixture(scope="session")
def data(program, tmp_path_factory):
    """Folder with the data sets digits (IDX) and photos (JPEG files)."""
    folder = tmp_path_factory.mktemp("data")
    for kind, options in (("digits", ["--train", "640", "--test", "64"]), ("photos", ["--count", "96"])):
        subprocess.run([program, "data", "make", kind, str(folder / kind), *options], check=True, capture_output=True)
    return pathlib.Path(folder)
