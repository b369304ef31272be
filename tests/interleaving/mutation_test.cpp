// Broken plans are refused, and for the reason for which they are broken. A checker that never objected proves nothing.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "plan/verify/verify.hpp"
#include "support/mutate.hpp"
#include "support/oracle.hpp"
#include "support/quick.hpp"
#include "support/random_plan.hpp"
#include "support/run.hpp"
#include "tileway/error.hpp"
#include "tileway/explore.hpp"
#include "tileway/ops.hpp"

namespace tileway {
namespace {

using testing::Edit;
using testing::Mutant;

constexpr std::uint64_t kOrders = 50;  // in which the explorer tries a mutant
constexpr int kReplayEvery = 10;       // of the orders that refusals give

// Under sanitizers one mutant in so many, elsewhere all of them.
std::uint64_t one_in() { return testing::quick() ? 100 : 1; }

struct Tally {
  int mutants = 0;
  int by_structure = 0;
  int by_verifier = 0;
  int explored = 0;
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
    // By a collective library.
    const Program program = make_program(op, ranks, DType::f32, {});
    const Topology calls = Topology::parse(fmt::format("ranks={},lanes=2,copy=0,collective=1", ranks));
    plans.push_back(lower(program, Schedule::collective(program), calls).plan);
    // With products by a library, and copies by movers.
    const bool multiplies = std::any_of(program.ops().begin(), program.ops().end(),
                                        [](const Op& one) { return one.kind == OpKind::matmul; });
    const Topology products = Topology::parse(fmt::format("ranks={},lanes=2,copy=0,library=1,movers=1", ranks));
    if (multiplies) plans.push_back(lower(program, Schedule::library(program), products).plan);
  }
  return plans;
}

// Tries mutants of plans and keeps the count.
class Trial {
 public:
  // Explores one mutant in `explore_every`, in so many orders.
  Trial(int explore_every, std::uint64_t orders) : explore_every_(explore_every), orders_(orders) {}

  void judge(const Plan& plan, const std::string& of, const Mutant& mutant) {
    Tally& tally = tallies_[mutant.edit];
    ++tally.mutants;
    const Plan broken = testing::apply(mutant, plan);
    const std::string context = fmt::format("{} {} {}: {}", of, plan.schedule, plan.topology.to_text(), mutant.text);
    std::string text;
    const std::optional<Fault> fault = refused(broken, text);
    const bool by_structure = !fault && !text.empty();
    tally.by_structure += by_structure;
    tally.by_verifier += fault.has_value();
    if (!by_structure && judged_++ % explore_every_ == 0) {
      ++tally.explored;
      bool found = false;
      for (std::uint64_t seed = 0; seed < orders_ && !found; ++seed) found = explore(broken, seed).finding.has_value();
      tally.by_explorer += found;
    }
    if (!fault && !by_structure) {
      ++tally.equivalent;
      equivalents_.push_back(context);
      ASSERT_LT(broken.tasks.size(), 500U) << "too large for the oracle: " << context;
      EXPECT_TRUE(testing::explore_without_each_step(broken, 2).faults.empty()) << context;
      return;
    }
    ++refused_of_[of][mutant.edit];
    const bool has_order = fault == Fault::race || fault == Fault::unwritten;
    if (has_order && ordered_++ % kReplayEvery == 0) replay_order(broken, context);
    const bool right = by_structure || mutant.expected.contains(*fault);
    if (right && names_what_was_edited(mutant, text)) return;
    if (wrong_++ < 12)
      ADD_FAILURE() << context << (right ? " is not named" : " is refused for something else") << " by\n" << text;
  }

  void finish() const {
    int total = 0;
    fmt::print("{:<26} {:>8} {:>10} {:>9} {:>16} {:>11}\n", "edit", "mutants", "structure", "verifier",
               fmt::format("{} orders", orders_), "equivalent");
    for (const auto& [edit, tally] : tallies_) {
      total += tally.mutants;
      fmt::print("{:<26} {:>8} {:>10} {:>9} {:>16} {:>11}\n", name_of(edit), tally.mutants, tally.by_structure,
                 tally.by_verifier, fmt::format("{} of {}", tally.by_explorer, tally.explored), tally.equivalent);
    }
    for (const std::string& equivalent : equivalents_) fmt::print("equivalent: {}\n", equivalent);
    EXPECT_EQ(wrong_, 0);
    EXPECT_LE(equivalents_.size() * 50, static_cast<std::size_t>(total));
  }

  // The order that a refusal gives is one that can happen, and shows the fault when it is replayed.
  static void replay_order(const Plan& broken, const std::string& context) {
    const Verdict verdict = verify(broken);
    if (verdict.refusal->order.empty()) return;  // nobody writes: no order is needed
    EXPECT_TRUE(replay(broken, verdict.refusal->order).finding) << context << "\n" << verdict.refusal->text;
  }

  // How many of an operator's mutants of a kind were refused.
  int refused_of(std::string_view of, Edit edit) const {
    const auto found = refused_of_.find(std::string(of));
    return found == refused_of_.end() || !found->second.contains(edit) ? 0 : found->second.at(edit);
  }

 private:
  int explore_every_;
  std::uint64_t orders_;
  int judged_ = 0;
  int ordered_ = 0;
  std::map<Edit, Tally> tallies_;
  std::map<std::string, std::map<Edit, int>> refused_of_;
  std::vector<std::string> equivalents_;
  int wrong_ = 0;
};

TEST(Mutations, OfEveryOperatorsPlansAreRefusedForTheRightReason) {
  Trial trial(1, kOrders);
  for (const Operator& op : operators()) {
    for (const Plan& plan : plans_of(op)) {
      for (const Mutant& mutant : testing::mutants(plan, one_in())) trial.judge(plan, std::string(op.name), mutant);
    }
    for (Edit edit :
         {Edit::drop_wait, Edit::lower_wait, Edit::drop_notification, Edit::redirect_notification, Edit::weaken_scope,
          Edit::swap_tasks, Edit::move_task, Edit::drop_after_previous, Edit::shrink_buffer, Edit::shift_box}) {
      if (one_in() == 1 && trial.refused_of(op.name, edit) < 20)
        fmt::print("{}: only {} of {}\n", op.name, trial.refused_of(op.name, edit), name_of(edit));
    }
  }
  trial.finish();
}

TEST(Mutations, SampledOfAPlanForEightGpusAreRefusedForTheRightReason) {
  Trial trial(200, 3);  // an order of such a plan takes long, and all are tried where the fault is not one of order
  const Program program =
      make_program(find_operator("gemm_all_reduce"), 8, DType::bf16, std::vector<std::int64_t>{4096, 8192, 4096});
  const Plan plan = lower(program, Schedule::overlapped(program), Topology::gpus(8)).plan;
  const std::vector<Mutant> sample = testing::mutants(plan, 40 * one_in(), 1);
  for (const Mutant& mutant : sample) trial.judge(plan, "gemm_all_reduce", mutant);
  EXPECT_GE(sample.size() * one_in(), 500U);
  trial.finish();
}

TEST(Mutations, EveryRuleOfTheVerifierIsNeeded) {
  std::map<Fault, int> let_through;
  for (const Operator& op : operators()) {
    for (const Plan& plan : plans_of(op)) {
      for (const Mutant& mutant : testing::mutants(plan, one_in() == 1 ? 3 : 30, 3)) {
        const Plan broken = testing::apply(mutant, plan);
        std::string text;
        const std::optional<Fault> fault = refused(broken, text);
        if (!fault || let_through[*fault] >= 20) continue;
        text.clear();
        if (!refused(broken, text, {*fault}) && text.empty()) ++let_through[*fault];
      }
    }
  }
  // Careless small plans, too: in operators' plans whatever runs ahead also races.
  for (std::uint64_t seed = 1; seed < 2000; ++seed) {
    const Plan plan = testing::random_plan(seed);
    std::string text;
    const std::optional<Fault> fault = refused(plan, text);
    if (fault && !refused(plan, text, {*fault})) ++let_through[*fault];
  }
  for (int f = 0; f < kFaultCount; ++f) {
    const auto fault = static_cast<Fault>(f);
    fmt::print("without the rule of {}, {} broken plans get through\n", name_of(fault), let_through[fault]);
    EXPECT_GT(let_through[fault], 0) << name_of(fault);
  }
}

}  // namespace
}  // namespace tileway
