// Kernels of a test, compiled for the GPU that is there.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

#include "runtime/cuda/compile.hpp"
#include "runtime/cuda/driver.hpp"
#include "runtime/cuda/memory.hpp"
#include "tileway/group.hpp"

namespace tileway::cuda {

class Kernels {
 public:
  static constexpr unsigned kThreads = 256;  // of a block

  Kernels(const Gpu& gpu, const std::string& source, const char* name) {
    const std::string architecture = architecture_of(gpu);
    check(driver()->ModuleLoadData(&module_, compile(source, name, architecture).cubin.data()), "loading kernels");
  }
  Kernels(const Kernels&) = delete;
  Kernels& operator=(const Kernels&) = delete;
  ~Kernels() { driver()->ModuleUnload(module_); }

  template <typename... Arguments>
  void launch(const char* name, unsigned blocks, Arguments... arguments) const {
    start(name, blocks, 0, false, arguments...);
  }
  template <typename... Arguments>
  void launch_with_shared(const char* name, unsigned blocks, unsigned shared_bytes, Arguments... arguments) const {
    start(name, blocks, shared_bytes, false, arguments...);
  }
  // All blocks are resident, or it throws.
  template <typename... Arguments>
  void launch_cooperatively(const char* name, unsigned blocks, Arguments... arguments) const {
    start(name, blocks, 0, true, arguments...);
  }

 private:
  template <typename... Arguments>
  void start(const char* name, unsigned blocks, unsigned shared_bytes, bool cooperative, Arguments... arguments) const {
    constexpr int kMostSharedBytes = 8;  // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    Function function = nullptr;
    check(driver()->ModuleGetFunction(&function, module_, name), name);
    if (shared_bytes > 48 * 1024)
      check(driver()->FuncSetAttribute(function, kMostSharedBytes, static_cast<int>(shared_bytes)), name);
    LaunchAttribute attribute;
    LaunchConfiguration configuration;
    configuration.grid_x = blocks;
    configuration.block_x = kThreads;
    configuration.shared_bytes = shared_bytes;
    configuration.attributes = &attribute;
    configuration.attribute_count = cooperative ? 1 : 0;
    void* list[] = {&arguments...};
    check(driver()->LaunchKernelEx(&configuration, function, list, nullptr), name);
  }

  Module module_ = nullptr;
};

// A stream that waits for no other.
class OwnStream {
 public:
  OwnStream() {
    constexpr unsigned kNonBlocking = 1;
    check(driver()->StreamCreate(&stream_, kNonBlocking), "making a stream");
  }
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;
  ~OwnStream() { driver()->StreamDestroy(stream_); }
  Stream get() const { return stream_; }

 private:
  Stream stream_ = nullptr;
};

template <typename T>
T read(Address from) {
  T value{};
  check(driver()->MemcpyDtoH(&value, from, sizeof(T)), "reading");
  return value;
}

// Ranks take GPUs in turn; processes on one GPU share it.
inline int ordinal_of(const Group& group) { return group.rank() % static_cast<int>(gpus().size()); }
// Whether kernels of two ranks run at the same time. Processes that share a GPU take turns of milliseconds, so that
// tests in which each waits for the other do with a few rounds there.
inline bool ranks_run_together() { return gpus().size() > 1; }

}  // namespace tileway::cuda
