// One run of a plan, as any warp of a kernel sees it, and what they all do: wait for a signal of a task, raise one.
#pragma once

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
__device__ __forceinline__ bool await_as(const Run& run, const LaneRow& lane, u32 task, const WaitRow& row) {
  const auto* signal = reinterpret_cast<const Signal*>(row.signal);
  const u32 begun = run.epoch * row.total;
  constexpr int kPolls = 64;  // before it costs more than the look itself
#pragma unroll 1
  for (int i = 0; i < kPolls; ++i) {
    if (reached(load(signal), begun + row.value)) return true;
  }
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
    what.task = task;
    what.signal = row.id;
    what.wanted = row.value;
    what.seen = load(signal) - begun;
    report(run.failure(), abort, what);
  }
  if (waited == Waited::done) place_of(lane)->signal = -1;
  return waited == Waited::done;
}

// Waits for one signal of a task, at the scope at which it is raised. False once anybody has given up.
__device__ __forceinline__ bool await(const Run& run, const LaneRow& lane, u32 task, const WaitRow& row) {
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

// For tests: a moment between 0 and Control::delay_ns, other for each number, block and run.
__device__ __forceinline__ void dawdle(const Run& run, u32 number) {
  const u64 most = run.control()->delay_ns;
  if (most == 0) return;
  u32 hash = (run.epoch * 2654435761u) ^ (number * 2246822519u) ^ (blockIdx.x * 3266489917u);
  hash ^= hash >> 15;
  hash *= 2246822519u;
  hash ^= hash >> 13;
  const u64 until = now_ns() + hash % most;
  while (now_ns() < until) __nanosleep(100);
}

}  // namespace tileway
