#!/bin/bash
# SPDX-License-Identifier: MIT
# Each rule of the interposition, broken in a copy of the sources, must turn a named route red. Needs a build with the
# clients in it: interposition_mutants.sh BUILD_DIR. Exit 0 only if the sound sources pass and every mutant is caught.
set -u
source_dir=$(cd "$(dirname "$0")/../.." && pwd)
clients=$1/clients
cuda_include=${CUDA_INCLUDE:-/usr/local/cuda/include}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
survived=0

# Names of the routes that fail under the shim at $1.
failing() {
  local run="env LD_LIBRARY_PATH=$clients ROUTES_RECORDER=1 LD_PRELOAD=$1 timeout 30"
  for route in local other_handle default_absent default_global next tail_jump two_majors handle_decides depth redefined \
    errors threads fork reload; do
    $run "$clients/client_dl" $route >/dev/null 2>&1 || echo -n "$route "
  done
  $run "$clients/client_plt" original >/dev/null 2>&1 || echo -n "plt_original "
  $run env ROUTES_UPGRADE=1 "$clients/client_plt" upgrade >/dev/null 2>&1 || echo -n "plt_upgrade "
}

# mutant NAME FILE TEXT REPLACEMENT EXPECTED: EXPECTED is a route that must fail; empty: none may.
mutant() {
  rm -rf "$work/src"
  mkdir "$work/src"
  cp -r "$source_dir/shim" "$source_dir/include" "$source_dir/kernels" "$source_dir/config" "$source_dir/tests" "$work/src"
  cd "$work/src" || exit 2
  python3 - "shim/$2" "$3" "$4" <<'PYTHON' || exit 2
import sys
path, text, replacement = sys.argv[1:]
source = open(path).read()
if text not in source:
    sys.exit(f"{path} has no longer: {text}")
open(path, "w").write(source.replace(text, replacement))
PYTHON
  g++ -std=c++20 -O1 -w -fPIC -shared -fvisibility=hidden -I. -Iinclude -Itests/e2e/clients -isystem "$cuda_include" \
    tests/e2e/clients/recording_pipeline.cpp shim/{resolve,dlsym,intercept,gemm_call,gemm_types,upgrade}.cpp shim/dlsym.S \
    -static-libstdc++ -static-libgcc -Wl,--exclude-libs,ALL -o "$work/libmutant.so" || exit 2
  local failed
  failed=$(failing "$work/libmutant.so")
  local verdict=caught
  if [ -z "$5" ]; then
    verdict=sound
    [ -z "$failed" ] || verdict=BROKEN
  elif ! grep -qw "$5" <<<"$failed"; then
    verdict=SURVIVED
  fi
  case $verdict in BROKEN | SURVIVED) survived=$((survived + 1)) ;; esac
  printf '%-18s %-9s %s\n' "$1" "$verdict" "$failed"
}

mutant none resolve.cpp 'namespace sdcguard {' 'namespace sdcguard {' ''
mutant ordinary_call dlsym.S '  jmp *%rax' $'  subq $8, %rsp\n  call *%rax\n  addq $8, %rsp\n  ret' tail_jump
mutant no_depth intercept.cpp 'if (t_depth > 0 || library->forwards)' 'if (library->forwards)' depth
mutant ignore_handle resolve.cpp '  if (handle != nullptr) {
    const Library* library = library_of_handle(handle);' '  if (false) {
    const Library* library = library_of_handle(handle);' handle_decides
mutant ignore_caller resolve.cpp 'if (caller > 0 && caller != own)' 'if (false)' two_majors
mutant unbound_wrapper intercept.cpp 'return enter_shared<E>(library_at(Slot),' 'return enter_shared<E>(nullptr,' two_majors
mutant keep_handle intercept.cpp '  forget_handle(handle);' '' handle_decides
mutant no_reclaim resolve.cpp '(!live || !is_loaded(library))' '(!live)' reload
mutant shim_found dlsym.cpp 'if (found != nullptr && !is_own_code(found)) return found;' \
  'if (found != nullptr) return found;' default_absent
mutant error_left dlsym.cpp '      if (found != nullptr) dlerror();' '' next
mutant errno_lost intercept.cpp '  errno = saved_errno;' '  (void)saved_errno;' errors
mutant no_fork_handler intercept.cpp 'pthread_atfork(nullptr, nullptr, &after_fork_in_child);' '' fork
mutant wrong_ld upgrade.cpp 'ldb = static_cast<I>(x.ldb)' 'ldb = static_cast<I>(x.lda)' plt_original
mutant callers_algo upgrade.cpp '&key.d, &algo, x.workspace' '&key.d, x.lt_algo, x.workspace' plt_upgrade
mutant callers_desc upgrade.cpp 'library.desc_set(&key.desc, attribute' 'library.desc_set(x.desc, attribute' plt_upgrade
mutant host_scalars upgrade.cpp 'issue.alpha = call.scalars_on_device ?' 'issue.alpha = false ?' plt_upgrade
mutant ask_again upgrade.cpp 'status == kArchMismatch) remember_upgrade_refused(site);' 'status == kArchMismatch) {}' plt_upgrade
echo "$survived not caught"
[ "$survived" -eq 0 ]
