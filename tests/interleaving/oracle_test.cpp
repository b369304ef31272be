// The verifier says of small plans what walking through every order says.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <numeric>

#include "support/oracle.hpp"
#include "support/quick.hpp"
#include "support/random_plan.hpp"
#include "tileway/verify.hpp"

namespace tileway {
namespace {

constexpr std::size_t kStates = 200000;

std::string names(const std::set<Fault>& faults) {
  std::string text;
  for (Fault fault : faults) text += (text.empty() ? "" : ", ") + std::string(name_of(fault));
  return text.empty() ? "none" : text;
}

int partial_waits(const Plan& plan) {
  int count = 0;
  for (const Task& task : plan.tasks) {
    for (const Wait& wait : task.waits) count += wait.value < plan.signals[wait.signal].total;
  }
  return count;
}

TEST(Oracle, AgreesWithTheVerifierOnTenThousandRandomPlans) {
  const char* single = std::getenv("TILEWAY_SEED");
  const char* count = std::getenv("TILEWAY_PLANS");
  const std::uint64_t wanted = count ? std::strtoull(count, nullptr, 10) : testing::quick() ? 500 : 10000;
  std::uint64_t compared = 0;
  std::uint64_t proven = 0;
  std::size_t states = 0;
  std::size_t skipped = 0;
  std::map<std::string, int> refused;
  for (std::uint64_t seed = single ? std::strtoull(single, nullptr, 10) : 1; compared < wanted && !HasFailure();
       ++seed) {
    const Plan plan = testing::random_plan(seed);
    const Verdict verdict = verify(plan);
    std::int32_t runs = 2;
    for (const Buffer& buffer : plan.buffers) runs = std::max(runs, buffer.slots + 1);
    const testing::Oracle oracle = testing::explore_every_order(plan, runs, kStates);
    if (!oracle.finished) {
      ++skipped;
      continue;
    }
    ++compared;
    EXPECT_EQ(testing::explore_without_each_step(plan, runs).faults.empty(), oracle.faults.empty()) << "seed " << seed;
    states += oracle.states;
    proven += verdict.proven();
    if (!verdict.proven()) ++refused[std::string(name_of(verdict.refusal->fault))];
    EXPECT_EQ(verdict.proven(), oracle.faults.empty())
        << "seed " << seed << ": every order says " << names(oracle.faults) << "; the verifier says "
        << (verdict.proven() ? "proven" : verdict.refusal->text) << to_text(plan, true);
    // Of several waits for less than a total, each of which may decide what the other waits for, the verifier knows
    // only a part: it may give another reason.
    if (!verdict.proven() && partial_waits(plan) < 2) {
      EXPECT_TRUE(oracle.faults.contains(verdict.refusal->fault) || oracle.faults.contains(Fault::deadlock))
          << "seed " << seed << ": every order says " << names(oracle.faults) << "; the verifier says "
          << name_of(verdict.refusal->fault) << "\n"
          << verdict.refusal->text << to_text(plan, true);
    }
    if (single) return;
  }
  fmt::print("{} random plans, {} states in the mean, {} with too many: {} proven", compared, states / compared,
             skipped, proven);
  for (const auto& [fault, count] : refused) fmt::print(", {} {}", count, fault);
  fmt::print("\n");
  EXPECT_GT(proven * 5, compared);
  EXPECT_LT(proven * 5, compared * 4);
}

}  // namespace
}  // namespace tileway
