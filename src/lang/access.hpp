// Which part of an operand a part of the result needs: what makes tile-by-tile overlap possible for any operation.
#pragma once

#include "tileway/program.hpp"

namespace tileway {

// For a computation `op`, the box of operand `operand` that `member` reads to compute `result` (both in coordinates of
// what the member holds). Never too small; may be larger than needed where the relation is not a box (reshape).
Box operand_box(const Program& program, const Op& op, std::size_t operand, int member, const Box& result);

}  // namespace tileway
