// Puts that go on while the block does something else: by the GPU's bulk copies (TMA) from sm_90 on, by ordinary stores
// before. Self-contained: for NVRTC and nvcc, in anyone's kernel. Blocks are one-dimensional.
//
// There is no bulk copy from global memory to global memory, so the bytes pass through shared memory: a bulk load into
// one of a few stages, completed at an mbarrier, and a bulk store from there to the peer, completed as a bulk group of
// the one thread that issues everything. No register holds data, and the other threads are free.
#pragma once

#include "tileway/copy.cuh"
#include "tileway/hopper.cuh"

namespace tileway {

// Addresses and bytes are multiples of 16; those in shared memory are of the shared window.
// Global memory to shared memory; the bytes count at the barrier.
__device__ __forceinline__ void bulk_load(u32 to, const void* from, u32 bytes, u32 barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
               "l"(from), "r"(bytes), "r"(barrier)
               : "memory");
}
// Shared memory to global memory, a peer's too; belongs to the next group that the thread commits.
__device__ __forceinline__ void bulk_store(void* to, u32 from, u32 bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(from), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// Until at most so many of this thread's latest groups have not read their shared memory. It may then be overwritten;
// nothing is said of what was written to global memory.
template <u32 pending>
__device__ __forceinline__ void bulk_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory");
}
// Until all of this thread's groups are written, as this thread sees it; a release by it then covers them.
__device__ __forceinline__ void bulk_wait_written() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

// The puts of one block. All threads make it and call its functions together. Keeps `kSharedBytes` of shared memory,
// 128-byte aligned, to itself until the kernel ends; quiet() comes before that.
template <u32 kStages = 4, u32 kStageBytes = 16384>
class BulkPuts {
  static_assert(kStages >= 2 && (kStages & (kStages - 1)) == 0, "chunks are counted modulo 2^32");
  static_assert(kStageBytes % 128 == 0 && kStageBytes < (1u << 20), "what an mbarrier counts");

 public:
  static constexpr u32 kSharedBytes = kStages * kStageBytes + (kStages * 8 + 127) / 128 * 128;

  __device__ explicit BulkPuts(void* shared) : stages_(shared_address(shared)) {
#if __CUDA_ARCH__ >= 900
    if (threadIdx.x == 0) {
      for (u32 i = 0; i < kStages; ++i) mbarrier_init(barrier(i), 1);
      mbarrier_init_done();
    }
#endif
    __syncthreads();
  }
  BulkPuts(const BulkPuts&) = delete;
  BulkPuts& operator=(const BulkPuts&) = delete;

  // Begins to put the bytes at a peer, whose target may be written (as for put_by_block). Begins with a barrier: what
  // any thread of the block stored or waited for before is what is put. Nobody may look at the target, and no signal
  // for it may be raised, before quiet(); nor may the source be overwritten. Where the two sides are not aligned alike,
  // and at unaligned ends, the stores are ordinary.
  __device__ void put_nbi(void* peer, const void* from, u64 bytes) {
    fence_async_proxy();
    __syncthreads();
#if __CUDA_ARCH__ >= 900
    CopySplit split = split_copy(peer, from, bytes);
    if (!split.alike) split = {bytes, 0, false};
    if (split.body == 0) {
      put_by_block(peer, from, bytes);
      return;
    }
    char* to = static_cast<char*>(peer);
    const char* source = static_cast<const char*>(from);
    copy_bytes(threadIdx.x, blockDim.x, to, source, 0, split.head);
    copy_bytes(threadIdx.x, blockDim.x, to, source, split.head + split.body, bytes);
    if (threadIdx.x == 0) put_chunks(to + split.head, source + split.head, split.body);
#else
    put_by_block(peer, from, bytes);
#endif
  }

  // Ends with a barrier, after which everything that this block put before is written: a signal raised by any thread
  // of the block then covers it, and sources may be overwritten. Waits for bulk stores to be written, not only read
  // from shared memory (they are then visible to the ordinary accesses of the thread that issued them), then fences at
  // system scope, so that what follows may even be relaxed.
  __device__ void quiet() {
#if __CUDA_ARCH__ >= 900
    bulk_wait_written();  // of no effect for threads that have issued nothing
#endif
    fence_system();
    __syncthreads();
  }

 private:
  // Half of the stages are being loaded, the other half stored.
  static constexpr u32 kAhead = kStages / 2;

  __device__ u32 stage(u32 chunk) const { return stages_ + chunk % kStages * kStageBytes; }
  __device__ u32 barrier(u32 chunk) const { return stages_ + kStages * kStageBytes + chunk % kStages * 8; }

  // One thread. The load of what follows is under way while a chunk is stored; a stage is loaded again when its last
  // store has read it.
  __device__ void put_chunks(char* to, const char* from, u64 bytes) {
    const u64 chunks = (bytes + kStageBytes - 1) / kStageBytes;
    const auto size_of = [&](u64 i) {
      return i + 1 < chunks ? kStageBytes : static_cast<u32>(bytes - i * kStageBytes);
    };
    for (u64 i = 0; i < chunks + kAhead; ++i) {
      if (i < chunks) {
        const u32 chunk = next_ + static_cast<u32>(i);
        // All but the last kStages - kAhead - 1 stores of those issued: that of chunk - kStages is among them.
        bulk_wait_read<kStages - kAhead - 1>();
        mbarrier_arrive_expecting(barrier(chunk), size_of(i));
        bulk_load(stage(chunk), from + i * kStageBytes, size_of(i), barrier(chunk));
      }
      if (i >= kAhead) {
        const u64 loaded = i - kAhead;
        const u32 chunk = next_ + static_cast<u32>(loaded);
        // A load always ends, like any: no deadline.
        while (!mbarrier_has_ended<Sleeping>(barrier(chunk), chunk / kStages & 1)) {
        }
        bulk_store(to + loaded * kStageBytes, stage(chunk), size_of(loaded));
        bulk_commit();
      }
    }
    next_ += static_cast<u32>(chunks);
  }

  u32 stages_;
  u32 next_ = 0;  // chunk; of the first thread only
};

}  // namespace tileway
