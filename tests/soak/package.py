"""Starts Python scripts with the package under test, and with PyTorch where it is there."""
import os
import subprocess
import sys

import program
from campaign import SOURCE


def environment(build):
    folders = [build / "python", *(SOURCE / ".deps" / name for name in ("python", "torch", "frameworks"))]
    return {"PYTHONPATH": ":".join(map(str, folders)), "LD_LIBRARY_PATH": str(build / "python" / "cuda_stubs"),
            "PYTHONDONTWRITEBYTECODE": "1"}


def missing(build, *modules):
    """Returns why these modules cannot be imported; empty if they can."""
    stubs = build / "python" / "cuda_stubs"
    if "torch" in modules and (SOURCE / ".deps/torch/torch").is_dir() and not stubs.is_dir():
        subprocess.run([sys.executable, SOURCE / "tests/python/cuda_stubs.py", SOURCE / ".deps/torch/torch", stubs],
                       capture_output=True, check=False)
    tried = subprocess.run([sys.executable, "-c", f"import {', '.join(modules)}"], capture_output=True, text=True,
                           env={**os.environ, **environment(build)}, check=False)
    return "" if tried.returncode == 0 else tried.stderr.strip().splitlines()[-1][:200]


def python(place):
    """Returns the interpreter as the program of a case."""
    found = program.Program(sys.executable, place.folder)
    found.name = "python"
    return found
