// Tiles of C = A x B on Hopper (sm_90a): one thread loads by TMA, ahead through a ring of stages in shared memory; the
// 256 workers, two warpgroups of 64 rows each, multiply by wgmma and leave the tile in shared memory, in staging; and a
// warp stores it from there, to a peer's memory too, while they multiply the next. 16-bit elements, or e4m3 with B
// given transposed and scales (scales.cuh); fp32 sums. HopperShape says how products of each are cut.
//
// A kernel that walks tasks calls, for every product and for every tile of it, in the same order,
//   hopper_produce   by one thread, always the same (of a service warp),
//   hopper_consume   by all workers, and
//   HopperStorer     by a whole service warp, another one: take() again and again, until all is taken.
// The producer may be tasks ahead: it stops only when the ring is full. Around them:
//   - At the start one thread calls hopper_init_ring, then the whole block meets. All four service warps call
//     hopper_service_registers and all workers hopper_worker_registers, each once, at the top of one if/else.
//   - The ring belongs to these functions for the whole kernel. The place in it carries on from tile to tile in a
//     RingPosition that each side keeps, zeros at the start and alike in every worker; so does the number of tiles
//     staged, in the workers' HopperStaging.
//   - Before a tile is produced, its operands are there: their signals were waited for by the producing thread, or by
//     one that it has met since; then fence_async_proxy() by the producing thread. That thread has called
//     tensor_map_acquire once for each map.
//   - After hopper_consume the tile is staged for the storer, or, where TMA cannot take C, each worker's stores to C
//     are issued. After sync_workers() everything staged so far can be taken. When the storer has then returned from
//     await_written(), it is in C, staging may be used for something else, and that warp may notify.
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
  static constexpr u32 kStages = kKMajorB ? 5 : 3;
  // The ring: the stages, and behind them two barriers each, then what goes with staging; 1024-byte aligned.
  static constexpr u32 kRingBytes = kStages * kStageBytes + 1024;
  // Staging: a tile of 16-bit elements, or half of one of fp32, as blocks of 128 lines, one a row. 1024-byte aligned.
  static constexpr u32 kStagedBlocks = kColumns * 2 / kHopperLine;
  static constexpr u32 kBytesOfStaged = kHopperTileRows * kHopperLine;
  static constexpr u32 kStagingBytes = kStagedBlocks * kBytesOfStaged;
};

}  // namespace tileway

#ifdef __CUDACC__

#include "tileway/bulk.cuh"
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
  // Of staging: all warps have staged a tile; the storer has read it.
  __device__ __forceinline__ u32 staged() const { return full(2 * Shape::kStages); }
  __device__ __forceinline__ u32 unstaged() const { return staged() + 8; }
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

// What the producer loads. A's map is of loads of 128 lines, B's of 64, or of 128 if it is K-major. Along k what a
// stage has beyond the operands' boxes must read as zeros: they are multiples of a stage's depth, or end with what the
// map is of. Maps have a third dimension, of extent 1 where there is no batch.
struct HopperTile {
  const void* a_map;
  const void* b_map;
  u32 a_k;  // where the tile's operands begin in what the maps are of
  u32 a_row;
  u32 b_k;
  u32 b_column;
  u32 columns;  // of B's box from there on
  u32 k;
  u32 a_batch;  // 0 where an operand is the same for all
  u32 b_batch;
};

// Where a tile goes: the part of it that lies within C's box. Any alignment; may be a peer's memory.
template <typename C>
struct HopperOutput {
  C* first;
  i64 row_stride;   // in elements
  u32 rows;         // 1 to 128
  u32 columns;      // 1 to 256
  const void* map;  // of stores of 128 lines; null where TMA cannot take C: there a store must not reach beyond it
  u32 x;            // where the tile begins in what the map is of
  u32 y;
  u32 z;
};

// The tile at (m0, n0) of matrix `batch` of a box, which begins `offset` elements behind it.
template <typename T, typename C>
__device__ __forceinline__ HopperOutput<C> hopper_output(const View& c, const void* map, u32 batch, i64 offset, u32 m0,
                                                         u32 n0) {
  constexpr u32 kColumns = HopperShape<T>::kColumns;
  const i64 stride = c.stride[c.dims - 2];
  const i64 rows = c.extent[c.dims - 2] - m0;
  const i64 columns = c.extent[c.dims - 1] - n0;
  return {at<C>(c, offset + m0 * stride + n0),
          stride,
          static_cast<u32>(rows < kHopperTileRows ? rows : kHopperTileRows),
          static_cast<u32>(columns < kColumns ? columns : kColumns),
          map,
          c.x + n0,
          c.y + m0,
          batch};
}

__device__ __forceinline__ void hopper_service_registers() { give_registers<56>(); }
__device__ __forceinline__ void hopper_worker_registers() { take_registers<224>(); }

template <typename T>
__device__ __forceinline__ void hopper_init_ring(const HopperRing<T>& ring) {
  for (u32 stage = 0; stage < HopperShape<T>::kStages; ++stage) {
    mbarrier_init(ring.full(stage), 1);
    mbarrier_init(ring.empty(stage), kWorkers / 32);
  }
  mbarrier_init(ring.staged(), kWorkers / 32);
  mbarrier_init(ring.unstaged(), 1);
  mbarrier_init_done();
}

// What is staged, and where it goes: blocks of lines, from (x, y, z) of a map on.
struct StagedTile {
  const void* map;
  u32 x;
  u32 y;
  u32 z;
  u32 blocks;
  u32 step;  // columns of a block
  u32 task;  // whatever the workers and the storer count
};

// Staging as the workers know it. All of them make one, at the start of the kernel, and use it alike.
template <typename T>
class HopperStaging {
 public:
  using Shape = HopperShape<T>;

  __device__ __forceinline__ HopperStaging(u8* ring, u8* staging)
      : ring_(ring), staging_(staging), tile_(reinterpret_cast<StagedTile*>(ring + Shape::kRingBytes) - 1) {}

  // So many tiles have been handed over.
  __device__ __forceinline__ u32 count() const { return count_; }
  // The sixteen bytes `chunk` of a row. Swizzled, as TMA will have it; so that eight rows' chunks lie in all banks.
  __device__ __forceinline__ u8* at(u32 row, u32 chunk) const {
    return staging_ + chunk / 8 * Shape::kBytesOfStaged + row * kHopperLine + (chunk % 8 ^ row % 8) * 16;
  }
  // When the storer has read the last one. False where patience ran out.
  __device__ __forceinline__ bool await_empty(const Patience& patience) const {
    return mbarrier_wait(ring_.unstaged(), (count_ & 1) ^ 1, patience);
  }
  // A whole warp: its rows are there.
  __device__ __forceinline__ void hand_over(const StagedTile& tile) {
    if (worker() == 0) *tile_ = tile;
    fence_async_proxy_shared();
    __syncwarp();
    if (worker() % 32 == 0) mbarrier_arrive(ring_.staged());
    ++count_;
  }

 private:
  HopperRing<T> ring_;
  u8* staging_;
  StagedTile* tile_;
  u32 count_ = 0;
};

// Staging as the storer knows it.
template <typename T>
class HopperStorer {
 public:
  using Shape = HopperShape<T>;

  __device__ __forceinline__ HopperStorer(const u8* ring, const u8* staging)
      : ring_(ring),
        staging_(shared_address(staging)),
        tile_(reinterpret_cast<const StagedTile*>(ring + Shape::kRingBytes) - 1) {}

  // Begins to store what is staged, if it is of that task, and returns when that is read. Never waits for workers.
  __device__ __forceinline__ void take(u32 task) {
    if (!__all_sync(0xffffffffu, mbarrier_has_ended<Looking>(ring_.staged(), count_ & 1))) return;
    if (tile_->task != task) return;
    if (threadIdx.x % 32 == 0) {
      const StagedTile tile = *tile_;
      map_.use(tile.map);
      fence_async_proxy();  // what workers stored there themselves comes before
      for (u32 block = 0; block < tile.blocks; ++block)
        tensor_store(tile.map, tile.x + block * tile.step, tile.y, tile.z, staging_ + block * Shape::kBytesOfStaged);
      bulk_commit();
      bulk_wait_read<0>();
      mbarrier_arrive(ring_.unstaged());
    }
    __syncwarp();
    ++count_;
  }
  // Until all that was taken is where it belongs: a signal raised by any thread of the warp then covers it.
  __device__ __forceinline__ void await_written() const {
    bulk_wait_written();
    __syncwarp();
  }

 private:
  HopperRing<T> ring_;
  u32 staging_;
  const StagedTile* tile_;
  u32 count_ = 0;
  MapInUse map_;
};

template <typename T>
__device__ __forceinline__ bool hopper_produce(const HopperRing<T>& ring, RingPosition& position,
                                               const HopperTile& tile, const Patience& patience) {
  using Shape = HopperShape<T>;
  // Blocks beyond B's last column are not loaded: what lies there only enters columns that are not stored.
  const u32 columns = min(tile.columns, Shape::kColumns);
  const u32 blocks = (columns + Shape::kBlockColumns - 1) / Shape::kBlockColumns;
#pragma unroll 1
  for (u32 k0 = 0; k0 < tile.k; k0 += Shape::kDepth) {
    const u32 stage = position.stage;
    if (!mbarrier_wait(ring.empty(stage), position.phase ^ 1, patience)) return false;
    const u32 full = ring.full(stage);
    mbarrier_arrive_expecting(full, Shape::kBytesOfA + blocks * Shape::kBytesOfBlock);
    tensor_load(ring.a(stage), tile.a_map, tile.a_k + k0, tile.a_row, tile.a_batch, full);
#pragma unroll
    for (u32 block = 0; block < Shape::kBlocks; ++block) {
      if (block >= blocks) break;
      const u32 k = tile.b_k + k0;
      const u32 column = tile.b_column + block * Shape::kBlockColumns;
      tensor_load(ring.b(stage) + block * Shape::kBytesOfBlock, tile.b_map, Shape::kKMajorB ? k : column,
                  Shape::kKMajorB ? column : k, tile.b_batch, full);
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

// One warp's 16 rows of sums, in the columns from `first` on that find room, to staging.
template <typename C, u32 kSums, typename T>
__device__ __forceinline__ void hopper_stage(const float (&sums)[kSums], u32 first, const HopperStaging<T>& staging) {
  const u32 row = worker() / 32 * 16;
  const u32 lane = worker() % 32;
  constexpr u32 kChunks = HopperShape<T>::kStagedBlocks * 8;
#pragma unroll
  for (u32 chunk = 0; chunk < kChunks; chunk += 2) {
    if constexpr (sizeof(C) == 2) {  // four blocks of 8 x 8, as the threads hold them
      const u32 i = 4 * chunk;
      store_matrices(shared_address(staging.at(row + lane % 16, chunk + lane / 16)),
                     narrow_pair<C>(sums[i], sums[i + 1]), narrow_pair<C>(sums[i + 2], sums[i + 3]),
                     narrow_pair<C>(sums[i + 4], sums[i + 5]), narrow_pair<C>(sums[i + 6], sums[i + 7]));
    } else {  // one, of 32 bytes a row
      const u32 i = first / 2 + 2 * chunk;
      u8* const to = staging.at(row + lane / 4, chunk + lane % 4 / 2) + lane % 2 * 8;
      *reinterpret_cast<float2*>(to) = make_float2(sums[i], sums[i + 1]);
      *reinterpret_cast<float2*>(to + 8 * kHopperLine) = make_float2(sums[i + 2], sums[i + 3]);
    }
  }
}

// The workers' sums on their way out: to staging, where the epilogue goes on with them, and from there by the storer;
// or by the warp itself, where TMA cannot take C. False where patience ran out.
template <typename C, u32 kSums, typename T, typename... Steps>
__device__ __forceinline__ bool hopper_store(const float (&sums)[kSums], const HopperOutput<C>& c,
                                             HopperStaging<T>& staging, u32 task, const Patience& patience,
                                             const Epilogue<T, C, Steps...>& epilogue) {
  using Shape = HopperShape<T>;
  using Between = typename Epilogue<T, C, Steps...>::Between;
  constexpr u32 kChunk = 16 / sizeof(C);  // elements
  constexpr u32 kBlock = kHopperLine / sizeof(C);
  constexpr u32 kColumns = Shape::kStagedBlocks * kBlock;  // in staging at once
  const u32 row = worker() / 32 * 16;
  const u32 lane = worker() % 32;
  const auto element = [&](u32 down, u32 across) {
    return staging.at(row + down, across / kChunk) + across % kChunk * sizeof(C);
  };
#pragma unroll
  for (u32 first = 0; first < Shape::kColumns; first += kColumns) {
    if (first >= c.columns) break;
    if (!staging.await_empty(patience)) return false;
    __syncwarp();
    if (row < c.rows) hopper_stage<Between>(sums, first, staging);
    __syncwarp();
    if constexpr (sizeof...(Steps) > 0) {
#pragma unroll 8
      for (u32 e = lane; e < 16 * kColumns; e += 32)
        epilogue.apply_to(element(e / kColumns, e % kColumns), row + e / kColumns, first + e % kColumns);
      __syncwarp();
    }
    const u32 columns = min(c.columns - first, kColumns);
    if (c.map != nullptr) {
      staging.hand_over({c.map, c.x + first, c.y, c.z, (columns + kBlock - 1) / kBlock, kBlock, task});
      continue;
    }
#pragma unroll 1
    for (u32 down = 0; down < 16 && row + down < c.rows; ++down) {
      C* const to = c.first + (row + down) * c.row_stride + first;
      for (u32 across = lane; across < columns; across += 32)
        to[across] = *reinterpret_cast<const C*>(element(down, across));
    }
    __syncwarp();
  }
  return true;
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

// A tile of depth k, part of that task, of e4m3 with the tile's Scales; of others with its Epilogue. A wait in vain
// makes the rest of it a formality, gone through all the same: warps of a warpgroup must not disagree about the
// products that they do together.
//
// Tensor cores keep few bits of sums of 8-bit products, so those add up only a stage, 128 of k, which is then added to
// the others in fp32. Meanwhile the other warpgroup's products run.
template <typename T, typename C, typename Last>
__device__ __forceinline__ bool hopper_consume(const HopperRing<T>& ring, RingPosition& position, u32 k,
                                               const HopperOutput<C>& c, HopperStaging<T>& staging, u32 task,
                                               const Patience& patience, const Last& last) {
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
  if (!there) return false;
  if constexpr (same_type<Last, Scales>)
    return hopper_store(sums, c, staging, task, patience, Epilogue<T, C>{});
  else
    return hopper_store(sums, c, staging, task, patience, last);
}

}  // namespace tileway

#endif  // __CUDACC__
