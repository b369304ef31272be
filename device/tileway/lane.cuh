// How a block follows its lane, and how a kernel is one rank's run of a plan.
//
// A block is a lane, whose tasks go through it in turn. A service warp, the fetcher, brings a task to shared memory and
// waits for all its signals, while the workers are still at the one before (fetch.cuh). The workers run its body. A
// third warp raises its notifications, while they are at the next. So between two bodies the workers wait for nothing
// that could have been done meanwhile. Bodies follow each other, so that is stricter than a plan demands
// (docs/MEMORY_MODEL.md); only what pipeline.cuh loads comes earlier.
//
// Lanes of engines that are streams (copy engine, collective library, library of products) can only wait for constants
// in local memory and cannot be called back, so a block each lends them two of its service warps: one waits for a
// task's signals and opens the task's gate; the one that raises notifications does so for the stream's tasks, too, each
// when the stream says that it is done. Thus whatever waits for a signal is resident and has a deadline.
//
// Who waits in vain records it and gives up for the rank: from then on no body runs and no signal is raised, gates open
// at once, and so the kernel and all streams of the run end. The gates of collectives stay closed: what such a call
// sends, its peers would take for good. The host opens them when the peers know.
#pragma once

#include "tileway/copy.cuh"
#include "tileway/fetch.cuh"
#include "tileway/raise.cuh"

namespace tileway {

// What a kernel has that loads nothing ahead; see pipeline.cuh for one that does.
struct NoPipeline {
  static constexpr bool kPresent = false;
  static constexpr u32 kRingBytes = 0;
  static constexpr u32 kSharedBytes = 0;
  struct Workers {
    __device__ Workers(const Run&, const u8*) {}
  };
  struct Storer {
    __device__ explicit Storer(const u8*) {}
    __device__ void take(u32) const {}
    __device__ void await_written() const {}
  };
};

// Where patience for the operands of a product has run out, and nobody knows why.
__device__ __forceinline__ void report_unloaded(const Run& run, u32 task) {
  u32* abort = &run.control()->abort;
  if (given_up(abort)) return;
  Failure what{};
  what.kind = Failure::unloaded;
  what.task = task;
  report(run.failure(), abort, what);
}

// The workers of a block: their lane from its first task to its last, or to where they begin to drain.
template <typename Bodies>
__device__ __forceinline__ void work(const Run& run, const LaneRow& lane, u8* shared, Block& block) {
  using Pipeline = typename Bodies::Pipeline;
  const TaskSlots<Pipeline::kPresent> slots{block.slots};
  u8* scratch = shared + Pipeline::kRingBytes;
  typename Pipeline::Workers products(run, shared);
  const u32 self = worker();
  volatile PlaceRow* place = place_of(lane);
  auto* events = reinterpret_cast<EventRow*>(run.launch.events);
  bool draining = block.over != 0;
  for (u32 i = 0; i < lane.tasks; ++i) {
    if (self == 0 && !draining) {
      place->index = i;
      place->run = run.epoch + 1;
      if (events != nullptr) events[lane.first + i].wait_begin = now_ns();
    }
    const TaskSlot& slot = slots.await_filled(i);
    draining = draining || slot.draining != 0;
    if (!draining) {
      dawdle(run, 2 * i + 1);
      if (self == 0 && events != nullptr) events[lane.first + i].begin = now_ns();
      const TaskRow& row = slot.row;
      bool loaded_ahead = false;
      if constexpr (Pipeline::kPresent) {
        loaded_ahead = row.loaded_ahead != 0;
        const bool staged = loaded_ahead && slot.views[row.reads].map != kNoMap;
        if (!staged || row.after_previous != 0) products.await_written(&block.written);
        if (loaded_ahead) {
          draining = any_worker(!products.multiply(slot, i));
          if (draining && self == 0) report_unloaded(run, row.task);
        }
      }
      if (!loaded_ahead)
        Bodies::run(row.variant, {slot.body, slot.views, slot.views + row.reads, row.reads, row.writes, scratch,
                                  row.task, run.failure(), &run.control()->abort});
    }
    sync_workers();
    slots.release(i);
    if (self != 0) continue;
    if (draining) block.drained = 1;
    raise_count(&block.done, i + 1);
    if (!draining && events != nullptr) events[lane.first + i].end = now_ns();
  }
  if (self == 0 && !draining) place->index = lane.tasks;
}

// A service warp: opens the gates of a stream's tasks, each when its signals have come.
__device__ __forceinline__ void open_gates(const Run& run, const LaneRow& lane, Block& block) {
  const u32 self = threadIdx.x % 32;
  auto* gates = reinterpret_cast<StreamGate*>(run.launch.gates);
  auto* events = reinterpret_cast<EventRow*>(run.launch.events);
  bool draining = block.over != 0;
  for (u32 i = 0; i < lane.tasks; ++i) {
    const TaskRow& row = run.task(lane, i);
    if (self == 0 && !draining) {
      place_of(lane)->index = i;
      place_of(lane)->run = run.epoch + 1;
      if (events != nullptr) events[lane.first + i].wait_begin = now_ns();
    }
    bool failed = self == 0 && given_up(&run.control()->abort);
    for (u32 w = self; w < row.waits; w += 32)
      failed = !await(run, lane, row.task, run.rows<WaitRow>(run.launch.waits)[row.first_wait + w]) || failed;
    draining = __any_sync(0xffffffffu, failed) || draining;
    if (self != 0 || (draining && row.joint != -1)) continue;
    if (events != nullptr) events[lane.first + i].begin = now_ns();
    asm volatile("st.release.sys.global.u32 [%0], 1;" ::"l"(&gates[lane.first + i].open) : "memory");
    raise_count(&block.opened, i + 1);
  }
}

// The workers of all blocks, which are resident together: the `number`th time in this run. False once anybody has given
// up. It has no deadline: blocks end, at the latest when their waits do.
__device__ __forceinline__ bool meet(const Run& run, u32 number) {
  auto* met = reinterpret_cast<DeviceSignal*>(&reinterpret_cast<Progress*>(run.launch.progress)->met);
  sync_workers();
  Waited waited = Waited::done;
  if (worker() == 0) {
    notify(met, 1);
    waited = wait(met, number * gridDim.x, ~u64{0}, &run.control()->abort);
  }
  return !any_worker(waited != Waited::done);
}

// The workers of all blocks together.
__device__ __forceinline__ void copy_all(const Run& run, u32 first, u32 count) {
  for (u32 c = first; c < first + count; ++c) {
    const CopyRow& row = run.rows<CopyRow>(run.launch.copies)[c];
    copy_as(blockIdx.x * kWorkers + worker(), gridDim.x * kWorkers, reinterpret_cast<void*>(row.to),
            reinterpret_cast<const void*>(row.from), row.bytes);
  }
}

// The whole kernel. All blocks of the grid are resident; the run's number lies in device memory, so that a captured
// launch may be replayed.
template <typename Bodies>
__device__ __forceinline__ void run_rank(const Launch& launch, u8* shared) {
  using Pipeline = typename Bodies::Pipeline;
  __shared__ Block block;
  auto* progress = reinterpret_cast<volatile Progress*>(launch.progress);
  const Run run{launch, progress->runs};
  if (threadIdx.x == 0) {
    block.done = 0;
    block.written = 0;
    block.drained = 0;
    block.opened = 0;
    block.over = given_up(&run.control()->abort);
    if constexpr (Pipeline::kPresent) Pipeline::begin(shared);
    if (blockIdx.x == 0 && block.over == 0) *reinterpret_cast<volatile u32*>(launch.runs_begun) = run.epoch + 1;
  }
  const CopyCounts copies = *run.rows<CopyCounts>(launch.copy_counts);
  if (copies.in > 0 && threadIdx.x >= kServiceThreads) {
    copy_all(run, 0, copies.in);
    meet(run, 1);
  }
  __syncthreads();
  const LaneRow& lane = run.rows<LaneRow>(launch.lanes)[blockIdx.x];
  if (threadIdx.x >= kServiceThreads) {
    if constexpr (Pipeline::kPresent) Pipeline::worker_registers();
    work<Bodies>(run, lane, shared, block);
  } else {
    if constexpr (Pipeline::kPresent) Pipeline::service_registers();
    const bool serves = blockIdx.x < launch.stream_lane_count;
    const LaneRow served = serves ? run.rows<LaneRow>(launch.stream_lanes)[blockIdx.x] : LaneRow{};
    switch (threadIdx.x / 32) {
      case 0:
        if constexpr (Pipeline::kPresent) Pipeline::load(run, lane, shared, block);
        break;
      case 1:
        fetch<Pipeline::kPresent>(run, lane, block);
        break;
      case 2:
        open_gates(run, served, block);
        break;
      default:
        raise_done(run, lane, served, block, typename Pipeline::Storer(shared));
    }
  }
  __syncthreads();
  if (copies.out > 0) {
    if (threadIdx.x >= kServiceThreads && meet(run, copies.in > 0 ? 2 : 1)) copy_all(run, copies.in, copies.out);
    __syncthreads();
  }
  if (threadIdx.x != 0) return;
  // The last block to end begins the next run.
  __threadfence();
  if (atomicAdd(const_cast<u32*>(&progress->blocks), 1) != gridDim.x - 1) return;
  progress->blocks = 0;
  progress->met = 0;
  progress->runs = run.epoch + 1;
}

}  // namespace tileway
