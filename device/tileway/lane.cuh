// How a block follows its lane, and how a kernel is one rank's run of a plan.
//
// A block is a lane. Its workers take the tasks one after the other: all waits of the task, then its body, then its
// notifications; that is stricter than a plan demands (docs/MEMORY_MODEL.md). Lanes of engines that are streams (copy
// engine, collective library, library of products) can only wait for constants in local memory and cannot be called
// back, so a block each lends them two of its service warps: one waits for a task's signals and opens the task's gate,
// the other waits until the stream says that the task is done and raises the notifications. Thus whatever waits for a
// signal is resident and has a deadline.
//
// Who waits in vain records it and gives up for the rank: from then on no body runs and no signal is raised, gates open
// at once, and so the kernel and all streams of the run end. The gates of collectives stay closed: what such a call
// sends, its peers would take for good. The host opens them when the peers know.
#pragma once

#include "tileway/copy.cuh"
#include "tileway/signal.cuh"
#include "tileway/team.cuh"

namespace tileway {

struct Run {
  const Launch& launch;
  u32 epoch;

  template <typename Row>
  __device__ const Row* rows(u64 address) const {
    return reinterpret_cast<const Row*>(address);
  }
  __device__ Control* control() const { return reinterpret_cast<Control*>(launch.control); }
  __device__ Failure* failure() const { return reinterpret_cast<Failure*>(launch.failure); }
  __device__ const TaskRow& task(const LaneRow& lane, u32 i) const {
    return rows<TaskRow>(launch.tasks)[lane.first + i];
  }
};

__device__ __forceinline__ volatile PlaceRow* place_of(const LaneRow& lane) {
  return reinterpret_cast<volatile PlaceRow*>(lane.place);
}

template <typename Signal>
__device__ __forceinline__ bool await_as(const Run& run, const LaneRow& lane, const TaskRow& task, const WaitRow& row) {
  const auto* signal = reinterpret_cast<const Signal*>(row.signal);
  const u32 begun = run.epoch * row.total;
  if (reached(load(signal), begun + row.value)) return true;
  u32* abort = &run.control()->abort;
  if (given_up(abort)) return false;  // places stay as they were, for whoever asks why
  constexpr u64 kGlance = 1'000'000;
  const u64 deadline = now_ns() + run.control()->patience_ns;
  Waited waited = Waited::late;
  u64 until = 0;
  while (waited == Waited::late && until < deadline) {
    // Again and again: another wait of the task may have begun since, and ended.
    place_of(lane)->signal = static_cast<i32>(row.id);
    until = min(deadline, now_ns() + kGlance);
    waited = wait(signal, begun + row.value, until, abort);
  }
  if (waited == Waited::late) {
    Failure what{};
    what.kind = Failure::late;
    what.task = task.task;
    what.signal = row.id;
    what.wanted = row.value;
    what.seen = load(signal) - begun;
    report(run.failure(), abort, what);
  }
  if (waited == Waited::done) place_of(lane)->signal = -1;
  return waited == Waited::done;
}

// Waits for one signal of a task, at the scope at which it is raised. False once anybody has given up.
__device__ __forceinline__ bool await(const Run& run, const LaneRow& lane, const TaskRow& task, const WaitRow& row) {
  return row.system != 0 ? await_as<SystemSignal>(run, lane, task, row) : await_as<DeviceSignal>(run, lane, task, row);
}

// Raises one signal of a task. Whatever the task stored is done: its threads have met since.
__device__ __forceinline__ void raise(const Run& run, const NotifyRow& row) {
  if (row.kind == NotifyRow::set) {
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(row.signal), "r"(run.epoch + 1) : "memory");
  } else if (row.system != 0) {
    notify(reinterpret_cast<SystemSignal*>(row.signal), row.amount);
  } else {
    notify(reinterpret_cast<DeviceSignal*>(row.signal), row.amount);
  }
}

// For tests: a moment between 0 and Control::delay_ns, other for each task, block and run.
__device__ __forceinline__ void dawdle(const Run& run, u32 task) {
  const u64 most = run.control()->delay_ns;
  if (most == 0) return;
  u32 hash = (run.epoch * 2654435761u) ^ (task * 2246822519u) ^ (blockIdx.x * 3266489917u);
  hash ^= hash >> 15;
  hash *= 2246822519u;
  hash ^= hash >> 13;
  const u64 until = now_ns() + hash % most;
  while (now_ns() < until) __nanosleep(100);
}

// What a kernel has that loads nothing ahead; see pipeline.cuh for one that does.
struct NoPipeline {
  static constexpr bool kPresent = false;
  static constexpr u32 kRingBytes = 0;
  static constexpr u32 kSharedBytes = 0;
  struct Position {};
};

// The workers of a block: their lane from its first task to its last, or to where they begin to drain. `stored`: how
// many tasks they are done with.
template <typename Bodies>
__device__ __forceinline__ void work(const Run& run, const LaneRow& lane, bool draining, u8* shared, u32* stored) {
  using Pipeline = typename Bodies::Pipeline;
  __shared__ View views[kMaxViews];
  u8* scratch = shared + Pipeline::kRingBytes;
  typename Pipeline::Position position{};
  const u32 self = worker();
  volatile PlaceRow* place = place_of(lane);
  auto* events = reinterpret_cast<EventRow*>(run.launch.events);
  for (u32 i = 0; i < lane.tasks; ++i) {
    const TaskRow& row = run.task(lane, i);
    if (self == 0 && !draining) {
      place->index = i;
      place->run = run.epoch + 1;
      if (events != nullptr) events[lane.first + i].wait_begin = now_ns();
    }
    dawdle(run, i);
    for (u32 v = self; v < row.reads + row.writes; v += kWorkers) {
      View view = run.rows<View>(run.launch.views)[row.views + v];
      if (view.slots > 1) view.data += run.epoch % view.slots * view.slot_bytes;
      views[v] = view;
    }
    bool failed = self == kWorkers - 1 && given_up(&run.control()->abort);
    for (u32 w = self; w < row.waits; w += kWorkers)
      failed = !await(run, lane, row, run.rows<WaitRow>(run.launch.waits)[row.first_wait + w]) || failed;
    draining = any_worker(failed) || draining;
    if (!draining) {
      if (self == 0 && events != nullptr) events[lane.first + i].begin = now_ns();
      bool loaded_ahead = false;
      if constexpr (Pipeline::kPresent) {
        loaded_ahead = row.a_map != kNoMap;
        if (loaded_ahead) draining = any_worker(!Pipeline::multiply(run, row, views, position, shared, scratch));
      }
      if (!loaded_ahead)
        Bodies::run(row.variant, {run.rows<BodyRow>(run.launch.bodies)[row.body], views, views + row.reads, row.reads,
                                  row.writes, scratch, row.task, run.failure(), &run.control()->abort});
    }
    sync_workers();
    if (self == 0) store_release(stored, i + 1);
    if (draining) continue;
    for (u32 n = self; n < row.notifies; n += kWorkers)
      raise(run, run.rows<NotifyRow>(run.launch.notifies)[row.first_notify + n]);
    if (self == 0 && events != nullptr) events[lane.first + i].end = now_ns();
  }
  if (self == 0 && !draining) place->index = lane.tasks;
}

// A service warp: opens the gates of a stream's tasks, each when its signals have come.
__device__ __forceinline__ void open_gates(const Run& run, const LaneRow& lane, bool draining, volatile u32* opened) {
  const u32 self = threadIdx.x % 32;
  auto* gates = reinterpret_cast<StreamGate*>(run.launch.gates);
  auto* events = reinterpret_cast<EventRow*>(run.launch.events);
  for (u32 i = 0; i < lane.tasks; ++i) {
    const TaskRow& row = run.task(lane, i);
    if (self == 0 && !draining) {
      place_of(lane)->index = i;
      place_of(lane)->run = run.epoch + 1;
      if (events != nullptr) events[lane.first + i].wait_begin = now_ns();
    }
    bool failed = self == 0 && given_up(&run.control()->abort);
    for (u32 w = self; w < row.waits; w += 32)
      failed = !await(run, lane, row, run.rows<WaitRow>(run.launch.waits)[row.first_wait + w]) || failed;
    draining = __any_sync(0xffffffffu, failed) || draining;
    if (self != 0 || (draining && row.joint != -1)) continue;
    if (events != nullptr) events[lane.first + i].begin = now_ns();
    asm volatile("st.release.sys.global.u32 [%0], 1;" ::"l"(&gates[lane.first + i].open) : "memory");
    *opened = i + 1;
  }
}

// Another one: raises the notifications of a stream's tasks, each when the stream has done it.
__device__ __forceinline__ void raise_for_stream(const Run& run, const LaneRow& lane, const volatile u32* opened) {
  const u32 self = threadIdx.x % 32;
  auto* gates = reinterpret_cast<StreamGate*>(run.launch.gates);
  auto* events = reinterpret_cast<EventRow*>(run.launch.events);
  u32* abort = &run.control()->abort;
  for (u32 i = 0; i < lane.tasks; ++i) {
    const TaskRow& row = run.task(lane, i);
    bool failed = false;
    if (self == 0) {
      while (*opened <= i && !given_up(abort)) __nanosleep(50);
      const auto* done = reinterpret_cast<const SystemSignal*>(&gates[lane.first + i].done);
      const Waited waited = wait(done, 1, now_ns() + run.control()->patience_ns, abort);
      failed = waited != Waited::done;
      if (waited == Waited::late) {
        Failure what{};
        what.kind = Failure::transfer;
        what.task = row.task;
        report(run.failure(), abort, what);
      }
      if (!failed) *reinterpret_cast<volatile u32*>(&gates[lane.first + i].done) = 0;
    }
    if (__any_sync(0xffffffffu, failed)) return;
    for (u32 n = self; n < row.notifies; n += 32)
      raise(run, run.rows<NotifyRow>(run.launch.notifies)[row.first_notify + n]);
    if (self == 0 && events != nullptr) events[lane.first + i].end = now_ns();
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
  __shared__ u32 opened;
  __shared__ u32 stored;
  __shared__ bool over;  // given up in an earlier run: who asks why finds everything as that run left it
  auto* progress = reinterpret_cast<volatile Progress*>(launch.progress);
  const Run run{launch, progress->runs};
  if (threadIdx.x == 0) {
    opened = 0;
    stored = 0;
    if constexpr (Pipeline::kPresent) Pipeline::begin(shared);
    over = given_up(&run.control()->abort);
    if (blockIdx.x == 0 && !over) *reinterpret_cast<volatile u32*>(launch.runs_begun) = run.epoch + 1;
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
    work<Bodies>(run, lane, over, shared, &stored);
  } else {
    if constexpr (Pipeline::kPresent) {
      Pipeline::service_registers();
      if (threadIdx.x / 32 == 0) Pipeline::load(run, lane, shared, &stored);
    }
    if (blockIdx.x < launch.stream_lane_count) {
      const LaneRow& served = run.rows<LaneRow>(launch.stream_lanes)[blockIdx.x];
      if (threadIdx.x / 32 == 2) open_gates(run, served, over, &opened);
      if (threadIdx.x / 32 == 3) raise_for_stream(run, served, &opened);
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
