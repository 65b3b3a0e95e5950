// SPDX-License-Identifier: MIT
// Sink: takes JSON lines, puts them where the operator wants them; one that fails turns itself off and the daemon goes
// on.
#pragma once

#include <string>
#include <string_view>

namespace sdcguard {

class JsonlSink {
 public:
  JsonlSink() = default;
  ~JsonlSink();
  JsonlSink(const JsonlSink&) = delete;
  JsonlSink& operator=(const JsonlSink&) = delete;

  // "-" is standard output; a file is made with mode 0600 or appended to. False: `error()` says why.
  bool open(const std::string& path);

  // True while lines can be written. False: never opened, or off after a failure.
  bool good() const { return fd_ >= 0 && error_.empty(); }
  const std::string& error() const { return error_; }

  // Keeps one line (without newline) until flush(), which writes whole lines. Both do nothing once it is off.
  void write(std::string_view line);
  void flush();

 private:
  int fd_ = -1;
  bool owned_ = false;
  std::string buffer_;
  std::string error_;
};

}  // namespace sdcguard
