// Bugs planted in the ways to hand data to a peer are found in the compiled code; the device headers' own ways pass.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "runtime/cuda/compile.hpp"
#include "support/ptx_check.hpp"
#include "support/put_signal_variants.hpp"

namespace tileway::testing {
namespace {

using cuda::ptx_of;

std::vector<std::string> faults_of(const PutSignalVariant& variant, const char* architecture) {
  const std::string ptx = ptx_of(source_of(variant), "variant", architecture);
  std::vector<std::string> faults = faults_of_put_signal(ptx, "put");
  for (std::string& fault : faults_of_wait(ptx, "take")) faults.push_back(std::move(fault));
  return faults;
}

TEST(PlantedBugs, AreFoundInTheCompiledCodeAndNoOthers) {
  for (const char* architecture : {"sm_80", "sm_90a", "sm_100a"}) {
    for (const PutSignalVariant& variant : put_signal_variants()) {
      // Before sm_90 what is bulk there is ordinary stores, and nothing is wrong with those.
      const bool wrong = !variant.fault.empty() && !(variant.bulk && std::string(architecture) == "sm_80");
      const std::vector<std::string> faults = faults_of(variant, architecture);
      const std::string all = fmt::format("{} for {}: {}", variant.name, architecture, fmt::join(faults, "; "));
      ASSERT_EQ(faults.size(), wrong ? 1U : 0U) << all;
      if (!wrong) continue;
      EXPECT_EQ(faults[0].find(variant.fault), 0U) << all;
    }
  }
}

// Ways of the headers to raise a peer's signal that have kernels of their own.
TEST(PlantedBugs, AreNotInBarriersAndWaitsOfTheHeaders) {
  const char* source = R"(
#include "tileway/barrier.cuh"
#include "tileway/copy.cuh"
using namespace tileway;
extern "C" __global__ void meet(SystemSignal* const* arrivals, u32 epoch, u64 deadline_ns, const u32* abort, u32* data,
                                int* answer) {
  data[threadIdx.x] = epoch;
  const Waited waited = barrier_by_grid(arrivals, 0, 2, epoch, deadline_ns, abort);
  if (threadIdx.x == 0) *answer = static_cast<int>(waited);
}
extern "C" __global__ void fetch(void* to, const void* peer, u64 bytes, SystemSignal* consumed, SystemSignal* ready,
                                 u32 epoch, u64 deadline_ns, const u32* abort) {
  if (wait_by_block(ready, epoch, deadline_ns, abort) != Waited::done) return;
  get_by_block(to, peer, bytes);
  __syncthreads();
  if (threadIdx.x == 0) notify(consumed, 1);
}
)";
  for (const char* architecture : {"sm_80", "sm_90a", "sm_100a"}) {
    const std::string ptx = ptx_of(source, "headers", architecture);
    for (const char* kernel : {"meet", "fetch"}) {
      EXPECT_EQ(faults_of_put_signal(ptx, kernel), std::vector<std::string>{}) << kernel << " for " << architecture;
      EXPECT_EQ(faults_of_wait(ptx, kernel), std::vector<std::string>{}) << kernel << " for " << architecture;
    }
  }
}

// A bug on one path only, which a search for words would not see.
TEST(PlantedBugs, AreFoundOnEveryPath) {
  const char* source = R"(
#include "tileway/bulk.cuh"
using namespace tileway;
extern "C" __global__ void sometimes(u32* peer, u32 value, SystemSignal* signal) {
  peer[threadIdx.x] = value;
  if (value != 7) __syncthreads();
  if (threadIdx.x == 0) notify(signal, 1);
}
extern "C" __global__ void in_a_loop(u32* peer, u32 value, SystemSignal* signal) {
  for (u32 i = 0; i < value; ++i) {
    if (threadIdx.x == 0) notify(signal, 1);
    peer[threadIdx.x + i] = value;
  }
}
)";
  const std::string ptx = ptx_of(source, "paths", "sm_90a");
  for (const char* kernel : {"sometimes", "in_a_loop"}) {
    const std::vector<std::string> faults = faults_of_put_signal(ptx, kernel);
    ASSERT_FALSE(faults.empty()) << kernel;
    EXPECT_EQ(faults[0].find("raised before a barrier of those that stored"), 0U) << faults[0];
  }
}

}  // namespace
}  // namespace tileway::testing
