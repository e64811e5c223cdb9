#!/usr/bin/env bash
# try_wheel.sh WHEEL [PYTHON ...]: tries a wheel that check_wheel.sh has made under each Python in an empty
# environment, where no compiler, no repository and none of this system's libraries but glibc's, libstdc++
# and libcrypto are in reach. By default it takes the oldest and the newest Python from 3.10 on that are in
# PATH or below pyenv's folder.
set -euo pipefail
repository=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../..")
wheel=$(realpath "$1")
shift
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
namespace=(unshare --mount --fork)
((EUID == 0)) || namespace+=(--map-root-user)

if (($#)); then pythons=("$@"); else
  all=$(python3 "$repository/tests/python/interpreters.py" ensurepip venv)
  mapfile -t pythons < <(sed -n '1p; $p' <<<"$all" | uniq)
fi
((${#pythons[@]} > 0)) || { echo "there is no Python from 3.10 on: the wheel is not checked" >&2; exit 1; }
((${#pythons[@]} > 1)) || echo "NOT TESTED under a second version of Python: there is none"

# in_bare_root PYTHON FILE: runs a script with a virtual environment's Python in a root that holds the
# environment, the Python that it was made from, and the libraries that a wheel takes from the system.
in_bare_root() {
  local here=$1 root=$folder/root base
  base=$("$here/bin/python" -c 'import sys; print(sys.base_prefix)')
  if [[ $base == /usr ]]; then
    echo "NOT TESTED in a bare root: this Python lies among the system's libraries"
    return 0
  fi
  "${namespace[@]}" bash -s "$root" "$base" "$here" "$2" <<'ROOT'
set -euo pipefail
root=$1 base=$2 here=$3 script=$4
mkdir -p "$root"
mount -t tmpfs none "$root"
loader=$(ldd "$here/bin/python" | awk '$1 ~ /\/ld-linux/ { print $1 }')
mkdir -p "$root/tmp" "$root/proc" "$root/dev" "$root$(dirname "$loader")" "$root/lib" "$root$base" "$root$here"
mount --bind "$base" "$root$base"
mount --bind "$here" "$root$here"
mount --rbind /proc "$root/proc"
mount --rbind /dev "$root/dev"
cp "$script" "$root/tmp/script.py"
# The libraries that the interpreter itself needs, and none that the wheel must bring.
for file in "$base"/bin/python3.* "$base"/lib/python3.*/lib-dynload/*.so "$base"/lib/libpython3*.so*; do
  { ldd "$file" 2>/dev/null || true; } | awk '$3 ~ /^\// { print $3 }'
done | sort -u | grep -vE 'lib(tbb|jpeg|png|tiff|webp|fmt|xxhash|tomlplusplus|yaml-cpp|sqlite3|re2|crypto|ssl|deflate|jbig|Lerc|zstd)' \
  >"$root/tmp/libraries"
# The C and C++ runtimes and, for SHA-256, libcrypto.
ldconfig -p | awk '/lib(stdc\+\+|gcc_s|m|c|dl|pthread|rt|util|crypto)\.so.*(x86-64|AArch64)/ { print $NF }' \
  >>"$root/tmp/libraries"
while read -r library; do cp -L -n "$library" "$root/lib/" 2>/dev/null || true; done <"$root/tmp/libraries"
cp -L "$loader" "$root$loader"
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
  if "${namespace[@]}" true 2>/dev/null; then
    in_bare_root "$here" "$folder/trial.py"
  else
    echo "NOT TESTED in a bare root: mounting is not allowed here"
  fi
done
