// SPDX-License-Identifier: MIT
// Preloaded before the shim: a machine whose shared memory is full, for every file.
#include <errno.h>
#include <fcntl.h>

int posix_fallocate(int fd, off_t offset, off_t bytes) {
  (void)fd, (void)offset, (void)bytes;
  return ENOSPC;
}
