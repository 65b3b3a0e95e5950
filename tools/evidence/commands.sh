# SPDX-License-Identifier: MIT
# The words that the rows of tools/evidence are made of, and that repeat them by hand: source this in the root of the
# tree with B the build folder, T an empty scratch folder, REAL the folder of the real CUDA libraries.
printf 'seed = 5\n[[fault]]\nkind = "word"\nvalue = 1000.0\n' >$T/word.toml
printf 'seed = 5\n[[fault]]\nkind = "accumulator"\nbits = "20..30"\ncount = 2\n' >$T/bits.toml

host() { env LD_LIBRARY_PATH=$B/lib/hostcuda "$@"; }  # a program on the host device
guarded() {  # NAME, settings, program: under the shim; what the daemon read of it goes to $T/NAME.jsonl
  local name=$1; shift; mkdir -p $T/$name.rings
  host LD_PRELOAD=$B/lib/libsdcguard.so SDCGUARD_CONFIG=/dev/null SDCGUARD_RING_DIR=$T/$name.rings "$@" &&
    $B/bin/sdcguardd --log-level error --ring-dir $T/$name.rings --once --jsonl $T/$name.jsonl
}
gemm() { echo $B/bin/gemm --m 192 --n 64 --k 128; }  # a plain cuBLAS program, its smallest product with the line plan
demo_without() {  # KERNEL, arguments: the demo, its encoder started with a kernel switched off, on four sentences
  mkdir -p $T/m/bin && cp $B/bin/sdcguard $B/bin/sdcguardd $T/m/bin/ && ln -sfn $B/lib $T/m/lib
  printf '#!/bin/sh\nHOSTCUDA_SKIP_KERNEL=%s exec %s "$@"\n' $1 $B/bin/encoder >$T/m/bin/encoder
  chmod +x $T/m/bin/encoder
  head -n 4 examples/encoder/sentences.txt >$T/few.txt && shift
  $T/m/bin/sdcguard demo --model .cache/model --sentences $T/few.txt "$@"
}
mutant_shim() {  # VERSION_SCRIPT, link flags: a shim from the very objects of the build
  local script=$1; shift
  g++ -shared -o $T/libmutant.so -Wl,--whole-archive $B/libsdcguard_stages.a -Wl,--no-whole-archive \
    $B/libsdcguard_config.a $B/libsdcguard_plan.a -Wl,--as-needed "$@" -Wl,--version-script=$script
}
slow_start_shim() {  # a preload that does half a millisecond of work before main
  printf '#include <unistd.h>\n__attribute__((constructor)) static void slow(void) { usleep(500); }\n' >$T/slow.c &&
    gcc -shared -fPIC -o $T/libmutant.so $T/slow.c
}
named_node() {  # a shim with a named version node
  sed 's/^{/SDCGUARD_1 {/' shim/exports.map >$T/named.map && mutant_shim $T/named.map -static-libstdc++ -static-libgcc
}
bindings() {  # SHIM: what the loader binds at start among the real libraries
  LD_DEBUG=bindings LD_BIND_NOW=1 LD_LIBRARY_PATH=$REAL LD_PRELOAD="$1 libcublas.so.13 libcusolver.so.12" \
    /bin/true 2>&1 | grep -a 'symbol .cublas'
}
traced() {  # CALLS, settings: traces of one call and of CALLS calls of a product
  local calls=$1; shift
  guarded 1 SDCGUARD_EVERY=1 HOSTCUDA_TRACE=$T/trace.1 "$@" $(gemm) &&
    guarded n SDCGUARD_EVERY=1 HOSTCUDA_TRACE=$T/trace.n HOSTCUDA_FAULT_LOG=$T/faults.n "$@" $(gemm) --calls $calls
}
sixty() {  # NAME, settings: sixty calls, one in three checked, a fault in every product
  guarded "$1" SDCGUARD_EVERY=3 HOSTCUDA_FAULTS=$T/word.toml "${@:2}" $(gemm) --calls 60 --dump $T/$1.d
}
compare_outputs() {  # MODE: six outputs, clean and with faults, unguarded and guarded
  head -n 4 examples/encoder/sentences.txt >$T/few.txt
  local faults encoder="$B/bin/encoder --model .cache/model --sentences $T/few.txt --no-table --embeddings"
  for faults in "" $T/bits.toml; do
    f=${faults:+faulty}
    three() {
      "$@" $encoder $O.encoder.$f && "$@" $(gemm) --calls 3 --api sgemm --beta 0.5 --dump $O.sgemm.$f &&
        "$@" $(gemm) --calls 3 --api lt --epilogue gelu_bias --dump $O.lt_bf16.$f
    }
    O=$T/bare three host HOSTCUDA_FAULTS=$faults || return
    O=$T/under three guarded compared SDCGUARD_EVERY=1 SDCGUARD_MODE=$1 HOSTCUDA_FAULTS=$faults || return
  done
  for f in $T/bare.*; do
    cmp -s $f ${f/bare/under} && echo -n "same " || echo -n "DIFFER "
    echo ${f##*/bare.} $(stat -c %s ${f/bare/under}) bytes
  done
}
vectors() {  # FOLDER ORDER:FILE...
  local pair bad=0
  for pair in "${@:2}"; do $B/bin/tensor_core_vectors ${pair%%:*} $1/${pair#*:} || bad=1; done
  return $bad
}
mutant_routes() {  # TREE: its mutants of the interposition
  CUDA_INCLUDE=$(source tools/environment.sh && echo $CUDA_ROOT/include) $1/tests/e2e/interposition_mutants.sh $B
}
sampled_alone() {  # the part of bench_overhead that is measured for a call not sampled, with every call sampled
  LD_PRELOAD=$B/lib/libsdcguard.so SDCGUARD_CONFIG=/dev/null SDCGUARD_RATE=1 $B/bin/bench_overhead --child 100000 0
}
h100_as_rounded16() {  # bench_gemm, h100 measured under the name of rounded16
  sed 's/rounded16_product(a_view/tensor_core_product({16, 2}, Format::kBf16, a_view/' tests/bench/bench_gemm.cpp >$T/m.cpp &&
    g++ -std=c++20 -O2 -I. -Iinclude -o $T/m $T/m.cpp $B/libhostcuda_gemm.a -pthread && $T/m --json --rounds 3
}
copy_tree() { mkdir $T/c && cp -r include config kernels shim tools examples tests CMakeLists.txt .clang-format $T/c; }
routes_never_fail() {  # the copy's script of mutants, its routes not run and nothing compiled
  sed -i 's/^failing() {/g++() { :; }\n&\n  return/' $T/c/tests/e2e/interposition_mutants.sh
}
build_copy() {  # CMAKE_OPTIONS, targets: the changed copy, into $T/c/b
  source tools/environment.sh
  cmake -S $T/c -B $T/c/b -G Ninja -DCUDA_ROOT=$CUDA_ROOT -Wno-dev $1 >/dev/null && ninja -C $T/c/b "${@:2}" >/dev/null
}
plant_defects() {  # a test that no build without a sanitizer sees fail
  cat >$T/c/tests/unit/planted_test.cpp <<'EOT'
#include <gtest/gtest.h>

#include <memory>
#include <thread>
TEST(Planted, Overflow) {
  auto four = std::make_unique<int[]>(4);
  volatile int after = 4;
  four[0] = four[after];
  EXPECT_NE(four, nullptr);
}
TEST(Planted, Race) {
  int count = 0;
  std::thread other([&] { ++count; });
  ++count;
  other.join();
  EXPECT_GE(count, 0);
}
EOT
}
