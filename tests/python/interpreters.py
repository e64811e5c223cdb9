"""Finds the interpreters of this machine that can run the package: free-threaded ones have a build of their own.

As a script, prints one path per minor version, the oldest first, of those that can import the modules named.
"""
import glob
import os
import subprocess
import sys

OLDEST = (3, 10)
_ASK = ("import sys; assert ('t' in sys.abiflags) == (sys.argv[1] == 'free-threaded'); "
        "[__import__(name) for name in sys.argv[2:]]; print(*sys.version_info[:3], sys.executable)")


def interpreters(*modules):
    """Returns {(major, minor, micro): path} of those in PATH and below pyenv's folder, the oldest first."""
    pyenv = os.environ.get("PYENV_ROOT") or os.path.expanduser("~/.pyenv")
    kind = "free-threaded" if "t" in sys.abiflags else "usual"
    found = {}
    names = ["python3", *(f"python3.{minor}" for minor in range(OLDEST[1], 20))]
    in_path = [f"{folder}/{name}" for folder in os.get_exec_path() for name in names]
    for file in sorted(glob.glob(f"{pyenv}/versions/*/bin/python3")) + in_path:
        if not os.access(file, os.X_OK):
            continue
        said = subprocess.run([file, "-c", _ASK, kind, *modules], capture_output=True, text=True)
        words = said.stdout.split(maxsplit=3)
        if said.returncode == 0 and tuple(map(int, words[:2])) >= OLDEST:
            found.setdefault(tuple(map(int, words[:3])), words[3].strip())
    return dict(sorted(found.items()))


if __name__ == "__main__":
    newest = {version[:2]: path for version, path in interpreters(*sys.argv[1:]).items()}
    print(*newest.values(), sep="\n")
