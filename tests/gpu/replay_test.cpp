// Runs as graphs that are replayed, on streams of the caller, and ranks that die: no wrong bit, no hang.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "gpu/kernels.hpp"
#include "runtime/cuda/compile.hpp"
#include "runtime/cuda/driver.hpp"
#include "runtime/cuda/graph.hpp"
#include "runtime/cuda/memory.hpp"
#include "support/run.hpp"
#include "tileway/error.hpp"
#include "tileway/executor.hpp"
#include "tileway/ops.hpp"

namespace tileway {
namespace {

using cuda::Address;
using cuda::check;
using cuda::driver;

// Between runs: makes the next run's input from its number, poisons the output; and after it counts what is not what
// the input says. x is constant over each run and whole, w all ones, so that y is depth * value(run).
constexpr const char* kSource = R"(
#include "tileway/types.cuh"
using namespace tileway;
__device__ float value(u32 run) { return static_cast<float>(run * 2654435761u >> 29) - 3.0f; }
extern "C" __global__ void prepare(const u32* run, bf16* x, u64 count, u32* y, u64 words) {
  const u64 threads = static_cast<u64>(gridDim.x) * blockDim.x;
  const u64 first = blockIdx.x * static_cast<u64>(blockDim.x) + threadIdx.x;
  for (u64 i = first; i < count; i += threads) x[i] = narrow<bf16>(value(*run));
  for (u64 i = first; i < words; i += threads) y[i] = 0xffffffffu;
}
extern "C" __global__ void judge(u32* run, const bf16* y, u64 count, float depth, u64* wrong) {
  const u64 threads = static_cast<u64>(gridDim.x) * blockDim.x;
  const float want = widen(narrow<bf16>(depth * value(*run)));
  for (u64 i = blockIdx.x * static_cast<u64>(blockDim.x) + threadIdx.x; i < count; i += threads)
    if (!(widen(y[i]) == want)) atomicAdd(wrong, 1ull);
}
extern "C" __global__ void advance(u32* run) {
  if (blockIdx.x == 0 && threadIdx.x == 0) *run += 1;
}
extern "C" __global__ void ones(bf16* w, u64 count) {
  for (u64 i = blockIdx.x * static_cast<u64>(blockDim.x) + threadIdx.x; i < count; i += static_cast<u64>(gridDim.x) * blockDim.x)
    w[i] = narrow<bf16>(1.0f);
}
)";

// A product and its collective in a loop, all of it on one stream.
class Loop {
 public:
  Loop(Group& group, const Program& program, const ProvenPlan& plan, std::int64_t delay_ns)
      : device_(group.rank() % static_cast<int>(cuda::gpus().size())),
        executor_(group, plan, {.delay_ns = delay_ns}),
        counters_(64),
        name_(program.name()) {
    const cuda::Gpu gpu = cuda::gpus()[device_.ordinal()];
    const std::string architecture = cuda::architecture_of(gpu);
    check(driver()->ModuleLoadData(&module_, cuda::compile(kSource, "replay_test", architecture).cubin.data()),
          "loading");
    for (const char* name : {"prepare", "judge", "advance", "ones"}) {
      check(driver()->ModuleGetFunction(&functions_[name], module_, name), name);
      check(driver()->FuncLoad(functions_[name]), name);
    }
    check(driver()->MemsetD8(counters_.address(), 0, 64), "clearing");
    const auto count = [&](int op) {
      return static_cast<std::uint64_t>(volume(program.ops()[op].type.local_shape(group.rank())));
    };
    x_ = count(0);
    y_ = count(program.outputs()[0].op);
    depth_ = static_cast<float>(program.ops()[0].type.shape[1]);
    launch("ones", executor_.address("w"), count(1));
    check(driver()->StreamSynchronize(stream_.get()), "preparing");
  }
  ~Loop() {
    device_.use();
    driver()->StreamSynchronize(stream_.get());
    graph_.reset();
    driver()->ModuleUnload(module_);
  }

  void enqueue() {
    device_.use();
    launch("prepare", counters_.address(), executor_.address("x"), x_, executor_.address("y"), y_ / 2);
    executor_.enqueue(stream_.get());
    launch("judge", counters_.address(), executor_.address("y"), y_, depth_, counters_.address() + 8);
    launch("advance", counters_.address());
  }
  void capture(int runs) {
    device_.use();
    graph_.emplace(stream_.get(), [&] {
      for (int i = 0; i < runs; ++i) enqueue();
    });
  }
  void replay() { graph_->launch(); }
  void finish() { executor_.synchronize(stream_.get()); }
  // Runs so far, and wrong elements in all of them.
  std::pair<std::uint32_t, std::uint64_t> found() const {
    std::pair<std::uint32_t, std::uint64_t> result;
    check(driver()->MemcpyDtoH(&result.first, counters_.address(), 4), "reading");
    check(driver()->MemcpyDtoH(&result.second, counters_.address() + 8, 8), "reading");
    return result;
  }

 private:
  template <typename... Arguments>
  void launch(const char* name, Arguments... arguments) {
    void* list[] = {&arguments...};
    check(driver()->LaunchKernel(functions_.at(name), 8, 1, 1, 256, 1, 1, 0, stream_.get(), list, nullptr), name);
  }

  cuda::Device device_;
  CudaExecutor executor_;
  cuda::DeviceMemory counters_;  // the number of the run, and what was wrong
  std::string name_;
  cuda::Module module_ = nullptr;
  std::map<std::string, cuda::Function> functions_;
  cuda::OwnStream stream_;
  std::optional<cuda::CapturedGraph> graph_;
  std::uint64_t x_ = 0, y_ = 0;
  float depth_ = 0;
};

int wanted_runs() {
  const char* text = std::getenv("TILEWAY_REPLAYS");
  return text ? std::atoi(text) : 10000;
}

// As many, where there are two GPUs for them to copy between.
int copy_lanes(int wanted) { return cuda::gpus().size() < 2 ? 0 : wanted; }

ProvenPlan plan_of(const Program& program, const std::string& topology) {
  return ProvenPlan::prove(lower(program, Schedule::overlapped(program), Topology::parse(topology)).plan);
}

TEST(CudaReplay, TenThousandReplaysUnderRandomDelaysLeaveNoWrongBit) {
  constexpr int kRunsOfAGraph = 10;
  for (const char* name : {"gemm_all_reduce", "gemm_reduce_scatter", "all_gather_gemm", "gemm_all_to_all"}) {
    const Program program = make_program(find_operator(name), 2, DType::bf16, std::vector<std::int64_t>{256, 512, 64});
    for (int copy : std::set{0, copy_lanes(2)}) {
      const std::string topology = fmt::format("ranks=2,lanes=12,copy={}", copy);
      const ProvenPlan plan = plan_of(program, topology);
      const auto begin = std::chrono::steady_clock::now();
      std::atomic<std::uint64_t> runs{0};
      Group::threads(2, [&](Group& group) {
        Loop loop(group, program, plan, 20000);
        loop.capture(kRunsOfAGraph);
        group.barrier("ready");
        for (int i = 0; i < wanted_runs() / 8 / kRunsOfAGraph; ++i) loop.replay();
        loop.finish();
        const auto [count, wrong] = loop.found();
        EXPECT_EQ(wrong, 0U) << name << " on " << topology;
        runs += count;
      });
      fmt::print("{} on {}: {} runs of each rank, {:.1f} s\n", name, topology, runs / 2,
                 std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
      ASSERT_FALSE(HasFailure());
    }
  }
}

TEST(CudaReplay, EagerAndCapturedRunsOfTwoOperatorsOnTwoStreamsDoNotDisturbEachOther) {
  const Program first =
      make_program(find_operator("gemm_all_reduce"), 2, DType::bf16, std::vector<std::int64_t>{256, 512, 64});
  const Program second =
      make_program(find_operator("all_gather_gemm"), 2, DType::bf16, std::vector<std::int64_t>{512, 256, 128});
  const std::string topology = fmt::format("ranks=2,lanes=12,copy={}", copy_lanes(1));
  const ProvenPlan first_plan = plan_of(first, topology);
  const ProvenPlan second_plan = plan_of(second, topology);
  std::atomic<std::uint64_t> runs{0};
  Group::threads(2, [&](Group& group) {
    std::vector<int> everyone{0, 1};
    Group other = group.subgroup(everyone);
    Loop one(group, first, first_plan, 5000);
    Loop two(other, second, second_plan, 5000);
    one.capture(3);
    two.capture(2);
    group.barrier("ready");
    for (int i = 0; i < wanted_runs() / 100; ++i) {
      // In another order on each rank, and mixed: whatever runs at once fits the device.
      if ((i + group.rank()) % 2 == 0) {
        one.replay();
        two.enqueue();
        one.enqueue();
        two.replay();
      } else {
        two.enqueue();
        one.replay();
        two.replay();
        one.enqueue();
      }
    }
    one.finish();
    two.finish();
    EXPECT_EQ(one.found().second, 0U);
    EXPECT_EQ(two.found().second, 0U);
    runs += one.found().first + two.found().first;
  });
  fmt::print("{} runs of each rank\n", runs / 2);
}

// Each alone takes all of a GPU: whichever came second would wait for blocks that never end.
TEST(CudaReplay, RunsThatDoNotFitTogetherFollowEachOther) {
  if (cuda::gpus().size() < 2) {
    fmt::print("skipped: it needs two GPUs\n");
    return;
  }
  const std::vector<std::int64_t> size{4096, 4096, 256};
  const Program first = make_program(find_operator("gemm_all_reduce"), 2, DType::bf16, size);
  const Program second = make_program(find_operator("gemm_reduce_scatter"), 2, DType::bf16, size);
  const ProvenPlan first_plan = plan_of(first, "ranks=2,lanes=132,copy=0");
  const ProvenPlan second_plan = plan_of(second, "ranks=2,lanes=132,copy=0");
  const int runs = wanted_runs() / 50;
  Group::threads(2, [&](Group& group) {
    std::vector<int> everyone{0, 1};
    Group other = group.subgroup(everyone);
    Loop one(group, first, first_plan, 2000);
    Loop two(other, second, second_plan, 2000);
    for (int i = 0; i < runs; ++i) {
      one.enqueue();
      two.enqueue();
    }
    one.finish();
    two.finish();
    EXPECT_EQ(one.found(), std::make_pair(static_cast<std::uint32_t>(runs), std::uint64_t{0}));
    EXPECT_EQ(two.found(), std::make_pair(static_cast<std::uint32_t>(runs), std::uint64_t{0}));
  });
}

// Runs that are behind the failed one in its stream drain, and change nothing of what the error is made from.
TEST(CudaFaults, TheRunThatFailedIsNamedWhateverIsBehindIt) {
  constexpr int kTogether = 3;
  const Program program = make_program(find_operator("gemm_all_reduce"), 2, DType::bf16, {});
  const ProvenPlan plan = plan_of(program, fmt::format("ranks=2,lanes=5,copy={}", copy_lanes(1)));
  std::string text;
  EXPECT_THROW(Group::threads(2,
                              [&](Group& group) {
                                group.set_deadline(std::chrono::milliseconds(500));
                                CudaExecutor executor(group, plan);
                                for (int i = 0; i < kTogether; ++i) executor.run();
                                group.barrier("so far together");
                                if (group.rank() == 1) {
                                  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
                                  return;
                                }
                                for (int i = 0; i < 5; ++i) executor.enqueue(nullptr);
                                try {
                                  executor.synchronize(nullptr);
                                } catch (const Error& error) {
                                  text = error.what();
                                  throw;
                                }
                              }),
               Error);
  EXPECT_NE(text.find(fmt::format("by rank 1, which has not begun run {};", kTogether)), std::string::npos) << text;
}

// While it lives, streams do not close the gates that they have passed.
class LeaveGatesOpen {
 public:
  LeaveGatesOpen() : functions_(const_cast<cuda::Driver&>(*driver())) {
    real_ = functions_.StreamBatchMemOp;
    functions_.StreamBatchMemOp = [](cuda::Stream stream, unsigned count, cuda::StreamOperation* all, unsigned flags) {
      std::vector<cuda::StreamOperation> kept;
      for (unsigned i = 0; i < count; ++i) {
        if (all[i].operation != cuda::StreamOperation::write || all[i].value != 0) kept.push_back(all[i]);
      }
      if (kept.empty()) return 0;
      return real_(stream, static_cast<unsigned>(kept.size()), kept.data(), flags);
    };
  }
  LeaveGatesOpen(const LeaveGatesOpen&) = delete;
  LeaveGatesOpen& operator=(const LeaveGatesOpen&) = delete;
  ~LeaveGatesOpen() { functions_.StreamBatchMemOp = real_; }

 private:
  cuda::Driver& functions_;
  static inline decltype(cuda::Driver::StreamBatchMemOp) real_ = nullptr;
};

// Copies of the second run on then leave before their tiles are there.
TEST(CudaFaults, GatesThatAreNeverClosedShowInTheResults) {
  if (cuda::gpus().size() < 2) {
    fmt::print("skipped: copy engines copy from one GPU to another, and there are not two\n");
    return;
  }
  constexpr int kRuns = 200;
  const Program program =
      make_program(find_operator("gemm_all_to_all"), 2, DType::bf16, std::vector<std::int64_t>{256, 512, 64});
  const ProvenPlan plan = plan_of(program, "ranks=2,lanes=12,copy=2");
  for (const bool planted : {true, false}) {
    std::optional<LeaveGatesOpen> bug;
    if (planted) bug.emplace();
    std::atomic<std::uint64_t> wrong{0};
    std::atomic<std::uint64_t> wrong_runs{0};
    Group::threads(2, [&](Group& group) {
      Loop loop(group, program, plan, 20000);
      for (int i = 0; i < kRuns; ++i) {
        const std::uint64_t before = loop.found().second;
        loop.enqueue();
        loop.finish();
        wrong_runs += loop.found().second != before;
      }
      wrong += loop.found().second;
    });
    fmt::print("gates {}: {} wrong elements, in {} of {} runs\n", planted ? "left open" : "closed", wrong, wrong_runs,
               2 * kRuns);
    EXPECT_EQ(wrong > 0, planted);
  }
}

// Rank 1 kills itself in the middle of its runs; rank 0 names it within the deadline and then runs another plan alone.
void kill_one(const char* topology) {
  const Program program =
      make_program(find_operator("gemm_all_reduce"), 2, DType::bf16, std::vector<std::int64_t>{4096, 4096, 2048});
  const ProvenPlan plan = plan_of(program, topology);
  const Program alone =
      make_program(find_operator("gemm_all_reduce"), 1, DType::bf16, std::vector<std::int64_t>{128, 256, 64});
  const ProvenPlan alone_plan = plan_of(alone, "ranks=1,lanes=12,copy=0");
  try {
    Group::spawn(2, [&](Group& group) {
      if (cuda::gpus().size() < 2) {
        if (group.rank() == 0) fmt::print("skipped: it needs two GPUs\n");
        return;
      }
      group.set_deadline(std::chrono::milliseconds(3000));
      CudaExecutor executor(group, plan, {.delay_ns = 100000});
      group.barrier("ready");
      if (group.rank() == 1) {
        std::thread([] {
          std::this_thread::sleep_for(std::chrono::milliseconds(300));
          kill(getpid(), SIGKILL);
        }).detach();
      }
      auto last = std::chrono::steady_clock::now();
      try {
        while (true) {
          executor.run();
          last = std::chrono::steady_clock::now();
        }
      } catch (const Error& error) {
        const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - last).count();
        TW_REQUIRE(group.rank() == 0, ErrorKind::lost, .where = "rank 1", .what = error.what());
        TW_REQUIRE(std::string(error.what()).find("rank 1") != std::string::npos && seconds < 3.5, ErrorKind::lost,
                   .where = "rank 0", .what = "it does not name the rank in time", .got = error.what());
        fmt::print("after {:.2f} s: {}\n", seconds, error.what());
      }
      Group::threads(1, [&](Group& self) {
        CudaExecutor again(self, alone_plan);
        Bindings inputs = random_inputs(alone, 1, Fill::integers);
        for (const auto& [name, parts] : inputs) again.set_input(name, parts[0]);
        again.run();
        const Array expected = interpret(alone, inputs).at("y")[0];
        TW_REQUIRE(max_difference(expected, again.get("y")) == 0, ErrorKind::lost, .where = "rank 0",
                   .what = "the next plan's result is wrong");
      });
      fmt::print("and then another plan gave the right result\n");
      std::fflush(stdout);
    });
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::lost);
    EXPECT_NE(std::string(error.what()).find("rank 1"), std::string::npos) << error.what();
  }
}

TEST(CudaFaults, ProcessesAKilledRankIsNamedWhileItComputes) { kill_one("ranks=2,lanes=100,copy=0"); }
TEST(CudaFaults, ProcessesAKilledRankIsNamedWhileItCopies) { kill_one("ranks=2,lanes=100,copy=2"); }

}  // namespace
}  // namespace tileway
