#!/bin/sh
# SPDX-License-Identifier: MIT
# Names that the real CUDA libraries export, as the lists that hostcuda's stubs and tests are built from.
#   tools/hostcuda/symbols.sh            compare the committed lists with the real libraries; 0: equal, 1: they differ
#   tools/hostcuda/symbols.sh --write    write the lists anew from the real libraries
# The real libraries are looked for in lib64 and lib of ${CUDA_ROOT:-/usr/local/cuda}; the driver's names come from the
# toolkit's link stub, their versions from cudaTypedefs.h. Where something is not installed the committed list is the
# truth: that is said, and the result is 0.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
root=${CUDA_ROOT:-/usr/local/cuda}
libraries=$root/lib64
[ -d "$libraries" ] || libraries=$root/lib
typedefs=$root/include/cudaTypedefs.h
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
result=0

# settle NAME LIST: writes the list, or compares the committed one with $scratch/symbols.def
settle() {
  if [ "$write" = 1 ]; then
    cp "$scratch/symbols.def" "$2"
    echo "$1: $(grep -c '^HOSTCUDA_SYMBOL' "$2") names written"
  elif diff -u "$2" "$scratch/symbols.def"; then
    echo "$1: $(grep -c '^HOSTCUDA_SYMBOL' "$2") names, as committed"
  else
    echo "$1: the committed list differs from the real library" >&2
    result=1
  fi
}

write=0
[ "${1:-}" = --write ] && write=1

for pair in libcublas.so.13:cublas libcublasLt.so.13:cublaslt libcudart.so.13:cudart; do
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
  settle "$soname" "$list"
done

# The driver: a name's i-th version (cudaTypedefs.h) is the i-th of name, name_v2, name_v3, ... that exists.
list=$here/cuda/symbols.def
if [ ! -e "$libraries/stubs/libcuda.so" ] || [ ! -e "$typedefs" ]; then
  echo "libcuda.so.1: no stub in $libraries/stubs, the committed list holds ($(grep -c '^HOSTCUDA_SYMBOL' "$list") names)"
  exit $result
fi
LC_ALL=C nm -D --defined-only "$libraries/stubs/libcuda.so" | LC_ALL=C awk '$2 == "T" { print $3 }' |
  LC_ALL=C sort >"$scratch/names"
sed -n 's/.*[*]PFN_\(cu[A-Za-z0-9]*\)_v\([0-9]*\)\(_pt[a-z]*\)*).*/\1 -\3 \2/p' "$typedefs" "${typedefs%/*}/cudaProfilerTypedefs.h" |
  LC_ALL=C sort -k1,1 -k2,2 -k3,3n -u >"$scratch/versions"
{
  echo "// SPDX-License-Identifier: MIT"
  echo "// Every function that the real libcuda.so.1 exports: its symbol, the name by which cuGetProcAddress knows it, the CUDA"
  echo "// version that brought it, and what its stream 0 is (tools/hostcuda/symbols.sh --write)."
  LC_ALL=C awk '
    NR == FNR { exists[$1] = 1; next }
    {
      if ($1 $2 != group) { group = $1 $2; k = 0 }
      twin = substr($2, 2)
      do { ++k; symbol = $1 (k == 1 ? "" : "_v" k) twin } while (!(symbol in exists) && k < 9)
      if (!(symbol in exists)) { print "no symbol for version " $3 " of " $1 twin >"/dev/stderr"; exit 1 }
      done[symbol] = 1
      print "HOSTCUDA_SYMBOL(" symbol ", " $1 ", " $3 ", " (twin == "" ? "kLegacy" : "kPerThread") ")"
    }
    END { for (symbol in exists) if (!(symbol in done)) print "HOSTCUDA_SYMBOL(" symbol ", " symbol ", 2000, kLegacy)" }
  ' "$scratch/names" "$scratch/versions" | LC_ALL=C sort
} >"$scratch/symbols.def"
settle libcuda.so.1 "$list"
exit $result
