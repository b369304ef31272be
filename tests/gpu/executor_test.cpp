// Plans on GPUs give the interpreter's values. Ranks are threads that share what GPUs there are, so that three and more
// ranks run on one or two; scripts/gpu.sh runs it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <map>
#include <set>
#include <thread>

#include "exec/cuda/variant.hpp"
#include "gpu/gemm_cases.hpp"
#include "gpu/kernels_ahead.hpp"
#include "runtime/cuda/compile.hpp"
#include "runtime/cuda/driver.hpp"
#include "runtime/cuda/memory.hpp"
#include "runtime/cuda/nccl.hpp"
#include "support/random_program.hpp"
#include "support/run.hpp"
#include "tileway/error.hpp"
#include "tileway/ops.hpp"

namespace tileway {
namespace {

using testing::MakeExecutor;

MakeExecutor on_gpus(CudaExecutor::Options options = {}) {
  return
      [options](Group& group, const ProvenPlan& plan) { return std::make_unique<CudaExecutor>(group, plan, options); };
}

// As many lanes as let eight ranks share one GPU, and copies by compute lanes, or by the copy engine.
Topology shared_topology(int ranks, int lanes = 5, int copy = 0) { return testing::small_topology(ranks, lanes, copy); }

struct Case {
  Program program;
  Schedule schedule;
  Topology topology;
  std::uint64_t seed;
};

Case random_case(std::uint64_t seed, int gpus) {
  testing::RandomProgram generator(seed);
  Program program = generator.program();
  Schedule schedule = generator.schedule(program);
  Topology topology = generator.topology(program.world());
  // Copy engines copy from one GPU to another.
  if (program.world() > gpus) topology.copy = 0;
  return {std::move(program), std::move(schedule), topology, seed};
}

std::uint64_t number_from(const char* name, std::uint64_t fallback) {
  const char* text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : fallback;
}

const std::vector<std::vector<std::int64_t>>& sizes() {
  static const std::vector<std::vector<std::int64_t>> list{
      {37, 19, 23, 7}, {136, 264, 144, 8}, {130, 257, 65, 9}, {1, 1, 1, 1}};
  return list;
}

std::vector<std::int64_t> size_of_operator(const Operator& op, const std::vector<std::int64_t>& size) {
  if (op.extents.size() == 4)
    return {size[0] % 13 + 1, size[1] % 7 + 1, size[2], size[3]};  // its work is their product
  return {size.begin(), size.begin() + static_cast<std::ptrdiff_t>(op.extents.size())};
}

// First, on all cores: every image that the tests below need.
TEST(CudaExecutor, ProcessesCompileAllKernels) {
  std::set<std::string> sources;
  const auto add = [&](const Plan& plan) { sources.insert(cuda::KernelText(plan, "sm_90a").source()); };
  for (const Operator& op : operators()) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::e4m3}) {
      if (!testing::takes(op, dtype)) continue;
      for (const char* name : {"unfused", "overlapped", "fused"}) {
        for (const auto& size : sizes()) {
          for (int ranks : {1, 2, 3}) {
            for (int copy : {0, 1}) {
              const Program program = make_program(op, ranks, dtype, size_of_operator(op, size));
              add(lower(program, Schedule::named(program, name), shared_topology(ranks, 5, copy)).plan);
            }
          }
        }
      }
    }
  }
  namespace gemms = testing::gemms;
  for (const char* name : gemms::kOperators) {
    for (const gemms::Type& type : gemms::kTypes) {
      for (const gemms::Engines& engines : {gemms::kStores, gemms::kCopies, gemms::kCopiesAndFused, gemms::kFused,
                                            gemms::kLibrary, gemms::kLibraryAndStores, gemms::kNccl}) {
        for (std::int64_t m : {1, 1000}) {
          for (std::int64_t n : {97, 4096}) {
            for (std::int64_t k : {7, 4096}) {
              const std::vector<std::int64_t> size{m, n, k};
              Program program = make_program(find_operator(name), 2, type.dtype, size, type.precision);
              const Plan plan =
                  lower(program, gemms::schedule_of(engines, program), gemms::topology_of(engines, 2, 1)).plan;
              add(plan);
              sources.insert(cuda::KernelText(plan, "sm_90a", gemms::odd_bases(plan)).source());
            }
          }
        }
      }
    }
  }
  for (const testing::KernelsAhead::List& list : testing::KernelsAhead::all()) list(add);
  const std::size_t of_operators = sources.size();
  const int gpus = cuda::fleet().gpus == 1 ? 1 : 2;  // in sight, or where they will run
  for (std::uint64_t seed = 1; seed <= number_from("TILEWAY_PROGRAMS", 100); ++seed) {
    const Case one = random_case(seed, gpus);
    add(lower(one.program, one.schedule, one.topology).plan);
  }
  const auto begin = std::chrono::steady_clock::now();
  const int workers = static_cast<int>(number_from("TILEWAY_COMPILERS", 16));
  fmt::print("{} kernels ({} of operators) by {} processes\n", sources.size(), of_operators, workers);
  std::fflush(stdout);
  Group::spawn(workers, [&](Group& group) {
    int index = 0;
    for (const std::string& source : sources) {
      if (index++ % group.size() == group.rank()) cuda::compile(source, "tileway_run", "sm_90a");
    }
  });
  fmt::print("{:.1f} s\n", std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
}

// Exact on integers where the operator is, within what the dtype allows on normal numbers.
void expect_right(const Operator& op, int ranks, DType dtype, const std::vector<std::int64_t>& size,
                  const char* schedule, const Topology& topology) {
  const Program program = make_program(op, ranks, dtype, size_of_operator(op, size));
  const auto rounds = [](const Op& one) { return one.kind == OpKind::rms_norm || one.kind == OpKind::layer_norm; };
  if (std::none_of(program.ops().begin(), program.ops().end(), rounds))
    testing::expect_exact(program, Schedule::named(program, schedule), topology, 1, on_gpus());
  const Bindings inputs = random_inputs(program, 2, Fill::normal);
  const Plan plan = lower(program, Schedule::named(program, schedule), topology).plan;
  const testing::Outcome outcome = testing::run_threads(program, plan, {inputs}, on_gpus());
  const Accuracy accuracy = measure_accuracy(program, inputs, outcome.outputs);
  EXPECT_LE(accuracy.error, accuracy.allowed) << op.name << " " << schedule << " on " << topology.to_text();
}

TEST(CudaExecutor, EveryOperatorGivesTheInterpretersValues) {
  for (const Operator& op : operators()) {
    for (const auto& size : sizes()) {
      for (int ranks : {1, 2, 3, 4}) {
        for (const DType dtype :
             {std::vector{DType::f16, DType::bf16, DType::f32, DType::bf16}[ranks - 1], DType::e4m3}) {
          if (!testing::takes(op, dtype)) continue;
          for (const char* name : {"unfused", "overlapped", "fused"}) {
            expect_right(op, ranks, dtype, size, name, shared_topology(ranks));
            ASSERT_FALSE(HasFailure()) << op.name << " " << name << " " << name_of(dtype);
          }
        }
      }
    }
  }
}

TEST(CudaExecutor, CopyEnginesGiveTheInterpretersValues) {
  if (cuda::gpus().size() < 2) {
    fmt::print("skipped: copy engines copy from one GPU to another, and there are not two\n");
    return;
  }
  for (const Operator& op : operators()) {
    for (const auto& size : sizes()) {
      for (int copy : {1, 2}) {
        expect_right(op, 2, DType::bf16, size, "overlapped", shared_topology(2, 5, copy));
        ASSERT_FALSE(HasFailure()) << op.name << " with " << copy << " copy lanes";
      }
    }
  }
}

TEST(CudaExecutor, RandomProgramsGiveTheInterpretersValues) {
  const std::uint64_t single = number_from("TILEWAY_SEED", 0);
  const std::uint64_t last = single ? single : number_from("TILEWAY_PROGRAMS", 100);
  for (std::uint64_t seed = single ? single : 1; seed <= last && !HasFailure(); ++seed) {
    const Case one = random_case(seed, std::min(2, static_cast<int>(cuda::gpus().size())));
    testing::expect_exact(one.program, one.schedule, one.topology, seed, on_gpus());
    if (HasFailure()) fmt::print("seed {} fails; TILEWAY_SEED={} runs it alone\n{}", seed, seed, one.program.to_text());
  }
  fmt::print("random programs 1 to {}\n", last);
}

TEST(CudaExecutor, WhatIsOnTheDeviceIsWhatWasProvenAndEveryTaskIsInTheTrace) {
  const Program program =
      make_program(find_operator("gemm_all_reduce"), 2, DType::bf16, std::vector<std::int64_t>{130, 257, 65});
  for (int copy = 0; copy < static_cast<int>(cuda::gpus().size()); ++copy) {
    const ProvenPlan plan =
        ProvenPlan::prove(lower(program, Schedule::overlapped(program), shared_topology(2, 5, copy)).plan);
    Group::threads(2, [&](Group& group) {
      CudaExecutor executor(group, plan, {.trace = true});
      EXPECT_EQ(executor.fingerprint_on_device(), plan.fingerprint());
      const Bindings inputs = random_inputs(program, 1, Fill::normal);
      for (const auto& [name, parts] : inputs) executor.set_input(name, parts[group.rank()]);
      executor.run();
      std::set<TaskId> seen;
      for (const TraceEvent& event : executor.trace()) {
        EXPECT_TRUE(seen.insert(event.task).second);
        EXPECT_EQ(plan.plan().tasks[event.task].rank, group.rank());
        EXPECT_GT(event.begin, 0);
        EXPECT_LE(event.wait_begin, event.begin);
        EXPECT_LE(event.begin, event.end);
      }
      std::size_t own = 0;
      for (const Task& task : plan.plan().tasks) own += task.rank == group.rank();
      EXPECT_EQ(seen.size(), own);
    });
  }
}

TEST(CudaExecutor, AnIndexOutsideTheTableIsAnErrorOnEveryRankAndTheDeviceLives) {
  const Program program = make_program(find_operator("embedding_all_to_all"), 2, DType::f32, {});
  const ProvenPlan plan = ProvenPlan::prove(lower(program, Schedule::overlapped(program), shared_topology(2)).plan);
  Bindings inputs = random_inputs(program, 1, Fill::normal);
  for (auto& [name, parts] : inputs) {
    if (!is_floating(parts[0].dtype())) parts[0].set(0, 1e9);
  }
  try {
    Group::threads(2, [&](Group& group) {
      group.set_deadline(std::chrono::milliseconds(2000));
      CudaExecutor executor(group, plan);
      for (const auto& [name, parts] : inputs) executor.set_input(name, parts[group.rank()]);
      executor.run();
      executor.run();  // rank 1 may have got what it needs of the first
    });
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid) << error.what();
    EXPECT_NE(std::string(error.what()).find("1000000000"), std::string::npos) << error.what();
  }
  testing::expect_exact(program, Schedule::overlapped(program), shared_topology(2), 1, on_gpus());
}

TEST(CudaExecutor, ARankThatDoesNotComeIsNamedByTheOtherWithinTheDeadline) {
  const Program program = make_program(find_operator("gemm_all_reduce"), 2, DType::bf16, {});
  for (int copy = 0; copy < static_cast<int>(cuda::gpus().size()); ++copy) {
    const ProvenPlan plan =
        ProvenPlan::prove(lower(program, Schedule::overlapped(program), shared_topology(2, 5, copy)).plan);
    std::string text;
    double seconds = 0;
    try {
      Group::threads(2, [&](Group& group) {
        group.set_deadline(std::chrono::milliseconds(500));
        CudaExecutor executor(group, plan);
        const auto begin = std::chrono::steady_clock::now();
        if (group.rank() == 1) {
          std::this_thread::sleep_for(std::chrono::milliseconds(1500));
          return;
        }
        try {
          executor.run();
        } catch (const Error& error) {
          text = error.what();
          seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
          throw;
        }
      });
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::lost) << error.what();
    }
    EXPECT_NE(text.find("rank 1"), std::string::npos) << text;
    EXPECT_LT(seconds, 1.0);
    fmt::print("{:.2f} s: {}\n", seconds, text);
  }
  testing::expect_exact(program, Schedule::overlapped(program), shared_topology(2), 1, on_gpus());
}

TEST(CudaExecutor, CopyEnginesAreRefusedBetweenRanksOfOneGpu) {
  const int ranks = static_cast<int>(cuda::gpus().size()) + 1;
  const Program program = make_program(find_operator("gemm_all_reduce"), ranks, DType::f32, {});
  const ProvenPlan plan =
      ProvenPlan::prove(lower(program, Schedule::overlapped(program), shared_topology(ranks, 5, 1)).plan);
  try {
    Group::threads(ranks, [&](Group& group) { CudaExecutor executor(group, plan); });
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid) << error.what();
    EXPECT_NE(std::string(error.what()).find("share a GPU"), std::string::npos) << error.what();
  }
}

// One run of a product on two ranks of the group, each on the GPU that is its own. A rank that is a process sees no
// failed expectation, so what is wrong is thrown.
void require_right(Group& group, const char* schedule, const char* topology) {
  const Program program =
      make_program(find_operator("gemm_all_reduce"), 2, DType::bf16, std::vector<std::int64_t>{136, 264, 144});
  CudaExecutor executor(
      group, ProvenPlan::prove(lower(program, Schedule::named(program, schedule), Topology::parse(topology)).plan));
  Bindings inputs = random_inputs(program, 1, Fill::integers);
  for (const auto& [name, parts] : inputs) executor.set_input(name, parts[group.rank()]);
  executor.run();
  TW_REQUIRE(executor.get("y") == interpret(program, inputs).at("y")[group.rank()], ErrorKind::system, .where = "test",
             .what = fmt::format("rank {} has wrong elements", group.rank()));
}

TEST(CudaExecutor, ProcessesThatSeeOneGpuEachUseEachOthers) {
  if (cuda::fleet().gpus < 2) {
    fmt::print("skipped: it needs two GPUs\n");
    return;
  }
  Group::spawn(2, [](Group& group) {
    setenv("CUDA_VISIBLE_DEVICES", std::to_string(group.rank()).c_str(), 1);
    TW_REQUIRE(cuda::gpus().size() == 1, ErrorKind::system, .where = "test", .what = "more than one GPU in sight");
    require_right(group, "overlapped", "ranks=2,lanes=8,copy=1");
    require_right(group, "fused", "ranks=2,lanes=8,copy=0");
    if (cuda::collectives_found()) require_right(group, "collective", "ranks=2,lanes=8,copy=0,collective=1");
  });
}

// Of processes: one asks after it has opened the driver, and its own child cannot use that.
TEST(CudaExecutor, ProcessesCountTheGpusBeforeAndAfterOneIsOpen) {
  Group::spawn(1, [](Group&) {
    const cuda::Fleet before = cuda::fleet();
    if (before.gpus == 0) {
      fmt::print("skipped: there is no GPU\n");
      return;
    }
    const cuda::Device device(0);
    const cuda::Fleet after = cuda::fleet();
    TW_REQUIRE(
        after.gpus == before.gpus && after.multiprocessors == before.multiprocessors && after.name == before.name,
        ErrorKind::system, .where = "test", .what = "other GPUs after one was opened",
        .expected = fmt::to_string(before.gpus), .got = fmt::to_string(after.gpus));
    Group::spawn(1, [](Group&) {
      try {
        cuda::gpus();
        throw std::logic_error("a forked process uses a driver that was opened before");
      } catch (const Error& error) {
        TW_REQUIRE(std::string(error.what()).find("start those first") != std::string::npos, ErrorKind::system,
                   .where = "test", .what = "the reason is not told", .got = error.what());
      }
    });
  });
}

TEST(CudaExecutor, RanksOfASubgroupKeepTheirGpus) {
  if (cuda::gpus().size() < 2) {
    fmt::print("skipped: it needs two GPUs\n");
    return;
  }
  std::atomic<int> apart = 0;
  Group::threads(4, [&](Group& group) {
    const std::vector<int> ranks = group.rank() < 2 ? std::vector{0, 1} : std::vector{2, 3};
    Group pair = group.subgroup(ranks);
    require_right(pair, "overlapped", "ranks=2,lanes=8,copy=1");
    const std::vector<int> alone{group.rank()};
    Group single = group.subgroup(alone);
    const Program program =
        make_program(find_operator("gemm_all_reduce"), 1, DType::f32, std::vector<std::int64_t>{64, 64, 64});
    CudaExecutor executor(
        single, ProvenPlan::prove(
                    lower(program, Schedule::overlapped(program), Topology::parse("ranks=1,lanes=4,copy=0")).plan));
    int ordinal = -1;
    constexpr int kDeviceOrdinal = 9;  // CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    cuda::check(cuda::driver()->PointerGetAttribute(&ordinal, kDeviceOrdinal, executor.address("x")), "looking");
    apart += ordinal == group.rank() % static_cast<int>(cuda::gpus().size()) ? 1 : 0;
  });
  EXPECT_EQ(apart, 4);
}

TEST(CudaExecutor, MoreLanesThanTheGpuHoldsAreRefusedOnEveryRank) {
  const Program program =
      make_program(find_operator("gemm_all_reduce"), 4, DType::f32, std::vector<std::int64_t>{4096, 4096, 64});
  const ProvenPlan plan =
      ProvenPlan::prove(lower(program, Schedule::unfused(program), Topology::parse("ranks=4,lanes=132,copy=0")).plan);
  try {
    Group::threads(4, [&](Group& group) { CudaExecutor executor(group, plan); });
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid) << error.what();
    EXPECT_NE(std::string(error.what()).find("do not fit the GPU"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace tileway
