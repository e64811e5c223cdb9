#!/usr/bin/env bash
# tools/setup.sh with --cuda installs what the wheel of LibTorch pins of NVIDIA, in a second step, and it
# names a system that it does not support. pip is a stand-in that writes down how it was called.
set -euo pipefail
source_folder=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
mkdir -p bin .deps

cat >bin/python3 <<'PIP'
#!/usr/bin/env bash
printf '%s\n' "$*" >>calls
while (($#)); do
  if [[ $1 == --target ]]; then target=$2; fi
  shift
done
mkdir -p "$target/torch-2.11.0.dist-info"
[[ -e $target/torch-2.11.0.dist-info/METADATA ]] || cat >"$target/torch-2.11.0.dist-info/METADATA" <<'PINS'
Requires-Dist: sympy>=1.13.3
Requires-Dist: cuda-toolkit[cublas,cufile]==13.0.2; platform_system == "Linux"
Requires-Dist: cuda-bindings<14,>=13.0.3; platform_system == "Linux"
Requires-Dist: nvidia-cudnn-cu13==9.19.0.56; platform_system == "Linux"
Requires-Dist: nvidia-nccl-cu13==2.28.9; platform_system == "Linux"
PINS
PIP
chmod +x bin/python3
PATH=$folder/bin:$PATH
unset CMAKE_PREFIX_PATH

# shellcheck source=tools/setup.sh
. "$source_folder/tools/setup.sh"
log=$folder/.deps/setup.log
free_kb() { echo 99999999; }
own_torch() { return 1; }
failures=0
expect() { # expect WHAT COMMAND...
  local what=$1
  shift
  if ! "$@"; then
    printf 'failed: %s\n' "$what" >&2
    failures=$((failures + 1))
  fi
}

printf '%s\n' "[0/80 0.0] start" "[1/80 0.5] compile a" "[2/80 1.0] compile b" "FAILED: x" "[40/80 20.0] link" "[80/80 31.2] link" >ninja.txt
show_time_left <ninja.txt >left.txt
expect "progress has a rate and the remaining time" grep -qx "   40 of 80 steps in 20 s, 2.0 per second, about 20 s left" left.txt
expect "a line every ten seconds, the last one, and a line that is not a step" [ "$(wc -l <left.txt)" = 4 ]
expect "nothing before a first step" grep -qx "   1 of 80 steps in 0 s, 2.0 per second, about 39 s left" left.txt
expect "errors stay" grep -qx "FAILED: x" left.txt
expect "the end is told" grep -qx "   80 of 80 steps in 31 s" left.txt
mkfifo steps
show_time_left <steps >left.txt &
exec 9>steps
echo "[1/2 1.0] compile a" >&9
for _ in {1..100}; do
  if [[ -s left.txt ]]; then break; fi
  sleep 0.1
done
expect "a line comes while the build goes on" grep -q "1 of 2 steps" left.txt
exec 9>&-
wait

parse_options "usage" --cuda
expect "--cuda is understood" "$cuda"
install_torch
expect "pip runs twice" [ "$(wc -l <calls)" = 2 ]
expect "first the wheel alone" grep -q -- "--no-deps torch==2.11.0\$" calls
expect "then what it pins of NVIDIA, and nothing else" grep -q -- \
  "--target .deps/torch.partial cuda-toolkit\[cublas,cufile\]==13.0.2 nvidia-cudnn-cu13==9.19.0.56 nvidia-nccl-cu13==2.28.9\$" calls
expect "the stamp says so" [ "$(<.deps/torch/.complete)" = "torch==2.11.0 with CUDA" ]
install_torch
expect "a second run fetches nothing" [ "$(wc -l <calls)" = 2 ]

wants_cuda() { return 1; }
install_torch
expect "one with CUDA serves without a driver too" [ "$(wc -l <calls)" = 2 ]
rm -rf .deps/torch calls
toolkit_has() { return 0; }
install_torch
expect "without a driver nothing of NVIDIA is fetched" [ "$(grep -c nvidia calls)" = 0 ]
wants_cuda() { return 0; }
install_torch
expect "a driver that came later is noticed" grep -q nvidia-cudnn calls

# free_kb counts what is free, so the message counts both downloads.
free_kb() { echo $((6 * 1024 * 1024)); }
rm -rf .deps/torch
message=$( (install_torch) 2>&1 || true)
expect "too little space is said before" grep -q "LibTorch needs 14 GB for a while, 6 GB are free" <<<"$message"

OS_RELEASE=$PWD/os-release
printf 'ID=plan9\nVERSION_ID=4\nPRETTY_NAME="Plan 9"\n' >"$OS_RELEASE"
is_installed() { [[ $1 == git ]]; }
message=$( (install_packages git cmake) 2>&1 || true)
expect "an unsupported system is named, with what is supported" \
  grep -qx "error: this is Plan 9: packages are installed on Debian 12 only, and here by hand" <<<"$message"
expect "what is missing is listed" grep -qx "  install what your system calls: cmake" <<<"$message"
message=$( (systems+=("Debian 13"); install_packages git cmake) 2>&1 || true)
expect "all supported systems are named" grep -q "installed on Debian 12, Debian 13 only" <<<"$message"
expect "a package has its own name here" [ "$(local_name libjpeg62-turbo-dev)" = libjpeg62-turbo-dev ]
printf 'ID=ubuntu\nVERSION_ID="24.04"\n' >"$OS_RELEASE"
expect "Ubuntu is known by its version" is_any_of "Debian 12" "Ubuntu 24.04"
expect "another one is not" eval '! is_any_of "Debian 12" "Ubuntu 22.04"'
expect "Ubuntu's name of a package is asked for" [ "$(local_name libjpeg62-turbo-dev)" = libjpeg-turbo8-dev ]
expect "other names are Debian's" [ "$(local_name libtbb-dev)" = libtbb-dev ]
printf 'ID=plan9\n' >"$OS_RELEASE"
message=$(MILLRACE_PACKAGES=present install_packages git cmake)
expect "packages that are said to be present are not asked for" [ -z "$message" ]
exit $((failures > 0))
