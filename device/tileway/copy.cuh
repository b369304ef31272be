// Moving bytes by the threads of a block or of a warp: to a peer's memory (put), from it (get), within a GPU (copy).
// Self-contained: for NVRTC and nvcc, in anyone's kernel. Blocks are one-dimensional.
//
// Any number of bytes, any alignment of either side; the two do not overlap. Nothing outside them is read or written.
// Sixteen bytes at a time, four such in flight a thread; where the two sides are not aligned alike, the sixteen are put
// together from the words around them, still in registers.
//
// Order, the same for all of these:
//   loads   are coherent: they see what the calling thread has waited for, or another one before the block's (the
//           warp's) last barrier.
//   stores  are ordinary. They are done, for whoever is then notified, after the next barrier of the threads that made
//           them, by a release at the scope of whoever is notified (signal.cuh). Until then nobody sees them for sure,
//           other threads of the block included.
#pragma once

#include "tileway/signal.cuh"

namespace tileway {

struct alignas(16) Quad {
  u32 words[4];
};

__device__ __forceinline__ u32 load_byte(const void* from) {
  u32 byte;
  asm volatile("ld.global.u8 %0, [%1];" : "=r"(byte) : "l"(from) : "memory");
  return byte;
}
__device__ __forceinline__ void store_byte(void* to, u32 byte) {
  asm volatile("st.global.u8 [%0], %1;" ::"l"(to), "r"(byte) : "memory");
}
__device__ __forceinline__ u32 load_word(const void* from) {
  u32 word;
  asm volatile("ld.global.u32 %0, [%1];" : "=r"(word) : "l"(from) : "memory");
  return word;
}
// Sixteen bytes, aligned so: one access.
__device__ __forceinline__ Quad load_quad(const void* from) {
  Quad quad;
  asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(quad.words[0]), "=r"(quad.words[1]), "=r"(quad.words[2]), "=r"(quad.words[3])
               : "l"(from)
               : "memory");
  return quad;
}
__device__ __forceinline__ void store_quad(void* to, const Quad& quad) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(quad.words[0]), "r"(quad.words[1]),
               "r"(quad.words[2]), "r"(quad.words[3])
               : "memory");
}
// Sixteen bytes that begin anywhere, from the aligned words that hold any of them: reads up to three bytes more on
// either side.
__device__ __forceinline__ Quad load_quad_anywhere(const void* from) {
  const u64 address = reinterpret_cast<u64>(from);
  const u32* words = reinterpret_cast<const u32*>(address & ~static_cast<u64>(3));
  const u32 shift = static_cast<u32>(address & 3) * 8;
  u32 loaded[5];
#pragma unroll
  for (u32 i = 0; i < 4; ++i) loaded[i] = load_word(words + i);
  loaded[4] = shift == 0 ? 0 : load_word(words + 4);
  Quad quad;
#pragma unroll
  for (u32 i = 0; i < 4; ++i) quad.words[i] = __funnelshift_r(loaded[i], loaded[i + 1], shift);
  return quad;
}

// How a range is split: bytes until the target is aligned to sixteen, then sixteens, then the rest.
struct CopySplit {
  u64 head;
  u64 body;
  bool alike;  // whether source and target are aligned alike
};
__device__ __forceinline__ CopySplit split_copy(const void* to, const void* from, u64 bytes) {
  const u64 target = reinterpret_cast<u64>(to);
  const u64 source = reinterpret_cast<u64>(from);
  const u64 apart = (target ^ source) & 15;
  // Where words of the source straddle, those of the body lie within the source.
  const u64 margin = (apart & 3) == 0 ? 0 : 3;
  u64 head = (16 - (target & 15)) & 15;
  if (head < margin) head += 16;
  if (head + margin >= bytes) return {bytes, 0, apart == 0};
  return {head, (bytes - head - margin) & ~static_cast<u64>(15), apart == 0};
}

__device__ __forceinline__ void copy_bytes(u32 thread, u32 threads, char* to, const char* from, u64 begin, u64 end) {
  for (u64 i = begin + thread; i < end; i += threads) store_byte(to + i, load_byte(from + i));
}
template <bool alike>
__device__ __forceinline__ void copy_quads(u32 thread, u32 threads, char* to, const char* from, u64 bytes) {
  constexpr u32 kInFlight = 4;
  const auto load = [](const char* address) {
    if constexpr (alike)
      return load_quad(address);
    else
      return load_quad_anywhere(address);
  };
  const u64 step = 16 * static_cast<u64>(threads);
  u64 i = 16 * static_cast<u64>(thread);
  for (; i + (kInFlight - 1) * step < bytes; i += kInFlight * step) {
    Quad quads[kInFlight];
#pragma unroll
    for (u32 k = 0; k < kInFlight; ++k) quads[k] = load(from + i + k * step);
#pragma unroll
    for (u32 k = 0; k < kInFlight; ++k) store_quad(to + i + k * step, quads[k]);
  }
  for (; i < bytes; i += step) store_quad(to + i, load(from + i));
}

// The part of one of `threads` threads that copy together.
__device__ __forceinline__ void copy_as(u32 thread, u32 threads, void* to, const void* from, u64 bytes) {
  char* target = static_cast<char*>(to);
  const char* source = static_cast<const char*>(from);
  const CopySplit split = split_copy(to, from, bytes);
  copy_bytes(thread, threads, target, source, 0, split.head);
  if (split.alike) {
    copy_quads<true>(thread, threads, target + split.head, source + split.head, split.body);
  } else {
    copy_quads<false>(thread, threads, target + split.head, source + split.head, split.body);
  }
  copy_bytes(thread, threads, target, source, split.head + split.body, bytes);
}

// All threads of the block, or of the warp, call these together. Neither begins nor ends with a barrier.
__device__ inline void copy_by_block(void* to, const void* from, u64 bytes) {
  copy_as(threadIdx.x, blockDim.x, to, from, bytes);
}
__device__ inline void copy_by_warp(void* to, const void* from, u64 bytes) {
  copy_as(threadIdx.x % 32, 32, to, from, bytes);
}

// To a peer. The peer must have said that the target may be written (a consumed signal, or two slots in turn). It sees
// the bytes after it has waited for a SystemSignal that was raised after this and a barrier: put_signal_by_block.
__device__ inline void put_by_block(void* peer, const void* from, u64 bytes) { copy_by_block(peer, from, bytes); }
__device__ inline void put_by_warp(void* peer, const void* from, u64 bytes) { copy_by_warp(peer, from, bytes); }

// From a peer. The bytes must be there: the caller has waited for the peer's SystemSignal, and a barrier has passed
// since. The threads of the block see what the others fetched after the block's next barrier; from then on the peer may
// be told, by a SystemSignal, that its bytes have been read and may be overwritten.
__device__ inline void get_by_block(void* to, const void* peer, u64 bytes) { copy_by_block(to, peer, bytes); }
__device__ inline void get_by_warp(void* to, const void* peer, u64 bytes) { copy_by_warp(to, peer, bytes); }

// Puts the bytes at a peer and then raises its signal by `amount`: whoever has waited for that sees them, and whatever
// threads of this block (this warp) did before. Written by one thread, the first, with release at system scope, after a
// barrier of all that stored.
__device__ inline void put_signal_by_block(void* peer, const void* from, u64 bytes, SystemSignal* signal, u32 amount) {
  put_by_block(peer, from, bytes);
  __syncthreads();
  if (threadIdx.x == 0) notify(signal, amount);
}
__device__ inline void put_signal_by_warp(void* peer, const void* from, u64 bytes, SystemSignal* signal, u32 amount) {
  put_by_warp(peer, from, bytes);
  __syncwarp();
  if (threadIdx.x % 32 == 0) notify(signal, amount);
}

}  // namespace tileway
