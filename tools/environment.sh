# SPDX-License-Identifier: MIT
# Sourced by the other scripts, in the root of the tree: sets CUDA_ROOT, the toolkit that setup.sh found or installed.
# nvcc may be a wrapper script: it is asked where its toolkit is.
if command -v nvcc >/dev/null && [[ ${CUDA_FROM_WHEELS:-0} != 1 ]]; then
  CUDA_ROOT=$(nvcc --dryrun -x cu -c /dev/null -o /dev/null 2>&1 | sed -n 's/^#\$ TOP=//p' | head -n 1)
  CUDA_ROOT=$(readlink -f "$CUDA_ROOT")
else
  CUDA_ROOT=$(readlink -f .venv/lib/python3*/site-packages/nvidia/cu13)
fi
export CUDA_ROOT
