// Tiles of C = A x B on Hopper (sm_90a): one thread loads by TMA, ahead through a ring of stages in shared memory, and
// the 256 workers, two warpgroups of 64 rows each, multiply by wgmma. 16-bit elements, fp32 sums.
//
// A kernel that walks tasks calls, for every matmul task and for every tile of 128 x 256 of it, in the same order,
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

inline constexpr u32 kHopperTileRows = 128;     // of C and A
inline constexpr u32 kHopperTileColumns = 256;  // of C and B
inline constexpr u32 kHopperDepth = 64;         // of K in a stage: 128 bytes, a line of the swizzle
inline constexpr u32 kHopperBlockColumns = 64;  // of B in one load, for the same reason
inline constexpr u32 kHopperStages = 4;

// A stage: A's tile as 128 lines of 64 elements along k; then B's as four blocks of 64 columns, each of 64 lines (one a
// k) of 64 elements along n. Both are as TMA writes boxes of that many lines with the 128-byte swizzle.
inline constexpr u32 kHopperBytesOfA = kHopperTileRows * kHopperDepth * 2;
inline constexpr u32 kHopperBytesOfBlock = kHopperDepth * kHopperBlockColumns * 2;
inline constexpr u32 kHopperBlocks = kHopperTileColumns / kHopperBlockColumns;
inline constexpr u32 kHopperStageBytes = kHopperBytesOfA + kHopperBlocks * kHopperBytesOfBlock;
// The ring: the stages, and behind them two barriers each; 1024-byte aligned, as is what follows it.
inline constexpr u32 kHopperRingBytes = kHopperStages * kHopperStageBytes + 1024;
// C's way out, beside the ring: 16 rows of 64 columns for each of the eight warps of the workers. A whole tile, 64 KB,
// does not fit beside four stages; a piece a warp needs no barrier but the warp's own, and rows of 128 bytes are what
// memory and NVLink move at once. Pieces are swizzled as TMA would want them, if one day another warp is to store them.
// 1024-byte aligned.
inline constexpr u32 kHopperPieceBytes = 16 * 64 * 2;
inline constexpr u32 kHopperStagingBytes = 8 * kHopperPieceBytes;

}  // namespace tileway

#ifdef __CUDACC__

#include "tileway/hopper.cuh"
#include "tileway/team.cuh"

namespace tileway {

// Addresses in the ring. A stage's `full` barrier: the loads have landed. `empty`: all warps have read them.
struct HopperRing {
  u32 address;

  __device__ __forceinline__ explicit HopperRing(const u8* shared) : address(shared_address(shared)) {}
  __device__ __forceinline__ u32 a(u32 stage) const { return address + stage * kHopperStageBytes; }
  __device__ __forceinline__ u32 b(u32 stage) const { return a(stage) + kHopperBytesOfA; }
  __device__ __forceinline__ u32 full(u32 stage) const { return a(kHopperStages) + 8 * stage; }
  __device__ __forceinline__ u32 empty(u32 stage) const { return full(stage) + 8 * kHopperStages; }
};

// The next stage, and the parity of the round through the ring. {0, 0} at the start.
struct RingPosition {
  u32 stage;
  u32 phase;

  __device__ __forceinline__ void advance() {
    if (++stage < kHopperStages) return;
    stage = 0;
    phase ^= 1;
  }
};

// Of what the producer loads. Each map begins at the first element of its operand's box and ends at the box's edges, so
// what a tile has beyond them reads as zeros: A's is of loads of 128 lines, B's of 64. Maps have a third dimension, of
// extent 1 where there is no batch.
struct HopperTile {
  const void* a_map;
  const void* b_map;
  u32 m0;  // first row and column within the boxes, multiples of 128 and 256
  u32 n0;
  u32 n;  // columns and depth of the boxes
  u32 k;
  u32 a_batch;  // 0 where an operand is the same for all
  u32 b_batch;
};

// Where the workers store: the part of a tile that lies within C's box. Any alignment; may be a peer's memory.
template <typename T>
struct HopperOutput {
  T* first;
  i64 row_stride;  // in elements
  u32 rows;        // 1 to 128
  u32 columns;     // 1 to 256
};

// The tile at (m0, n0) of a box whose last two dimensions are m and n; `batch` is the offset of its matrix in elements.
template <typename T>
__device__ __forceinline__ HopperOutput<T> hopper_output(const View& c, i64 batch, u32 m0, u32 n0) {
  const i64 stride = c.stride[c.dims - 2];
  const i64 rows = c.extent[c.dims - 2] - m0;
  const i64 columns = c.extent[c.dims - 1] - n0;
  return {at<T>(c, batch + m0 * stride + n0), stride,
          static_cast<u32>(rows < kHopperTileRows ? rows : kHopperTileRows),
          static_cast<u32>(columns < kHopperTileColumns ? columns : kHopperTileColumns)};
}

__device__ __forceinline__ void hopper_service_registers() { give_registers<40>(); }
__device__ __forceinline__ void hopper_worker_registers() { take_registers<232>(); }

__device__ __forceinline__ void hopper_init_ring(const HopperRing& ring) {
  for (u32 stage = 0; stage < kHopperStages; ++stage) {
    mbarrier_init(ring.full(stage), 1);
    mbarrier_init(ring.empty(stage), kWorkers / 32);
  }
  mbarrier_init_done();
}

__device__ __forceinline__ bool hopper_produce(const HopperRing& ring, RingPosition& position, const HopperTile& tile,
                                               const Patience& patience) {
  // Blocks beyond B's last column are not loaded: what lies there only enters columns that are not stored.
  const u32 columns = min(tile.n - tile.n0, kHopperTileColumns);
  const u32 blocks = (columns + kHopperBlockColumns - 1) / kHopperBlockColumns;
#pragma unroll 1
  for (u32 k0 = 0; k0 < tile.k; k0 += kHopperDepth) {
    const u32 stage = position.stage;
    if (!mbarrier_wait(ring.empty(stage), position.phase ^ 1, patience)) return false;
    const u32 full = ring.full(stage);
    mbarrier_arrive_expecting(full, kHopperBytesOfA + blocks * kHopperBytesOfBlock);
    tensor_load(ring.a(stage), tile.a_map, k0, tile.m0, tile.a_batch, full);
#pragma unroll
    for (u32 block = 0; block < kHopperBlocks; ++block) {
      if (block >= blocks) break;
      tensor_load(ring.b(stage) + block * kHopperBytesOfBlock, tile.b_map, tile.n0 + block * kHopperBlockColumns, k0,
                  tile.b_batch, full);
    }
    position.advance();
  }
  return true;
}

// Waits until every load of the ring has landed.
__device__ __forceinline__ bool hopper_drain(const HopperRing& ring, const RingPosition& position,
                                             const Patience& patience) {
  bool landed = true;
  for (u32 stage = 0; stage < kHopperStages; ++stage)
    landed &= mbarrier_wait(ring.full(stage), stage < position.stage ? position.phase : position.phase ^ 1, patience);
  return landed;
}

// Sixteen bytes in one store, which the compiler would not always make of an assignment.
__device__ __forceinline__ void store_quad(void* to, const uint4& quad) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(quad.x), "r"(quad.y), "r"(quad.z), "r"(quad.w)
               : "memory");
}

// One warp's 16 x 256 sums, by pieces of 64 columns through staging. Sixteen bytes a store where C's rows allow it.
template <typename T>
__device__ __forceinline__ void hopper_store(const float (&sums)[128], const HopperOutput<T>& c, u8* staging) {
  constexpr u32 kLine = 128;  // bytes
  constexpr u32 kChunk = 8;   // elements, sixteen bytes
  const u32 warp = worker() / 32;
  const u32 lane = worker() % 32;
  u8* const piece = staging + warp * kHopperPieceBytes;
  const bool aligned = (reinterpret_cast<u64>(c.first) | static_cast<u64>(c.row_stride) * sizeof(T)) % 16 == 0;
  // Chunk j of line l lies at j ^ l mod 8: neither the sums' way in nor the rows' way out meets a bank twice.
  u8* const in = piece + lane / 4 * kLine + lane % 4 * 4;
  const u8* const out = piece + lane / 8 * kLine;
  const u32 out_chunk[2] = {(lane ^ lane / 8) % 8 * 16, (lane ^ lane / 8 ^ 4) % 8 * 16};
#pragma unroll
  for (u32 first = 0; first < kHopperTileColumns; first += 64) {
    if (first >= c.columns || warp * 16 >= c.rows) return;
#pragma unroll
    for (u32 j = 0; j < 8; ++j) {
      const u32 i = first / 2 + 4 * j;
      const u32 chunk = (j ^ lane / 4) * 16;
      *reinterpret_cast<u32*>(in + chunk) = narrow_pair<T>(sums[i], sums[i + 1]);
      *reinterpret_cast<u32*>(in + 8 * kLine + chunk) = narrow_pair<T>(sums[i + 2], sums[i + 3]);
    }
    __syncwarp();
    uint4 quads[4];
#pragma unroll
    for (u32 i = 0; i < 4; ++i) quads[i] = *reinterpret_cast<const uint4*>(out + 4 * i * kLine + out_chunk[i % 2]);
#pragma unroll
    for (u32 i = 0; i < 4; ++i) {
      const u32 row = warp * 16 + 4 * i + lane / 8;
      const u32 column = first + lane % 8 * kChunk;
      if (row >= c.rows || column >= c.columns) continue;
      T* const to = c.first + row * c.row_stride + column;
      if (aligned && column + kChunk <= c.columns) {
        store_quad(to, quads[i]);
      } else {
        const T* const from = reinterpret_cast<const T*>(out + 4 * i * kLine + out_chunk[i % 2]);
        const u32 count = min(c.columns - column, kChunk);
#pragma unroll 1
        for (u32 e = 0; e < count; ++e) to[e] = from[e];
      }
    }
    __syncwarp();
  }
}

// A tile of depth k. A wait in vain makes the rest of it a formality, gone through all the same: warps of a warpgroup
// must not disagree about the products that they do together.
template <typename T>
__device__ __forceinline__ bool hopper_consume(const HopperRing& ring, RingPosition& position, u32 k,
                                               const HopperOutput<T>& c, u8* staging, const Patience& patience) {
  const u32 lane = worker() % 32;
  // The warpgroup's half of A, in bytes; told to the compiler to be the same throughout a warp.
  const u32 my_rows = __shfl_sync(0xffffffff, worker() / 128, 0) * (kHopperBytesOfA / 2);
  const u32 steps = (k + kHopperDepth - 1) / kHopperDepth;
  // Zeros, rather than a first product that adds to nothing: they cost little, a depth of 0 is right, and one way into
  // the loop keeps the sums in place.
  float sums[128];
#pragma unroll
  for (u32 i = 0; i < 128; ++i) sums[i] = 0;
  bool there = true;
  u32 read = 0;  // the stage of the step before
#pragma unroll 1
  for (u32 step = 0; step < steps; ++step) {
    const u32 stage = position.stage;
    there = there && mbarrier_wait(ring.full(stage), position.phase, patience);
    // A, K-major: a line is a row of C. Eight lines, one atom, are 1024 bytes; sixteen of k are 32 bytes of each line.
    const u64 a = wgmma_operand(ring.a(stage) + my_rows, 16, 1024);
    // B, N-major: a line is a k. Eight lines are 1024 bytes, so sixteen of k are two atoms; the next 64 columns are the
    // next block.
    const u64 b = wgmma_operand(ring.b(stage), kHopperBytesOfBlock, 1024);
    wgmma_fence();
#pragma unroll
    for (u32 j = 0; j < kHopperDepth / 16; ++j)
      wgmma_64x256x16<T>(sums, wgmma_advance(a, j * 32), wgmma_advance(b, j * 2048));
    wgmma_commit();
    // The step before is done while this one runs; each warp says so for itself, being sure of itself alone.
    wgmma_wait<1>();
    if (step > 0 && lane == 0) mbarrier_arrive(ring.empty(read));
    read = stage;
    position.advance();
  }
  wgmma_wait<0>();
  wgmma_settle(sums);
  if (steps > 0 && lane == 0) mbarrier_arrive(ring.empty(read));
  there = __all_sync(0xffffffff, there);
  if (there) hopper_store(sums, c, staging);
  return there;
}

}  // namespace tileway

#endif  // __CUDACC__
