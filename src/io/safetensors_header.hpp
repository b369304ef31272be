// The JSON header of a safetensors file, read strictly.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "tileway/shape.hpp"

namespace tileway {

struct TensorEntry {
  std::string dtype;  // as the file spells it; one of the format's own
  Shape shape;
  std::uint64_t begin = 0;  // bytes after the header
  std::uint64_t end = 0;
};

using TensorTable = std::map<std::string, TensorEntry>;

// `data_bytes` follow the header in `file`, whose name goes into messages. Throws Error (invalid) unless each entry is
// complete and fits its shape, and the entries cover the data with neither gaps nor overlaps.
TensorTable read_safetensors_header(std::string_view header, std::uint64_t data_bytes, const std::string& file);

// `file, tensor "name"` for messages: at most some 80 bytes of the name, control characters escaped.
std::string tensor_label(const std::string& file, std::string_view name);

}  // namespace tileway
