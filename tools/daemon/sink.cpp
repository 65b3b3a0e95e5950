// SPDX-License-Identifier: MIT
// Sink: takes JSON lines, puts them where the operator wants them; one that fails turns itself off and the daemon goes
// on.
#include "tools/daemon/sink.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace sdcguard {
namespace {

constexpr size_t kFlushBytes = 1 << 20;  // a pass over full lanes does not grow the daemon

}  // namespace

JsonlSink::~JsonlSink() {
  flush();
  if (owned_) close(fd_);
}

bool JsonlSink::open(const std::string& path) {
  if (path == "-") {
    fd_ = STDOUT_FILENO;
    return true;
  }
  fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  owned_ = fd_ >= 0;
  if (fd_ < 0) error_ = strerror(errno);
  return fd_ >= 0;
}

void JsonlSink::write(std::string_view line) {
  if (!good()) return;
  buffer_.append(line).push_back('\n');
  if (buffer_.size() >= kFlushBytes) flush();
}

void JsonlSink::flush() {
  size_t done = 0;
  while (good() && done < buffer_.size()) {
    const ssize_t wrote = ::write(fd_, buffer_.data() + done, buffer_.size() - done);
    if (wrote >= 0) {
      done += static_cast<size_t>(wrote);
    } else if (errno != EINTR) {
      error_ = strerror(errno);
    }
  }
  buffer_.clear();
}

}  // namespace sdcguard
