// SPDX-License-Identifier: MIT
// A folder that no other process uses, removed with its contents at the end. Tests of several clones, users and
// containers may share /tmp, and process numbers may come again: no test writes to a path that it has made up.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <stdexcept>
#include <string>

namespace sdcguard {

class ScratchFolder {
 public:
  // parent: an existing folder. Throws std::runtime_error where a folder can't be made in it.
  explicit ScratchFolder(const std::filesystem::path& parent = std::filesystem::temp_directory_path()) {
    std::string name = (parent / "sdcguard-test-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp " + name);
    path_ = name;
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// All of a file; empty where there is none.
inline std::string bytes_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

// A file in a folder of its own, named by an environment variable, for the process that a threadsafe death test starts:
// it comes by the same line, makes no second folder and uses its parent's file.
class InheritedFile {
 public:
  // variable: not set but by a parent's InheritedFile; lives as long as the object.
  explicit InheritedFile(const char* variable) : variable_(variable) {
    if (getenv(variable) == nullptr) setenv(variable, (folder_.emplace() / "file").c_str(), 1);
  }
  ~InheritedFile() {
    if (folder_) unsetenv(variable_);
  }
  InheritedFile(const InheritedFile&) = delete;
  InheritedFile& operator=(const InheritedFile&) = delete;

  const char* path() const { return getenv(variable_); }

 private:
  const char* variable_;
  std::optional<ScratchFolder> folder_;
};

}  // namespace sdcguard
