// Communications by NCCL beside the kernel that feeds them: the interpreter's values, with and without GPUs that see
// each other's memory, and an end in time when a rank is lost. NCCL wants a GPU for each rank, so most of it needs two;
// scripts/gpu.sh runs it.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>
#include <utility>
#include <vector>

#include "gpu/gemm_cases.hpp"
#include "gpu/kernels.hpp"
#include "gpu/kernels_ahead.hpp"
#include "runtime/cuda/driver.hpp"
#include "runtime/cuda/graph.hpp"
#include "runtime/cuda/memory.hpp"
#include "runtime/cuda/nccl.hpp"
#include "support/communications.hpp"
#include "support/run.hpp"
#include "tileway/error.hpp"
#include "tileway/ops.hpp"

namespace tileway {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// Says why a test does nothing, where it does nothing. Opens no driver: ranks are forked afterwards.
bool lacks_gpus(int needed) {
  if (!cuda::collectives_found()) {
    fmt::print("skipped: {}\n", cuda::collectives_text());
    return true;
  }
  const int found = cuda::fleet().gpus;
  if (found < needed) fmt::print("skipped: {} GPUs, and this needs {}\n", found, needed);
  return found < needed;
}

Topology with_library(int ranks, int lanes = 8, int collective = 1) {
  return Topology::parse(fmt::format("ranks={},lanes={},copy=0,collective={}", ranks, lanes, collective));
}

// Everything that can be by the library; overlapped, or not.
Schedule schedule_of(Program& program, bool overlapped) {
  if (overlapped) return Schedule::collective(program);
  Schedule unfused = Schedule::unfused(program);
  for (std::size_t i = 0; i < program.ops().size(); ++i) {
    const OpKind kind = program.ops()[i].kind;
    if (is_communication(kind) && kind != OpKind::all_to_all_v)
      unfused.engine(Tensor(&program, static_cast<int>(i)), Engine::collective);
  }
  return unfused;
}

// In a process of its own nobody sees a failed expectation.
void require(bool holds, const std::string& what) {
  TW_REQUIRE(holds, ErrorKind::system, .where = "test", .what = what);
}

void set_inputs(CudaExecutor& executor, const Bindings& inputs, int rank) {
  for (const auto& [name, parts] : inputs) {
    if (executor.holds(name)) executor.set_input(name, parts[rank]);
  }
}

void require_values(const Program& program, CudaExecutor& executor, Bindings inputs, int rank,
                    const std::string& context) {
  for (const auto& [name, parts] : interpret(program, inputs)) {
    const double difference = max_difference(parts[rank], executor.get(name));
    require(difference == 0, fmt::format("{}: '{}' of rank {} is wrong by {}", context, name, rank, difference));
  }
}

Program program_of(const char* op, int ranks, DType dtype, const std::vector<std::int64_t>& size) {
  return make_program(find_operator(op), ranks, dtype, size);
}

struct Job {
  Program program;
  bool overlapped;
  Topology topology;

  Plan plan() { return lower(program, schedule_of(program, overlapped), topology).plan; }
};

void run_and_compare(Group& group, Job&& job) {
  const ProvenPlan plan = ProvenPlan::prove(job.plan());
  CudaExecutor executor(group, plan);
  require(executor.fingerprint_on_device() == plan.fingerprint(), "the table is not the plan");
  for (std::uint64_t run = 1; run <= 3; ++run) {
    const Bindings inputs = random_inputs(job.program, run, Fill::integers);
    set_inputs(executor, inputs, group.rank());
    executor.run();
    require_values(job.program, executor, inputs, group.rank(),
                   fmt::format("{} {} run {}", job.program.name(), plan.plan().schedule, run));
  }
}

// Also with as many lanes as a whole GPU leaves, and copy lanes beside.
const Topology& large_topology() {
  static const Topology topology = Topology::parse("ranks=2,lanes=120,copy=2,collective=1");
  return topology;
}

std::vector<Job> products_with_all_reduce() {
  std::vector<Job> jobs;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const auto& size : {std::vector<std::int64_t>{130, 257, 65}, {512, 1024, 384}, {1, 1, 1}}) {
      for (const bool overlapped : {true, false})
        jobs.push_back({program_of("gemm_all_reduce", 2, dtype, size), overlapped, with_library(2)});
    }
  }
  jobs.push_back({program_of("gemm_all_reduce", 2, DType::bf16, {2048, 4096, 16}), true, large_topology()});
  return jobs;
}

// all_to_all_v too, which stays with compute lanes; but not what is inexact on GPUs for other reasons.
std::vector<Job> every_operator() {
  std::vector<Job> jobs;
  // Uneven parts, even ones, fewer rows than ranks.
  const std::pair<DType, std::vector<std::int64_t>> cases[] = {
      {DType::bf16, {37, 19, 23, 7}}, {DType::f32, {8, 12, 144, 16}}, {DType::f16, {1, 1, 1, 1}}};
  for (const Operator& op : operators()) {
    if (op.name == "all_reduce_rms_norm") continue;
    for (const auto& [dtype, size] : cases) {
      const std::vector<std::int64_t> own(size.begin(), size.begin() + static_cast<std::ptrdiff_t>(op.extents.size()));
      for (const bool overlapped : {true, false})
        jobs.push_back({make_program(op, 2, dtype, own), overlapped, with_library(2)});
    }
  }
  for (const char* op : {"gemm_reduce_scatter", "all_gather_gemm", "gemm_all_to_all"})
    jobs.push_back({program_of(op, 2, DType::bf16, {2048, 4096, 16}), true, large_topology()});
  return jobs;
}

// Without and with peers' memory in sight.
std::vector<Job> without_peers() {
  std::vector<Job> jobs;
  for (const char* op : testing::gemms::kOperators) {
    for (const bool overlapped : {true, false})
      jobs.push_back({program_of(op, 2, DType::bf16, {130, 64, 96}), overlapped, with_library(2)});
  }
  for (const bool overlapped : {true, false})
    jobs.push_back({testing::every_communication(2), overlapped, with_library(2)});
  return jobs;
}

// So large that there is time to die.
Job to_be_lost(const char* op) { return {program_of(op, 2, DType::bf16, {512, 1024, 384}), true, with_library(2)}; }

const testing::KernelsAhead kAhead([](const auto& add) {
  for (auto* jobs : {products_with_all_reduce, every_operator, without_peers}) {
    for (Job& job : jobs()) add(job.plan());
  }
  for (const char* op : testing::gemms::kOperators) add(to_be_lost(op).plan());
});

void run_all(std::vector<Job> jobs) {
  const auto begin = Clock::now();
  Group::spawn(2, [&](Group& group) {
    const cuda::Device open(group.rank());  // from one executor to the next: to open a GPU takes its time
    for (Job& job : jobs) run_and_compare(group, std::move(job));
  });
  fmt::print("{} plans, {:.1f} s\n", jobs.size(), std::chrono::duration<double>(Clock::now() - begin).count());
}

TEST(Nccl, ProcessesGemmAllReduceGivesTheInterpretersValues) {
  if (!lacks_gpus(2)) run_all(products_with_all_reduce());
}

TEST(Nccl, ProcessesEveryOperatorGivesTheInterpretersValues) {
  if (!lacks_gpus(2)) run_all(every_operator());
}

TEST(Nccl, ProcessesEveryCommunicationGivesTheInterpretersValues) {
  if (!lacks_gpus(2)) run_all(without_peers());
}

// Runs one test of this file in a process of its own, without what NCCL knows of links between GPUs.
int run_without_links(const std::string& test) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  return std::system(fmt::format("NCCL_P2P_DISABLE=1 '{}' --gtest_filter={}", self, test).c_str());
}

// What the driver says where a GPU cannot use another's memory.
cuda::Result no_way_to_a_peer(cuda::Allocation*, void*, int) { return 217; }  // CUDA_ERROR_PEER_ACCESS_UNSUPPORTED

TEST(Nccl, ProcessesCollectivePlansMapNothingOfPeersAndOthersAreRefusedByName) {
  if (lacks_gpus(2)) return;
  Group::spawn(2, [](Group& group) {
    const cuda::Driver* driver = cuda::driver();
    require(driver != nullptr, "no driver");
    const_cast<cuda::Driver*>(driver)->MemImportFromShareableHandle = no_way_to_a_peer;
    for (const char* op : testing::gemms::kOperators) {
      const Program program = program_of(op, 2, DType::bf16, {130, 64, 96});
      try {
        CudaExecutor executor(group,
                              ProvenPlan::prove(lower(program, Schedule::overlapped(program), with_library(2)).plan));
        require(false, "a plan that needs peers' memory is taken");
      } catch (const Error& error) {
        const std::string text = error.what();
        require(error.kind() == ErrorKind::system && text.find("rank 0 (GPU-") != std::string::npos &&
                    text.find("cannot use the memory of rank 1") != std::string::npos &&
                    text.find("rank 1 (GPU-") != std::string::npos && text.find("collective") != std::string::npos,
                text);
      }
    }
    const cuda::Device open(group.rank());
    for (Job& job : without_peers()) run_and_compare(group, std::move(job));
  });
}

TEST(Nccl, ProcessesWithoutPeerAccessGiveTheSame) {
  if (lacks_gpus(2)) return;
  EXPECT_EQ(run_without_links("Nccl.ProcessesCollectivePlansMapNothingOfPeersAndOthersAreRefusedByName"), 0);
}

TEST(Nccl, ProcessesACapturedRunIsReplayed) {
  if (lacks_gpus(2)) return;
  Group::spawn(2, [](Group& group) {
    for (const char* op : testing::gemms::kOperators) {
      const Program program = program_of(op, 2, DType::bf16, {256, 512, 128});
      const ProvenPlan plan = ProvenPlan::prove(lower(program, Schedule::collective(program), with_library(2)).plan);
      CudaExecutor executor(group, plan);
      const cuda::OwnStream stream;
      // Goes before the executor does: NCCL keeps what a graph may call.
      const cuda::CapturedGraph graph(stream.get(), [&] { executor.enqueue(stream.get()); });
      for (std::uint64_t run = 1; run <= 10; ++run) {
        const Bindings inputs = random_inputs(program, run, Fill::integers);
        set_inputs(executor, inputs, group.rank());
        graph.launch();
        executor.synchronize(stream.get());
        require_values(program, executor, inputs, group.rank(), fmt::format("{} replay {}", op, run));
      }
    }
  });
}

// What rank 0 saw, in memory that both processes share.
struct Report {
  char text[800];
  double seconds;
  bool lives;
};
Report* shared_report() {
  return static_cast<Report*>(mmap(nullptr, sizeof(Report), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
}

// Runs the plan, keeps what is thrown, and runs another plan in the same process.
void run_to_the_bitter_end(Group& group, const ProvenPlan& plan, Report& report) {
  {
    CudaExecutor executor(group, plan);
    const auto begin = Clock::now();
    try {
      for (int run = 0; run < 1'000'000; ++run) executor.run();
    } catch (const Error& error) {
      std::strncpy(report.text, error.what(), sizeof(report.text) - 1);
      report.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    }
  }
  Group::threads(1, [](Group& alone) {
    run_and_compare(alone, {program_of("gemm_all_reduce", 1, DType::f32, {64, 64, 64}), true, with_library(1)});
  });
  report.lives = true;
}

TEST(Nccl, ProcessesARankKilledInACollectiveIsNamedByTheOtherWhichLives) {
  if (lacks_gpus(2)) return;
  for (const char* op : testing::gemms::kOperators) {
    const ProvenPlan plan = ProvenPlan::prove(to_be_lost(op).plan());
    Report* report = shared_report();
    try {
      Group::spawn(2, [&](Group& group) {
        if (group.rank() == 0) {
          run_to_the_bitter_end(group, plan, *report);
          return;
        }
        // So slow that rank 0 stands in its call when this one dies.
        CudaExecutor executor(group, plan, {.delay_ns = 20'000'000'000});
        std::thread([] {
          std::this_thread::sleep_for(500ms);
          kill(getpid(), SIGKILL);
        }).detach();
        while (true) executor.run();
      });
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::lost) << error.what();
    }
    EXPECT_NE(std::string(report->text).find("rank 1"), std::string::npos) << op << ": " << report->text;
    EXPECT_LT(report->seconds, 5) << op;
    EXPECT_TRUE(report->lives) << op;
    fmt::print("{}, {:.2f} s: {}\n", op, report->seconds, report->text);
    munmap(report, sizeof(Report));
  }
}

// Said by the call that does not end, or by a task that waits for what it brings.
TEST(Nccl, ProcessesARankThatDoesNotComeToACollectiveIsNamedAtTheDeadline) {
  if (lacks_gpus(2)) return;
  constexpr auto kDeadline = 8000ms;  // making a communicator takes some seconds
  for (const char* op : {"gemm_all_reduce", "all_gather_gemm"}) {
    const ProvenPlan plan = ProvenPlan::prove(to_be_lost(op).plan());
    Report* report = shared_report();
    try {
      Group::spawn(2, [&](Group& group) {
        group.set_deadline(kDeadline);
        if (group.rank() == 0) {
          run_to_the_bitter_end(group, plan, *report);
          return;
        }
        const CudaExecutor executor(group, plan);
        std::this_thread::sleep_for(kDeadline + 4s);
      });
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::lost) << error.what();
    }
    const std::string text = report->text;
    EXPECT_NE(text.find("rank 1"), std::string::npos) << op << ": " << text;
    EXPECT_NE(text.find("has not begun run 0"), std::string::npos) << op << ": " << text;
    EXPECT_LT(report->seconds, 10) << op;
    EXPECT_TRUE(report->lives) << op;
    fmt::print("{}, {:.2f} s: {}\n", op, report->seconds, text);
    munmap(report, sizeof(Report));
  }
}

TEST(Nccl, RanksThatAreThreadsGiveTheInterpretersValues) {
  if (lacks_gpus(2)) return;
  for (const char* name : {"gemm_all_reduce", "gemv_all_reduce", "gemm_reduce_scatter", "gemm_all_to_all"}) {
    const Operator& op = find_operator(name);
    const Program program = make_program(op, 2, DType::bf16, std::vector<std::int64_t>(op.extents.size(), 96));
    testing::expect_exact(
        program, Schedule::collective(program), with_library(2), 1,
        [](Group& group, const ProvenPlan& plan) { return std::make_unique<CudaExecutor>(group, plan); });
  }
}

// What every rank throws, at the same time, when the executor is made.
void expect_refused_everywhere(const Topology& topology, CudaExecutor::Options options, const std::string& part) {
  const Program program = make_program(find_operator("gemm_all_reduce"), topology.ranks, DType::f32,
                                       std::vector<std::int64_t>{4096, 4096, 64});
  const ProvenPlan plan = ProvenPlan::prove(lower(program, Schedule::collective(program), topology).plan);
  std::atomic<int> refused = 0;
  EXPECT_THROW(Group::threads(topology.ranks,
                              [&](Group& group) {
                                try {
                                  CudaExecutor executor(group, plan, options);
                                } catch (const Error& error) {
                                  refused += error.kind() == ErrorKind::invalid &&
                                             std::string(error.what()).find(part) != std::string::npos;
                                  throw;
                                }
                              }),
               Error);
  EXPECT_EQ(refused, topology.ranks) << part;
}

TEST(Nccl, RanksThatShareAGpuAreRefusedOnEveryRank) {
  if (lacks_gpus(1)) return;
  expect_refused_everywhere(with_library(2), {.device = 0}, "NCCL does not take ranks that share a GPU");
}

TEST(Nccl, BlocksOfTheLibraryNeedRoomBesideTheLanes) {
  if (lacks_gpus(2)) return;
  const int lanes = cuda::gpus().at(0).multiprocessors;
  expect_refused_everywhere(with_library(2, lanes), {}, "do not fit the GPU");
}

}  // namespace
}  // namespace tileway
