#include "runtime/cuda/tensor_map.hpp"

#include <array>

#include "tileway/error.hpp"

namespace tileway::cuda {
namespace {

constexpr std::uint64_t kAlignment = 16;
constexpr std::uint64_t kMostExtent = (std::uint64_t{1} << 32) - 1;  // coordinates are 32 bits
constexpr std::uint64_t kMostStride = (std::uint64_t{1} << 40) - 1;  // bytes

// The driver's enumerations. Elements are moved, not computed with, so their width is all that matters.
constexpr int kTypeUint8 = 0;
constexpr int kTypeUint16 = 1;
constexpr int kTypeUint32 = 2;
constexpr int kNoInterleave = 0;
constexpr int kSwizzle128 = 3;
constexpr int kPromotion256 = 3;  // to L2, as 256 bytes
constexpr int kFillZeros = 0;

bool stride_fits(std::uint64_t elements, const TensorBox& box) {
  const std::uint64_t bytes = elements * box.element_bytes;
  return elements <= kMostStride && bytes <= kMostStride && bytes % kAlignment == 0;
}

// The driver wants a stride for a batch of one too, though nothing is ever that far away.
std::uint64_t batch_stride(const TensorBox& box) {
  return box.batches > 1 ? box.batch_stride : box.row_stride * box.rows;
}

}  // namespace

bool tma_can_take(const TensorBox& box) {
  for (const std::uint64_t extent : {box.rows, box.columns, box.batches})
    if (extent == 0 || extent > kMostExtent) return false;
  return box.first % kAlignment == 0 && box.row_stride >= box.columns && stride_fits(box.row_stride, box) &&
         batch_stride(box) >= box.row_stride && stride_fits(batch_stride(box), box);
}

bool tma_can_store(const TensorBox& box) {
  return tma_can_take(box) && box.columns * box.element_bytes % kAlignment == 0;
}

TensorMap tensor_map(const TensorBox& box, unsigned lines) {
  TW_ASSERT(tma_can_take(box));
  const int type = box.element_bytes == 1 ? kTypeUint8 : box.element_bytes == 2 ? kTypeUint16 : kTypeUint32;
  const std::array<std::uint64_t, 3> extents{box.columns, box.rows, box.batches};
  const std::array<std::uint64_t, 2> strides{box.row_stride * box.element_bytes, batch_stride(box) * box.element_bytes};
  const std::array<std::uint32_t, 3> load{static_cast<std::uint32_t>(kLineBytes / box.element_bytes), lines, 1};
  const std::array<std::uint32_t, 3> steps{1, 1, 1};
  TensorMap map{};
  check(driver()->TensorMapEncodeTiled(&map, type, 3, box.first, extents.data(), strides.data(), load.data(),
                                       steps.data(), kNoInterleave, kSwizzle128, kPromotion256, kFillZeros),
        "making a tensor map");
  return map;
}

}  // namespace tileway::cuda
