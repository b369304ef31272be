// Memory of one GPU in the hands of another: needs two GPUs, or several ranks share one. scripts/gpu.sh runs it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <random>
#include <vector>

#include "gpu/kernels.hpp"
#include "runtime/cuda/library.hpp"
#include "tileway/error.hpp"

namespace tileway::cuda {
namespace {

// Each rank puts a pattern of its own at its peer, raises the peer's signal, and waits for its own. One block: what is
// looked at is the order, not the speed.
constexpr const char* kSource = R"(
#include "tileway/copy.cuh"
using namespace tileway;
extern "C" __global__ void fill(unsigned char* to, u64 bytes, u32 seed) {
  for (u64 i = blockIdx.x * static_cast<u64>(blockDim.x) + threadIdx.x; i < bytes; i += static_cast<u64>(gridDim.x) * blockDim.x)
    to[i] = static_cast<unsigned char>((i * 2654435761u + seed) >> 13);
}
extern "C" __global__ void count_wrong(const unsigned char* from, u64 bytes, u32 seed, u64* wrong) {
  for (u64 i = blockIdx.x * static_cast<u64>(blockDim.x) + threadIdx.x; i < bytes; i += static_cast<u64>(gridDim.x) * blockDim.x)
    if (from[i] != static_cast<unsigned char>((i * 2654435761u + seed) >> 13)) atomicAdd(wrong, 1ull);
}
extern "C" __global__ void hand_over(void* peer, const void* from, u64 bytes, SystemSignal* theirs,
                                     const SystemSignal* mine, u32 target, u64 patience_ns, const u32* abort,
                                     int* answer) {
  if (bytes > 0) put_signal_by_block(peer, from, bytes, theirs, 1);
  if (threadIdx.x == 0) *answer = static_cast<int>(wait(mine, target, now_ns() + patience_ns, abort));
}
)";

// In each part: signals and the like in the first page, then what the peer puts, then what is sent.
constexpr std::size_t kMost = std::size_t{64} << 20;
constexpr std::size_t kIn = 4096;
constexpr std::size_t kOut = kIn + kMost + 4096;
constexpr std::size_t kBytes = kOut + kMost + 4096;
constexpr std::size_t kAbort = 64, kAnswer = 128, kWrong = 192;

TEST(CudaSymmetricMemory, ProcessesEveryBytePutIsThereWhenTheSignalIs) {
  Group::spawn(2, [](Group& group) {
    if (group.rank() == 0) fmt::print("{} GPUs\n", gpus().size());
    const int ordinal = ordinal_of(group);
    const Device device(ordinal);
    const Kernels kernels(gpus()[ordinal], kSource, "symmetric_memory_test");
    const SymmetricMemory memory(group, device, kBytes);
    const Address mine = memory.on(group.rank());
    const Address peer = memory.on(1 - group.rank());
    check(driver()->MemsetD8(mine, 0, kIn), "clearing signals");
    group.barrier("cleared");
    std::mt19937 sizes(5);  // alike on both ranks
    std::uint32_t epoch = 0;
    for (std::uint64_t bytes : std::vector<std::uint64_t>{1, 15, 16, 17, 4095, 65536, 1000003, kMost}) {
      for (int repeat = 0; repeat < 20; ++repeat) {
        ++epoch;
        const std::uint64_t skew_to = sizes() % 32;
        const std::uint64_t skew_from = repeat % 2 == 0 ? skew_to : sizes() % 32;
        const auto seed = [&](int rank) { return epoch * 7919U + static_cast<unsigned>(rank); };
        check(driver()->MemsetD8(mine + kIn, 0xee, bytes + 64), "poisoning");
        kernels.launch("fill", 128, mine + kOut + skew_from, bytes, seed(group.rank()));
        check(driver()->CtxSynchronize(), "filling");
        group.barrier("ready");
        kernels.launch("hand_over", 1, peer + kIn + skew_to, mine + kOut + skew_from, bytes, peer, mine, epoch,
                       std::uint64_t{5'000'000'000}, mine + kAbort, mine + kAnswer);
        check(driver()->MemsetD8(mine + kWrong, 0, 8), "clearing the count");
        kernels.launch("count_wrong", 128, mine + kIn + skew_to, bytes, seed(1 - group.rank()), mine + kWrong);
        check(driver()->CtxSynchronize(), "handing over");
        TW_REQUIRE(read<int>(mine + kAnswer) == 0, ErrorKind::lost, .where = "hand_over", .what = "a wait did not end",
                   .got = fmt::format("{} bytes, epoch {}", bytes, epoch));
        TW_REQUIRE(read<std::uint64_t>(mine + kWrong) == 0, ErrorKind::lost, .where = "hand_over",
                   .what = "wrong bytes", .got = fmt::format("{} of {}", read<std::uint64_t>(mine + kWrong), bytes));
        const auto behind = read<unsigned char>(mine + kIn + skew_to + bytes);
        TW_REQUIRE(behind == 0xee, ErrorKind::lost, .where = "hand_over", .what = "a byte too many was written");
        group.barrier("looked at");
      }
    }
    if (group.rank() == 0) fmt::print("{} hand-overs, up to {} MiB, every byte right\n", epoch, kMost >> 20);
  });
}

TEST(CudaSymmetricMemory, ProcessesAWaitInVainEndsAtItsDeadlineOrWhenSomebodyGivesUp) {
  Group::spawn(2, [](Group& group) {
    const int ordinal = ordinal_of(group);
    const Device device(ordinal);
    const Kernels kernels(gpus()[ordinal], kSource, "symmetric_memory_test");
    const SymmetricMemory memory(group, device, 8192);
    const Address mine = memory.on(group.rank());
    const Address peer = memory.on(1 - group.rank());
    check(driver()->MemsetD8(mine, 0, 4096), "clearing");
    group.barrier("cleared");
    const auto wait_for = [&](std::uint64_t patience_ns) {
      const auto begin = std::chrono::steady_clock::now();
      kernels.launch("hand_over", 1, Address{0}, Address{0}, std::uint64_t{0}, peer, mine, 1U, patience_ns,
                     mine + kAbort, mine + kAnswer);
      check(driver()->CtxSynchronize(), "waiting");
      const double s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      return std::pair(read<int>(mine + kAnswer), s);
    };
    const auto [late, seconds] = wait_for(200'000'000);
    TW_REQUIRE(late == 1 && seconds > 0.19 && seconds < 1.2, ErrorKind::lost, .where = "a wait in vain",
               .what = "it did not end at its deadline", .got = fmt::format("{} after {:.2f} s", late, seconds));
    group.barrier("late");
    // Rank 0 gives up: it raises its peer's flag, and the peer's long wait ends.
    if (group.rank() == 0) check(driver()->MemsetD8(peer + kAbort, 1, 4), "giving up");
    group.barrier("given up");
    const auto [aborted, soon] = wait_for(group.rank() == 1 ? 20'000'000'000 : 1'000'000);
    TW_REQUIRE(group.rank() == 0 || (aborted == 2 && soon < 1), ErrorKind::lost, .where = "a wait after an abort",
               .what = "it did not end", .got = fmt::format("{} after {:.2f} s", aborted, soon));
    // The context lives.
    check(driver()->MemsetD8(mine, 0, 4096), "going on");
    check(driver()->CtxSynchronize(), "going on");
  });
}

// What is free on the current GPU, as its driver says.
std::size_t free_bytes() {
  static const Library cuda({"libcuda.so.1"});
  const auto ask = reinterpret_cast<Result (*)(std::size_t*, std::size_t*)>(cuda.find("cuMemGetInfo_v2"));
  std::size_t free = 0;
  std::size_t all = 0;
  check(ask(&free, &all), "asking what is free");
  return free;
}
int open_files() {
  int files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++files;
  return files;
}

// Allocates again and again, and holds what is left against what there was.
void allocate_repeatedly(std::size_t bytes, int rounds) {
  Group::spawn(2, [&](Group& group) {
    const auto begin = std::chrono::steady_clock::now();
    const Device device(ordinal_of(group));
    {
      const SymmetricMemory first(group, device, bytes);  // what the driver keeps, it has after this
      group.barrier("warm");
    }
    group.barrier("freed");
    const std::size_t free = free_bytes();
    const int files = open_files();
    for (int i = 0; i < rounds; ++i) {
      const SymmetricMemory memory(group, device, bytes);
      if (i % (rounds / 4) == 0) {
        check(driver()->MemsetD8(memory.on(1 - group.rank()), 7, 4096), "touching a peer's");
        check(driver()->CtxSynchronize(), "touching a peer's");  // what is still under way may not be unmapped
      }
      group.barrier("used");
    }
    group.barrier("all freed");
    const std::size_t left = free_bytes();
    // Others may use the GPU: what counts is whether it grows with the rounds.
    TW_REQUIRE(left + rounds / 10 * bytes >= free, ErrorKind::lost, .where = "allocations", .what = "memory was left",
               .got = fmt::format("{} bytes free, {} before {} rounds of {}", left, free, rounds, bytes));
    TW_REQUIRE(open_files() <= files, ErrorKind::lost, .where = "allocations", .what = "files were left open",
               .got = fmt::format("{}, {} before", open_files(), files));
    const double s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (group.rank() == 0) fmt::print("{} rounds of {} MiB in {:.1f} s\n", rounds, bytes >> 20, s);
  });
}

TEST(CudaSymmetricMemory, ProcessesTenThousandAllocationsLeaveNothingBehind) {
  allocate_repeatedly(std::size_t{2} << 20, 10000);
}

TEST(CudaSymmetricMemory, ProcessesLargeAllocationsLeaveNothingBehind) {
  allocate_repeatedly(std::size_t{20} << 30, 20);  // 400 GiB a rank, more than there is
}

// Says why a test does nothing, where it does nothing.
bool lacks_gpus() {
  const bool none = fleet().gpus == 0;
  if (none) fmt::print("skipped: there is no GPU\n");
  return none;
}

TEST(CudaSymmetricMemory, ProcessesWhatNobodyElseSeesIsNotMapped) {
  if (lacks_gpus()) return;
  Group::spawn(2, [](Group& group) {
    const Device device(ordinal_of(group));
    const SymmetricMemory memory(group, device, 4096, SymmetricMemory::Seen::by_nobody_else);
    TW_REQUIRE(memory.on(group.rank()) != 0 && memory.on(1 - group.rank()) == 0, ErrorKind::system, .where = "test",
               .what = "another part is mapped than the rank's own");
    check(driver()->MemsetD8(memory.on(group.rank()), 7, 4096), "using it");
    check(driver()->CtxSynchronize(), "using it");
  });
}

TEST(CudaSymmetricMemory, ProcessesHostMemoryThatADeviceWritesIsSeenByTheOtherProcess) {
  if (lacks_gpus()) return;
  Group::spawn(2, [](Group& group) {
    const Device device(ordinal_of(group));
    const SharedHostMemory memory(group, 4096);
    check(driver()->MemsetD8(memory.address(), static_cast<unsigned char>(group.rank() + 1), 4096), "writing it");
    check(driver()->CtxSynchronize(), "writing it");
    group.barrier("written");
    for (int rank : {0, 1}) {
      const std::byte* part = memory.on(rank);
      TW_REQUIRE(std::all_of(part, part + 4096, [&](std::byte b) { return b == std::byte(rank + 1); }), ErrorKind::lost,
                 .where = "host memory", .what = "it does not hold what was written");
    }
    group.barrier("looked at");
  });
}

TEST(CudaSymmetricMemory, ProcessesOtherSizesAreTheSameErrorOnEveryRank) {
  try {
    Group::spawn(2, [](Group& group) {
      const Device device(ordinal_of(group));
      const SymmetricMemory memory(group, device, group.rank() == 0 ? 100 : 200);
    });
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::mismatch);
    EXPECT_NE(std::string(error.what()).find("100 bytes on rank 0, 200 bytes on rank 1"), std::string::npos);
  }
}

}  // namespace
}  // namespace tileway::cuda
