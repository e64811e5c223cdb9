#!/usr/bin/env bash
# Runs a script of this folder with the PyTorch that tools/quickstart installed, and prints what it prints.
set -euo pipefail

if [[ $# != 1 || $1 == --help ]]; then
  printf 'usage: bash tests/golden/run.sh SCRIPT.py >tests/golden/NAME.json\n\n'
  printf 'The first run installs requirements.txt under .deps/golden. SCRIPT.py names its versions and processor.\n'
  [[ ${1-} == --help ]] && exit 0 || exit 2
fi

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
folder=.deps/golden
[[ -e .deps/torch/torch ]] || { echo ".deps/torch is missing: run bash tools/quickstart" >&2 && exit 2; }
if ! cmp -s tests/golden/requirements.txt "$folder/.complete"; then
  rm -rf "$folder"
  export PIP_ROOT_USER_ACTION=ignore
  python3 -m pip install -q --no-deps --target "$folder" -r tests/golden/requirements.txt >&2
  python3 tests/python/cuda_stubs.py .deps/torch/torch "$folder/stubs" >/dev/null
  cp tests/golden/requirements.txt "$folder/.complete"
fi
LD_LIBRARY_PATH=$folder/stubs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} PYTHONPATH=$folder:.deps/torch \
  exec python3 "tests/golden/$(basename "$1")"
