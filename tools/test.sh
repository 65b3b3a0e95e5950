#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Builds and passes the tests, from a fresh clone on a fresh Debian machine. With a preset's name (asan, tsan) instead of
# the default (cpu), that build; further arguments go to ctest.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=cpu
if [[ ${1:-} =~ ^(cpu|asan|tsan|gpu)$ ]]; then
  preset=$1
  shift
fi
tools/setup.sh
source tools/environment.sh
tools/fetch_model.sh
cmake --preset "$preset" -DCUDA_ROOT="$CUDA_ROOT" -Wno-dev
cmake --build --preset "$preset"
tools/check.py "build/$preset"
ctest --preset "$preset" "$@"
