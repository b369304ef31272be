// Moving bytes by the threads of a block: to a peer's memory (put), from it (get), and within a GPU.
#pragma once

#include "tileway/signal.cuh"

namespace tileway {

struct alignas(16) Quad {
  u32 words[4];
};

// Copies `bytes` bytes, all threads of the block together; `to` and `from` may be a peer's, may be misaligned, and do
// not overlap. Sixteen bytes at a time where both are aligned alike. The stores are done, for whoever the caller then
// notifies, after the block's next barrier. Loads are coherent: what was waited for is seen.
__device__ inline void copy_by_block(void* to, const void* from, u64 bytes) {
  char* target = static_cast<char*>(to);
  const char* source = static_cast<const char*>(from);
  const u64 thread = threadIdx.x;
  const u64 threads = blockDim.x;
  u64 head = 0;  // bytes until the target is aligned
  u64 body = 0;  // bytes in sixteens
  if (((reinterpret_cast<u64>(target) ^ reinterpret_cast<u64>(source)) & 15) == 0) {
    head = (16 - (reinterpret_cast<u64>(target) & 15)) & 15;
    if (head > bytes) head = bytes;
    body = (bytes - head) & ~static_cast<u64>(15);
  }
  for (u64 i = thread; i < head; i += threads) target[i] = static_cast<const volatile char*>(source)[i];
  for (u64 i = head + 16 * thread; i < head + body; i += 16 * threads) {
    Quad quad;
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(quad.words[0]), "=r"(quad.words[1]), "=r"(quad.words[2]), "=r"(quad.words[3])
                 : "l"(source + i)
                 : "memory");
    *reinterpret_cast<Quad*>(target + i) = quad;
  }
  for (u64 i = head + body + thread; i < bytes; i += threads) target[i] = static_cast<const volatile char*>(source)[i];
}

// Puts the bytes at a peer and then raises its signal by `amount`: whoever has waited for that sees them. All threads
// of the block call it.
__device__ inline void put_signal_by_block(void* peer, const void* from, u64 bytes, SystemSignal* signal, u32 amount) {
  copy_by_block(peer, from, bytes);
  __syncthreads();
  if (threadIdx.x == 0) notify(signal, amount);
}

}  // namespace tileway
