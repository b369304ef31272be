// Signals between blocks and between GPUs. Self-contained: for NVRTC and nvcc, in anyone's kernel.
//
// A signal is a counter that only grows. It lies in the memory of the GPU that waits for it. A notifier adds to it with
// release semantics after its stores; a waiter loads it with acquire semantics, and once it has reached its target sees
// every store that the counted notifiers, and whoever they had waited for, made before. Targets are
// epoch * total + value; comparisons are by signed difference, so wrap-around is harmless while fewer than 2^31
// notifications are outstanding.
//
// The type says at which scope a signal works, so that no signal that a peer watches can be raised at device scope:
// DeviceSignal is for blocks of one GPU; SystemSignal is for peers, the host and copy engines, and also works at home.
//
// What a block does around them:
//   notify: all threads store -> __syncthreads() (or a named barrier of the storing threads) -> one thread notifies.
//     Stores by TMA must be complete (cp.async.bulk.wait_group 0), not only read (wait_group.read).
//   wait:   one thread waits -> __syncthreads() -> all threads load. Never through a non-coherent load (ld.global.nc,
//     __ldg): it may hit what was there before. Before a TMA load of what others stored by ordinary stores:
//     fence_async_proxy() after the wait.
#pragma once

#include "tileway/types.cuh"

namespace tileway {

struct alignas(8) DeviceSignal {
  u32 value;
  u32 unused;
};
struct alignas(8) SystemSignal {
  u32 value;
  u32 unused;
};

// Release, then add.
__device__ __forceinline__ void notify(DeviceSignal* signal, u32 amount) {
  asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(signal), "r"(amount) : "memory");
}
__device__ __forceinline__ void notify(SystemSignal* signal, u32 amount) {
  asm volatile("red.release.sys.global.add.u32 [%0], %1;" ::"l"(signal), "r"(amount) : "memory");
}

// Load, then acquire.
__device__ __forceinline__ u32 load(const DeviceSignal* signal) {
  u32 value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(signal) : "memory");
  return value;
}
__device__ __forceinline__ u32 load(const SystemSignal* signal) {
  u32 value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(signal) : "memory");
  return value;
}

__device__ __forceinline__ bool reached(u32 value, u32 target) { return static_cast<int>(value - target) >= 0; }

// A count that only grows, in shared memory, between warps of a block: what was done before it was raised is seen after
// it was read. Both are atomic operations, for then tools that look for races see none.
__device__ __forceinline__ void raise_count(u32* count, u32 to) {
  const u32 address = static_cast<u32>(__cvta_generic_to_shared(count));
  asm volatile("red.release.cta.shared.max.u32 [%0], %1;" ::"r"(address), "r"(to) : "memory");
}
__device__ __forceinline__ u32 read_count(u32* count) {
  const u32 address = static_cast<u32>(__cvta_generic_to_shared(count));
  u32 value;
  asm volatile("atom.acquire.cta.shared.or.b32 %0, [%1], 0;" : "=r"(value) : "r"(address) : "memory");
  return value;
}
// A whole warp.
__device__ __forceinline__ void await_count(u32* count, u32 at_least) {
  if (threadIdx.x % 32 == 0) {
    while (read_count(count) < at_least) continue;
  }
  __syncwarp();
}

// Nanoseconds since some moment, the same for all SMs of a GPU.
__device__ __forceinline__ u64 now_ns() {
  u64 time;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(time));
  return time;
}

// What a wait came to.
enum class Waited : int { done, late, aborted };

// Whether somebody has given up: set once by whoever does, a block, the host or a peer, and then seen by all who wait.
__device__ __forceinline__ bool given_up(const u32* abort) {
  u32 raised;
  asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(raised) : "l"(abort) : "memory");
  return raised != 0;
}

// Spins until the signal has reached its target, the deadline (by now_ns) has passed, or somebody has given up. Looks
// at clock and flag every few dozen polls only. After anything but `done` nothing that was waited for may be read.
template <typename Signal>
__device__ __forceinline__ Waited wait(const Signal* signal, u32 target, u64 deadline_ns, const u32* abort) {
  constexpr int kPolls = 64;
  while (true) {
#pragma unroll 1
    for (int i = 0; i < kPolls; ++i) {
      if (reached(load(signal), target)) return Waited::done;
    }
    if (given_up(abort)) return Waited::aborted;
    if (now_ns() >= deadline_ns) return Waited::late;
  }
}

// Says that this block has given up, at home (its own flag) or at a peer (the peer's flag). Never taken back.
__device__ __forceinline__ void give_up(u32* abort) {
  asm volatile("st.relaxed.sys.global.u32 [%0], 1;" ::"l"(abort) : "memory");
}

// A barrier of the block that tells all its threads what waiting came to for them together: `done` if it was for each.
// What any of them acquired, all see after it.
__device__ __forceinline__ Waited agree_by_block(Waited waited) {
  if (__syncthreads_or(waited != Waited::done) == 0) return Waited::done;
  return __syncthreads_or(waited == Waited::late) != 0 ? Waited::late : Waited::aborted;
}
// All threads of the block wait, by the first one; all see what the notifiers stored, if `done`.
template <typename Signal>
__device__ __forceinline__ Waited wait_by_block(const Signal* signal, u32 target, u64 deadline_ns, const u32* abort) {
  Waited waited = Waited::done;
  if (threadIdx.x == 0) waited = wait(signal, target, deadline_ns, abort);
  return agree_by_block(waited);
}

// Orders this thread's accesses before it with those after it, as seen by the GPU or by everyone.
__device__ __forceinline__ void fence_device() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }
__device__ __forceinline__ void fence_system() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }

// Between ordinary accesses and those of the asynchronous proxy (TMA) to global memory, either way. sm_90 and up.
__device__ __forceinline__ void fence_async_proxy() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async.global;" ::: "memory");
#endif
}

}  // namespace tileway
