// A kernel of one's own with Tileway's device headers: an all_reduce of floats in one kernel and one trip over the
// links. Every rank puts its values at every peer as packets, which carry their own flags, and sums what it has got.
#pragma once

#include "tileway/packet.cuh"

constexpr unsigned kMostRanks = 8;

// By value. Addresses are those of this rank's process; buffers are symmetric memory, zero at first, and are used by
// nothing else.
struct AllReduce {
  void* packets[kMostRanks];  // on each rank: a buffer for each rank that writes there, all of the same size
  const float* input;
  float* output;
  tileway::u64 count;     // of floats, at most what the buffers were made for
  tileway::u64 capacity;  // of a buffer, in bytes of data
  tileway::u32 rank;
  tileway::u32 ranks;
  tileway::u32* runs;   // two words in device memory, zero at first: runs that have ended; blocks of this run that have
  tileway::u32* abort;  // whether this rank has given up; in device memory, zero at first
  tileway::u64 patience_ns;
};

__host__ __device__ inline tileway::u64 buffer_bytes(tileway::u64 floats) {
  return tileway::packet_buffer_bytes(floats * sizeof(float));
}

// One launch a run, on every rank, the runs of a rank one after the other; the number of the run lies in device memory,
// so that a captured launch can be replayed. All blocks of a launch must be resident, and so must the peers'. Sums are
// in the order of ranks, so every rank has the same bits. Where a peer's values do not come before the deadline,
// `abort` is set, `output` is of no value, and so is every later run.
__global__ void all_reduce(const __grid_constant__ AllReduce a) {
  using namespace tileway;
  const u32 run = *static_cast<const volatile u32*>(a.runs);
  const u64 bytes = a.count * sizeof(float);
  const u64 deadline = now_ns() + a.patience_ns;
  const u64 stride = static_cast<u64>(gridDim.x) * blockDim.x;
  const u64 first = static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x;
  const auto slot = [&](u32 on, u32 from) {
    void* buffer = static_cast<char*>(a.packets[on]) + from * packet_buffer_bytes(a.capacity);
    return packet_slot(buffer, a.capacity, run);
  };
  const auto size = [&](u64 i) { return bytes - 8 * i < 8 ? bytes - 8 * i : u64{8}; };
  const char* input = reinterpret_cast<const char*>(a.input);
  char* output = reinterpret_cast<char*>(a.output);

  // All puts come before the first wait. A slot is free: the peers have put packets of the last run, so they had ended
  // the one before it, which was the last to use the slot.
  for (u64 i = first; i < packets_of(bytes); i += stride) {
    const u64 mine = load_eight(input + 8 * i, size(i));
    for (u32 step = 1; step < a.ranks; ++step) put_packet(slot((a.rank + step) % a.ranks, a.rank) + i, mine, run);
  }
  for (u64 i = first; i < packets_of(bytes); i += stride) {
    float low = 0;
    float high = 0;
    bool all = true;
    for (u32 from = 0; from < a.ranks && all; ++from) {
      PacketRead read{Waited::done, 0};
      if (from == a.rank) {
        read.data = load_eight(input + 8 * i, size(i));
      } else {
        read = wait_packet(slot(a.rank, from) + i, run, deadline, a.abort);
      }
      all = read.waited == Waited::done;
      low += __uint_as_float(static_cast<u32>(read.data));
      high += __uint_as_float(static_cast<u32>(read.data >> 32));
    }
    if (!all) {
      give_up(a.abort);
      break;
    }
    store_eight(output + 8 * i, static_cast<u64>(__float_as_uint(high)) << 32 | __float_as_uint(low), size(i));
  }

  // The last block to end counts the run.
  __syncthreads();
  if (threadIdx.x != 0) return;
  __threadfence();
  if (atomicAdd(a.runs + 1, 1) != gridDim.x - 1) return;
  a.runs[1] = 0;
  a.runs[0] = run + 1;
}
