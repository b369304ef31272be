// Which GPU a rank takes, and whether all that must run on it at once does.
#pragma once

#include "runtime/cuda/driver.hpp"
#include "tileway/group.hpp"
#include "tileway/plan.hpp"

namespace tileway::cuda {

// The GPU of that number as this process counts them, or for -1 the rank modulo their number. Throws Error (system)
// where there is none, and Error (invalid) where there are fewer.
Gpu choose_gpu(const Group& group, int ordinal);

// Collective, and refused alike on every rank. Whatever spins is resident: the blocks of all ranks on a device fit it
// together. And copy engines copy from one GPU to another: within one, the driver may copy by a kernel, for which there
// need not be room beside the lanes that wait for it. What a collective library runs takes a multiprocessor a block
// beside the lanes, and it wants a GPU for each of its ranks. A library of matrix products works on what blocks leave:
// beside library lanes each block counts as a multiprocessor, and kLibraryMultiprocessors stay free.
struct Fit {
  int ranks;   // of the plan that share the rank's GPU, itself included
  int blocks;  // that are resident for all of them, those of collective libraries included
  int free_multiprocessors;
};
Fit require_fit(Group& group, const Plan& plan, const Gpu& gpu, int blocks, int capacity);

}  // namespace tileway::cuda
