"""Checks that the target `program` builds all that an installation needs, and installs its component.

    install_test.py --build BUILD --cmake CMAKE

A complete build has everything, so an installation alone would not tell: each file that it takes from the
build folder has to be made by one of the target's commands.
"""
import argparse
import pathlib
import re
import subprocess
import tempfile

parser = argparse.ArgumentParser()
parser.add_argument("--build", type=pathlib.Path, required=True)
parser.add_argument("--cmake", required=True)
arguments = parser.parse_args()
build = arguments.build


def taken(script):
    """Returns the files of the build folder that an installation of all components takes."""
    text = script.read_text()
    files = set()
    for block in text.split("\nif(")[1:]:
        if "OR NOT CMAKE_INSTALL_COMPONENT" not in block.split("\n")[0]:
            continue
        for options, names in re.findall(r"file\(INSTALL ([^)]*?) FILES\s([^)]*)\)", block):
            if not options.endswith("OPTIONAL"):
                files |= {name for name in re.findall(r'"([^"]+)"', names) if name.startswith(f"{build}/")}
    for other in re.findall(r'include\("([^"]+/cmake_install.cmake)"\)', text):
        files |= taken(pathlib.Path(other))
    return files - {f"{build}/millraceConfigVersion.cmake", f"{build}/installed/millraceConfig.cmake"}  # by CMake


needed = taken(build / "cmake_install.cmake")
assert any(path.endswith("/millrace.1") for path in needed), f"no manual page among {sorted(needed)}"
commands = subprocess.run(["ninja", "-C", build, "-t", "commands", "program"], check=True, capture_output=True,
                          text=True).stdout.splitlines()
named = {str(build / word) for line in commands if not line.startswith("ninja:") for word in line.split()}
if missing := sorted(needed - named):
    raise SystemExit(f"the target program does not build {', '.join(missing)}, which `cmake --install` takes")

with tempfile.TemporaryDirectory() as prefix:
    for component in ("program", "development"):
        subprocess.run([arguments.cmake, "--install", build, "--prefix", prefix, "--component", component], check=True,
                       capture_output=True)
    for name in ("bin/millrace", "share/man/man1/millrace.1", "share/bash-completion/completions/millrace",
                 "share/zsh/vendor-completions/_millrace", "share/fish/vendor_completions.d/millrace.fish"):
        assert (pathlib.Path(prefix) / name).stat().st_size > 0, name
