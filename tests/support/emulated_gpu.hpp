// A rank of a plan as a GPU runs it, but on this machine: the table that a kernel would follow, with the bodies of the
// device headers (device_bodies.hpp) where they can be had, and the host's for the rest. Ranks are threads.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "support/run.hpp"

namespace tileway::testing {

// How often each variant ran as the device's own.
class DeviceBodiesRun {
 public:
  void count(const std::string& variant);
  const std::map<std::string, int>& all() const { return counts_; }

 private:
  std::map<std::string, int> counts_;
};

// Executors for run_threads and expect_exact. `behind`: elements by which the caller's inputs and outputs lie behind an
// aligned address, as CudaExecutor::Options::memory would have them.
MakeExecutor emulated_gpus(int behind, DeviceBodiesRun& counts);

}  // namespace tileway::testing
