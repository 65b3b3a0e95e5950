#!/bin/sh
# SPDX-License-Identifier: MIT
# Names that the real CUDA libraries export, as the lists that hostcuda's stubs and tests are built from.
#   tools/hostcuda/symbols.sh            compare the committed lists with the real libraries; 0: equal, 1: they differ
#   tools/hostcuda/symbols.sh --write    write the lists anew from the real libraries (marks of cuBLAS 12 stay as they are)
# The real libraries are looked for in lib64 and lib of ${CUDA_ROOT:-/usr/local/cuda}; the driver's names come from the
# toolkit's link stub, their versions from cudaTypedefs.h. Where something is not installed the committed list is the
# truth: that is said, and the result is 0. CUDA12_LIBRARIES, a folder with libcublas.so.12 and libcublasLt.so.12 (wheel
# nvidia-cublas-cu12), has the names of that major compared too.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
root=${CUDA_ROOT:-/usr/local/cuda}
libraries=$root/lib64
[ -d "$libraries" ] || libraries=$root/lib
typedefs=$root/include/cudaTypedefs.h
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
result=0

# count LIST: its names, without those that only an older major has
count() { grep '^HOSTCUDA_SYMBOL' "$1" | grep -vc '^HOSTCUDA_SYMBOL_12'; }

# settle NAME LIST: writes the list, or compares the committed one with $scratch/symbols.def
settle() {
  if [ "$write" = 1 ]; then
    cp "$scratch/symbols.def" "$2"
    echo "$1: $(count "$2") names written"
  elif diff -u "$2" "$scratch/symbols.def"; then
    echo "$1: $(count "$2") names, as committed"
  else
    echo "$1: the committed list differs from the real library" >&2
    result=1
  fi
}

write=0
[ "${1:-}" = --write ] && write=1

# names FILE NODE: what it exports in that version node, sorted
names() {
  LC_ALL=C nm -D --defined-only "$1" | LC_ALL=C awk -v node="$2" '
    $2 == "T" { split($3, part, "@@"); if (part[2] == node) print part[1] }' | LC_ALL=C sort
}

# header SONAME...: first lines of a list
header() {
  echo "// SPDX-License-Identifier: MIT"
  echo "// Every function that the real $1 exports, each in version node $1 (tools/hostcuda/symbols.sh --write)."
}

# The two majors of cuBLAS have one list: a mark says that a name is in that major alone.
for pair in libcublas:cublas libcublasLt:cublaslt; do
  library=${pair%%:*}
  list=$here/${pair##*:}/symbols.def
  if [ -e "$libraries/$library.so.13" ]; then
    names "$libraries/$library.so.13" "$library.so.13" >"$scratch/names"
    {
      grep '^//' "$list"
      LC_ALL=C awk -F '[()]' '
        NR == FNR { if (sub(/^HOSTCUDA_SYMBOL/, "", $1)) mark[$2] = $1; next }
        { real[$0] = 1; print "HOSTCUDA_SYMBOL" (mark[$0] == "_12" ? "" : mark[$0]) "(" $0 ")" }
        END { for (name in mark) if (mark[name] == "_12" && !(name in real)) print "HOSTCUDA_SYMBOL_12(" name ")" }
      ' "$list" "$scratch/names" | LC_ALL=C sort -t '(' -k 2
    } >"$scratch/symbols.def"
    settle "$library.so.13" "$list"
  else
    echo "$library.so.13: not installed in $libraries, the committed list holds ($(count "$list") names)"
  fi
  if [ -e "${CUDA12_LIBRARIES:-}/$library.so.12" ]; then
    names "$CUDA12_LIBRARIES/$library.so.12" "$library.so.12" >"$scratch/names"
    sed -n 's/^HOSTCUDA_SYMBOL\(_12\)\{0,1\}(\(.*\))$/\2/p' "$list" | LC_ALL=C sort >"$scratch/committed"
    if diff -u "$scratch/committed" "$scratch/names"; then
      echo "$library.so.12: $(grep -c . "$scratch/names") names, as committed"
    else
      echo "$library.so.12: the committed list differs from the real library" >&2
      result=1
    fi
  fi
done

soname=libcudart.so.13
list=$here/cudart/symbols.def
if [ -e "$libraries/$soname" ]; then
  { header "$soname"; names "$libraries/$soname" "$soname" | sed 's/.*/HOSTCUDA_SYMBOL(&)/'; } >"$scratch/symbols.def"
  settle "$soname" "$list"
else
  echo "$soname: not installed in $libraries, the committed list holds ($(count "$list") names)"
fi

# The driver: a name's i-th version (cudaTypedefs.h) is the i-th of name, name_v2, name_v3, ... that exists.
list=$here/cuda/symbols.def
if [ ! -e "$libraries/stubs/libcuda.so" ] || [ ! -e "$typedefs" ]; then
  echo "libcuda.so.1: no stub in $libraries/stubs, the committed list holds ($(count "$list") names)"
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
