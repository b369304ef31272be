// Broken plans are refused, and for the reason for which they are broken. A checker that never objected proves nothing.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "plan/verify/verify.hpp"
#include "support/mutate.hpp"
#include "support/oracle.hpp"
#include "support/run.hpp"
#include "tileway/error.hpp"
#include "tileway/explore.hpp"
#include "tileway/ops.hpp"

namespace tileway {
namespace {

using testing::Edit;
using testing::Mutant;

constexpr int kSeeds = 50;

struct Tally {
  int mutants = 0;
  int by_structure = 0;
  int by_verifier = 0;
  int by_explorer = 0;
  int equivalent = 0;
};

bool names(const std::string& text, const std::string& what) {
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) {
    const std::size_t end = at + what.size();
    if (end == text.size() || std::isdigit(static_cast<unsigned char>(text[end])) == 0) return true;
  }
  return false;
}

bool names_what_was_edited(const Mutant& mutant, const std::string& text) {
  if (std::any_of(mutant.signals.begin(), mutant.signals.end(),
                  [&](SignalId id) { return names(text, fmt::format("signal {}", id)); }))
    return true;
  if (!mutant.buffer.empty() && names(text, mutant.buffer)) return true;
  return std::any_of(mutant.tasks.begin(), mutant.tasks.end(),
                     [&](TaskId id) { return names(text, fmt::format("task {}", id)); });
}

// The fault that a plan is refused for; nothing if check_structure refuses it (`text` says why) or nobody does.
std::optional<Fault> refused(const Plan& plan, std::string& text, const std::set<Fault>& switched_off = {}) {
  const Plan* const one = &plan;
  try {
    const Verdict verdict = verifier::verify_without(std::span(&one, 1), switched_off);
    if (verdict.proven()) return std::nullopt;
    text = verdict.refusal->text;
    return verdict.refusal->fault;
  } catch (const Error& error) {
    text = error.what();
    return std::nullopt;
  }
}

std::vector<Plan> plans_of(const Operator& op) {
  std::vector<Plan> plans;
  for (int ranks : {2, 3}) {
    for (int copy : {0, 1}) {
      const Program program = make_program(op, ranks, DType::f32, {});
      for (const Schedule& schedule : {Schedule::unfused(program), Schedule::overlapped(program)}) {
        for (int lanes : {1, 2})
          plans.push_back(lower(program, schedule, testing::small_topology(ranks, lanes, copy)).plan);
      }
    }
  }
  return plans;
}

TEST(Mutations, OfEveryOperatorsPlansAreRefusedForTheRightReason) {
  std::map<Edit, Tally> tallies;
  std::vector<std::string> equivalents;
  int shown = 0;
  for (const Operator& op : operators()) {
    for (const Plan& plan : plans_of(op)) {
      for (const Mutant& mutant : testing::mutants(plan)) {
        Tally& tally = tallies[mutant.edit];
        ++tally.mutants;
        std::string text;
        const std::optional<Fault> fault = refused(mutant.plan, text);
        const bool by_structure = !fault && !text.empty();
        tally.by_structure += by_structure;
        tally.by_verifier += fault.has_value();
        if (!by_structure) {
          for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
            if (!explore(mutant.plan, seed).finding) continue;
            ++tally.by_explorer;
            break;
          }
        }
        const std::string context =
            fmt::format("{} {} {}: {}", op.name, plan.schedule, plan.topology.to_text(), mutant.text);
        if (!fault && !by_structure) {
          ++tally.equivalent;
          equivalents.push_back(context);
          EXPECT_TRUE(testing::explore_without_each_step(mutant.plan, 2).faults.empty()) << context;
          continue;
        }
        const bool right = by_structure || mutant.expected.contains(*fault);
        if (!right || !names_what_was_edited(mutant, text)) {
          if (shown++ < 12)
            ADD_FAILURE() << context << (right ? " is not named" : " is refused for something else") << " by\n" << text;
        }
      }
    }
  }
  fmt::print("{:<26} {:>8} {:>10} {:>9} {:>9} {:>11}\n", "edit", "mutants", "structure", "verifier", "explorer",
             "equivalent");
  int total = 0;
  for (const auto& [edit, tally] : tallies) {
    total += tally.mutants;
    fmt::print("{:<26} {:>8} {:>10} {:>9} {:>9} {:>11}\n", name_of(edit), tally.mutants, tally.by_structure,
               tally.by_verifier, tally.by_explorer, tally.equivalent);
  }
  for (std::size_t i = 0; i < std::min<std::size_t>(equivalents.size(), 30); ++i)
    fmt::print("equivalent: {}\n", equivalents[i]);
  fmt::print("{} mutants, {} not refused, {} refused wrongly\n", total, equivalents.size(), shown);
  EXPECT_LE(equivalents.size() * 50, static_cast<std::size_t>(total));
}

}  // namespace
}  // namespace tileway
