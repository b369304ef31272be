#include "tileway/explore.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <random>

#include "exec/host/explore/provenance.hpp"
#include "exec/host/explore/stepper.hpp"
#include "exec/host/explore/values.hpp"
#include "exec/host/explore/watch.hpp"
#include "plan/edit.hpp"
#include "plan/verify/rules.hpp"
#include "plan/verify/verify.hpp"
#include "tileway/error.hpp"

namespace tileway {
namespace host {
namespace {

// Chooses among steps by one seed.
class Chooser {
 public:
  Chooser(const Plan& plan, std::uint64_t seed) : random_(seed), adversary_(adversary_of(seed)) {
    slow_rank_ = static_cast<int>(random_() % static_cast<std::uint64_t>(plan.ranks()));
    if (!plan.lanes.empty()) slow_column_ = static_cast<int>(random_() % plan.lanes.size());
  }

  Step choose(const std::vector<Step>& steps) {
    switch (adversary_) {
      case Adversary::uniform:
        return any(steps);
      case Adversary::delay_rank:
        return any_but(steps, [&](const Step& step) { return step.event.instance.rank == slow_rank_; });
      case Adversary::delay_lane:
        return any_but(steps, [&](const Step& step) { return step.column == slow_column_; });
      case Adversary::one_lane: {
        const Step step = any_but(steps, [&](const Step& other) { return other.column != fast_column_; });
        fast_column_ = step.column;
        return step;
      }
      case Adversary::reverse:
        break;
    }
    return steps.back();
  }

 private:
  Step any(const std::vector<Step>& steps) { return steps[random_() % steps.size()]; }

  // Any that is not unwanted, or else any. A few tries at random, so that thousands of steps need not be looked
  // through.
  template <typename Unwanted>
  Step any_but(const std::vector<Step>& steps, const Unwanted& unwanted) {
    for (int tries = 0; tries < 4; ++tries) {
      const Step step = any(steps);
      if (!unwanted(step)) return step;
    }
    std::vector<Step> wanted;
    std::copy_if(steps.begin(), steps.end(), std::back_inserter(wanted), [&](const Step& s) { return !unwanted(s); });
    return any(wanted.empty() ? steps : wanted);
  }

  std::mt19937_64 random_;
  Adversary adversary_;
  int slow_rank_ = 0;
  int slow_column_ = -1;
  int fast_column_ = -1;
};

class Execution {
 public:
  explicit Execution(const verifier::Sequence& sequence, bool given = false)
      : sequence_(sequence), stepper_(sequence), watch_(sequence), provenance_(sequence, given) {
    for (const Step& step : stepper_.begin()) open(step);
  }

  const std::vector<Step>& enabled() const { return stepper_.enabled(); }
  bool failed() const { return result_.finding.has_value(); }

  // From now on steps also compute.
  void compute_with(Values& values) { values_ = &values; }

  void take(const Step& step) {
    watch_.closed(step);
    note(provenance_.take(step.event));
    if (values_ && !failed()) values_->take(step.event);
    for (const Step& fresh : stepper_.take(step)) open(fresh);
  }

  Exploration result() {
    if (!failed() && enabled().empty() && !stepper_.finished()) {
      Refusal deadlock = verifier::deadlock(sequence_, stepper_.standing());
      result_.finding = Finding{Fault::deadlock, std::move(deadlock.tasks), std::move(deadlock.text)};
    }
    result_.steps = stepper_.taken();
    result_.outcome = provenance_.outcome();
    return result_;
  }

 private:
  void open(const Step& step) { note(watch_.opened(stepper_, step)); }
  void note(std::optional<Finding> finding) {
    if (!failed() && finding) result_.finding = std::move(finding);
  }

  const verifier::Sequence& sequence_;
  Stepper stepper_;
  Watch watch_;
  Provenance provenance_;
  Values* values_ = nullptr;
  Exploration result_;
};

verifier::Sequence sequence_of(const Plan& plan, int runs) {
  return verifier::Sequence(std::vector<const Plan*>(runs > 0 ? runs : verifier::runs_to_prove(plan), &plan));
}

Exploration run(Execution& execution, const Plan& plan, std::uint64_t seed) {
  Chooser chooser(plan, seed);
  while (!execution.failed() && !execution.enabled().empty()) execution.take(chooser.choose(execution.enabled()));
  return execution.result();
}

Exploration run(const Plan& plan, std::uint64_t seed, int runs, bool given = false) {
  const verifier::Sequence sequence = sequence_of(plan, runs);
  Execution execution(sequence, given);
  return run(execution, plan, seed);
}

// Whether one of the adversaries finds that fault, where what was taken out counts as done; what is small is tried
// longer.
bool fails(const Plan& plan, std::uint64_t seed, Fault fault) {
  const std::uint64_t rounds = plan.tasks.size() < 500 ? 10 : 1;
  for (std::uint64_t s = seed; s < seed + rounds * kAdversaryCount; ++s) {
    const Exploration exploration = run(plan, s, 0, true);
    if (exploration.finding && exploration.finding->fault == fault) return true;
  }
  return false;
}

}  // namespace
}  // namespace host

std::string_view name_of(Adversary adversary) {
  constexpr std::array<std::string_view, kAdversaryCount> kNames{"uniform", "delay one rank", "delay one lane",
                                                                 "one lane as far as it goes", "reverse"};
  return kNames[static_cast<std::size_t>(adversary)];
}

Adversary adversary_of(std::uint64_t seed) { return static_cast<Adversary>(seed % kAdversaryCount); }

Exploration explore(const Plan& plan, std::uint64_t seed, int runs) {
  check_structure(plan);
  return host::run(plan, seed, runs);
}

ValueExploration explore_values(const Plan& plan, std::uint64_t seed, const std::vector<PartsByName>& inputs) {
  check_structure(plan);
  const verifier::Sequence sequence = host::sequence_of(plan, static_cast<int>(inputs.size()));
  host::Execution execution(sequence);
  host::Values values(sequence, inputs);
  execution.compute_with(values);
  Exploration exploration = host::run(execution, plan, seed);
  return {std::move(exploration), values.outputs()};
}

Exploration replay(const Plan& plan, const std::vector<Event>& order) {
  check_structure(plan);
  int runs = verifier::runs_to_prove(plan);
  const verifier::Sequence sequence = host::sequence_of(plan, runs);
  host::Execution execution(sequence);
  for (const Event& event : order) {
    const std::vector<host::Step>& steps = execution.enabled();
    const auto found = std::find_if(steps.begin(), steps.end(), [&](const host::Step& s) { return s.event == event; });
    TW_REQUIRE(
        found != steps.end(), ErrorKind::invalid, .where = plan.name,
        .what = "the order cannot happen: " + verifier::describe(sequence, event.instance) + " cannot go on yet");
    execution.take(*found);
  }
  return execution.result();
}

// Takes out runs of tasks, of half the plan first and of one at the end, as long as it still fails (the idea of delta
// debugging: Zeller and Hildebrandt, 2002).
Plan shrink(const Plan& plan, std::uint64_t seed) {
  const std::optional<Finding> finding = explore(plan, seed).finding;
  TW_REQUIRE(finding.has_value(), ErrorKind::invalid, .where = plan.name,
             .what = fmt::format("does not fail under seed {}", seed));
  Plan least = plan;
  std::size_t size = std::max<std::size_t>(1, plan.tasks.size() / 2);
  while (true) {
    bool smaller = false;
    for (std::size_t first = 0; first < least.tasks.size();) {
      std::vector<bool> gone(least.tasks.size(), false);
      const std::size_t last = std::min(least.tasks.size(), first + size);
      std::fill(gone.begin() + static_cast<std::ptrdiff_t>(first), gone.begin() + static_cast<std::ptrdiff_t>(last),
                true);
      Plan candidate = without_tasks(least, std::move(gone));
      if (host::fails(candidate, seed, finding->fault)) {
        least = std::move(candidate);
        smaller = true;
      } else {
        first = last;
      }
    }
    if (size == 1 && !smaller) break;
    if (!smaller) size = std::max<std::size_t>(1, size / 2);
  }
  check_structure(least);
  return least;
}

}  // namespace tileway
