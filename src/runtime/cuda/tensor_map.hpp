// What Hopper's tensor loads and stores (TMA) are told of the memory they use. Maps are used by
// device/tileway/hopper.cuh.
#pragma once

#include <cstdint>

#include "runtime/cuda/driver.hpp"

namespace tileway::cuda {

// CUtensorMap. Kernels read it from global memory, 128-byte aligned there too; each block calls tensor_map_acquire once
// before it uses a map that was copied there.
struct alignas(128) TensorMap {
  std::uint64_t words[16];
};

// A box of a row-major buffer of elements of one, two or four bytes, possibly one of a batch of such. Strides are in
// elements.
struct TensorBox {
  Address first = 0;  // of the box, not of the buffer
  std::uint64_t rows = 0;
  std::uint64_t columns = 0;
  std::uint64_t row_stride = 0;
  std::uint64_t batches = 1;
  std::uint64_t batch_stride = 0;  // of no meaning for one batch
  std::uint64_t element_bytes = 2;
};

// How many lines one load or store takes: what device/tileway/matmul_hopper.cuh expects of the maps.
inline constexpr unsigned kLineBytes = 128;
inline constexpr unsigned kLinesOfA = 128;
inline constexpr unsigned kLinesOfB = 64;
inline constexpr unsigned kLinesOfKMajorB = 128;  // of one-byte elements
inline constexpr unsigned kLinesOfC = 128;

// Whether TMA can take the box: its first element and its strides are multiples of 16 bytes, rows do not
// overlap, and no extent is zero or beyond 32 bits.
bool tma_can_take(const TensorBox& box);
// And whether tensor stores leave alone what is beside it: they write whole sixteens of bytes, so rows are such.
bool tma_can_store(const TensorBox& box);

// The map of loads and stores of `lines` lines of 128 bytes, swizzled by 128 bytes. Nothing outside the box is touched:
// loads give zeros for it, stores leave it out. Three dimensions: along rows, across rows, batches. For boxes that
// tma_can_take; throws Error (system) where the driver refuses.
TensorMap tensor_map(const TensorBox& box, unsigned lines);

}  // namespace tileway::cuda
