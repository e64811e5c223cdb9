"""What the tests of the Python package share: the program, generated data sets, PyTorch."""
import os
import pathlib
import subprocess

import pytest

PROGRAM = os.environ.get("MILLRACE_PROGRAM", "")
LONG = "MILLRACE_LONG_TESTS" in os.environ  # tests try every case, as in tools/test --long


def has_torch():
    try:
        import torch  # noqa: F401
    except (ImportError, OSError):
        return False
    return True


# Compares clocks. Other programs may disturb one attempt; a defect fails all.
timing = pytest.mark.flaky(reruns=4, reruns_delay=0.5)
planted_errors = {}  # {test: {(place, kind, workers, start method): relative error}}, of test_watch_planted.py
needs_torch = pytest.mark.skipif(not has_torch(), reason="NOT TESTED with PyTorch: it cannot be imported")


@pytest.fixture(scope="session")
def program():
    """The program millrace of the same build."""
    if not os.access(PROGRAM, os.X_OK):
        pytest.skip("MILLRACE_PROGRAM names no program")
    return PROGRAM


@pytest.fixture(scope="session")
def data(program, tmp_path_factory):
    """Folder with the data sets digits (IDX), photos (JPEG files) and boxes (COCO)."""
    folder = tmp_path_factory.mktemp("data")
    for kind, options in (("digits", ["--train", "640", "--test", "64"]), ("photos", ["--count", "96"]),
                          ("boxes", ["--train", "8", "--test", "8"])):
        subprocess.run([program, "data", "make", kind, str(folder / kind), *options], check=True, capture_output=True)
    return pathlib.Path(folder)


def pytest_terminal_summary(terminalreporter):
    """Prints the largest error of the planted delays of each kind, if tests with such delays ran."""
    worst = {}
    for errors in planted_errors.values():
        for key, error in errors.items():
            worst[key] = max(worst.get(key, 0), error, key=abs)
    if not worst:
        return
    terminalreporter.section("measured beside planted time: largest error")
    terminalreporter.write_line("place      kind     workers  start       error")
    for (place, kind, workers, method), error in sorted(worst.items()):
        terminalreporter.write_line(f"{place:<10} {kind:<8} {workers:<8} {method or '-':<10} {error:+7.2%}")


def pytest_sessionfinish(session, exitstatus):
    """Tells ctest that a file was skipped as a whole. In continuous integration that is a failure."""
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and not os.environ.get("MILLRACE_CI"):
        session.exitstatus = 77
