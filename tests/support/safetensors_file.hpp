// Writes files in the safetensors format, and files that only look like it.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

namespace tileway::testing_support {

// The length prefix, the header, and `data_bytes` bytes that count up from 0.
inline std::string safetensors_bytes(const std::string& header, std::size_t data_bytes) {
  std::string bytes(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>(std::uint64_t{header.size()} >> (8 * i));
  bytes += header;
  for (std::size_t i = 0; i < data_bytes; ++i) bytes += static_cast<char>(i);
  return bytes;
}

// A file that lives as long as this object.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& bytes) : path_(next_path()) { write(bytes); }
  ~TemporaryFile() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  const std::string& path() const { return path_; }
  void write(const std::string& bytes) const {
    std::ofstream(path_, std::ios::binary | std::ios::trunc).write(bytes.data(), std::ssize(bytes));
  }

 private:
  // The tests of one binary may run at once, each in a process of its own.
  static std::string next_path() {
    static int count = 0;
    return ::testing::TempDir() + "tileway-" + std::to_string(::getpid()) + "-" + std::to_string(count++);
  }

  std::string path_;
};

}  // namespace tileway::testing_support
