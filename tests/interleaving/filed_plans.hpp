// Plans that lie in tests/interleaving/plans, and what the verifier and the explorer say of them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "tileway/error.hpp"
#include "tileway/explore.hpp"
#include "tileway/plan.hpp"
#include "tileway/verify.hpp"

namespace tileway::testing {

// The plans lie in tests/interleaving/plans, for whoever wants to look at them or try `tileway verify`; what is looked
// at here is those files. TILEWAY_WRITE_PLANS=1 writes them anew.
inline Plan filed(const Plan& plan, const std::string& without = {}) {
  std::string name = plan.name + (without.empty() ? "" : ", without " + without.substr(0, without.find(':')));
  std::replace_if(
      name.begin(), name.end(), [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  const std::string path = std::string(TILEWAY_TEST_SOURCE) + "/interleaving/plans/" + name + ".json";
  if (std::getenv("TILEWAY_WRITE_PLANS")) std::ofstream(path) << to_json(plan);
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  EXPECT_EQ(text, to_json(plan)) << path << " is another plan";
  return plan_from_json(text);
}

inline void expect_proven(const Plan& plan) {
  const Verdict verdict = verify(filed(plan));
  EXPECT_TRUE(verdict.proven()) << plan.name << "\n" << verdict.refusal->text;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const Exploration exploration = explore(plan, seed);
    EXPECT_FALSE(exploration.finding) << plan.name << " seed " << seed << "\n" << exploration.finding->text;
  }
}

inline void expect_refused(const Plan& plan, Fault fault, const std::string& because) {
  const Verdict verdict = verify(filed(plan, because));
  ASSERT_FALSE(verdict.proven()) << plan.name << " without " << because;
  EXPECT_EQ(name_of(verdict.refusal->fault), name_of(fault)) << because << "\n" << verdict.refusal->text;
  if (fault == Fault::scope || fault == Fault::residency) return;  // no matter of order
  bool found = false;
  for (std::uint64_t seed = 0; seed < 200 && !found; ++seed) found = explore(plan, seed).finding.has_value();
  EXPECT_TRUE(found) << plan.name << ": no order shows " << because;
}

inline void expect_malformed(Plan plan, const std::string& text) {
  try {
    verify(plan);
    ADD_FAILURE() << plan.name << " is taken";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
  }
}

}  // namespace tileway::testing
