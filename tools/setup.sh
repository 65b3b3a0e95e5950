#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Installs what a fresh Debian 12 machine lacks to build and test sdcguard, and nothing that is there already:
# Debian packages (as root or through sudo), and, where no nvcc is on PATH, CUDA's compiler, headers and libraries from
# PyPI wheels into .venv/. Prints the lines that tools/environment.sh needs; safe to run again.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(
  build-essential cmake ninja-build git ca-certificates python3 python3-venv python3-pip unzip binutils
  libboost-context-dev libspdlog-dev libtomlplusplus-dev libcli11-dev nlohmann-json3-dev
  libgtest-dev libbenchmark-dev libopenblas-dev clang-format clang-tidy
)
# The wheels of CUDA 13.0 that a build needs. cuSOLVER is there for the test of symbol bindings.
wheels=(
  nvidia-cuda-nvcc==13.0.88 nvidia-cuda-crt==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-runtime==13.0.96
  nvidia-cuda-cccl==13.0.85 nvidia-cublas==13.1.0.3 nvidia-cusolver==12.0.4.66 nvidia-cusparse==12.6.3.3
  nvidia-nvjitlink==13.0.88 nvidia-cuda-culibos==13.0.85 nvidia-cuda-profiler-api==13.0.85
)

missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q '^install ok installed' || missing+=("$package")
done
if ((${#missing[@]})); then
  echo "setup: installing ${missing[*]}"
  root=()
  if [[ $(id -u) -ne 0 ]]; then
    command -v sudo >/dev/null || { echo "setup: these packages are missing and need root: ${missing[*]}" >&2; exit 1; }
    root=(sudo)
  fi
  "${root[@]}" apt-get update -q
  "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}"
fi

if command -v nvcc >/dev/null && [[ ${CUDA_FROM_WHEELS:-0} != 1 ]]; then
  echo "setup: $(command -v nvcc) is here"
else
  stamp=.venv/cuda-wheels
  if [[ "$(cat "$stamp" 2>/dev/null)" != "${wheels[*]}" ]]; then
    echo "setup: no nvcc on PATH: CUDA's compiler, headers and libraries from PyPI into .venv"
    python3 -m venv .venv
    .venv/bin/python -m pip install -q --no-deps --disable-pip-version-check "${wheels[@]}"
    printf '%s' "${wheels[*]}" >"$stamp"
  fi
  cuda=$(echo .venv/lib/python3*/site-packages/nvidia/cu13)
  [[ -x $cuda/bin/nvcc ]] || { echo "setup: $cuda/bin/nvcc is missing after the wheels were installed" >&2; exit 1; }
  echo "setup: CUDA at $cuda"
fi
