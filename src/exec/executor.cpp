#include "tileway/executor.hpp"

#include <fmt/format.h>

#include "tileway/error.hpp"

namespace tileway {

BufferId Executor::binding(const std::string& name) const {
  for (const auto* bindings : {&plan().inputs, &plan().outputs}) {
    for (const Plan::Binding& binding : *bindings) {
      if (binding.name == name && binding.rank == rank_) return binding.buffer;
    }
  }
  return -1;
}

BufferId Executor::require_binding(const std::string& name) const {
  const BufferId id = binding(name);
  TW_REQUIRE(id >= 0, ErrorKind::invalid, .where = plan().name,
             .what = fmt::format("rank {} holds no input or output '{}'", rank_, name));
  return id;
}

void Executor::set_input(const std::string& name, const Array& part) {
  const BufferId id = require_binding(name);
  const Buffer& buffer = plan().buffers[id];
  const auto text = [](DType dtype, const Shape& shape) { return std::string(name_of(dtype)) + to_string(shape); };
  TW_REQUIRE(part.dtype() == buffer.dtype && part.shape() == buffer.shape, ErrorKind::invalid,
             .where = fmt::format("{}, input '{}' of rank {}", plan().name, name, rank_),
             .what = "the array does not fit", .expected = text(buffer.dtype, buffer.shape),
             .got = text(part.dtype(), part.shape()));
  if (part.bytes() > 0) write(id, {part.data(), part.bytes()});
}

Array Executor::get(const std::string& name) const {
  const BufferId id = require_binding(name);
  const Buffer& buffer = plan().buffers[id];
  Array array(buffer.dtype, buffer.shape);
  if (array.bytes() > 0) read(id, {array.data(), array.bytes()});
  return array;
}

}  // namespace tileway
