// Matrix products of a lane on Hopper: a service warp loads the operands of the lane's products ahead of the workers.
//
// The loader takes the lane's tasks in their order as they are fetched, like the workers, but does nothing except, of
// products, their loads; so a task loads when its own waits and those of all earlier tasks hold, and a task marked
// after_previous when all before it are stored. The warp that raises notifications stores what the workers have staged,
// of a task when all before it are stored; and workers that store for themselves wait until it has. That is the lane of
// docs/MEMORY_MODEL.md, whose stages take the tasks in turn. A kernel for which no product is loaded so has NoPipeline.
#pragma once

#include "tileway/lane.cuh"
#include "tileway/matmul_hopper.cuh"

namespace tileway {

// Calls body(m0, n0, matrix) for the tiles of a product, alike for loader and workers, until it says no.
template <typename T, typename Body>
__device__ __forceinline__ bool for_tiles(const View& c, const Body& body) {
  u32 matrices = 1;
  for (u32 d = 0; d + 2 < c.dims; ++d) matrices *= static_cast<u32>(c.extent[d]);
  const auto rows = static_cast<u32>(c.extent[c.dims - 2]);
  const auto columns = static_cast<u32>(c.extent[c.dims - 1]);
  for (u32 matrix = 0; matrix < matrices; ++matrix) {
    for (u32 m0 = 0; m0 < rows; m0 += kHopperTileRows) {
      for (u32 n0 = 0; n0 < columns; n0 += HopperShape<T>::kColumns) {
        if (!body(m0, n0, matrix)) return false;
      }
    }
  }
  return true;
}

// One kind of a plan's products: a case of the generated switch, the type of C, and the steps of its epilogue.
template <u32 variant, typename C, typename... Steps>
struct HopperProduct {
  static constexpr u32 kVariant = variant;

  template <typename T>
  __device__ static bool multiply(const HopperRing<T>& ring, RingPosition& position, const View* views, u32 reads,
                                  HopperStaging<T>& staging, const u8* maps, u32 task, const Patience& patience) {
    const View& c = views[reads];
    const void* const map = c.map == kNoMap ? nullptr : maps + static_cast<u64>(c.map) * kMapBytes;
    const auto depth = static_cast<u32>(views[0].extent[views[0].dims - 1]);
    const auto matrix_size = static_cast<u32>(c.extent[c.dims - 2] * c.extent[c.dims - 1]);
    return for_tiles<T>(c, [&](u32 m0, u32 n0, u32 matrix) {
      const HopperOutput<C> output = hopper_output<T, C>(c, map, matrix, offset_at(c, matrix * matrix_size), m0, n0);
      if constexpr (same_type<T, e4m3>) {
        const Scales scales(views, m0, n0, output.rows, output.columns);
        return hopper_consume(ring, position, depth, output, staging, task, patience, scales);
      } else if constexpr (sizeof...(Steps) > 0) {
        const Epilogue<T, C, Steps...> epilogue{views, m0, n0, output.rows, output.columns};
        return hopper_consume(ring, position, depth, output, staging, task, patience, epilogue);
      } else {
        return hopper_consume(ring, position, depth, output, staging, task, patience, Epilogue<T, C>{});
      }
    });
  }
};

// Products of elements of type T. Shared memory begins with the ring, behind which staging lies, which other bodies use
// too.
template <typename T, typename... Products>
struct HopperPipeline {
  static constexpr bool kPresent = true;
  static constexpr u32 kRingBytes = HopperShape<T>::kRingBytes;
  static constexpr u32 kSharedBytes = HopperShape<T>::kStagingBytes;

  __device__ static void begin(u8* ring) { hopper_init_ring(HopperRing<T>(ring)); }
  __device__ static void service_registers() { hopper_service_registers(); }
  __device__ static void worker_registers() { hopper_worker_registers(); }

  __device__ static Patience patience_of(const Run& run) {
    // Longer than any wait for a signal lasts: whoever waits for one in vain says so, and that is the better news.
    return {2 * run.control()->patience_ns, &run.control()->abort};
  }

  // A whole service warp: loads for the lane until it ends or somebody gives up, and takes its tasks to the last.
  __device__ static void load(const Run& run, const LaneRow& lane, u8* ring_memory, Block& block) {
    const HopperRing<T> ring(ring_memory);
    const TaskSlots<true> slots{block.slots};
    const Patience patience = patience_of(run);
    const u32 self = threadIdx.x % 32;
    RingPosition position{0, 0};
    MapInUse a_map;
    MapInUse b_map;
    bool loading = true;
    for (u32 i = 0; i < lane.tasks; ++i) {
      const TaskSlot& slot = slots.await_filled_by_loader(i);
      loading = loading && slot.draining == 0;
      if (loading && slot.row.loaded_ahead != 0) {
        if (slot.row.after_previous != 0) await_count(&block.written, i);
        if (self == 0) loading = load_product(run, slot, ring, position, a_map, b_map, patience);
        loading = __shfl_sync(0xffffffffu, loading, 0);
      }
      slots.release(i);
    }
    if (self == 0) hopper_drain(ring, position, patience);
  }

  // What all workers keep through the kernel.
  class Workers {
   public:
    __device__ Workers(const Run& run, u8* shared)
        : maps_(run.rows<u8>(run.launch.maps)),
          patience_(patience_of(run)),
          ring_(shared),
          staging_(shared, shared + kRingBytes) {}

    // One product, of the task in that place of the lane. False where it was given up.
    __device__ bool multiply(const TaskSlot& slot, u32 task) {
      const u32 staged_before = staging_.count();
      bool done = false;
      ((slot.row.variant == Products::kVariant
            ? void(done = Products::template multiply<T>(ring_, position_, slot.views, slot.row.reads, staging_, maps_,
                                                         task, patience_))
            : void()),
       ...);
      if (staging_.count() != staged_before) staged_until_ = task + 1;
      return done;
    }
    // Until everything staged before is stored.
    __device__ void await_written(u32* written) const { await_count(written, staged_until_); }

   private:
    const u8* maps_;
    Patience patience_;
    HopperRing<T> ring_;
    RingPosition position_{0, 0};
    HopperStaging<T> staging_;
    u32 staged_until_ = 0;  // tasks
  };

  // What the warp that raises notifications keeps.
  struct Storer : HopperStorer<T> {
    __device__ explicit Storer(const u8* shared) : HopperStorer<T>(shared, shared + kRingBytes) {}
  };

 private:
  // One thread: the loads of a product. False where patience ran out.
  __device__ static bool load_product(const Run& run, const TaskSlot& slot, const HopperRing<T>& ring,
                                      RingPosition& position, MapInUse& a_map, MapInUse& b_map,
                                      const Patience& patience) {
    const View& a = slot.views[0];
    const View& b = slot.views[1];
    const u8* maps = run.rows<u8>(run.launch.maps);
    constexpr bool kKMajorB = HopperShape<T>::kKMajorB;
    HopperTile tile{};
    tile.a_map = maps + static_cast<u64>(a.map) * kMapBytes;
    tile.b_map = maps + static_cast<u64>(b.map) * kMapBytes;
    tile.a_k = a.x;
    tile.b_k = kKMajorB ? b.x : b.y;
    tile.k = static_cast<u32>(a.extent[a.dims - 1]);
    const u32 columns = static_cast<u32>(b.extent[b.dims - (kKMajorB ? 2 : 1)]);
    const bool same_a = volume(a) == a.extent[a.dims - 2] * a.extent[a.dims - 1];
    const bool same_b = volume(b) == b.extent[b.dims - 2] * b.extent[b.dims - 1];
    a_map.use(tile.a_map);
    b_map.use(tile.b_map);
    fence_async_proxy();
    return for_tiles<T>(slot.views[slot.row.reads], [&](u32 m0, u32 n0, u32 matrix) {
      tile.a_row = a.y + m0;
      tile.b_column = (kKMajorB ? b.y : b.x) + n0;
      tile.columns = columns - n0;
      tile.a_batch = same_a ? 0 : matrix;
      tile.b_batch = same_b ? 0 : matrix;
      return hopper_produce(ring, position, tile, patience);
    });
  }
};

}  // namespace tileway
