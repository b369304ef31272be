// Packets: data that carry their own flag (LL), for small messages. One way over the link instead of two, no fence, no
// barrier with the peer. Self-contained: for NVRTC and nvcc, in anyone's kernel; the host includes it for the sizes.
//
// A packet is sixteen bytes: two words of eight bytes, each of them four bytes of data and four of flag. Words are
// stored and loaded as elements of one 16-byte access (v2.b64), relaxed at system scope. The memory model makes each
// element of a vector access an access of its own, in no order, and none wider than 8 bytes (PTX ISA, "Memory
// Operations on Vector Data Types"); so a packet of one flag could be torn, and a word of data and flag cannot: whoever
// finds the flag has that word's data. Nothing else is ordered by a packet: not what the writer stored before.
//
// The flag says for which epoch the data are. A buffer has two slots, used by turns: epoch e in slot e mod 2, with flag
// e / 2 + 1. So no flag is 0, which is what memory begins with; the flags of a slot differ for 2^32 epochs; epochs may
// begin anywhere and wrap around.
//
// When a slot may be written again: the packets of epoch e + 2 overwrite those of e, so their writer must know that the
// reader has got them. It does where the two exchange: in each epoch both put at least a byte, then wait, with a
// barrier of the block (or the end of the kernel) between the wait of one epoch and the put of the next. For then
// whoever has waited for epoch e + 1 of the other knows that it had all of epoch e when it put that. One-way traffic
// needs a signal back.
#pragma once

#include "tileway/types.cuh"
#ifdef __CUDACC__
#include "tileway/copy.cuh"
#endif

namespace tileway {

struct alignas(16) Packet {
  u64 words[2];  // data in the lower half of each, flag in the upper
};

// How many packets hold so many bytes, and the size of a buffer (two slots) for that; 16-byte aligned, zero at first.
TILEWAY_BOTH constexpr u64 packets_of(u64 bytes) { return bytes / 8 + (bytes % 8 != 0 ? 1 : 0); }
TILEWAY_BOTH constexpr u64 packet_buffer_bytes(u64 bytes) { return 2 * packets_of(bytes) * sizeof(Packet); }

#ifdef __CUDACC__

// The slot of an epoch in a buffer that was made for `capacity` bytes.
__device__ __forceinline__ Packet* packet_slot(void* buffer, u64 capacity, u32 epoch) {
  return static_cast<Packet*>(buffer) + (epoch & 1) * packets_of(capacity);
}
__device__ __forceinline__ const Packet* packet_slot(const void* buffer, u64 capacity, u32 epoch) {
  return static_cast<const Packet*>(buffer) + (epoch & 1) * packets_of(capacity);
}

// One thread writes the packet, at a peer or at home. Relaxed: orders nothing.
__device__ __forceinline__ void put_packet(Packet* to, u64 data, u32 epoch) {
  const u64 flag = static_cast<u64>((epoch >> 1) + 1) << 32;
  asm volatile("st.relaxed.sys.global.v2.b64 [%0], {%1, %2};" ::"l"(to), "l"(flag | (data & 0xffffffffu)),
               "l"(flag | data >> 32)
               : "memory");
}

struct PacketRead {
  Waited waited;
  u64 data;
};
// Spins until the packet of that epoch is there, the deadline (by now_ns) has passed, or somebody has given up; any
// number of threads may read it. Relaxed: of all that the writer did, only these eight bytes are seen, and only if
// `done`.
__device__ __forceinline__ PacketRead wait_packet(const Packet* from, u32 epoch, u64 deadline_ns, const u32* abort) {
  constexpr int kPolls = 64;
  const u32 flag = (epoch >> 1) + 1;
  while (true) {
#pragma unroll 1
    for (int i = 0; i < kPolls; ++i) {
      u64 low;
      u64 high;
      asm volatile("ld.relaxed.sys.global.v2.b64 {%0, %1}, [%2];" : "=l"(low), "=l"(high) : "l"(from) : "memory");
      if (static_cast<u32>(low >> 32) == flag && static_cast<u32>(high >> 32) == flag)
        return {Waited::done, high << 32 | (low & 0xffffffffu)};
    }
    if (given_up(abort)) return {Waited::aborted, 0};
    if (now_ns() >= deadline_ns) return {Waited::late, 0};
  }
}

// Up to eight bytes from or to anywhere.
__device__ __forceinline__ u64 load_eight(const char* from, u64 bytes) {
  u64 data = 0;
  if (bytes == 8 && (reinterpret_cast<u64>(from) & 7) == 0) {
    asm volatile("ld.global.u64 %0, [%1];" : "=l"(data) : "l"(from) : "memory");
    return data;
  }
  for (u32 i = 0; i < bytes; ++i) data |= static_cast<u64>(load_byte(from + i)) << 8 * i;
  return data;
}
__device__ __forceinline__ void store_eight(char* to, u64 data, u64 bytes) {
  if (bytes == 8 && (reinterpret_cast<u64>(to) & 7) == 0) {
    asm volatile("st.global.u64 [%0], %1;" ::"l"(to), "l"(data) : "memory");
    return;
  }
  for (u32 i = 0; i < bytes; ++i) store_byte(to + i, static_cast<u32>(data >> 8 * i) & 0xff);
}

// Puts bytes, at most `capacity`, into the epoch's slot of a peer's buffer, whose slot may be written (above). All
// threads of the block together; what any of them stored before the block's last barrier is what is put. The peer gets
// them by waiting for the same number of bytes of the same epoch, and needs no signal.
__device__ inline void put_packets_by_block(void* buffer, u64 capacity, const void* from, u64 bytes, u32 epoch) {
  Packet* slot = packet_slot(buffer, capacity, epoch);
  const char* source = static_cast<const char*>(from);
  for (u64 i = threadIdx.x; i < packets_of(bytes); i += blockDim.x) {
    const u64 left = bytes - 8 * i;
    put_packet(slot + i, load_eight(source + 8 * i, left < 8 ? left : 8), epoch);
  }
}

// Waits for the bytes of an epoch in this rank's buffer and writes them to `to`. All threads of the block together, and
// all get the same answer. Ends with a barrier of the block: if `done`, all its threads see all the bytes, and the next
// epoch may be put. After anything else nothing of `to` may be read.
__device__ inline Waited wait_packets_by_block(void* to, const void* buffer, u64 capacity, u64 bytes, u32 epoch,
                                               u64 deadline_ns, const u32* abort) {
  const Packet* slot = packet_slot(buffer, capacity, epoch);
  char* target = static_cast<char*>(to);
  Waited waited = Waited::done;
  for (u64 i = threadIdx.x; i < packets_of(bytes); i += blockDim.x) {
    const PacketRead read = wait_packet(slot + i, epoch, deadline_ns, abort);
    waited = read.waited;
    if (waited != Waited::done) break;
    const u64 left = bytes - 8 * i;
    store_eight(target + 8 * i, read.data, left < 8 ? left : 8);
  }
  return agree_by_block(waited);
}

#endif  // __CUDACC__

}  // namespace tileway
