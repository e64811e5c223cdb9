# shellcheck shell=bash disable=SC2034
# Functions of tools/quickstart and tools/test: installs packages and LibTorch, configures and builds.
# Sourced, not run. Everything but system packages goes under .deps, which git ignores. Every step
# first checks whether there is anything to do, so a second run takes seconds.

readonly TORCH_WHEEL="torch==2.11.0"
# Dependencies of that wheel's libtorch_cpu.so, in the versions of its cuda-toolkit==13.0.2.
readonly CUDA_WHEELS=("nvidia-cuda-runtime==13.0.96" "nvidia-cuda-cupti==13.0.85")
readonly CUDA_LIBRARIES=(libcudart.so.13 libcupti.so.13)
readonly TORCH_FOLDER=.deps/torch
readonly TORCH_NEEDS_KB=$((5 * 1024 * 1024)) # the wheel and its unpacked contents
readonly CUDA_NEEDS_KB=$((9 * 1024 * 1024))  # the wheels of libtorch_cuda.so besides

readonly PACKAGES=(
  g++ cmake ninja-build mold ccache pkg-config git ca-certificates python3 python3-pip
  libtbb-dev libopencv-imgcodecs-dev libopencv-imgproc-dev libfmt-dev nlohmann-json3-dev
  libcli11-dev libtomlplusplus-dev libxxhash-dev libyaml-cpp-dev libturbojpeg0-dev libjpeg62-turbo-dev libpng-dev
  libtiff-dev libwebp-dev zlib1g-dev libsqlite3-dev libre2-dev libssl-dev libcurl4-openssl-dev libboost-math-dev
  libjs-chart.js libgtest-dev libbenchmark-dev)
readonly TEST_PACKAGES=(clang-format codespell nginx-light openssl)
# Used by tools/test --all: a clang-tidy that skips the headers of libraries, which take Debian's most of its time.
readonly LINT_FOLDER=.deps/lint
# Used by tools/test --long.
readonly LONG_PACKAGES=(dpkg-dev file)
# Used by tests of reports, which are skipped without them.
readonly REPORT_PACKAGES=(chromium-headless-shell python3-matplotlib)
# Used by tests of studies on a cluster, which are skipped without them.
readonly CLUSTER_PACKAGES=(slurm-wlm munge iproute2)
# Used by the fault campaign's tests of strangers' records, which are skipped without it.
readonly TRACE_PACKAGES=(strace)
# Used by the Python package, which is neither built nor tested without them.
readonly PYTHON_PACKAGES=(python3-dev)
# Used by tools/docs and by checks of the Python package's wheel.
readonly VENV_PACKAGES=(python3-venv)
readonly PYTHON_FOLDER=.deps/python
# Packages that it needs under other interpreters, per version; tests under those are skipped without them.
readonly INTERPRETERS_FOLDER=.deps/interpreters
# Frameworks that its tests watch; these tests are skipped without them.
readonly FRAMEWORKS_FOLDER=.deps/frameworks
# Servers of object stores, used by tests that are skipped without them.
readonly S3_FOLDER=.deps/s3

OS_RELEASE=/etc/os-release
systems=("Debian 12") # on which packages are installed; quickstart has been tried on more
offline=false
cuda=false # --cuda: LibTorch's CUDA libraries even without a driver
launcher=() # prefix of build commands

# stop WHAT DO...: prints what is wrong in one line, then what to run, and exits.
stop() {
  printf 'error: %s\n' "$1" >&2
  shift
  printf '  %s\n' "$@" >&2
  exit 1
}

# step TITLE COMMAND...: runs a command, and prints its title and duration.
step() {
  local title=$1 start=$SECONDS
  shift
  printf '== %s\n' "$title"
  "$@"
  printf '   %s: %d s\n' "$title" "$((SECONDS - start))"
}

# parse_options USAGE ARGUMENTS...
parse_options() {
  local usage=$1
  shift
  while (($#)); do
    case $1 in
      --help | -h)
        printf '%s\n' "$usage"
        exit 0
        ;;
      --offline) offline=true ;;
      --cuda) cuda=true ;;
      *)
        printf 'error: unknown option %s\n  see --help\n' "$1" >&2
        exit 2
        ;;
    esac
    shift
  done
}

# --- Debian's packages

# Prints the program that a package provides, if any other source of it serves as well.
program_of() {
  case $1 in
    g++ | cmake | mold | ccache | pkg-config | git | python3 | clang-format | chromium-headless-shell)
      echo "$1"
      ;;
    ninja-build) echo ninja ;;
    python3-dev) echo python3-config ;;
  esac
}

is_installed() {
  local program
  program=$(program_of "$1")
  if [[ -n $program ]] && command -v "$program" >/dev/null; then return 0; fi
  if [[ $1 == python3-pip ]] && python3 -m pip --version >/dev/null 2>&1; then return 0; fi
  [[ $(dpkg-query -W -f '${Status}' "$1" 2>/dev/null) == "install ok installed" ]]
}

# is_any_of SYSTEM...: returns whether this system is one of them, such as "Debian 12".
is_any_of() {
  local one here
  # shellcheck source=/dev/null
  here=$( (. "$OS_RELEASE" && echo "${ID:-} ${VERSION_ID:-}") 2>/dev/null) || return 1
  for one in "$@"; do
    [[ ${one,,} == "$here" ]] && return 0
  done
  return 1
}

# Prints the name that this system has for a package of Debian.
local_name() {
  if [[ $1 == libjpeg62-turbo-dev ]] && is_any_of "Ubuntu 24.04"; then echo libjpeg-turbo8-dev; else echo "$1"; fi
}

# Prints the name of this system.
system_name() {
  # shellcheck source=/dev/null
  (. "$OS_RELEASE" && echo "$PRETTY_NAME") 2>/dev/null || uname -sr
}

# install_packages NAME...: installs the missing ones.
install_packages() {
  local name missing=()
  if ! is_any_of "${systems[@]}" && [[ ${MILLRACE_PACKAGES:-} == present ]]; then return 0; fi
  for name in "$@"; do
    name=$(local_name "$name")
    is_installed "$name" || missing+=("$name")
  done
  if ((${#missing[@]} == 0)); then
    echo "   all ${#} are there"
    return 0
  fi
  local command="apt-get install -y --no-install-recommends ${missing[*]}"
  if ! is_any_of "${systems[@]}"; then
    local known
    known=$(printf '%s, ' "${systems[@]}")
    stop "this is $(system_name): packages are installed on ${known%, } only, and here by hand" \
      "install what your system calls: ${missing[*]}" \
      "then run again with MILLRACE_PACKAGES=present in the environment"
  fi
  if $offline; then
    stop "packages are missing and --offline forbids fetching them" "run: $command"
  fi
  local as_root=()
  if ((EUID != 0)); then
    if ! sudo -n true 2>/dev/null; then
      stop "packages are missing and only root can install them" "run: sudo $command"
    fi
    as_root=(sudo -n)
  fi
  echo "   missing: ${missing[*]}"
  local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq)
  if ! "${apt[@]}" update || ! "${apt[@]}" install -y --no-install-recommends \
    -o Dpkg::Use-Pty=0 "${missing[@]}" >"$log" 2>&1 </dev/null; then
    tail -n 5 "$log" >&2
    stop "the packages could not be installed$(cause "$log")" "run: $command"
  fi
}

# install_optional_packages NAME...: does the same, and continues without them if it fails.
install_optional_packages() {
  (install_packages "$@") || echo "   going on without them: tests that need them are skipped"
}

# --- LibTorch

# A LibTorch in CMAKE_PREFIX_PATH is used instead of the wheel (cmake/MillraceTorch.cmake).
own_torch() {
  local folders folder inside
  IFS=':;' read -ra folders <<<"${CMAKE_PREFIX_PATH:-}"
  for folder in "${folders[@]}"; do
    for inside in "$folder" "$folder/torch" "$folder/libtorch" "$folder/../.."; do
      if [[ -n $folder && -e $inside/lib/libtorch_cpu.so ]]; then
        echo "$inside"
        return 0
      fi
    done
  done
  return 1
}

# Returns whether a CUDA toolkit of this machine has the library.
toolkit_has() {
  local folder
  for folder in "${CUDA_HOME:-/usr/local/cuda}" "${CUDA_PATH:-/usr/local/cuda}" /usr/local/cuda; do
    if [[ -e $folder/lib64/$1 || -e $folder/extras/CUPTI/lib64/$1 ]]; then return 0; fi
  done
  return 1
}

# Returns whether LibTorch's CUDA libraries are wanted: by --cuda, or because a driver is there.
wants_cuda() {
  if $cuda || [[ -e /proc/driver/nvidia/version || -e /dev/nvidiactl || -e /dev/dxg ]]; then return 0; fi
  ldconfig -p 2>/dev/null | grep -q 'libcuda\.so\.1'
}

# cuda_wheels FOLDER: prints the packages of NVIDIA that the wheel unpacked there pins, one a line.
cuda_wheels() {
  sed -n -E 's/^Requires-Dist: ((cuda-toolkit|nvidia-[a-z0-9-]+)(\[[^]]*\])?==[^; ]+).*/\1/p' \
    "$1"/torch-*.dist-info/METADATA
}

# pip_into FOLDER ARGUMENTS...: unpacks wheels there. Only libraries and headers are used, so those of
# any Python version serve.
pip_into() {
  local folder=$1
  shift
  TMPDIR=$PWD/$TORCH_FOLDER.tmp PIP_ROOT_USER_ACTION=ignore PIP_DISABLE_PIP_VERSION_CHECK=1 \
    python3 -m pip install --quiet --progress-bar off --no-input --no-compile \
    --only-binary=:all: --python-version 3.11 --target "$folder" "$@" >"$log" 2>&1 </dev/null
}

# unpack_torch FOLDER WHEEL...: with CUDA, also what libtorch_cuda.so needs, in the versions that the
# wheel pins. These come in a second step, because the wheel names them.
unpack_torch() {
  local folder=$1
  shift
  pip_into "$folder" --no-deps "$@" || return 1
  wants_cuda || return 0
  local pins
  mapfile -t pins < <(cuda_wheels "$folder")
  if ((${#pins[@]} == 0)); then
    echo "the wheel pins no package of NVIDIA: it is for the CPU alone" >"$log"
    return 1
  fi
  pip_into "$folder" "${pins[@]}"
}

free_kb() { df -Pk .deps | awk 'NR == 2 { print $4 }'; }

# cause LOG: prints the usual reasons of a failure. A full disk may have kept the log empty.
cause() {
  if grep -qi 'no space left' "$1" || (($(free_kb) < 102400)); then
    echo ": the disk is full"
  elif grep -qi 'certificate verify failed' "$1"; then
    echo ": the server's certificate is not trusted here"
  elif grep -qiE 'temporary failure|could not resolve|connection|timed out|unreachable' "$1"; then
    echo ": the network cannot be reached"
  elif grep -q 'from versions: none' "$1"; then
    echo ": the package index cannot be reached, or has no such wheel for this kind of machine"
  fi
}

install_torch() {
  local own library wheels=("$TORCH_WHEEL")
  if own=$(own_torch); then
    echo "   using the one in $own"
    return 0
  fi
  local contents needs=$TORCH_NEEDS_KB
  if wants_cuda; then # the wheel pins all of them
    contents="$TORCH_WHEEL with CUDA"
    needs=$((needs + CUDA_NEEDS_KB))
  else
    for library in "${CUDA_LIBRARIES[@]}"; do
      if ! toolkit_has "$library"; then
        wheels+=("${CUDA_WHEELS[@]}")
        break
      fi
    done
    contents="${wheels[*]}"
  fi
  local stamp=$TORCH_FOLDER/.complete
  # One with CUDA serves without it too.
  if [[ -e $stamp && ($(<"$stamp") == "$contents" || $(<"$stamp") == "$TORCH_WHEEL with CUDA") ]]; then
    echo "   $(<"$stamp") is there"
    return 0
  fi
  if $offline; then
    stop "$TORCH_WHEEL is missing and --offline forbids fetching it" \
      "run without --offline, or give a LibTorch in CMAKE_PREFIX_PATH"
  fi
  local free
  free=$(free_kb)
  if ((free < needs)); then
    stop "LibTorch needs $((needs / 1048576)) GB for a while, $((free / 1048576)) GB are free here" \
      "free some space and run again"
  fi

  # Unpacks beside the final folder and renames, stamp included, so that an interrupted download is
  # repeated.
  local partial=$TORCH_FOLDER.partial
  rm -rf "$partial" "$TORCH_FOLDER.tmp"
  mkdir -p "$TORCH_FOLDER.tmp"
  if ! unpack_torch "$partial" "${wheels[@]}"; then
    local reason
    reason=$(cause "$log")
    tail -n 5 "$log" >&2
    rm -rf "$partial" "$TORCH_FOLDER.tmp"
    stop "$contents could not be installed$reason" \
      "run again, or give a LibTorch in CMAKE_PREFIX_PATH"
  fi
  echo "$contents" >"$partial/.complete"
  rm -rf "$TORCH_FOLDER" "$TORCH_FOLDER.tmp"
  mv "$partial" "$TORCH_FOLDER"
}

# install_wheels FILE FOLDER WHAT [OPTION...]: installs the Python packages that a file names into a
# folder, with options of pip, and continues without them if that fails. WHAT is then not tested.
install_wheels() {
  local wanted=$1 folder=$2 what=$3
  shift 3
  local stamp=$folder/.complete
  if cmp -s "$wanted" "$stamp"; then
    echo "   all are there"
    return 0
  fi
  if $offline; then
    echo "   $what NOT TESTED: --offline forbids fetching what $wanted names"
    return 0
  fi
  rm -rf "$folder"
  if PIP_ROOT_USER_ACTION=ignore PIP_DISABLE_PIP_VERSION_CHECK=1 python3 -m pip install --quiet \
    --progress-bar off --no-input --target "$folder" "$@" -r "$wanted" >"$log" 2>&1 </dev/null; then
    cp "$wanted" "$stamp"
  else
    tail -n 5 "$log" >&2
    rm -rf "$folder"
    echo "   $what NOT TESTED: the packages could not be installed$(cause "$log")"
  fi
}

# install_python: what builds and tests the Python package.
install_python() {
  install_wheels tests/python/requirements.txt "$PYTHON_FOLDER" "THE PYTHON PACKAGE IS"
}

# install_interpreters: what the Python package needs under each other interpreter of this machine.
install_interpreters() {
  local python version
  while read -r python; do
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    install_wheels tests/python/requirements-interpreters.txt "$INTERPRETERS_FOLDER/$version" \
      "THE PYTHON PACKAGE UNDER $version IS" --only-binary=:all: --python-version "$version"
  done < <(python3 tests/python/interpreters.py)
}

# install_frameworks: training frameworks for the Python package's tests. PyTorch, which they ask for,
# lies in a folder of its own.
install_frameworks() {
  install_wheels tests/python/requirements-frameworks.txt "$FRAMEWORKS_FOLDER" "TRAINING FRAMEWORKS ARE" --no-deps
}

# install_lint: clang-tidy, for tools/lint, cuobjdump, for the tests of the CUDA module, and zizmor, for those of the
# workflows.
install_lint() {
  install_wheels tools/lint-requirements.txt "$LINT_FOLDER" \
    "CLANG-TIDY'S FINDINGS, CUDA'S ARCHITECTURES AND THE WORKFLOWS ARE" \
    --only-binary=:all:
}

# install_s3: servers for the tests of remote data.
install_s3() {
  install_wheels tests/remote/requirements.txt "$S3_FOLDER" "S3 SERVERS ARE"
}

# set_up PACKAGE...: provides everything that CMake needs but LibTorch, without which the sanitizers' presets build.
set_up() {
  mkdir -p .deps
  log=$PWD/.deps/setup.log
  step "Debian packages" install_packages "$@"
  # Lets ccache compare a precompiled header by its contents.
  export CCACHE_DIR=${CCACHE_DIR:-$PWD/.deps/ccache}
  export CCACHE_SLOPPINESS=${CCACHE_SLOPPINESS:-pch_defines,time_macros,include_file_mtime,include_file_ctime}
}

# --- configuring and building

# Turns ninja's lines "[DONE/ALL SECONDS] STEP" into one every ten seconds that says what is left. Other
# lines, such as errors, stay.
show_time_left() {
  local line finished all milliseconds left due=0
  while IFS= read -r line; do # mawk would wait for 4 KiB of lines
    if ! [[ $line =~ ^\[([0-9]+)/([0-9]+)\ ([0-9]+)(\.([0-9]+))?\] ]]; then
      printf '%s\n' "$line"
      continue
    fi
    finished=${BASH_REMATCH[1]} all=${BASH_REMATCH[2]} left=${BASH_REMATCH[5]}000
    milliseconds=$((BASH_REMATCH[3] * 1000 + 10#${left:0:3}))
    if ((finished < all && (finished == 0 || milliseconds < due))); then continue; fi
    due=$((milliseconds + 10000))
    printf '   %d of %d steps in %d s' "$finished" "$all" "$((milliseconds / 1000))"
    if ((finished < all && milliseconds > 0)); then
      printf ', %d.%d per second, about %d s left' "$((finished * 1000 / milliseconds))" \
        "$((finished * 10000 / milliseconds % 10))" "$(((all - finished) * milliseconds / finished / 1000))"
    fi
    echo
  done
}

configure_and_build() {
  local preset=$1 folder=$2
  shift 2
  cmake --preset "$preset" >"$log" 2>&1 </dev/null || {
    cat "$log" >&2
    stop "CMake could not configure the preset $preset" "see the message above"
  }
  grep -E '^-- LibTorch' "$log" || true
  NINJA_STATUS='[%f/%t %e] ' "${launcher[@]}" cmake --build "$folder" --parallel "$(nproc)" ${1:+--target "$@"} \
    </dev/null | show_time_left
}

# build PRESET FOLDER [TARGET...]: builds everything, or only the targets.
build() { step "build of preset $1 in $2" configure_and_build "$@"; }
