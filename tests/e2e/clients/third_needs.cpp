// SPDX-License-Identifier: MIT
// What third.cpp is linked to and nobody else: visible in its local scope alone.
extern "C" int only_in_local_scope() {
  return 11;
}
extern "C" int twice_defined() {
  return 2;
}
