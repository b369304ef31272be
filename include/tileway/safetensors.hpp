// Reads weights from a file in the safetensors format: an 8-byte little-endian length, a JSON header of that length,
// and the tensors' bytes. The format: https://github.com/huggingface/safetensors#format
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tileway/array.hpp"

namespace tileway {

// An open file. Copies share it; const members may be called from several threads at once.
//
// Any file may be given: one that breaks the format, however it does, is an Error (invalid) that names the file and
// the tensor. Opening reads the header only, and needs memory in proportion to the header's real size.
class SafeTensors {
 public:
  // Checks the whole header: every tensor has a known dtype, at most kMaxDims extents and exactly the bytes that they
  // need, and together the tensors cover the file with neither gaps nor overlaps.
  static SafeTensors open(const std::string& path);

  // Sorted.
  std::vector<std::string> names() const;
  bool contains(const std::string& name) const;
  // The members below throw Error (invalid) for a name that is not in the file; dtype and load also for a tensor whose
  // dtype tileway does not have. F32, BF16, F16, F8_E4M3, I32 and I64 it has; F64, F8_E5M2, U8, BOOL and the rest not.
  Shape shape(const std::string& name) const;
  DType dtype(const std::string& name) const;
  // The bytes are read at this call.
  Array load(const std::string& name) const;

 private:
  struct File;
  explicit SafeTensors(std::shared_ptr<const File> file) : file_(std::move(file)) {}
  std::shared_ptr<const File> file_;
};

}  // namespace tileway
