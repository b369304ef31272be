// Every plan that lowering makes is proven.
#include <fmt/format.h>
#include <sys/resource.h>

#include <chrono>

#include "support/run.hpp"
#include "tileway/error.hpp"
#include "tileway/ops.hpp"
#include "tileway/verify.hpp"

namespace tileway {
namespace {

TEST(Verify, EveryOperatorsPlansAreProvenOnEveryTopology) {
  for (const Operator& op : operators()) {
    for (int ranks : {2, 3, 4, 5, 8}) {
      const Program program = make_program(op, ranks, DType::bf16, {});
      for (const Topology& topology :
           {testing::small_topology(ranks, 2, 1), Topology::parse(fmt::format("ranks={},lanes=132,copy=2", ranks))}) {
        for (const Schedule& schedule : {Schedule::unfused(program), Schedule::overlapped(program)}) {
          const Plan plan = lower(program, schedule, topology).plan;
          const auto begin = std::chrono::steady_clock::now();
          const Verdict verdict = verify(plan);
          const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
          EXPECT_TRUE(verdict.proven()) << op.name << " " << schedule.name() << " " << topology.to_text() << "\n"
                                        << (verdict.proven() ? "" : verdict.refusal->text);
          fmt::print(
              "proven {:<22} {:<10} {} ranks x {:>3} lanes: {:>6} instances, {:>7} pairs, {:>7.1f} ms, {:>5.1f} MB\n",
              op.name, schedule.name(), ranks, topology.lanes, verdict.proof.instances, verdict.proof.pairs, ms,
              static_cast<double>(verdict.proof.bytes) * 1e-6);
        }
      }
    }
  }
}

TEST(Verify, AnEightGpuGemmAllReduceIsProvenInASecondAndAQuarterGigabyte) {
  for (std::int64_t m : {4096, 8192}) {
    const Program program =
        make_program(find_operator("gemm_all_reduce"), 8, DType::bf16, std::vector<std::int64_t>{m, 8192, 4096});
    for (const Schedule& schedule : {Schedule::unfused(program), Schedule::overlapped(program)}) {
      const Plan plan = lower(program, schedule, Topology::gpus(8)).plan;
      const auto begin = std::chrono::steady_clock::now();
      const Verdict verdict = verify(plan);
      const double s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      EXPECT_TRUE(verdict.proven());
      EXPECT_LT(verdict.proof.bytes, std::size_t{256} << 20);
      rusage usage{};
      getrusage(RUSAGE_SELF, &usage);
      fmt::print(
          "proven gemm_all_reduce {}x8192x4096 {}: {} tasks, {} instances, {} lanes, {} pairs, {:.3f} s, {:.0f} MB of "
          "clocks, {} MB at the most for the whole process\n",
          m, schedule.name(), plan.tasks.size(), verdict.proof.instances, verdict.proof.lanes, verdict.proof.pairs, s,
          static_cast<double>(verdict.proof.bytes) * 1e-6, usage.ru_maxrss / 1024);
    }
  }
}

TEST(Verify, NothingIsProvenWithoutAProof) {
  const Program program =
      make_program(find_operator("gemm_all_reduce"), 2, DType::f32, std::vector<std::int64_t>{8, 8, 8});
  Plan plan = lower(program, Schedule::overlapped(program), testing::small_topology(2)).plan;
  EXPECT_EQ(ProvenPlan::prove(plan).fingerprint(), fingerprint(plan));
  for (Task& task : plan.tasks) task.waits.clear();
  try {
    ProvenPlan::prove(plan);
    ADD_FAILURE() << "a plan without waits was proven";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::refused);
    EXPECT_EQ(error.exit_status(), 1);
    EXPECT_NE(std::string(error.what()).find("not safe: race"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace tileway
