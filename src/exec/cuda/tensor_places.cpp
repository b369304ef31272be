#include "exec/cuda/tensor_places.hpp"

#include <cstddef>
#include <cstdint>

namespace tileway::cuda {
namespace {

// Tiles of a box are multiples of so many rows and bytes of a row; what lies beyond the box's end in one of them must
// read as zeros, or stay as it is. 1 where it does not matter.
struct TileSides {
  std::uint64_t rows;
  std::uint64_t row_bytes;
};

// A box with its matrices one batch after the other; none where they do not lie so.
std::optional<TensorBox> box_of(const View& view, std::size_t element_bytes) {
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

std::optional<TensorPlace> place_of(const Addresses& addresses, const Access& access, TileSides sides, unsigned lines) {
  const Buffer& buffer = addresses.plan.buffers[access.buffer];
  const std::size_t element_bytes = size_of(buffer.dtype);
  // A map cannot follow a buffer that changes its place from run to run.
  if (buffer.slots != 1 || buffer.shape.size() < 2) return {};
  const std::optional<TensorBox> own = box_of(addresses.view(access), element_bytes);
  if (!own) return {};
  const auto even = [&](std::size_t d, std::uint64_t side) {
    const std::int64_t extent = access.box.extent[d];
    return access.box.start[d] + extent == buffer.shape[d] || static_cast<std::uint64_t>(extent) % side == 0;
  };
  if (buffer.shape.size() != 2 || !even(0, sides.rows) || !even(1, sides.row_bytes / element_bytes))
    return TensorPlace{.whole = false, .box = *own, .lines = lines};
  const Access all{.buffer = access.buffer, .box = Box::whole(buffer.shape)};
  const std::optional<TensorBox> whole = box_of(addresses.view(all), element_bytes);
  if (!whole) return {};
  return TensorPlace{.whole = true,
                     .box = *whole,
                     .lines = lines,
                     .x = static_cast<unsigned>(access.box.start[1]),
                     .y = static_cast<unsigned>(access.box.start[0])};
}

}  // namespace

std::optional<LoadableOperands> loadable(const Addresses& addresses, const Task& product) {
  const Box& c = product.writes[0].box;
  std::uint64_t matrices = 1;
  for (std::size_t d = 0; d + 2 < c.extent.size(); ++d) matrices *= static_cast<std::uint64_t>(c.extent[d]);
  const std::size_t element_bytes = size_of(addresses.plan.buffers[product.reads[0].buffer].dtype);
  if (element_bytes > 2) return {};
  // Along k only zeros do; rows and columns of A and B beyond the box give elements that are not stored.
  const bool k_major_b = element_bytes == 1;
  const TileSides along_k{1, kLineBytes};
  const TileSides across_k{kLinesOfB, element_bytes};
  const auto a = place_of(addresses, product.reads[0], along_k, kLinesOfA);
  const auto b =
      place_of(addresses, product.reads[1], k_major_b ? along_k : across_k, k_major_b ? kLinesOfKMajorB : kLinesOfB);
  if (!a || !b) return {};
  // Each is there once for all, or once for each.
  const auto fits = [&](const TensorPlace& place) { return place.box.batches == 1 || place.box.batches == matrices; };
  if (!fits(*a) || !fits(*b)) return {};
  return LoadableOperands{*a, *b};
}

std::optional<TensorPlace> storable(const Addresses& addresses, const Task& product) {
  const Access& c = product.writes[0];
  const std::optional<TensorPlace> place = place_of(addresses, c, {kLinesOfC, kLineBytes}, kLinesOfC);
  if (!place) return {};
  TensorBox stored = place->box;
  stored.columns = static_cast<std::uint64_t>(c.box.extent[c.box.extent.size() - 1]);
  return tma_can_store(stored) ? place : std::nullopt;
}

}  // namespace tileway::cuda
