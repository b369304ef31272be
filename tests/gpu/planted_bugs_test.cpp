// How often bugs planted in the ways to hand data to a peer show between two GPUs. The rates are printed, not judged:
// links may keep stores in order. tests/correctness/planted_bugs_test.cpp finds them all in the compiled code.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "gpu/kernels.hpp"
#include "support/put_signal_variants.hpp"
#include "tileway/error.hpp"

namespace tileway::cuda {
namespace {

using testing::PutSignalVariant;
using testing::RoundsArguments;

constexpr unsigned kBlocks = 16;

// In each part, as the kernel `rounds` has it.
constexpr std::size_t kOwn = 0, kFree = 1024, kAbort = 2048, kIn = 4096;
constexpr std::size_t kMost = std::size_t{64} << 10;  // bytes of a hand-over
constexpr std::size_t kBytes = kIn + 2 * kBlocks * kMost;

struct Seen {
  std::uint64_t wrong_words = 0;
  std::uint64_t in_vain = 0;  // blocks
  int bad_runs = 0;
  int runs = 0;
};

Seen run_many(Group& group, const Device& device, const PutSignalVariant& variant) {
  const Gpu gpu = gpus()[device.ordinal()];
  const Kernels kernels(gpu, source_of(variant), "planted_bugs_test");
  const SymmetricMemory memory(group, device, kBytes);
  const DeviceMemory out(2 * kBlocks * kMost);
  const DeviceMemory result(16);
  const Address mine = memory.on(group.rank());
  const Address peer = memory.on(1 - group.rank());
  Seen seen;
  for (const unsigned bytes : {16U, 1024U, 16384U, 65536U}) {
    for (const std::uint64_t delay_ns : {std::uint64_t{0}, std::uint64_t{3000}}) {
      for (int repeat = 0; repeat < 4; ++repeat) {
        check(driver()->MemsetD8(mine, 0, kBytes), "clearing");
        check(driver()->MemsetD8(result.address(), 0, 16), "clearing");
        check(driver()->CtxSynchronize(), "clearing");
        group.barrier("cleared");
        RoundsArguments a{.peer = peer + kIn, .mine = mine + kIn, .out = out.address()};
        a.theirs = peer + kOwn;
        a.own = mine + kOwn;
        a.consumed = peer + kFree;
        a.free = mine + kFree;
        a.abort = mine + kAbort;
        a.result = result.address();
        a.patience_ns = ranks_run_together() ? 20'000'000 : 500'000'000;
        a.delay_ns = delay_ns;
        a.bytes = bytes;
        a.rounds = ranks_run_together() ? 500 : 5;
        a.rank = static_cast<unsigned>(group.rank());
        a.salt = static_cast<unsigned>(seen.runs) * 1000003U;
        kernels.launch_cooperatively("rounds", kBlocks, a);
        check(driver()->CtxSynchronize(), variant.name.c_str());
        const auto wrong = read<std::uint64_t>(result.address());
        const auto in_vain = read<std::uint64_t>(result.address() + 8);
        seen.wrong_words += wrong;
        seen.in_vain += in_vain;
        seen.bad_runs += wrong != 0 || in_vain != 0 ? 1 : 0;
        ++seen.runs;
        group.barrier("looked at");
      }
    }
  }
  return seen;
}

TEST(CudaPlantedBugs, ProcessesTheRightWaysNeverGoWrongAndTheRatesOfTheOthersArePrinted) {
  Group::spawn(2, [](Group& group) {
    const Device device(ordinal_of(group));
    for (const PutSignalVariant& variant : testing::put_signal_variants()) {
      const Seen seen = run_many(group, device, variant);
      if (group.rank() == 0)
        fmt::print("{:42} {:3} of {} runs bad: {} wrong words, {} blocks waited in vain\n", variant.name, seen.bad_runs,
                   seen.runs, seen.wrong_words, seen.in_vain);
      TW_REQUIRE(seen.bad_runs == 0 || !variant.fault.empty(), ErrorKind::lost, .where = variant.name,
                 .what = "it went wrong", .got = fmt::format("{} wrong words", seen.wrong_words));
    }
  });
}

}  // namespace
}  // namespace tileway::cuda
