// The compiled kernel of a plan on one device.
#pragma once

#include <cstdint>

#include "exec/cuda/variant.hpp"
#include "runtime/cuda/driver.hpp"
#include "tileway/table.cuh"

namespace tileway::cuda {

class Kernel {
 public:
  // Compiles, or takes from the cache, and loads all of it, so that nothing is loaded beside a waiting stream. Throws
  // Error (system) where the GPU cannot hold a block.
  Kernel(const KernelText& text, const Gpu& gpu);
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;
  ~Kernel();

  // How many blocks the device can hold at once.
  int resident_blocks() const { return resident_blocks_; }
  // All `blocks` are resident together, or Error (system) is thrown.
  void launch(const Launch& launch, int blocks, Stream stream) const;
  // Steady-clock ns minus ns of the device's clock.
  std::int64_t clock_offset_ns() const;

 private:
  Module module_ = nullptr;
  Function run_ = nullptr;
  Function clock_ = nullptr;
  std::uint32_t shared_bytes_ = 0;
  int resident_blocks_ = 0;
};

}  // namespace tileway::cuda
