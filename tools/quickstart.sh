#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The main job, from a fresh clone on a fresh Debian machine, no GPU needed: installs what is missing, builds, fetches
# the sentence encoder's weights, and runs it clean and with injected faults, unguarded and under the shim.
# Arguments go to `sdcguard demo`.
set -euo pipefail
cd "$(dirname "$0")/.."
tools/setup.sh
source tools/environment.sh
tools/fetch_model.sh
cmake --preset cpu -DCUDA_ROOT="$CUDA_ROOT" -Wno-dev >build.log 2>&1 || { tail -n 40 build.log >&2; exit 1; }
cmake --build --preset cpu --target sdcguard_cli encoder hostcuda sdcguard sdcguardd >>build.log 2>&1 || { grep -m 20 -A 5 -E 'error|FAILED' build.log >&2; exit 1; }
rm -f build.log
exec build/cpu/bin/sdcguard demo "$@"
