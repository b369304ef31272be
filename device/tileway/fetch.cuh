// How the tasks of a lane come to those who do them: a service warp, the fetcher, copies their rows from the table to
// shared memory, ahead, and waits for their signals. What is fetched lies in one of a few slots until the workers, and
// the loader of a kernel that has one (pipeline.cuh), are done with it.
//
// Barriers pass a slot on and back: one to the workers and another to the loader, who is to be ahead of them; and one
// from both. Fetcher, workers and loader each take every task of the lane in turn, whatever goes wrong, so each barrier
// ends: who gives up goes on without doing anything.
#pragma once

#include "tileway/run.cuh"

namespace tileway {

struct TaskSlot {
  alignas(8) TaskRow row;
  BodyRow body;
  View views[kMaxViews];  // those of this run's slots of the buffers
  u32 draining;           // somebody has given up: the task is not done, and nothing else here means anything
  u32 unused;
};
inline constexpr u32 kTaskSlots = 2;

// What the warps of a block tell each other, in shared memory.
struct Block {
  TaskSlot slots[kTaskSlots];
  u32 done;     // so many tasks are the workers done with
  u32 written;  // so many tasks are stored altogether
  u32 drained;  // 1: from where they are on they only drain, and nothing is raised any more
  u32 opened;   // so many gates of the stream's tasks are open
  u32 over;     // 1: given up in an earlier run; who asks why finds everything as that run left it
};

// The slots of a block for task after task: `kLoads`, whether there is a loader.
template <bool kLoads>
struct TaskSlots {
  TaskSlot* slots;

  __device__ __forceinline__ TaskSlot& at(u32 task) const { return slots[task % kTaskSlots]; }

  // The fetcher's whole warp: when the slot of this task is free; and that it is filled.
  __device__ __forceinline__ void await_free(u32 task) const {
    if (task >= kTaskSlots) sync<32 + kWorkers + kLoaders>(kFree, task);
  }
  __device__ __forceinline__ void await_all_free(u32 tasks) const {
    for (u32 task = max(tasks, kTaskSlots); task < tasks + kTaskSlots; ++task) await_free(task);
  }
  __device__ __forceinline__ void fill(u32 task) const {
    arrive<32 + kWorkers>(kForWorkers, task);
    if constexpr (kLoads) arrive<32 + kLoaders>(kForLoader, task);
  }
  // All workers: when it is filled. What the fetcher has waited for, they see.
  __device__ __forceinline__ const TaskSlot& await_filled(u32 task) const {
    sync<32 + kWorkers>(kForWorkers, task);
    return at(task);
  }
  // The loader's whole warp, alike.
  __device__ __forceinline__ const TaskSlot& await_filled_by_loader(u32 task) const {
    sync<32 + kLoaders>(kForLoader, task);
    return at(task);
  }
  // All workers, and the loader's whole warp: that they are done with it.
  __device__ __forceinline__ void release(u32 task) const { arrive<32 + kWorkers + kLoaders>(kFree, task); }

 private:
  static constexpr u32 kLoaders = kLoads ? 32 : 0;
  // Barriers, one a slot; before them are those of the block and of its workers.
  static constexpr u32 kForWorkers = 2;
  static constexpr u32 kForLoader = kForWorkers + kTaskSlots;
  static constexpr u32 kFree = kForLoader + kTaskSlots;

  template <u32 threads>
  __device__ __forceinline__ static void sync(u32 first, u32 task) {
    asm volatile("bar.sync %0, %1;" ::"r"(first + task % kTaskSlots), "n"(threads) : "memory");
  }
  template <u32 threads>
  __device__ __forceinline__ static void arrive(u32 first, u32 task) {
    asm volatile("bar.arrive %0, %1;" ::"r"(first + task % kTaskSlots), "n"(threads) : "memory");
  }
};

// A warp brings rows to shared memory, without waiting for them: eight bytes a thread at a time.
template <typename Row>
__device__ __forceinline__ void bring(Row* to, const Row* from, u32 count) {
  static_assert(sizeof(Row) % 8 == 0, "rows are brought by eights of bytes");
  const u32 first = static_cast<u32>(__cvta_generic_to_shared(to));
  for (u32 byte = threadIdx.x % 32 * 8; byte < count * sizeof(Row); byte += 32 * 8) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(first + byte), "l"(reinterpret_cast<u64>(from) + byte)
                 : "memory");
  }
}
// Until what it has brought is there.
__device__ __forceinline__ void await_brought() {
  asm volatile("cp.async.wait_all;" ::: "memory");
  __syncwarp();
}

// A service warp: fetches the tasks of the lane, each when its slot is free, and waits for its signals.
template <bool kLoads>
__device__ __forceinline__ void fetch(const Run& run, const LaneRow& lane, Block& block) {
  const TaskSlots<kLoads> slots{block.slots};
  const u32 self = threadIdx.x % 32;
  bool draining = block.over != 0;
  for (u32 i = 0; i < lane.tasks; ++i) {
    const TaskRow& row = run.task(lane, i);
    const u32 views = row.reads + row.writes;
    dawdle(run, 2 * i);
    slots.await_free(i);
    TaskSlot& slot = slots.at(i);
    if (!draining) {
      bring(&slot.row, &row, 1);
      bring(&slot.body, run.rows<BodyRow>(run.launch.bodies) + row.body, 1);
      bring(slot.views, run.rows<View>(run.launch.views) + row.views, views);
      bool failed = self == 31 && given_up(&run.control()->abort);
      for (u32 w = self; w < row.waits; w += 32)
        failed = !await(run, lane, row.task, run.rows<WaitRow>(run.launch.waits)[row.first_wait + w]) || failed;
      await_brought();
      for (u32 v = self; v < views; v += 32) {
        View& view = slot.views[v];
        if (view.slots > 1) view.data += run.epoch % view.slots * view.slot_bytes;
      }
      draining = __any_sync(0xffffffffu, failed);
    }
    if (self == 0) slot.draining = draining;
    __syncwarp();
    slots.fill(i);
  }
  slots.await_all_free(lane.tasks);
}

}  // namespace tileway
