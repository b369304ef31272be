// Reads weights in the safetensors format: a JSON header of names, dtypes, shapes and offsets, then the bytes.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tileway/array.hpp"

namespace tileway {

class SafeTensors {
 public:
  // Reads the header and checks all of it: Error (invalid), naming the file and the tensor, for a file that is
  // truncated, or whose offsets leave the file, overlap or do not fit their shapes. No allocation is larger than the
  // file.
  static SafeTensors open(const std::string& path);

  std::vector<std::string> names() const;
  bool contains(const std::string& name) const { return entries_.contains(name); }
  // Throws Error (invalid) for an unknown name, or a dtype that Tileway has no name for (F8_E4M3, BOOL, ...).
  Array load(const std::string& name) const;
  Shape shape(const std::string& name) const { return entry(name).shape; }

 private:
  struct Entry {
    std::string dtype;
    Shape shape;
    std::uint64_t begin = 0;  // in the file
    std::uint64_t end = 0;
  };
  const Entry& entry(const std::string& name) const;

  std::string path_;
  std::map<std::string, Entry> entries_;
};

}  // namespace tileway
