#include "exec/cuda/kernel.hpp"

#include <chrono>
#include <limits>

#include "runtime/cuda/compile.hpp"
#include "runtime/cuda/memory.hpp"
#include "tileway/error.hpp"

namespace tileway::cuda {

Kernel::Kernel(const KernelText& text, const Gpu& gpu) {
  constexpr int kMaxDynamicSharedBytes = 8;  // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
  const Driver& cuda = *driver();
  const Image image = compile(text.source(), "tileway_run", text.architecture());
  check(cuda.ModuleLoadData(&module_, image.cubin.data()), "loading the kernel");
  for (const auto& [function, name] : {std::pair(&run_, "tileway_run"), std::pair(&clock_, "tileway_clock")}) {
    check(cuda.ModuleGetFunction(function, module_, name), "finding the kernel");
    check(cuda.FuncLoad(*function), "loading the kernel");
  }
  Address address = 0;
  std::size_t bytes = 0;
  check(cuda.ModuleGetGlobal(&address, &bytes, module_, "tileway_shared_bytes"), "asking for shared memory");
  check(cuda.MemcpyDtoH(&shared_bytes_, address, sizeof(shared_bytes_)), "asking for shared memory");
  check(cuda.FuncSetAttribute(run_, kMaxDynamicSharedBytes, static_cast<int>(shared_bytes_)),
        "allowing the kernel its shared memory");
  int blocks = 0;
  check(cuda.OccupancyMaxActiveBlocksPerMultiprocessor(&blocks, run_, kBlockThreads, shared_bytes_),
        "asking how many blocks fit");
  resident_blocks_ = blocks * gpu.multiprocessors;
}

Kernel::~Kernel() {
  if (module_ != nullptr) driver()->ModuleUnload(module_);
}

void Kernel::launch(const Launch& launch, int blocks, Stream stream) const {
  LaunchAttribute cooperative;
  LaunchConfiguration configuration{.grid_x = static_cast<unsigned>(blocks),
                                    .block_x = kBlockThreads,
                                    .shared_bytes = shared_bytes_,
                                    .stream = stream,
                                    .attributes = &cooperative,
                                    .attribute_count = 1};
  Launch argument = launch;
  void* arguments[] = {&argument};
  check(driver()->LaunchKernelEx(&configuration, run_, arguments, nullptr), "launching the kernel");
}

std::int64_t Kernel::clock_offset_ns() const {
  using Clock = std::chrono::steady_clock;
  constexpr int kTries = 10;
  const PinnedMemory time(sizeof(std::uint64_t));
  Address address = time.address();
  void* arguments[] = {&address};
  std::int64_t best = 0;
  std::int64_t narrowest = std::numeric_limits<std::int64_t>::max();
  for (int i = 0; i < kTries; ++i) {
    const std::int64_t begin = Clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
    check(driver()->LaunchKernel(clock_, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr), "asking for the time");
    check(driver()->StreamSynchronize(nullptr), "asking for the time");
    const std::int64_t end = Clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
    if (end - begin >= narrowest) continue;
    narrowest = end - begin;
    best = begin + (end - begin) / 2 - static_cast<std::int64_t>(*static_cast<std::uint64_t*>(time.data()));
  }
  return best;
}

}  // namespace tileway::cuda
