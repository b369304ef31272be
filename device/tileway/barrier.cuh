// Barriers of ranks, inside a kernel. Self-contained: for NVRTC and nvcc, in anyone's kernel. Blocks are
// one-dimensional.
//
// Each rank has, in symmetric memory that begins as zeros, one SystemSignal a rank: arrivals[q][r] lies on rank q, is
// raised by rank r alone and waited for by rank q alone. Barrier number `epoch` (from 1, each one more than the last,
// the same on all ranks; kept in device memory, so that a captured launch can be replayed) is over for rank q when each
// of its signals has reached epoch * blocks, where so many blocks of each rank take part. Signals are never reset.
//
// A signal cannot get there early: a block raises it a second time only after its own rank was through the first
// barrier, and to be the first through one takes every block's arrival at it.
//
// What any block of any rank did before the barrier, at any scope, is seen by every block that took part after it:
// barrier of the block, release at system scope, acquire at system scope, barrier of the block.
#pragma once

#include "tileway/signal.cuh"

namespace tileway {

// As `blocks` blocks of each rank. All threads of the block call it, and all get the same answer; after anything but
// `done` nothing of what others did may be read, and the next barrier must not be entered.
__device__ inline Waited barrier_by_blocks(SystemSignal* const* arrivals, u32 rank, u32 ranks, u32 blocks, u32 epoch,
                                           u64 deadline_ns, const u32* abort) {
  __syncthreads();
  for (u32 peer = threadIdx.x; peer < ranks; peer += blockDim.x) notify(arrivals[peer] + rank, 1);
  Waited waited = Waited::done;
  for (u32 peer = threadIdx.x; peer < ranks; peer += blockDim.x) {
    const Waited one = wait(arrivals[rank] + peer, epoch * blocks, deadline_ns, abort);
    if (one != Waited::done) waited = one;
  }
  return agree_by_block(waited);
}

// One block of each rank; others of the grid have signals of their own, or none.
__device__ inline Waited barrier_by_block(SystemSignal* const* arrivals, u32 rank, u32 ranks, u32 epoch,
                                          u64 deadline_ns, const u32* abort) {
  return barrier_by_blocks(arrivals, rank, ranks, 1, epoch, deadline_ns, abort);
}
// All blocks of grids of the same size on all ranks. They must be resident together: a cooperative launch.
__device__ inline Waited barrier_by_grid(SystemSignal* const* arrivals, u32 rank, u32 ranks, u32 epoch, u64 deadline_ns,
                                         const u32* abort) {
  return barrier_by_blocks(arrivals, rank, ranks, gridDim.x, epoch, deadline_ns, abort);
}

}  // namespace tileway
