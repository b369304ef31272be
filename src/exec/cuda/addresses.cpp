#include "exec/cuda/addresses.hpp"

namespace tileway::cuda {
namespace {

// An operand with its matrices one batch after the other; none where they do not lie so, or a buffer changes its place
// from run to run, which a tensor map cannot follow.
std::optional<TensorBox> box_of(const View& view, std::size_t element_bytes) {
  if (view.slots != 1 || view.dims < 2) return {};
  TensorBox box{.first = view.data,
                .rows = static_cast<std::uint64_t>(view.extent[view.dims - 2]),
                .columns = static_cast<std::uint64_t>(view.extent[view.dims - 1]),
                .row_stride = static_cast<std::uint64_t>(view.stride[view.dims - 2]),
                .element_bytes = element_bytes};
  for (u32 d = view.dims - 2; d-- > 0;) {
    if (view.extent[d] == 1) continue;
    const auto stride = static_cast<std::uint64_t>(view.stride[d]);
    if (box.batches > 1 && stride != box.batch_stride * box.batches) return {};
    if (box.batches == 1) box.batch_stride = stride;
    box.batches *= static_cast<std::uint64_t>(view.extent[d]);
  }
  if (!tma_can_take(box)) return {};
  return box;
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
  return view;
}

std::optional<LoadableOperands> loadable(const Addresses& addresses, const Task& product) {
  const View c = addresses.view(product.writes[0]);
  std::uint64_t matrices = 1;
  for (u32 d = 0; d + 2 < c.dims; ++d) matrices *= static_cast<std::uint64_t>(c.extent[d]);
  const std::size_t element_bytes = size_of(addresses.plan.buffers[product.reads[0].buffer].dtype);
  const std::optional<TensorBox> a = box_of(addresses.view(product.reads[0]), element_bytes);
  const std::optional<TensorBox> b = box_of(addresses.view(product.reads[1]), element_bytes);
  if (!a || !b || element_bytes > 2) return {};
  // Each is there once for all, or once for each.
  if ((a->batches != 1 && a->batches != matrices) || (b->batches != 1 && b->batches != matrices)) return {};
  return LoadableOperands{*a, *b, element_bytes == 1 ? kLinesOfKMajorB : kLinesOfB};
}

}  // namespace tileway::cuda
