// Who does what in a block, and what a body of a task may use.
//
// A block has 384 threads. The first 128 are the service warps, one job each; the other 256 are the workers, two
// warpgroups that run the bodies of tasks together. Bodies therefore never use __syncthreads or threadIdx: they count
// workers and meet at a barrier of their own.
#pragma once

#include "tileway/table.cuh"

namespace tileway {

// This thread's number among the workers.
__device__ __forceinline__ u32 worker() { return threadIdx.x - kServiceThreads; }
// All workers: what one stored in shared or global memory before, the others see after.
__device__ __forceinline__ void sync_workers() { asm volatile("bar.sync 1, %0;" ::"n"(kWorkers) : "memory"); }
// The same, and whether any worker said yes.
__device__ __forceinline__ bool any_worker(bool yes) {
  u32 any;
  asm volatile(
      "{\n"
      ".reg .pred p, q;\n"
      "setp.ne.u32 p, %1, 0;\n"
      "bar.red.or.pred q, 1, %2, p;\n"
      "selp.u32 %0, 1, 0, q;\n"
      "}"
      : "=r"(any)
      : "r"(static_cast<u32>(yes)), "n"(kWorkers)
      : "memory");
  return any != 0;
}

// What a body gets. Views are already those of this run's slots.
struct Arguments {
  const BodyRow& body;
  const View* reads;
  const View* writes;
  u32 read_count;
  u32 write_count;
  u8* shared;  // the workers' shared memory, 1024-byte aligned; its size is what the variant asked for
  u32 task;    // in the plan
  Failure* failure;
  u32* abort;
};

template <typename T>
__device__ __forceinline__ T* at(const View& view, i64 offset) {
  return reinterpret_cast<T*>(view.data) + offset;
}
__device__ __forceinline__ i64 volume(const View& view) {
  i64 product = 1;
#pragma unroll 1
  for (u32 d = 0; d < view.dims; ++d) product *= view.extent[d];
  return product;
}
// The extent of a row: that of the last dimension, 1 for a scalar.
__device__ __forceinline__ i64 row_length(const View& view) { return view.dims == 0 ? 1 : view.extent[view.dims - 1]; }

// Records what went wrong, unless something did before, and gives up for the rank.
__device__ __forceinline__ void report(Failure* failure, u32* abort, const Failure& what) {
  if (atomicCAS_system(&failure->claimed, 0u, 1u) == 0) {
    failure->task = what.task;
    failure->signal = what.signal;
    failure->wanted = what.wanted;
    failure->seen = what.seen;
    failure->member = what.member;
    failure->receives = what.receives;
    failure->value = what.value;
    failure->bound = what.bound;
    __threadfence_system();
    *reinterpret_cast<volatile u32*>(&failure->kind) = what.kind;
  }
  *reinterpret_cast<volatile u32*>(abort) = 1;
}
__device__ __forceinline__ void report(const Arguments& arguments, Failure what) {
  what.task = arguments.task;
  report(arguments.failure, arguments.abort, what);
}

}  // namespace tileway
