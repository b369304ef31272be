#include "plan/verify/verify.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>

#include "plan/verify/clocks.hpp"
#include "plan/verify/memory.hpp"
#include "plan/verify/races.hpp"
#include "plan/verify/rules.hpp"
#include "plan/verify/witness.hpp"
#include "tileway/error.hpp"

namespace tileway {
namespace verifier {
namespace {

std::size_t longest_chain(const Sequence& sequence, const Progress& progress) {
  const Plan& plan = sequence.plan(0);
  std::vector<std::size_t> reached(plan.signals.size(), 0);
  std::size_t longest = 0;
  for (int instance : progress.order) {
    if (sequence.run_of(instance) != 0) continue;
    std::size_t depth = 0;
    for (const Wait& wait : plan.tasks[instance].waits) depth = std::max(depth, reached[wait.signal]);
    ++depth;
    for (const Notify& notify : plan.tasks[instance].notifies)
      reached[notify.signal] = std::max(reached[notify.signal], depth);
    longest = std::max(longest, depth);
  }
  return longest;
}

// The suspect that goes wrong first, with its words.
Refusal explain(const Sequence& sequence, const Progress& progress, const std::vector<Suspect>& suspects) {
  std::vector<int> position(sequence.instances(), 0);
  for (std::size_t i = 0; i < progress.order.size(); ++i) position[progress.order[i]] = static_cast<int>(i);
  const auto rank_of = [&](const Suspect& suspect) {
    const auto place = [&](const Instance& instance) {
      return instance.task == -1 ? sequence.instances() : position[sequence.instance(instance.run, instance.task)];
    };
    // Of several that should have come first the last: it is nearest to what is missing.
    return std::tuple(suspect.second.run, place(suspect.second), suspect.fault != Fault::race, -place(suspect.first));
  };
  const Suspect& worst = *std::min_element(suspects.begin(), suspects.end(),
                                           [&](const Suspect& a, const Suspect& b) { return rank_of(a) < rank_of(b); });
  Refusal refusal{.fault = worst.fault,
                  .tasks = {worst.first, worst.second},
                  .signal = -1,
                  .buffer = worst.buffer,
                  .region = worst.region};
  const bool caller = worst.second.task == -1;
  const Plan& plan = *worst.plan;
  const Buffer& buffer = plan.buffers[worst.buffer];
  const std::string where =
      fmt::format("{} of buffer {} '{}' of rank {}", to_string(worst.region), worst.buffer, buffer.name, buffer.rank);
  const std::string first = describe(sequence, worst.first);
  const std::string second = describe(sequence, worst.second);
  if (worst.nobody_writes) {
    refusal.tasks = {worst.second};
    refusal.text = fmt::format("{} reads {}, which nothing has written in that run\n", second, where);
    return refusal;
  }
  refusal.order = witness(sequence, {worst.first, worst.first_stage}, {worst.second, worst.second_stage});
  refusal.text = worst.fault == Fault::race
                     ? fmt::format("{} and {} both touch {}, and nothing orders them\n", first, second, where)
                     : fmt::format("{} reads {} and {} need not have written it by then\n", second, where, first);
  if (worst.first.task != -1) {
    const Plan& its = sequence.plan(worst.first.run);
    refusal.text += fmt::format("  {}\n", raises_of(its, worst.first.task));
    refusal.text += loose_ends(its, worst.first.task, worst.second.rank);
  }
  if (!caller) refusal.text += fmt::format("  {}\n", waits_of(plan, worst.second.task));
  if (worst.second.run > worst.first.run) refusal.text += waits_of_rank(plan, worst.second.rank);
  if (!refusal.order.empty())
    refusal.text += fmt::format("  an order in which the second comes before the first has ended:\n{}",
                                order_text(sequence, refusal.order));
  return refusal;
}

Verdict verify_sequence(const Sequence& sequence, const std::set<Fault>& off) {
  Verdict verdict;
  Proof& proof = verdict.proof;
  proof.runs = static_cast<std::size_t>(sequence.runs());
  proof.instances = static_cast<std::size_t>(sequence.instances());
  proof.lanes = static_cast<std::size_t>(sequence.columns() - sequence.ranks());
  for (const Task& task : sequence.plan(0).tasks) proof.waits += task.waits.size();
  const Progress order = progress(sequence);
  if (!order.complete) {
    if (!off.contains(Fault::deadlock)) verdict.refusal = deadlock(sequence, order);
    return verdict;
  }
  proof.longest_chain = longest_chain(sequence, order);
  const Clocks clocks(sequence, order);
  proof.bytes = clocks.bytes();
  std::vector<Suspect> suspects;
  for (const Memory& memory : memories(sequence)) find_suspects(sequence, clocks, memory, suspects, proof.pairs);
  std::erase_if(suspects, [&](const Suspect& suspect) { return off.contains(suspect.fault); });
  // The clocks rest on no signal running ahead. What conflicts under them conflicts without them too, and says more.
  if (!suspects.empty()) {
    verdict.refusal = explain(sequence, order, suspects);
  } else if (!off.contains(Fault::run_ahead)) {
    verdict.refusal = check_run_ahead(sequence, clocks);
  }
  return verdict;
}

// What is shared under one name has one shape and type.
void check_shared(std::span<const Plan* const> plans) {
  std::map<std::pair<std::int32_t, std::string>, const Buffer*> known;
  for (const Plan* plan : plans) {
    for (const Buffer& buffer : plan->buffers) {
      if (buffer.shared.empty()) continue;
      const Buffer& first = *known.emplace(std::pair(buffer.rank, buffer.shared), &buffer).first->second;
      const auto text = [](const Buffer& b) { return std::string(name_of(b.dtype)) + to_string(b.shape); };
      TW_REQUIRE(text(first) == text(buffer), ErrorKind::invalid, .where = "plan " + plan->name,
                 .what = fmt::format("buffer '{}' of rank {}, shared as '{}', has another type than the first",
                                     buffer.name, buffer.rank, buffer.shared),
                 .expected = text(first), .got = text(buffer));
    }
  }
}

}  // namespace

int runs_to_prove(const Plan& plan) {
  std::int32_t period = 1;
  for (const Buffer& buffer : plan.buffers) period = std::lcm(period, buffer.slots);
  return period + 1;
}

Verdict verify_without(std::span<const Plan* const> plans, const std::set<Fault>& switched_off) {
  Verdict verdict;
  for (const Plan* plan : plans) check_structure(*plan);
  check_shared(plans);
  for (const Plan* plan : plans) {
    if (!switched_off.contains(Fault::scope)) verdict.refusal = check_scopes(*plan);
    if (!verdict.refusal && !switched_off.contains(Fault::residency)) verdict.refusal = check_residency(*plan);
    if (verdict.refusal) return verdict;
  }
  for (const Plan* plan : plans) {
    verdict = verify_sequence(Sequence(std::vector<const Plan*>(runs_to_prove(*plan), plan)), switched_off);
    if (verdict.refusal) return verdict;
  }
  for (const Plan* first : plans) {
    for (const Plan* second : plans) {
      if (first == second) continue;
      verdict = verify_sequence(Sequence({first, second}), switched_off);
      if (verdict.refusal) return verdict;
    }
  }
  return verdict;
}

}  // namespace verifier

std::string_view name_of(Fault fault) {
  constexpr std::array<std::string_view, kFaultCount> kNames{"deadlock",  "race",  "unwritten",
                                                             "run ahead", "scope", "residency"};
  return kNames[static_cast<std::size_t>(fault)];
}

Verdict verify(const Plan& plan) {
  const Plan* const one = &plan;
  return verify(std::span(&one, 1));
}

Verdict verify(std::span<const Plan* const> plans) { return verifier::verify_without(plans, {}); }

ProvenPlan::ProvenPlan(Plan plan, const Proof& proof)
    : plan_(std::move(plan)), proof_(proof), fingerprint_(tileway::fingerprint(plan_)) {}

ProvenPlan ProvenPlan::prove(Plan plan) {
  Verdict verdict = verify(plan);
  TW_REQUIRE(verdict.proven(), ErrorKind::refused, .where = "plan " + plan.name,
             .what = fmt::format("not safe: {}", name_of(verdict.refusal->fault)), .hint = verdict.refusal->text);
  return ProvenPlan(std::move(plan), verdict.proof);
}

}  // namespace tileway
