#!/usr/bin/env bash
# Installs the loaders that millrace is compared with, at pinned versions, into virtual environments.
#
#   bash bench/peers/setup.sh DIR [main] [simd] [tf]      Python 3.11; about 5 GB for all three
#
#   DIR/main   torch, torchvision, pymillrace, DALI, FFCV, SPDL, Grain, albumentations
#   DIR/simd   as main, with Pillow-SIMD instead of Pillow
#   DIR/tf     TensorFlow, which needs other versions of shared dependencies
#
# Only torch and torchvision are required. Any other loader that does not install is noted in
# DIR/missing.txt and appears in the table as not installed. Running it again keeps what exists.
# FFCV and Pillow-SIMD are built here: g++, pkg-config, libturbojpeg0-dev, libjpeg62-turbo-dev,
# zlib1g-dev, libopencv-core-dev, libopencv-imgproc-dev. SPDL's own decoder needs libavfilter8 and
# libavdevice59; without them it runs with torchvision's.
set -euo pipefail

if [[ $# -lt 1 || $1 == -* ]]; then
  sed -n '2,14p' "$0" | cut -c3-
  exit 2
fi
mkdir -p "$1"
root=$(cd "$1" && pwd)
shift
read -ra groups <<<"${*:-main simd tf}"
python=${PYTHON:-python3.11}
cuda=${CUDA_HOME:-/usr/local/cuda}

# optional ENVIRONMENT NAME COMMAND...: runs it, and records a failure without stopping.
optional() {
  local environment=$1 name=$2
  shift 2
  printf '== %s\n' "$name"
  if "$@" >"$root/$environment-$name.log" 2>&1; then
    sed -i "/^$name\$/d" "$root/missing.txt"
  else
    printf '   not installed; the reason is in %s\n' "$root/$environment-$name.log"
    grep -qx "$name" "$root/missing.txt" || echo "$name" >>"$root/missing.txt"
  fi
}

environment() { [[ -x $root/$1/bin/python ]] || "$python" -m venv "$root/$1"; }

# Hides pip's progress, which would fill the logs.
pip_into() {
  local environment=$1
  shift
  "$root/$environment/bin/python" -m pip install --quiet --disable-pip-version-check "$@"
}

install_torch() {
  # torch's wheel is built for CUDA 13 and loads its libraries even without a GPU. An installed
  # toolkit makes downloading them unnecessary.
  if compgen -G "$cuda/lib64/libcublas.so.13*" >/dev/null; then
    pip_into main --no-deps torch==2.11.0 torchvision==0.26.0
    pip_into main filelock fsspec jinja2 networkx sympy typing_extensions \
      nvidia-cufile nvidia-cusparselt-cu13==0.8.0 nvidia-nvshmem-cu13==3.4.5
  else
    pip_into main torch==2.11.0 torchvision==0.26.0
  fi
}

# FFCV asks pkg-config for the whole of OpenCV and includes its all-in-one header, but uses only two
# parts. A description and a header of just these save a desktop's worth of packages.
install_ffcv() {
  local shim=$root/opencv
  mkdir -p "$shim/opencv2"
  printf '#include <opencv2/core.hpp>\n#include <opencv2/imgproc.hpp>\n' >"$shim/opencv2/opencv.hpp"
  printf 'Name: opencv4\nDescription: core and imgproc\nVersion: 4.6\nCflags: -I%s -I%s\nLibs: %s\n' \
    "$shim" /usr/include/opencv4 "-lopencv_core -lopencv_imgproc" >"$shim/opencv4.pc"
  pip_into main setuptools==80.9.0 wheel cython numba==0.65.1 &&
    pip_into main --no-deps pytorch-pfn-extras assertpy tqdm terminaltables imgcat psutil pandas python-dateutil pytz six &&
    PKG_CONFIG_PATH=$shim pip_into main --no-build-isolation --no-deps ffcv==1.0.2
}

touch "$root/missing.txt"
for group in "${groups[@]}"; do
  environment "$group"
  case $group in
    main)
      pip_into main numpy==2.2.6 pillow==13.0.0
      printf '== torch\n'
      install_torch
      optional main pymillrace pip_into main "$(dirname "${BASH_SOURCE[0]}")/../../python"
      optional main dali pip_into main nvidia-dali-cuda130==2.4.0
      optional main ffcv install_ffcv
      optional main albumentations eval \
        'pip_into main --no-deps albumentations==2.0.8 albucore==0.0.24 opencv-python-headless==5.0.0.93 &&
         pip_into main stringzilla simsimd scipy pydantic pyyaml'
      optional main grain pip_into main grain==0.2.18
      optional main spdl pip_into main spdl==0.8.0
      ;;
    simd)
      # simd's own packages precede main's in the search path.
      echo "$root/main/lib/python3.11/site-packages" >"$root/simd/lib/python3.11/site-packages/main.pth"
      optional simd pillow-simd env CC="cc -mavx2" \
        "$root/simd/bin/python" -m pip install --quiet --no-binary pillow-simd pillow-simd==12.1.1.post0
      ;;
    tf) optional tf tensorflow pip_into tf tensorflow-cpu==2.21.0 ;;
    *) printf 'error: no environment %s: main, simd, tf\n' "$group" >&2 && exit 2 ;;
  esac
done
if [[ -s $root/missing.txt ]]; then printf 'not installed: %s\n' "$(paste -sd, "$root/missing.txt")"; fi
