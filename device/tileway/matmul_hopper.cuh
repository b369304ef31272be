// Tiles of C = A x B on Hopper (sm_90a): one thread loads by TMA, ahead through a ring of stages in shared memory, and
// the 256 workers, two warpgroups of 64 rows each, multiply by wgmma. 16-bit elements, or e4m3 with B given transposed
// and scales (scales.cuh); fp32 sums. HopperShape says how products of each are cut.
//
// A kernel that walks tasks calls, for every product and for every tile of it, in the same order,
//   hopper_produce   by one thread, always the same (of a service warp), and
//   hopper_consume   by all workers.
// The producer may be tasks ahead: it stops only when the ring is full. Around them:
//   - At the start one thread calls hopper_init_ring, then the whole block meets. All four service warps call
//     hopper_service_registers and all workers hopper_worker_registers, each once, at the top of one if/else.
//   - The ring belongs to these functions for the whole kernel. The place in it carries on from tile to tile in a
//     RingPosition that each side keeps, zeros at the start and alike in every worker. Staging may be the memory of
//     other bodies: sync_workers() before and after.
//   - Before a tile is produced, its operands are there: the load-stage signals were waited for by the producing
//     thread, or by one that it has met since; then fence_async_proxy() by the producing thread. That thread has called
//     tensor_map_acquire once for each map.
//   - After hopper_consume each worker's stores to C are issued; sync_workers() comes before anyone notifies.
//   - False means that patience ran out: what C holds is then undefined, and neither function may be called again in
//     this kernel. Some workers may be told true for a tile for which others are told false: agree by any_worker.
//     Producer and workers skip the same tiles; if they do not, both end by patience, never by hanging.
//   - Before its block ends the producing thread calls hopper_drain, so that no load is under way any more.
#pragma once

#include "tileway/types.cuh"

namespace tileway {

inline constexpr u32 kHopperTileRows = 128;  // of C and A
inline constexpr u32 kHopperLine = 128;      // bytes: of the swizzle

// T: bf16, f16 or e4m3; only its size matters.
//
// A stage: A's tile as 128 lines along k; then B's. 16-bit B is N-major, four blocks of 64 columns, each of 64 lines
// (one a k) along n. wgmma takes 8-bit B only K-major: one block of 128 lines (one a column) along k. All are as TMA
// writes boxes of that many lines with the 128-byte swizzle.
template <typename T>
struct HopperShape {
  static constexpr bool kKMajorB = sizeof(T) == 1;
  static constexpr u32 kDepth = kHopperLine / sizeof(T);  // of K in a stage
  // Of C and B. 8-bit sums need twice the registers, see hopper_consume.
  static constexpr u32 kColumns = kKMajorB ? 128 : 256;
  static constexpr u32 kSums = kColumns / 2;                                           // of a thread
  static constexpr u32 kBlockColumns = kKMajorB ? kColumns : kHopperLine / sizeof(T);  // of B in one load
  static constexpr u32 kBlocks = kColumns / kBlockColumns;
  static constexpr u32 kBytesOfA = kHopperTileRows * kHopperLine;
  static constexpr u32 kBytesOfBlock = (kKMajorB ? kBlockColumns : kDepth) * kHopperLine;
  static constexpr u32 kStageBytes = kBytesOfA + kBlocks * kBytesOfBlock;
  static constexpr u32 kStages = kKMajorB ? 6 : 4;
  // The ring: the stages, and behind them two barriers each; 1024-byte aligned, as is what follows it.
  static constexpr u32 kRingBytes = kStages * kStageBytes + 1024;
};
// C's way out, beside the ring: 16 rows of a line for each of the eight warps of the workers. A whole tile, 64 KB, does
// not fit beside four stages; a piece a warp needs no barrier but the warp's own, and rows of 128 bytes are what memory
// and NVLink move at once. Pieces are swizzled as TMA would want them, if one day another warp is to store them.
// 1024-byte aligned.
inline constexpr u32 kHopperPieceBytes = 16 * kHopperLine;
inline constexpr u32 kHopperStagingBytes = 8 * kHopperPieceBytes;

}  // namespace tileway

#ifdef __CUDACC__

#include "tileway/epilogue.cuh"
#include "tileway/hopper.cuh"
#include "tileway/scales.cuh"

namespace tileway {

// Addresses in the ring. A stage's `full` barrier: the loads have landed. `empty`: all warps have read them.
template <typename T>
struct HopperRing {
  using Shape = HopperShape<T>;
  u32 address;

  __device__ __forceinline__ explicit HopperRing(const u8* shared) : address(shared_address(shared)) {}
  __device__ __forceinline__ u32 a(u32 stage) const { return address + stage * Shape::kStageBytes; }
  __device__ __forceinline__ u32 b(u32 stage) const { return a(stage) + Shape::kBytesOfA; }
  __device__ __forceinline__ u32 full(u32 stage) const { return a(Shape::kStages) + 8 * stage; }
  __device__ __forceinline__ u32 empty(u32 stage) const { return full(stage) + 8 * Shape::kStages; }
};

// The next stage, and the parity of the round through the ring. {0, 0} at the start.
struct RingPosition {
  u32 stage;
  u32 phase;

  __device__ __forceinline__ void advance(u32 stages) {
    if (++stage < stages) return;
    stage = 0;
    phase ^= 1;
  }
};

// Of what the producer loads. Each map begins at the first element of its operand's box and ends at the box's edges, so
// what a tile has beyond them reads as zeros: A's is of loads of 128 lines, B's of 64, or of 128 if it is K-major. Maps
// have a third dimension, of extent 1 where there is no batch.
struct HopperTile {
  const void* a_map;
  const void* b_map;
  u32 m0;  // first row and column within the boxes, multiples of a tile's
  u32 n0;
  u32 n;  // columns and depth of the boxes
  u32 k;
  u32 a_batch;  // 0 where an operand is the same for all
  u32 b_batch;
};

// Where the workers store: the part of a tile that lies within C's box. Any alignment; may be a peer's memory.
template <typename C>
struct HopperOutput {
  C* first;
  i64 row_stride;  // in elements
  u32 rows;        // 1 to 128
  u32 columns;     // 1 to 256
};

// The tile at (m0, n0) of a box whose last two dimensions are m and n; `batch` is the offset of its matrix in elements.
template <typename T, typename C>
__device__ __forceinline__ HopperOutput<C> hopper_output(const View& c, i64 batch, u32 m0, u32 n0) {
  constexpr u32 kColumns = HopperShape<T>::kColumns;
  const i64 stride = c.stride[c.dims - 2];
  const i64 rows = c.extent[c.dims - 2] - m0;
  const i64 columns = c.extent[c.dims - 1] - n0;
  return {at<C>(c, batch + m0 * stride + n0), stride, static_cast<u32>(rows < kHopperTileRows ? rows : kHopperTileRows),
          static_cast<u32>(columns < kColumns ? columns : kColumns)};
}

__device__ __forceinline__ void hopper_service_registers() { give_registers<40>(); }
__device__ __forceinline__ void hopper_worker_registers() { take_registers<232>(); }

template <typename T>
__device__ __forceinline__ void hopper_init_ring(const HopperRing<T>& ring) {
  for (u32 stage = 0; stage < HopperShape<T>::kStages; ++stage) {
    mbarrier_init(ring.full(stage), 1);
    mbarrier_init(ring.empty(stage), kWorkers / 32);
  }
  mbarrier_init_done();
}

template <typename T>
__device__ __forceinline__ bool hopper_produce(const HopperRing<T>& ring, RingPosition& position,
                                               const HopperTile& tile, const Patience& patience) {
  using Shape = HopperShape<T>;
  // Blocks beyond B's last column are not loaded: what lies there only enters columns that are not stored.
  const u32 columns = min(tile.n - tile.n0, Shape::kColumns);
  const u32 blocks = (columns + Shape::kBlockColumns - 1) / Shape::kBlockColumns;
#pragma unroll 1
  for (u32 k0 = 0; k0 < tile.k; k0 += Shape::kDepth) {
    const u32 stage = position.stage;
    if (!mbarrier_wait(ring.empty(stage), position.phase ^ 1, patience)) return false;
    const u32 full = ring.full(stage);
    mbarrier_arrive_expecting(full, Shape::kBytesOfA + blocks * Shape::kBytesOfBlock);
    tensor_load(ring.a(stage), tile.a_map, k0, tile.m0, tile.a_batch, full);
#pragma unroll
    for (u32 block = 0; block < Shape::kBlocks; ++block) {
      if (block >= blocks) break;
      const u32 column = tile.n0 + block * Shape::kBlockColumns;
      tensor_load(ring.b(stage) + block * Shape::kBytesOfBlock, tile.b_map, Shape::kKMajorB ? k0 : column,
                  Shape::kKMajorB ? column : k0, tile.b_batch, full);
    }
    position.advance(Shape::kStages);
  }
  return true;
}

// Waits until every load of the ring has landed.
template <typename T>
__device__ __forceinline__ bool hopper_drain(const HopperRing<T>& ring, const RingPosition& position,
                                             const Patience& patience) {
  bool landed = true;
  for (u32 stage = 0; stage < HopperShape<T>::kStages; ++stage)
    landed &= mbarrier_wait(ring.full(stage), stage < position.stage ? position.phase : position.phase ^ 1, patience);
  return landed;
}

// Sixteen bytes in one store, which the compiler would not always make of an assignment.
__device__ __forceinline__ void store_quad(void* to, const uint4& quad) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(quad.x), "r"(quad.y), "r"(quad.z), "r"(quad.w)
               : "memory");
}

// Two sums to neighbours in a piece, the first one in an even column.
template <typename C>
__device__ __forceinline__ void hopper_stage(u8* to, float first, float second) {
  if constexpr (sizeof(C) == 2)
    *reinterpret_cast<u32*>(to) = narrow_pair<C>(first, second);
  else
    *reinterpret_cast<float2*>(to) = make_float2(first, second);
}

// One warp's 16 rows of sums, by pieces of a line through staging, where the epilogue goes on with them. Sixteen bytes
// a store where C's rows allow it.
template <typename C, u32 kSums, typename T, typename... Steps>
__device__ __forceinline__ void hopper_store(const float (&sums)[kSums], const HopperOutput<C>& c, u8* staging,
                                             const Epilogue<T, C, Steps...>& epilogue) {
  using Between = typename Epilogue<T, C, Steps...>::Between;
  constexpr u32 kLine = kHopperLine;
  constexpr u32 kLineColumns = kLine / sizeof(C);
  constexpr u32 kChunk = 16 / sizeof(C);  // elements
  const u32 warp = worker() / 32;
  const u32 lane = worker() % 32;
  u8* const piece = staging + warp * kHopperPieceBytes;
  const bool aligned = (reinterpret_cast<u64>(c.first) | static_cast<u64>(c.row_stride) * sizeof(C)) % 16 == 0;
  // Sixteen-byte chunk j of line l lies at j ^ l mod 8: neither the way in of 16-bit elements nor the rows' way out
  // meets a bank twice.
  constexpr u32 kPair = 2 * sizeof(C);  // bytes of two neighbours; four pairs are eight columns
  u8* const in = piece + lane / 4 * kLine + lane % (16 / kPair) * kPair;
  const u8* const out = piece + lane / 8 * kLine;
  const u32 out_chunk[2] = {(lane ^ lane / 8) % 8 * 16, (lane ^ lane / 8 ^ 4) % 8 * 16};
#pragma unroll
  for (u32 first = 0; first < 2 * kSums; first += kLineColumns) {
    if (first >= c.columns || warp * 16 >= c.rows) return;
#pragma unroll
    for (u32 j = 0; j < kLineColumns / 8; ++j) {
      const u32 i = first / 2 + 4 * j;
      const u32 chunk = (j * (kPair / 4) + lane % 4 / (16 / kPair) ^ lane / 4) * 16;
      hopper_stage<Between>(in + chunk, sums[i], sums[i + 1]);
      hopper_stage<Between>(in + 8 * kLine + chunk, sums[i + 2], sums[i + 3]);
    }
    __syncwarp();
    if constexpr (sizeof...(Steps) > 0) {
#pragma unroll 8
      for (u32 e = lane; e < 16 * kLineColumns; e += 32) {
        const u32 row = e / kLineColumns;
        const u32 column = e % kLineColumns;
        epilogue.apply_to(piece + row * kLine + (column / kChunk ^ row % 8) * 16 + column % kChunk * sizeof(C),
                          warp * 16 + row, first + column);
      }
      __syncwarp();
    }
    uint4 quads[4];
#pragma unroll
    for (u32 i = 0; i < 4; ++i) quads[i] = *reinterpret_cast<const uint4*>(out + 4 * i * kLine + out_chunk[i % 2]);
#pragma unroll
    for (u32 i = 0; i < 4; ++i) {
      const u32 row = warp * 16 + 4 * i + lane / 8;
      const u32 column = first + lane % 8 * kChunk;
      if (row >= c.rows || column >= c.columns) continue;
      C* const to = c.first + row * c.row_stride + column;
      if (aligned && column + kChunk <= c.columns) {
        store_quad(to, quads[i]);
      } else {
        const C* const from = reinterpret_cast<const C*>(out + 4 * i * kLine + out_chunk[i % 2]);
        const u32 count = min(c.columns - column, kChunk);
#pragma unroll 1
        for (u32 e = 0; e < count; ++e) to[e] = from[e];
      }
    }
    __syncwarp();
  }
}

// One warp's sums, each by its row's scale and its column's.
template <u32 kSums>
__device__ __forceinline__ void hopper_scale(float (&sums)[kSums], const Scales& scales) {
  const u32 lane = worker() % 32;
  const u32 row = worker() / 32 * 16 + lane / 4;
  const float rows[2] = {scales.of_row(row), scales.of_row(row + 8)};
#pragma unroll
  for (u32 j = 0; j < kSums / 4; ++j) {
    const u32 column = 8 * j + lane % 4 * 2;
    const float columns[2] = {scales.of_column(column), scales.of_column(column + 1)};
    Scales::apply(sums + 4 * j, rows, columns);
  }
}

// A tile of depth k, of e4m3 with the tile's Scales; of others with its Epilogue. A wait in vain makes the rest of it a
// formality, gone through all the same: warps of a warpgroup must not disagree about the products that they do
// together.
//
// Tensor cores keep few bits of sums of 8-bit products, so those add up only a stage, 128 of k, which is then added to
// the others in fp32. Meanwhile the other warpgroup's products run.
template <typename T, typename C, typename Last>
__device__ __forceinline__ bool hopper_consume(const HopperRing<T>& ring, RingPosition& position, u32 k,
                                               const HopperOutput<C>& c, u8* staging, const Patience& patience,
                                               const Last& last) {
  using Shape = HopperShape<T>;
  static_assert(same_type<Last, Scales> == same_type<T, e4m3>, "e4m3 and nothing else has scales");
  const u32 lane = worker() % 32;
  // The warpgroup's half of A, in bytes; told to the compiler to be the same throughout a warp.
  const u32 my_rows = __shfl_sync(0xffffffff, worker() / 128, 0) * (Shape::kBytesOfA / 2);
  const u32 steps = (k + Shape::kDepth - 1) / Shape::kDepth;
  // Zeros, rather than a first product that adds to nothing: they cost little, a depth of 0 is right, and one way into
  // the loop keeps the sums in place.
  float sums[Shape::kSums];
#pragma unroll
  for (u32 i = 0; i < Shape::kSums; ++i) sums[i] = 0;
  [[maybe_unused]] float stage_sums[Shape::kSums] = {};
  bool there = true;
  u32 read = 0;  // the stage of the step before
#pragma unroll 1
  for (u32 step = 0; step < steps; ++step) {
    const u32 stage = position.stage;
    there = there && mbarrier_wait(ring.full(stage), position.phase, patience);
    // A, K-major: a line is a row of C. Eight lines, one atom, are 1024 bytes; sixteen of k are 32 bytes of each line.
    const u64 a = wgmma_operand(ring.a(stage) + my_rows, 16, 1024);
    if constexpr (Shape::kKMajorB) {
      const u64 b = wgmma_operand(ring.b(stage), 16, 1024);  // as A
      wgmma_fence();
      wgmma_64x128x32<false>(stage_sums, a, b);
#pragma unroll
      for (u32 j = 1; j < Shape::kDepth / 32; ++j)
        wgmma_64x128x32<true>(stage_sums, wgmma_advance(a, j * 32), wgmma_advance(b, j * 32));
      wgmma_commit();
      wgmma_wait<0>();
      wgmma_settle(stage_sums);
      if (lane == 0) mbarrier_arrive(ring.empty(stage));
#pragma unroll
      for (u32 i = 0; i < Shape::kSums; ++i) sums[i] += stage_sums[i];
    } else {
      // B, N-major: a line is a k. Eight lines are 1024 bytes, so sixteen of k are two atoms; the next 64 columns are
      // the next block.
      const u64 b = wgmma_operand(ring.b(stage), Shape::kBytesOfBlock, 1024);
      wgmma_fence();
#pragma unroll
      for (u32 j = 0; j < Shape::kDepth / 16; ++j)
        wgmma_64x256x16<T>(sums, wgmma_advance(a, j * 32), wgmma_advance(b, j * 2048));
      wgmma_commit();
      // The step before is done while this one runs; each warp says so for itself, being sure of itself alone.
      wgmma_wait<1>();
      if (step > 0 && lane == 0) mbarrier_arrive(ring.empty(read));
      read = stage;
    }
    position.advance(Shape::kStages);
  }
  if constexpr (!Shape::kKMajorB) {
    wgmma_wait<0>();
    wgmma_settle(sums);
    if (steps > 0 && lane == 0) mbarrier_arrive(ring.empty(read));
  }
  if constexpr (same_type<Last, Scales>) hopper_scale(sums, last);
  there = __all_sync(0xffffffff, there);
  if (there) {
    if constexpr (same_type<Last, Scales>)
      hopper_store(sums, c, staging, Epilogue<T, C>{});
    else
      hopper_store(sums, c, staging, last);
  }
  return there;
}

}  // namespace tileway

#endif  // __CUDACC__
