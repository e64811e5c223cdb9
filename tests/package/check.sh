#!/usr/bin/env bash
# Builds the .deb and the .tar.gz, unpacks each into an empty folder, and runs the main job from it
# while the repository, with its build folder and .deps, is hidden.
set -euo pipefail

usage="usage: bash tests/package/check.sh [--keep FOLDER] [BUILD]

BUILD is a configured build folder (default: build). --keep leaves both packages in FOLDER. Needs
dpkg-dev, file, and root or unprivileged user namespaces, in which an empty folder is mounted over the
repository; exits with 77 without them."
kept=''
case ${1:-} in
  --help) printf '%s\n' "$usage" && exit 0 ;;
  --keep)
    kept=${2:?"--keep needs a folder"}
    shift 2
    ;;
esac

repository=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../..")
build=$(realpath "${1:-$repository/build}")
work=$(mktemp -d "${TMPDIR:-/tmp}/millrace-package.XXXXXX")
trap 'rm -rf "$work"' EXIT
case $work/ in
  "$repository"/*) echo "TMPDIR lies in the repository, which is to be hidden" >&2 && exit 2 ;;
esac

namespace=(unshare --mount)
((EUID == 0)) || namespace=(unshare --mount --map-root-user)
if ! "${namespace[@]}" mount -t tmpfs none "$work" 2>/dev/null; then
  echo "PACKAGES NOT TESTED: nothing can be mounted here, so the repository cannot be hidden"
  exit 77
fi

fail() {
  printf 'FAILED: %s\n' "$*" >&2
  exit 1
}

# mib FILE_OR_FOLDER
mib() { echo "$(($(du -sk "$1" | cut -f 1) / 1024)) MiB"; }

# --- build

cmake --build "$build" --target program >"$work/build.log" 2>&1 ||
  { tail -n 20 "$work/build.log" >&2 && fail "the program could not be built"; }
for generator in DEB TGZ; do
  start=$SECONDS
  (cd "$build" && cpack -G "$generator" -B "$work/packages") >"$work/$generator.log" 2>&1 ||
    { tail -n 20 "$work/$generator.log" >&2 && fail "cpack -G $generator"; }
  printf 'cpack -G %s: %d s\n' "$generator" "$((SECONDS - start))"
done
deb=$(echo "$work"/packages/*.deb)
archive=$(echo "$work"/packages/*.tar.gz)
printf '%s: %s\n' "${deb##*/}" "$(mib "$deb")" "${archive##*/}" "$(mib "$archive")"

depends=$(dpkg-deb --field "$deb" Depends)
printf 'Depends: %s\n' "$depends"
for package in libc6 libtbb12 libjpeg62-turbo libopencv-core libssl3; do
  [[ $depends == *"$package"* ]] || fail "the .deb does not depend on $package"
done
# Opened when a remote set is read, which says so where it is missing.
recommends=$(dpkg-deb --field "$deb" Recommends)
printf 'Recommends: %s\n' "$recommends"
[[ $recommends == *libcurl4* ]] || fail "the .deb does not recommend libcurl4"

# --- unpack and look

mkdir "$work/deb" "$work/tar"
dpkg-deb --extract "$deb" "$work/deb"
tar -xzf "$archive" -C "$work/tar" --strip-components=1
if [[ -n $kept ]]; then
  mkdir -p "$kept"
  cp "$deb" "$archive" "$kept/"
fi
rm -r "$work/packages"
printf 'installed: %s\n' "$(mib "$work/deb")"

# look PREFIX: nothing in it names the repository, and libraries are found from their own place.
look() {
  local file paths
  for path in "$repository" "$build"; do
    if grep -rlaF -e "$path" "$1"; then fail "the files above name $path"; fi
  done
  while IFS= read -r -d '' file; do
    paths=$(readelf -d "$file" 2>/dev/null | sed -nE 's/.*\((RPATH|RUNPATH)\).*\[(.*)\]/\2/p')
    [[ -z $paths || :$paths != *:[^$]* ]] || fail "${file#"$1/"} looks for libraries in $paths"
  done < <(find "$1" -type f \( -name '*.so*' -o -perm -u+x \) -print0)
}

# --- run

# try PREFIX: in a namespace where the repository is an empty folder.
try() {
  local prefix=$1
  mount -t tmpfs none "$repository"
  [[ -z $(ls -A "$repository") ]] || fail "the repository is not hidden"
  cd "$(mktemp -d "$work/cwd.XXXXXX")"
  export PATH=$prefix/bin:$PATH
  local libraries
  libraries=$(ldd "$prefix/lib/libmillrace_torch.so")
  if grep 'not found' <<<"$libraries"; then fail "libraries are missing"; fi
  if grep -E 'lib(torch|c10|gomp|cudart|cupti)' <<<"$libraries" | grep -vF "$prefix/lib/"; then
    fail "the libraries above are not the package's own"
  fi
  millrace --version
  millrace data make digits data/digits --train 2000 --test 500 -q >make.txt
  millrace train mnist-lenet data.path=data/digits train.steps=20 train.epochs=1 --run runs/first -q \
    >train.txt
  grep -q '"steps": 20' runs/first/summary.json || fail "runs/first/summary.json does not say 20 steps"
  millrace plugins list >plugins.txt
  grep -q png plugins.txt || fail "plugins list does not name the PNG decoder"
  millrace inspect mnist-lenet data.path=data/digits --plan >plan.txt
  millrace inspect mnist-lenet data.path=data/digits --out sheet.png -q >sheet.txt
  [[ -s plan.txt && -s sheet.png ]] || fail "inspect wrote nothing"
}

for prefix in "$work/deb/usr" "$work/tar"; do
  look "$prefix"
  export -f try fail
  export work repository
  # shellcheck disable=SC2016
  "${namespace[@]}" bash -euo pipefail -c 'try "$1"' _ "$prefix" || fail "run from $prefix"
done
echo "both packages run without the repository"
