#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Everything that needs a GPU, in one run of at most ten minutes, on a bare machine: CUDA 13.0, a C++20 compiler, CMake,
# ninja, python3 (with PyTorch for the PyTorch steps), no network. One table on stdout; gpu_check.json in the --out folder.
#
#   tools/gpu_check.sh [--out DIR]                 on the machine with the GPU
#   tools/gpu_check.sh --pack [DIR]                beforehand, where the packages and the model are: carries what a bare
#                                                  machine lacks into DIR (default .cache/gpu_pack, ignored by git)
#   tools/gpu_check.sh --dry-run [--build-dir DIR] the same programs on the host device of a cpu build (default build/cpu)
#
# tools/gpu_check.py --help has every option. Exit code 0 only if every step ran and passed (a dry run: every step that a
# machine without a GPU can run).
set -euo pipefail
cd "$(dirname "$0")/.."
exec "${PYTHON:-python3}" tools/gpu_check.py "$@"
