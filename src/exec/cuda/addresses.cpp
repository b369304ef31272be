#include "exec/cuda/addresses.hpp"

#include <bit>
#include <vector>

namespace tileway::cuda {
namespace {

// The largest power of two, 16 at most, that divides all of these.
u32 common_alignment(const std::vector<std::uint64_t>& bytes) {
  u32 align = 16;
  for (std::uint64_t each : bytes) {
    while (each % align != 0) align /= 2;
  }
  return align;
}

// See View. Division by multiplication as in Granlund and Montgomery, "Division by Invariant Integers using
// Multiplication" (1994): for x < 2^31 and s = ceil(log2 d), x / d is x * ceil(2^(31 + s) / d) / 2^(31 + s).
void find_rows(View& view, std::size_t element_bytes) {
  std::int64_t run = 1;  // elements of the dimensions so far, that are contiguous
  u32 d = view.dims;
  while (d > 0 && (view.extent[d - 1] == 1 || view.stride[d - 1] == run)) run *= view.extent[--d];
  std::vector<std::uint64_t> multiples{view.data, static_cast<std::uint64_t>(run) * element_bytes};
  if (view.slots > 1) multiples.push_back(view.slot_bytes);
  std::int64_t rows = 1;
  bool even = run > 0 && run < std::int64_t{1} << 31;
  while (d > 0) {
    --d;
    if (view.extent[d] == 1) continue;
    multiples.push_back(static_cast<std::uint64_t>(view.stride[d]) * element_bytes);
    if (rows == 1) view.row_stride = view.stride[d];
    even = even && view.stride[d] == view.row_stride * rows;
    rows *= view.extent[d];
  }
  view.align = common_alignment(multiples);
  if (!even) return;
  view.columns = static_cast<u32>(run);
  view.shift = static_cast<u32>(std::bit_width(view.columns - 1));
  const std::uint64_t power = std::uint64_t{1} << (31 + view.shift);
  view.reciprocal = static_cast<u32>((power + view.columns - 1) / view.columns);
}

}  // namespace

Address Addresses::buffer(BufferId id) const {
  const Buffer& which = plan.buffers[id];
  if (which.symmetric) return symmetric[which.rank] + layout.buffer_offset[id];
  const auto found = brought.find(id);
  return found != brought.end() ? found->second : own + layout.buffer_offset[id];
}

Address Addresses::signal(SignalId id) const { return symmetric[plan.signals[id].rank] + layout.signal_offset[id]; }

View Addresses::view(const Access& access) const {
  const Buffer& its = plan.buffers[access.buffer];
  const Dims strides = row_major_strides(its.shape);
  View view{};
  std::int64_t offset = 0;
  for (std::size_t d = 0; d < strides.size(); ++d) {
    offset += access.box.start[d] * strides[d];
    view.extent[d] = access.box.extent[d];
    view.stride[d] = strides[d];
  }
  view.data = buffer(access.buffer) + static_cast<std::uint64_t>(offset) * size_of(its.dtype);
  view.slot_bytes = PlanLayout::slot_bytes(its);
  view.slots = static_cast<u32>(its.slots);
  view.dims = static_cast<u32>(strides.size());
  view.buffer = static_cast<u32>(access.buffer);
  view.mode = static_cast<u32>(access.mode);
  view.stage = static_cast<u32>(access.stage);
  view.op = static_cast<u32>(access.op);
  view.partition = access.partition;
  view.slice = access.slice;
  view.map = kNoMap;
  find_rows(view, size_of(its.dtype));
  return view;
}

}  // namespace tileway::cuda
