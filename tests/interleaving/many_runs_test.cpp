// Small plans run again and again, ranks delayed at random: no wrong bit, no hang, memory as it was.
#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <random>
#include <string>
#include <thread>

#include "support/run.hpp"
#include "tileway/error.hpp"
#include "tileway/ops.hpp"

namespace tileway {
namespace {

constexpr int kRanks = 4;
// From so many runs on memory is looked at: allocators, and sanitizers more so, take their time to settle.
constexpr std::uint64_t kSettled = 1000;

std::uint64_t runs_wanted(std::uint64_t fast) {
  const char* count = std::getenv("TILEWAY_RUNS");
  return count ? std::strtoull(count, nullptr, 10) : fast;
}

// Resident memory of this process, in KiB.
long resident_kib() {
  std::ifstream file("/proc/self/statm");
  long total = 0;
  long resident = 0;
  file >> total >> resident;
  return resident * 4;
}

struct Case {
  Program program;
  ProvenPlan plan;
  std::vector<Bindings> inputs;    // several sets, so that stale data show
  std::vector<Bindings> expected;  // of each

  explicit Case(const char* name, bool overlapped)
      : program(make_program(find_operator(name), kRanks, DType::f32, sizes(name))),
        plan(ProvenPlan::prove(lower(program, overlapped ? Schedule::overlapped(program) : Schedule::unfused(program),
                                     testing::small_topology(kRanks, 1, 1))
                                   .plan)) {
    for (std::uint64_t seed = 0; seed < 3; ++seed) {
      inputs.push_back(random_inputs(program, seed, Fill::integers));
      Bindings copy = inputs.back();
      expected.push_back(interpret(program, copy));
    }
  }
  static std::vector<std::int64_t> sizes(const char* name) {
    return std::vector<std::int64_t>(find_operator(name).extents.size(), 8);
  }
};

// Each run takes one of the sets of inputs; the ranks choose alike without a word.
void run_many(Group& group, const Case& one, std::uint64_t runs) {
  HostExecutor executor(group, one.plan);
  std::mt19937_64 delays(static_cast<std::uint64_t>(group.rank()) + 17);
  std::mt19937_64 choices(5);
  long settled = 0;
  for (std::uint64_t run = 0; run < runs; ++run) {
    const std::size_t set = choices() % one.inputs.size();
    for (const auto& [name, parts] : one.inputs[set]) executor.set_input(name, parts[group.rank()]);
    if (delays() % 64 == 0) std::this_thread::sleep_for(std::chrono::microseconds(delays() % 200));
    executor.run();
    for (const auto& [name, parts] : one.expected[set]) {
      TW_REQUIRE(executor.get(name) == parts[group.rank()], ErrorKind::lost, .where = one.program.name(),
                 .what = fmt::format("wrong bits in '{}' of rank {} in run {}", name, group.rank(), run));
    }
    if (run == runs / 4) settled = resident_kib();
  }
  const long grown = resident_kib() - settled;
  TW_REQUIRE(grown < 4096 || runs < kSettled, ErrorKind::lost, .where = one.program.name(), .what = "memory has grown",
             .got = fmt::format("{} KiB over {} runs", grown, runs - runs / 4));
}

void every_bit_is_right(void (*launch)(int, const std::function<void(Group&)>&), std::uint64_t runs) {
  for (const char* name : {"gemm_all_reduce", "all_gather_gemm", "gemm_reduce_scatter", "gemm_all_to_all"}) {
    for (bool overlapped : {false, true}) {
      const Case one(name, overlapped);
      const auto begin = std::chrono::steady_clock::now();
      launch(kRanks, [&](Group& group) { run_many(group, one, runs); });
      const double s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      fmt::print("{} {}: {} runs, {:.1f} us each, every bit right\n", name, one.plan.plan().schedule, runs,
                 s * 1e6 / static_cast<double>(runs));
    }
  }
}

TEST(ManyRuns, ProcessesGiveEveryBitEveryTime) { every_bit_is_right(Group::spawn, runs_wanted(1000)); }
TEST(ManyRuns, ThreadsGiveEveryBitEveryTime) { every_bit_is_right(Group::threads, runs_wanted(300)); }

// Plans in flight at once, groups over the same ranks and overlapping groups have signals of their own.
void plans_do_not_disturb_each_other(void (*launch)(int, const std::function<void(Group&)>&)) {
  const Case reduce("gemm_all_reduce", true);
  const Case gather("all_gather_gemm", true);
  launch(kRanks, [&](Group& world) {
    std::vector<int> all(kRanks);
    for (int r = 0; r < kRanks; ++r) all[r] = r;
    Group same = world.subgroup(all);
    Group other = world.subgroup(all);
    // Two plans on two threads, each over its own group of the same ranks.
    std::exception_ptr failure;
    std::thread beside([&] {
      try {
        run_many(same, reduce, 100);
      } catch (...) {
        failure = std::current_exception();
      }
    });
    try {
      run_many(other, gather, 100);
    } catch (...) {
      beside.join();
      throw;
    }
    beside.join();
    if (failure) std::rethrow_exception(failure);
    // Overlapping groups of two, in an order in which neighbours wait for each other.
    const Program pair =
        make_program(find_operator("gemm_all_reduce"), 2, DType::f32, std::vector<std::int64_t>{8, 8, 8});
    const ProvenPlan plan =
        ProvenPlan::prove(lower(pair, Schedule::overlapped(pair), testing::small_topology(2, 1, 1)).plan);
    Bindings inputs = random_inputs(pair, 3, Fill::integers);
    const Bindings expected = interpret(pair, inputs);
    for (int first = 0; first + 1 < kRanks; ++first) {
      if (world.rank() != first && world.rank() != first + 1) continue;
      Group two = world.subgroup(std::vector<int>{first, first + 1});
      HostExecutor executor(two, plan);
      for (const auto& [name, parts] : inputs) executor.set_input(name, parts[two.rank()]);
      for (int run = 0; run < 20; ++run) executor.run();
      TW_REQUIRE(executor.get("y") == expected.at("y")[two.rank()], ErrorKind::lost, .where = "pairs",
                 .what = "wrong bits");
    }
  });
}

TEST(ManyRuns, ProcessesPlansInFlightAndOverlappingGroupsDoNotDisturbEachOther) {
  plans_do_not_disturb_each_other(Group::spawn);
}
TEST(ManyRuns, ThreadsPlansInFlightAndOverlappingGroupsDoNotDisturbEachOther) {
  plans_do_not_disturb_each_other(Group::threads);
}

}  // namespace
}  // namespace tileway
