#include "support/put_signal_variants.hpp"

namespace tileway::testing {

std::vector<PutSignalVariant> put_signal_variants() {
  const std::string put = "put_signal_by_block(peer, from, bytes, signal, 1);";
  return {
      {.name = "put_signal", .hand_over = put},
      {.name = "put_nbi, quiet, signal",
       .hand_over = "puts.put_nbi(peer, from, bytes); puts.quiet(); if (threadIdx.x == 0) notify(signal, 1);",
       .bulk = true},
      {.name = "a signal without release",
       .hand_over = R"(put_by_block(peer, from, bytes);
  __syncthreads();
  if (threadIdx.x == 0) asm volatile("red.relaxed.sys.global.add.u32 [%0], 1;" ::"l"(signal) : "memory");)",
       .fault = "raised without release: red.relaxed.sys"},
      {.name = "a peer's signal at the scope of the GPU",
       .hand_over = R"(put_by_block(peer, from, bytes);
  __syncthreads();
  if (threadIdx.x == 0) notify(reinterpret_cast<DeviceSignal*>(signal), 1);)",
       .fault = "raised at another scope than the system's: red.release.gpu"},
      {.name = "a signal before the barrier",
       .hand_over = R"(put_by_block(peer, from, bytes);
  if (threadIdx.x == 0) notify(signal, 1);
  __syncthreads();)",
       .fault = "raised before a barrier of those that stored: red.release.sys"},
      {.name = "bulk stores read, but not written",
       .hand_over = R"(puts.put_nbi(peer, from, bytes);
#if __CUDA_ARCH__ >= 900
  bulk_wait_read<0>();
#endif
  __syncthreads();
  if (threadIdx.x == 0) notify(signal, 1);)",
       .bulk = true,
       .fault = "raised before bulk stores are written: red.release.sys"},
      {.name = "a flag reset between epochs",
       .hand_over = put,
       .taken = R"(asm volatile("st.relaxed.sys.global.u32 [%0], 0;" ::"l"(signal) : "memory");)",
       .cumulative = false,
       .fault = "the waiter writes its signal: st.relaxed.sys"},
  };
}

std::string source_of(const PutSignalVariant& variant) {
  return R"(#include "tileway/bulk.cuh"
using namespace tileway;
using Puts = BulkPuts<4, 4096>;
__device__ __forceinline__ void hand_over(Puts& puts, void* peer, const void* from, u64 bytes, SystemSignal* signal) {
  )" + variant.hand_over +
         R"(
}
__device__ __forceinline__ void taken(SystemSignal* signal) {
  )" + variant.taken +
         R"(
}
__device__ __forceinline__ u32 target_of(u32 round) { return )" +
         (variant.cumulative ? "round" : "1") + R"(; }

extern "C" __global__ void put(void* peer, const void* from, u64 bytes, SystemSignal* signal) {
  __shared__ __align__(128) u8 shared[Puts::kSharedBytes];
  Puts puts(shared);
  hand_over(puts, peer, from, bytes, signal);
}
extern "C" __global__ void take(SystemSignal* signal, u32 round, u64 deadline_ns, const u32* abort, int* answer) {
  if (threadIdx.x != 0) return;
  *answer = static_cast<int>(wait(signal, target_of(round), deadline_ns, abort));
  taken(signal);
}

struct Arguments {
  u8* peer;
  u8* mine;
  u8* out;
  SystemSignal* theirs;
  SystemSignal* own;
  SystemSignal* consumed;
  SystemSignal* free;
  u32* abort;
  u64* result;
  u64 patience_ns;
  u64 delay_ns;
  u32 bytes;
  u32 rounds;
  u32 rank;
  u32 salt;
};
__device__ __forceinline__ u32 mixed(u32 a, u32 b, u32 c) {
  u32 hash = a * 2654435761u ^ b * 2246822519u ^ c * 3266489917u;
  hash ^= hash >> 15;
  hash *= 2246822519u;
  return hash ^ hash >> 13;
}
__device__ __forceinline__ void dawdle(u64 most, u32 hash) {
  if (most == 0 || threadIdx.x != 0) return;
  const u64 until = now_ns() + hash % most;
  while (now_ns() < until) {
  }
}
extern "C" __global__ void rounds(Arguments a) {
  __shared__ __align__(128) u8 shared[Puts::kSharedBytes];
  Puts puts(shared);
  const u32 block = blockIdx.x;
  const u32 words = a.bytes / 4;
  SystemSignal* own = a.own + block;
  u64 wrong = 0;
  Waited waited = Waited::done;
  for (u32 round = 1; round <= a.rounds && waited == Waited::done; ++round) {
    const u64 slot = (2 * static_cast<u64>(block) + (round & 1)) * a.bytes;
    u32* out = reinterpret_cast<u32*>(a.out + slot);
    for (u32 i = threadIdx.x; i < words; i += blockDim.x) out[i] = mixed(round + a.salt, i, block * 2 + a.rank);
    if (round > 2) waited = wait_by_block(a.free + block, round - 2, now_ns() + a.patience_ns, a.abort);
    if (waited != Waited::done) break;
    dawdle(a.delay_ns, mixed(round, a.rank, block));
    __syncthreads();
    hand_over(puts, a.peer + slot, out, a.bytes, a.theirs + block);
    waited = wait_by_block(own, target_of(round), now_ns() + a.patience_ns, a.abort);
    if (waited != Waited::done) break;
    for (u32 i = words - 1 - threadIdx.x; i < words; i -= blockDim.x)
      if (load_word(a.mine + slot + 4 * i) != mixed(round + a.salt, i, block * 2 + 1 - a.rank)) ++wrong;
    dawdle(a.delay_ns, mixed(block, round, a.rank));
    __syncthreads();
    if (threadIdx.x == 0) {
      taken(own);
      notify(a.consumed + block, 1);
    }
  }
  if (wrong != 0) atomicAdd(a.result, wrong);
  if (threadIdx.x == 0 && waited != Waited::done) {
    atomicAdd(a.result + 1, 1ull);
    give_up(a.abort);
  }
  puts.quiet();
}
)";
}

}  // namespace tileway::testing
