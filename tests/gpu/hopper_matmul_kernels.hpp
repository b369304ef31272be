// The kernels of hopper_matmul_test.cpp, and what they are told.
#pragma once

#include <cstdint>

#include "runtime/cuda/driver.hpp"

namespace tileway::cuda::testing {

constexpr int kSharedBytes = 214016;  // the ring and staging; the kernels hold it against their own count

// The kernels under test: a block walks tiles as a lane would walk tasks.
inline constexpr const char* kTiles = R"(
#include "tileway/matmul_hopper.cuh"
using namespace tileway;
static_assert(HopperShape<bf16>::kRingBytes + HopperShape<bf16>::kStagingBytes == 214016, "what the host asks for");
static_assert(HopperShape<e4m3>::kRingBytes + HopperShape<e4m3>::kStagingBytes <= 214016, "what the host asks for");
struct Job {
  u64 maps;  // of A, of B, of C
  u64 c;
  i64 c_stride;
  i64 c_batch;
  u64 patience_ns;
  u64 abort;
  u64 failed;  // u32: how many sides of blocks gave up
  u32 m, n, k, batches;
  u32 a_batched, b_batched;
  u32 idle;  // a side that does nothing: 1 the producer, 2 the workers
  u32 c_mapped;
  u64 row_scales;  // of e4m3: for each row, and one for all columns
  u64 column_scale;
};
struct Place {
  u32 batch, m0, n0;
};
template <typename T>
__device__ inline u32 tile_columns(const Job& job) {
  return (job.n + HopperShape<T>::kColumns - 1) / HopperShape<T>::kColumns;
}
// Sixteen rows of tiles at a time, so that blocks that run together share what they load.
template <typename T>
__device__ inline Place place_of(const Job& job, u32 tile) {
  const u32 rows = (job.m + kHopperTileRows - 1) / kHopperTileRows;
  const u32 columns = tile_columns<T>(job);
  const u32 batch = tile / (rows * columns);
  tile %= rows * columns;
  const u32 first = tile / (16 * columns) * 16;
  const u32 together = min(16u, rows - first);
  tile -= first * columns;
  return {batch, (first + tile % together) * kHopperTileRows, tile / together * HopperShape<T>::kColumns};
}
__device__ inline View view_of(u64 data, i64 rows, i64 columns, i64 stride) {
  View view{};
  view.data = data;
  view.dims = 2;
  view.extent[0] = rows;
  view.extent[1] = columns;
  view.stride[0] = stride;
  view.stride[1] = 1;
  return view;
}
// The warp that stores, until the workers have done the last of their tiles: `done` counts them, and has a bit for that.
constexpr u32 kAllDone = 1u << 31;
template <typename T>
__device__ inline void store_tiles(HopperStorer<T> storer, u32* done) {
  for (u32 next = 0;;) {
    const u32 seen = __shfl_sync(0xffffffffu, threadIdx.x % 32 == 0 ? read_count(done) : 0, 0);
    storer.take(next);
    if ((seen & ~kAllDone) > next)
      ++next;
    else if ((seen & kAllDone) != 0)
      break;
  }
  storer.await_written();
}
template <typename T, typename C>
__device__ __forceinline__ void walk(const Job& job) {
  extern __shared__ __align__(1024) u8 shared[];
  __shared__ u32 done_tiles;
  const HopperRing<T> ring(shared);
  u8* const staging_memory = shared + HopperShape<T>::kRingBytes;
  if (threadIdx.x == 0) {
    hopper_init_ring(ring);
    done_tiles = 0;
  }
  __syncthreads();
  const Patience patience{job.patience_ns, reinterpret_cast<const u32*>(job.abort)};
  u32* const failed = reinterpret_cast<u32*>(job.failed);
  const u32 tiles = (job.m + kHopperTileRows - 1) / kHopperTileRows * tile_columns<T>(job) * job.batches;
  RingPosition position{0, 0};
  if (threadIdx.x < kServiceThreads) {
    hopper_service_registers();
    if (threadIdx.x / 32 == 1) store_tiles(HopperStorer<T>(shared, staging_memory), &done_tiles);
    if (threadIdx.x != 0 || job.idle == 1) return;
    const u8* const a_map = reinterpret_cast<const u8*>(job.maps);
    const u8* const b_map = a_map + 128;
    tensor_map_acquire(a_map);
    tensor_map_acquire(b_map);
    for (u32 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
      const Place at = place_of<T>(job, tile);
      if (hopper_produce(ring, position,
                         {a_map, b_map, 0, at.m0, 0, at.n0, job.n - at.n0, job.k, at.batch * job.a_batched, at.batch * job.b_batched},
                         patience)) continue;
      atomicAdd(failed, 1u);
      break;
    }
    hopper_drain(ring, position, patience);
  } else {
    hopper_worker_registers();
    const View c = view_of(job.c, job.m, job.n, job.c_stride);
    const void* const c_map = job.c_mapped != 0 ? reinterpret_cast<const u8*>(job.maps) + 256 : nullptr;
    HopperStaging<T> staging(shared, staging_memory);
    u32 count = 0;
    for (u32 tile = blockIdx.x; tile < tiles && job.idle != 2; tile += gridDim.x, ++count) {
      const Place at = place_of<T>(job, tile);
      const HopperOutput<C> output =
          hopper_output<T, C>(c, c_map, at.batch, at.batch * job.c_batch, at.m0, at.n0);
      bool done;
      if constexpr (same_type<T, e4m3>) {
        const View reads[4] = {{}, {}, view_of(job.row_scales, job.m, 1, 1), view_of(job.column_scale, 1, 1, 1)};
        done = hopper_consume(ring, position, job.k, output, staging, count, patience,
                              Scales(reads, at.m0, at.n0, output.rows, output.columns));
      } else {
        done = hopper_consume(ring, position, job.k, output, staging, count, patience, Epilogue<T, C>{});
      }
      if (any_worker(!done)) {
        if (worker() == 0) atomicAdd(failed, 1u);
        break;
      }
      if (worker() == 0) raise_count(&done_tiles, count + 1);
    }
    sync_workers();
    if (worker() == 0) raise_count(&done_tiles, count | kAllDone);
  }
}
extern "C" __global__ void __launch_bounds__(kBlockThreads, 1) matmul_bf16(const __grid_constant__ Job job) {
  walk<bf16, bf16>(job);
}
extern "C" __global__ void __launch_bounds__(kBlockThreads, 1) matmul_f16(const __grid_constant__ Job job) {
  walk<f16, f16>(job);
}
extern "C" __global__ void __launch_bounds__(kBlockThreads, 1) matmul_e4m3_bf16(const __grid_constant__ Job job) {
  walk<e4m3, bf16>(job);
}
extern "C" __global__ void __launch_bounds__(kBlockThreads, 1) matmul_e4m3_f32(const __grid_constant__ Job job) {
  walk<e4m3, float>(job);
}
)";

// Filling and comparing, one thread an element. Products of small integers are compared exactly; those of normals are
// held to the one rounding of the result, and 2^-18 of the magnitudes summed for sums in fp32, 2^-8 for those of e4m3,
// of which tensor cores may keep 13 bits behind the point of the largest product. Scales are taken from a row's number,
// so that those of a tile are not another's.
inline constexpr const char* kReference = R"(
#include "tileway/types.cuh"
using namespace tileway;
struct Box {
  u64 data;
  u32 batches, rows, columns;
  u32 buffer_rows, stride, first_row, first_column;
  u32 unused;
};
struct Found {
  u64 inside;   // elements that are wrong
  u64 outside;  // elements around the box that were touched
  u32 claimed;  // the first one seen:
  u32 batch, row, column;
  double got, want, bound;
};
// Not a number, in every type.
template <typename T>
__device__ inline T poison() {
  T value;
  for (u32 byte = 0; byte < sizeof(T); ++byte) reinterpret_cast<u8*>(&value)[byte] = byte % 2 == sizeof(T) % 2 ? 0xa5 : 0x7f;
  return value;
}
template <typename T>
__device__ inline bool poisoned(const T& value) {
  const T other = poison<T>();
  bool same = true;
  for (u32 byte = 0; byte < sizeof(T); ++byte)
    same = same && reinterpret_cast<const u8*>(&value)[byte] == reinterpret_cast<const u8*>(&other)[byte];
  return same;
}
__device__ inline float scale_of_row(u32 row) { return static_cast<float>(1 << row % 7) * 0.25f; }
constexpr float kColumnScale = 0.5f;
struct Spot {
  bool inside;
  u32 batch, row, column;
};
__device__ inline Spot spot_of(const Box& box, u64 i) {
  const u32 column = i % box.stride - box.first_column;
  const u32 row = i / box.stride % box.buffer_rows - box.first_row;
  return {row < box.rows && column < box.columns, static_cast<u32>(i / box.stride / box.buffer_rows), row, column};
}
__device__ inline u64 offset(const Box& box, u32 batch, u32 row, u32 column) {
  return (static_cast<u64>(batch) * box.buffer_rows + box.first_row + row) * box.stride + box.first_column + column;
}
__device__ inline u64 elements(const Box& box) { return static_cast<u64>(box.batches) * box.buffer_rows * box.stride; }
__device__ inline u64 first_element() { return blockIdx.x * static_cast<u64>(blockDim.x) + threadIdx.x; }
__device__ inline u64 step() { return gridDim.x * static_cast<u64>(blockDim.x); }
__device__ inline u32 scramble(u32 x) {
  x = (x ^ x >> 16) * 0x85ebca6bu;
  x = (x ^ x >> 13) * 0xc2b2ae35u;
  return x ^ x >> 16;
}
// Kind 0: integers from -2 to 2; 1: normals. Around the box, and everywhere for other kinds: poison.
template <typename T>
__device__ inline void fill(const Box& box, u32 kind, u32 seed) {
  T* const data = reinterpret_cast<T*>(box.data);
  for (u64 i = first_element(); i < elements(box); i += step()) {
    const u32 first = scramble(static_cast<u32>(i) * 2u + seed);
    const u32 second = scramble(static_cast<u32>(i) * 2u + 1u + seed);
    const float radius = sqrtf(-2 * logf((first + 1.0f) * 0x1p-32f));
    const float whole = static_cast<float>(static_cast<int>(first % 5) - 2);
    const float value = kind == 0 ? whole : radius * cospif(second * 0x1p-31f);
    data[i] = kind < 2 && spot_of(box, i).inside ? narrow<T>(value) : poison<T>();
  }
}
template <typename T, typename C>
__device__ inline void compare(const Box& a, const Box& b, const Box& c, bool exact, float rounding, Found* found) {
  constexpr bool kScaled = same_type<T, e4m3>;  // and b is given transposed
  constexpr float kSums = kScaled ? 0x1p-8f : 0x1p-18f;
  const T* const as = reinterpret_cast<const T*>(a.data);
  const T* const bs = reinterpret_cast<const T*>(b.data);
  const C* const cs = reinterpret_cast<const C*>(c.data);
  for (u64 i = first_element(); i < elements(c); i += step()) {
    const Spot spot = spot_of(c, i);
    if (!spot.inside) {
      if (!poisoned(cs[i])) atomicAdd(&found->outside, 1ull);
      continue;
    }
    const T* const row = as + offset(a, a.batches > 1 ? spot.batch : 0, spot.row, 0);
    const T* column = bs + offset(b, b.batches > 1 ? spot.batch : 0, kScaled ? spot.column : 0, kScaled ? 0 : spot.column);
    double sum = 0;
    float magnitude = 0;
    for (u32 k = 0; k < a.columns; ++k, column += kScaled ? 1 : b.stride) {
      const float product = widen(row[k]) * widen(*column);  // exact: twice eleven bits are few enough
      sum += product;
      magnitude += fabsf(product);
    }
    if (kScaled) {
      sum *= scale_of_row(spot.row) * kColumnScale;
      magnitude *= scale_of_row(spot.row) * kColumnScale;
    }
    const double got = widen(cs[i]);
    const double want = exact ? widen(narrow<C>(static_cast<float>(sum))) : sum;
    const double bound = exact ? 0 : fabs(sum) * rounding + magnitude * kSums;
    if (fabs(got - want) <= bound) continue;
    atomicAdd(&found->inside, 1ull);
    if (atomicCAS(&found->claimed, 0u, 1u) != 0) continue;
    found->batch = spot.batch;
    found->row = spot.row;
    found->column = spot.column;
    found->got = got;
    found->want = want;
    found->bound = bound;
  }
}
extern "C" __global__ void fill_bf16(Box box, u32 kind, u32 seed) { fill<bf16>(box, kind, seed); }
extern "C" __global__ void fill_f16(Box box, u32 kind, u32 seed) { fill<f16>(box, kind, seed); }
extern "C" __global__ void fill_e4m3(Box box, u32 kind, u32 seed) { fill<e4m3>(box, kind, seed); }
extern "C" __global__ void fill_f32(Box box, u32 kind, u32 seed) { fill<float>(box, kind, seed); }
extern "C" __global__ void fill_scales(float* rows, u32 count, float* column) {
  for (u64 i = first_element(); i < count; i += step()) rows[i] = scale_of_row(i);
  *column = kColumnScale;
}
extern "C" __global__ void compare_bf16(Box a, Box b, Box c, u32 exact, Found* found) {
  compare<bf16, bf16>(a, b, c, exact != 0, 0x1p-8f, found);
}
extern "C" __global__ void compare_f16(Box a, Box b, Box c, u32 exact, Found* found) {
  compare<f16, f16>(a, b, c, exact != 0, 0x1p-11f, found);
}
extern "C" __global__ void compare_e4m3_bf16(Box a, Box b, Box c, u32 exact, Found* found) {
  compare<e4m3, bf16>(a, b, c, exact != 0, 0x1p-8f, found);
}
extern "C" __global__ void compare_e4m3_f32(Box a, Box b, Box c, u32 exact, Found* found) {
  compare<e4m3, float>(a, b, c, exact != 0, 0x1p-24f, found);
}
)";

// As in the kernels.
struct Job {
  Address maps = 0, c = 0;
  std::int64_t c_stride = 0, c_batch = 0;
  std::uint64_t patience_ns = 0;
  Address abort = 0, failed = 0;
  unsigned m = 0, n = 0, k = 0, batches = 1, a_batched = 0, b_batched = 0, idle = 0, c_mapped = 0;
  Address row_scales = 0, column_scale = 0;
};
struct Box {
  Address data = 0;
  unsigned batches = 1, rows = 0, columns = 0, buffer_rows = 0, stride = 0, first_row = 0, first_column = 0, unused = 0;
};
struct Found {
  std::uint64_t inside, outside;
  unsigned claimed, batch, row, column;
  double got, want, bound;
};

}  // namespace tileway::cuda::testing
