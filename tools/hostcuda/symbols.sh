#!/bin/sh
# SPDX-License-Identifier: MIT
# Names that the real cuBLAS libraries export, as the lists that hostcuda's stubs and tests are built from.
#   tools/hostcuda/symbols.sh            compare the committed lists with the real libraries; 0: equal, 1: they differ
#   tools/hostcuda/symbols.sh --write    write the lists anew from the real libraries
# The real libraries are looked for in ${CUDA_ROOT:-/usr/local/cuda}/lib64. Where they are not installed the committed
# lists are the truth: that is said, and the result is 0.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
libraries=${CUDA_ROOT:-/usr/local/cuda}/lib64
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
result=0
for pair in libcublas.so.13:cublas libcublasLt.so.13:cublaslt; do
  soname=${pair%%:*}
  list=$here/${pair##*:}/symbols.def
  if [ ! -e "$libraries/$soname" ]; then
    echo "$soname: not installed in $libraries, the committed list holds ($(grep -c '^HOSTCUDA_SYMBOL' "$list") names)"
    continue
  fi
  {
    echo "// SPDX-License-Identifier: MIT"
    echo "// Every function that the real $soname exports, each in version node $soname (tools/hostcuda/symbols.sh --write)."
    LC_ALL=C nm -D --defined-only "$libraries/$soname" | LC_ALL=C awk -v node="$soname" '
      $2 == "T" { split($3, part, "@@"); if (part[2] == node) print "HOSTCUDA_SYMBOL(" part[1] ")" }' | LC_ALL=C sort
  } >"$scratch/symbols.def"
  if [ "${1:-}" = --write ]; then
    cp "$scratch/symbols.def" "$list"
    echo "$soname: $(grep -c '^HOSTCUDA_SYMBOL' "$list") names written"
  elif diff -u "$list" "$scratch/symbols.def"; then
    echo "$soname: $(grep -c '^HOSTCUDA_SYMBOL' "$list") names, as committed"
  else
    echo "$soname: the committed list differs from the real library" >&2
    result=1
  fi
done
exit $result
