// Random programs under random schedules on random topologies give the interpreter's values.
//
// A stale or missing tile cannot hide: see support/random_program.hpp. Every program runs twice with different inputs;
// what the first run left would show. TILEWAY_PROGRAMS says how many (2000), TILEWAY_SEED runs a single one.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "support/random_program.hpp"
#include "support/run.hpp"

namespace tileway {
namespace {

struct Tally {
  std::vector<int> operations;
  int with_two_collectives = 0;
  int overlapped = 0;
};

void run_one(std::uint64_t seed, Tally& tally) {
  testing::RandomProgram generator(seed);
  Program program = generator.program();
  const Schedule schedule = generator.schedule(program);
  const Topology topology = generator.topology(program.world());
  int operations = 0;
  int collectives = 0;
  for (const Op& op : program.ops()) {
    operations += op.kind != OpKind::input && op.kind != OpKind::constant;
    collectives += is_communication(op.kind);
  }
  tally.operations.push_back(operations);
  tally.with_two_collectives += collectives >= 2;
  tally.overlapped += schedule.overlaps_anything();
  ASSERT_EQ(Program::from_json(program.to_json()).to_json(), program.to_json());
  testing::expect_exact(program, schedule, topology, seed);
  if (::testing::Test::HasFailure()) {
    fmt::print("seed {} fails; TILEWAY_SEED={} runs it alone\n{}", seed, seed, program.to_text());
  }
}

TEST(RandomPrograms, UnderRandomSchedulesGiveTheInterpretersValues) {
  const char* single = std::getenv("TILEWAY_SEED");
  const char* count = std::getenv("TILEWAY_PROGRAMS");
  const std::uint64_t programs = count ? std::strtoull(count, nullptr, 10) : 2000;
  Tally tally;
  if (single) {
    run_one(std::strtoull(single, nullptr, 10), tally);
    return;
  }
  for (std::uint64_t seed = 1; seed <= programs && !HasFailure(); ++seed) run_one(seed, tally);
  std::sort(tally.operations.begin(), tally.operations.end());
  const int median = tally.operations[tally.operations.size() / 2];
  const auto total = static_cast<int>(tally.operations.size());
  fmt::print(
      "seeds 1 to {}: {} operations in the median, {:.0f}% with two or more collectives, {:.0f}% with an overlap\n",
      programs, median, 100.0 * tally.with_two_collectives / total, 100.0 * tally.overlapped / total);
  if (programs < 1000) return;  // too few to say
  EXPECT_GE(median, 8);
  EXPECT_GE(tally.with_two_collectives * 2, total);
  EXPECT_GE(tally.overlapped * 5, total * 4);
}

}  // namespace
}  // namespace tileway
