#include "plan/verify/rules.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <span>

#include "plan/check.hpp"
#include "plan/verify/witness.hpp"
#include "tileway/error.hpp"

namespace tileway::verifier {
namespace {

struct SignalUse {
  std::vector<std::pair<TaskId, const Wait*>> waits;
  std::vector<TaskId> notifiers;
};

std::vector<SignalUse> uses(const Plan& plan) {
  std::vector<SignalUse> all(plan.signals.size());
  for (std::size_t t = 0; t < plan.tasks.size(); ++t) {
    for (const Wait& wait : plan.tasks[t].waits) all[wait.signal].waits.emplace_back(static_cast<TaskId>(t), &wait);
    for (const Notify& notify : plan.tasks[t].notifies) all[notify.signal].notifiers.push_back(static_cast<TaskId>(t));
  }
  return all;
}

// Follows, from a task that cannot start, what it waits for, until a task comes twice or nobody is left to wait for.
class Chain {
 public:
  Chain(const Sequence& sequence, const Progress& progress) : sequence_(sequence), progress_(progress) {
    for (int instance = 0; instance < sequence.instances(); ++instance) {
      if (progress.ended[instance]) continue;
      const int run = sequence.run_of(instance);
      for (const Notify& notify : sequence.task(instance).notifies) {
        std::vector<int>& missing = missing_[sequence.signal(run, notify.signal)];
        if (missing.empty() || missing.back() != instance) missing.push_back(instance);
      }
    }
  }

  Refusal follow() {
    int at = first_standing();
    while (at != -1 && std::find(chain_.begin(), chain_.end(), at) == chain_.end()) {
      chain_.push_back(at);
      at = next(at);
    }
    const auto begin = at == -1 ? chain_.begin() : std::find(chain_.begin(), chain_.end(), at);
    const auto skipped = static_cast<std::size_t>(begin - chain_.begin());
    Refusal refusal{.fault = Fault::deadlock};
    refusal.text = at == -1 ? "nothing can go on: a task waits for what never comes\n"
                            : "nothing can go on: these tasks wait for each other\n";
    for (std::size_t i = skipped; i < chain_.size(); ++i) {
      refusal.tasks.push_back(sequence_.describe(chain_[i]));
      refusal.text += "  " + describe(sequence_, refusal.tasks.back()) + " " + reasons_[i] + "\n";
    }
    refusal.signal = signals_[skipped];
    for (int instance : progress_.order) refusal.order.push_back({sequence_.describe(instance), Stage::store});
    return refusal;
  }

 private:
  int first_standing() const {
    const auto found =
        std::find_if(progress_.standing.begin(), progress_.standing.end(), [](int instance) { return instance != -1; });
    return found == progress_.standing.end() ? -1 : *found;
  }

  // A wait that does not hold, and what it sees.
  struct Unmet {
    Wait wait;
    std::uint64_t seen = 0;
  };
  std::optional<Unmet> unmet(int instance) {
    const int run = sequence_.run_of(instance);
    for (const Wait& wait : sequence_.task(instance).waits) {
      std::uint64_t lacking = 0;
      for (int other : missing_[sequence_.signal(run, wait.signal)]) {
        for (const Notify& notify : sequence_.task(other).notifies) {
          if (notify.signal == wait.signal) lacking += notify.amount;
        }
      }
      const std::uint64_t seen = sequence_.plan(run).signals[wait.signal].total - lacking;
      if (seen < wait.value) return Unmet{wait, seen};
    }
    return std::nullopt;
  }

  // What has to end before this one can; notes the reason.
  int next(int instance) {
    const int run = sequence_.run_of(instance);
    const Task& task = sequence_.task(instance);
    if (const std::optional<Unmet> found = unmet(instance)) {
      const auto& [wait, seen] = *found;
      const std::vector<int>& missing = missing_[sequence_.signal(run, wait.signal)];
      signals_.push_back(wait.signal);
      const std::string what = fmt::format("waits for signal {} >= {} and sees {}", wait.signal, wait.value, seen);
      if (missing.empty()) {
        reasons_.push_back(what + ", which nobody raises further");
        return -1;
      }
      const int standing = in_front_of(missing[0]);
      reasons_.push_back(fmt::format("{}; {} would raise it{}", what,
                                     describe(sequence_, sequence_.describe(missing[0])),
                                     standing == missing[0] ? "" : ", and is behind"));
      return standing;
    }
    TW_ASSERT(task.joint != -1);
    signals_.push_back(-1);
    reasons_.push_back(fmt::format("has begun joint {} and waits for its other members", task.joint));
    return missing_member(run, task.joint);
  }

  // The unfinished task at the head of this one's lane, or, where its rank has not come to its run, of any lane there.
  int in_front_of(int instance) const {
    const int run = sequence_.run_of(instance);
    const Task& task = sequence_.task(instance);
    const int current = progress_.run_of_rank[task.rank];
    if (current == run) return progress_.standing[sequence_.lane_column(run, task.lane)];
    for (std::int32_t lane : sequence_.lanes_of(current, task.rank)) {
      const int standing = progress_.standing[sequence_.lane_column(current, lane)];
      if (standing != -1) return standing;
    }
    return -1;
  }

  // What keeps a member from beginning.
  int missing_member(int run, std::int32_t joint) {
    const Plan& plan = sequence_.plan(run);
    for (std::size_t t = 0; t < plan.tasks.size(); ++t) {
      const int instance = sequence_.instance(run, static_cast<TaskId>(t));
      if (plan.tasks[t].joint != joint) continue;
      const int standing = in_front_of(instance);
      if (standing != instance || unmet(instance)) return standing;
    }
    return -1;
  }

  const Sequence& sequence_;
  const Progress& progress_;
  std::map<int, std::vector<int>> missing_;  // by signal of a run: notifiers that have not ended
  std::vector<int> chain_;
  std::vector<std::string> reasons_;
  std::vector<SignalId> signals_;
};

// "a, b and 3 more".
std::string listed(const std::vector<std::string>& items) {
  constexpr std::size_t kShown = 8;
  if (items.empty()) return "nothing";
  std::string text = items[0];
  for (std::size_t i = 1; i < std::min(kShown, items.size()); ++i) text += ", " + items[i];
  if (items.size() > kShown) text += fmt::format(" and {} more", items.size() - kShown);
  return text;
}

}  // namespace

std::string describe(const Sequence& sequence, const Instance& instance) {
  if (instance.task == -1 && instance.run == sequence.runs())
    return fmt::format("the caller of rank {} after run {}", instance.rank, instance.run - 1);
  if (instance.task == -1) return fmt::format("the caller of rank {} before run {}", instance.rank, instance.run);
  const Plan& plan = sequence.plan(instance.run);
  const Task& task = plan.tasks[instance.task];
  const std::string of = sequence.runs() > 1 && sequence.plan_number(sequence.runs() - 1) > 0
                             ? fmt::format(" of plan {}", plan.name)
                             : std::string();
  return fmt::format("task {} (rank {}, lane {}, {}) in run {}{}", instance.task, task.rank, task.lane,
                     plan.origins[task.origin], instance.run, of);
}

std::string waits_of(const Plan& plan, TaskId id) {
  const std::vector<TaskId>& lane = plan.lanes[plan.tasks[id].lane].tasks;
  std::vector<std::string> waits;
  for (std::int32_t i = plan.tasks[id].index; i >= 0; --i) {
    for (const Wait& wait : plan.tasks[lane[i]].waits) {
      waits.push_back(fmt::format("signal {} >= {} of {}", wait.signal, wait.value, plan.signals[wait.signal].total));
      if (lane[i] != id) waits.back() += fmt::format(" (task {})", lane[i]);
    }
  }
  return fmt::format("task {} waits, and its lane has waited, for {}", id, listed(waits));
}

std::string raises_of(const Plan& plan, TaskId id) {
  const std::vector<TaskId>& lane = plan.lanes[plan.tasks[id].lane].tasks;
  std::vector<std::string> raises;
  for (std::size_t i = plan.tasks[id].index; i < lane.size(); ++i) {
    for (const Notify& notify : plan.tasks[lane[i]].notifies) {
      raises.push_back(fmt::format("signal {} by {}", notify.signal, notify.amount));
      if (lane[i] != id) raises.back() += fmt::format(" (task {})", lane[i]);
    }
  }
  return fmt::format("task {} raises, and its lane raises after it, {}", id, listed(raises));
}

std::string waits_of_rank(const Plan& plan, std::int32_t rank) {
  constexpr int kShown = 6;
  std::string text;
  int shown = 0;
  for (const Lane& lane : plan.lanes) {
    const bool waits =
        std::any_of(lane.tasks.begin(), lane.tasks.end(), [&](TaskId id) { return !plan.tasks[id].waits.empty(); });
    if (lane.rank != rank || !waits || ++shown > kShown) continue;
    text += fmt::format("  before the caller: {}\n", waits_of(plan, lane.tasks.back()));
  }
  return text;
}

std::string loose_ends(const Plan& plan, TaskId first, std::int32_t rank) {
  const auto from_here_on = [&](TaskId id) {
    const std::vector<TaskId>& lane = plan.lanes[plan.tasks[id].lane].tasks;
    return std::span(lane).subspan(static_cast<std::size_t>(plan.tasks[id].index));
  };
  std::set<SignalId> raised_by_lane;
  for (TaskId id : from_here_on(first)) {
    for (const Notify& notify : plan.tasks[id].notifies) raised_by_lane.insert(notify.signal);
  }
  std::set<TaskId> next;
  std::vector<std::uint32_t> awaited(plan.signals.size(), 0);  // the most that anybody waits for
  std::vector<bool> raised(plan.signals.size());
  for (std::size_t id = 0; id < plan.tasks.size(); ++id) {
    const Task& task = plan.tasks[id];
    for (const Wait& wait : task.waits) {
      awaited[wait.signal] = std::max(awaited[wait.signal], wait.value);
      if (!raised_by_lane.contains(wait.signal)) continue;
      for (TaskId behind : from_here_on(static_cast<TaskId>(id))) next.insert(behind);
    }
    if (task.rank != plan.tasks[first].rank) continue;
    for (const Notify& notify : task.notifies) raised[notify.signal] = true;
  }
  std::vector<std::string> raises;
  for (TaskId id : next) {
    if (plan.tasks[id].notifies.empty()) raises.push_back(fmt::format("nothing (task {})", id));
    for (const Notify& notify : plan.tasks[id].notifies)
      raises.push_back(fmt::format("signal {} (task {})", notify.signal, id));
  }
  std::vector<std::string> loose;
  for (std::size_t s = 0; s < plan.signals.size(); ++s) {
    const SignalInfo& signal = plan.signals[s];
    if (raised[s] && signal.rank == rank && awaited[s] < signal.total)
      loose.push_back(fmt::format("signal {} (for {} of {})", s, awaited[s], signal.total));
  }
  std::string text;
  if (!raises.empty())
    text += fmt::format("  those who wait for that, and their lanes after it, raise {}\n", listed(raises));
  if (!loose.empty())
    text += fmt::format("  of what its rank raises at rank {} nobody waits in full for {}\n", rank, listed(loose));
  return text;
}

std::string order_text(const Sequence& sequence, const std::vector<Event>& order) {
  constexpr std::size_t kShown = 10;
  constexpr std::array<std::string_view, 3> kDoes{"loads", "computes", "stores"};
  // Of a task that ends, its end is enough.
  std::vector<Event> steps;
  for (const Event& event : order) {
    if (event.instance.task == -1 || event.stage == Stage::store || event == order.back()) steps.push_back(event);
  }
  std::string text;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (steps.size() > kShown + 1 && i == kShown / 2) {
      text += fmt::format("    ... {} more\n", steps.size() - kShown);
      i = steps.size() - kShown / 2;
    }
    const Event& event = steps[i];
    const std::string_view does = kDoes[static_cast<std::size_t>(event.stage)];
    text += fmt::format("    {}. {}{}{}\n", i + 1, describe(sequence, event.instance),
                        event.instance.task == -1 ? "" : " ", event.instance.task == -1 ? "" : does);
  }
  return text;
}

std::optional<Refusal> check_scopes(const Plan& plan) {
  const std::vector<SignalUse> all = uses(plan);
  for (std::size_t t = 0; t < plan.tasks.size(); ++t) {
    const Task& task = plan.tasks[t];
    for (const Notify& notify : task.notifies) {
      if (notify.scope == Notify::Scope::system) continue;
      const auto id = static_cast<TaskId>(t);
      const SignalInfo& signal = plan.signals[notify.signal];
      Refusal refusal{.fault = Fault::scope, .tasks = {{0, id, task.rank}}, .signal = notify.signal};
      if (signal.rank != task.rank) {
        refusal.text = fmt::format(
            "{} raises signal {} of rank {} at device scope: its waiter is on another device and may never see it, or "
            "see it before the data\n",
            task_name(plan, id), notify.signal, signal.rank);
        return refusal;
      }
      const Engine own = plan.lanes[task.lane].engine;
      if (own != Engine::compute) {
        refusal.text =
            fmt::format("{} raises signal {} at device scope from a {} lane, which is not part of the device\n",
                        task_name(plan, id), notify.signal, name_of(own));
        return refusal;
      }
      for (const auto& [waiter, wait] : all[notify.signal].waits) {
        const Engine engine = plan.lanes[plan.tasks[waiter].lane].engine;
        if (engine == Engine::compute) continue;
        refusal.tasks.push_back({0, waiter, task.rank});
        refusal.text = fmt::format(
            "{} raises signal {} at device scope, and {} waits for it on a {} lane, which is not part of the device\n",
            task_name(plan, id), notify.signal, task_name(plan, waiter), name_of(engine));
        return refusal;
      }
    }
  }
  return std::nullopt;
}

std::optional<Refusal> check_residency(const Plan& plan) {
  std::map<std::pair<std::int32_t, Engine>, int> lanes;
  for (const Lane& lane : plan.lanes) {
    const int offered = plan.topology.lanes_of(lane.engine);
    if (++lanes[{lane.rank, lane.engine}] <= offered) continue;
    Refusal refusal{.fault = Fault::residency};
    if (!lane.tasks.empty()) refusal.tasks.push_back({0, lane.tasks[0], lane.rank});
    const std::string first = lane.tasks.empty() ? "without tasks" : "from " + task_name(plan, lane.tasks[0]) + " on";
    refusal.text = fmt::format(
        "rank {} has more {} lanes than the {} that the topology offers, such as the one {}: a lane that waits could "
        "keep the one that it waits for from starting\n",
        lane.rank, name_of(lane.engine), offered, first);
    return refusal;
  }
  return std::nullopt;
}

Refusal deadlock(const Sequence& sequence, const Progress& progress) { return Chain(sequence, progress).follow(); }

std::optional<Refusal> check_run_ahead(const Sequence& sequence, const Clocks& clocks) {
  for (int run = 0; run < sequence.runs(); ++run) {
    int next = run + 1;
    while (next < sequence.runs() && sequence.plan_number(next) != sequence.plan_number(run)) ++next;
    if (next == sequence.runs()) continue;
    const Plan& plan = sequence.plan(run);
    const std::vector<SignalUse> all = uses(plan);
    for (std::size_t s = 0; s < all.size(); ++s) {
      // A rank ends its run before it begins the next: what it alone raises comes run by run.
      const bool one_rank = std::all_of(all[s].notifiers.begin(), all[s].notifiers.end(), [&](TaskId id) {
        return plan.tasks[id].rank == plan.tasks[all[s].notifiers[0]].rank;
      });
      if (one_rank) continue;
      for (const auto& [waiter, wait] : all[s].waits) {
        for (TaskId notifier : all[s].notifiers) {
          // On one rank the caller is between the two runs.
          if (plan.tasks[notifier].rank == plan.signals[s].rank) continue;
          if (clocks.ended_before(sequence.instance(run, waiter), sequence.instance(next, notifier), Stage::store))
            continue;
          const Instance early{next, notifier, plan.tasks[notifier].rank};
          const Instance waiting{run, waiter, plan.tasks[waiter].rank};
          Refusal refusal{.fault = Fault::run_ahead, .tasks = {waiting, early}, .signal = static_cast<SignalId>(s)};
          refusal.text = fmt::format(
              "{} may raise signal {} before {} has waited for its value of run {}: it would take the one for the "
              "other\n  {}\n  {}\n",
              describe(sequence, early), s, describe(sequence, waiting), run, raises_of(plan, waiter),
              waits_of(plan, notifier));
          refusal.order = witness(sequence, {waiting, wait->stage}, {early, Stage::store});
          if (!refusal.order.empty())
            refusal.text += "  an order in which it does:\n" + order_text(sequence, refusal.order);
          return refusal;
        }
      }
    }
  }
  return std::nullopt;
}

}  // namespace tileway::verifier
