// Short programs, written short.
#pragma once

#include <utility>

#include "tileway/program.hpp"

namespace tileway::testing {

inline Tensor in(Program& p, const char* name, Shape shape, Placement placement, DType dtype = DType::f32,
                 int group = 0, Where where = Where::current()) {
  return p.input(name, dtype, shape, std::move(placement), group, where);
}

}  // namespace tileway::testing
