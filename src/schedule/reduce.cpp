#include "schedule/reduce.hpp"

#include <algorithm>
#include <map>

#include "plan/edit.hpp"
#include "plan/verify/clocks.hpp"
#include "tileway/verify.hpp"

namespace tileway {
namespace {

using verifier::Clocks;
using verifier::Sequence;

std::vector<std::vector<TaskId>> notifiers_of(const Plan& plan) {
  std::vector<std::vector<TaskId>> notifiers(plan.signals.size());
  for (std::size_t t = 0; t < plan.tasks.size(); ++t) {
    for (const Notify& notify : plan.tasks[t].notifies) notifiers[notify.signal].push_back(static_cast<TaskId>(t));
  }
  return notifiers;
}

// What the proof knows of one plan over two runs. What holds in both holds in all: later runs know no less.
class Knowledge {
 public:
  explicit Knowledge(const Plan& plan)
      : plan_(plan),
        sequence_({&plan, &plan}),
        progress_(verifier::progress(sequence_)),
        clocks_(sequence_, progress_) {}

  // Whether the first has always ended when the second ends.
  bool ended_before(TaskId first, TaskId second) const {
    return in_both([&](int run) {
      return clocks_.ended_before(sequence_.instance(run, first), sequence_.instance(run, second), Stage::store) ||
             (plan_.tasks[first].lane == plan_.tasks[second].lane &&
              plan_.tasks[first].index < plan_.tasks[second].index);
    });
  }
  // Whether a task that waits at its load stage would know the other's end without its waits, from its lane.
  bool known_to_lane(TaskId other, TaskId waiter) const {
    const Task& task = plan_.tasks[waiter];
    if (task.index == 0) return false;
    const TaskId previous = plan_.lanes[task.lane].tasks[task.index - 1];
    return in_both([&](int run) {
      return clocks_.ended_before(sequence_.instance(run, other), sequence_.instance(run, previous), Stage::load);
    });
  }

 private:
  template <typename Check>
  static bool in_both(const Check& check) {
    return check(0) && check(1);
  }
  const Plan& plan_;
  Sequence sequence_;
  verifier::Progress progress_;
  Clocks clocks_;
};

// Of a signal's notifiers, those that no other one follows.
std::vector<TaskId> last_of(const Plan& plan, const Knowledge& knowledge, const std::vector<TaskId>& notifiers) {
  std::map<std::int32_t, TaskId> last_in_lane;
  for (TaskId id : notifiers) {
    const auto [found, fresh] = last_in_lane.emplace(plan.tasks[id].lane, id);
    if (!fresh && plan.tasks[id].index > plan.tasks[found->second].index) found->second = id;
  }
  std::vector<TaskId> last;
  for (const auto& [lane, id] : last_in_lane) {
    const bool followed = std::any_of(last_in_lane.begin(), last_in_lane.end(), [&, mine = id](const auto& other) {
      return other.second != mine && knowledge.ended_before(mine, other.second);
    });
    if (!followed) last.push_back(id);
  }
  return last;
}

void drop_notifications(Plan& plan, const Knowledge& knowledge) {
  std::vector<std::vector<TaskId>> notifiers = notifiers_of(plan);
  for (std::vector<TaskId>& list : notifiers) list = last_of(plan, knowledge, list);
  for (std::size_t t = 0; t < plan.tasks.size(); ++t) {
    std::erase_if(plan.tasks[t].notifies, [&](const Notify& notify) {
      const std::vector<TaskId>& kept = notifiers[notify.signal];
      return std::find(kept.begin(), kept.end(), static_cast<TaskId>(t)) == kept.end();
    });
  }
}

// Whether a task knows without its wait `but` that another has ended: from its lane or from its other waits.
bool known_without(const Plan& plan, const Knowledge& knowledge, const std::vector<std::vector<TaskId>>& notifiers,
                   TaskId waiter, const Wait& but, TaskId other) {
  if (knowledge.known_to_lane(other, waiter)) return true;
  const std::vector<Wait>& waits = plan.tasks[waiter].waits;
  return std::any_of(waits.begin(), waits.end(), [&](const Wait& wait) {
    const std::vector<TaskId>& awaited = notifiers[wait.signal];
    return wait.signal != but.signal && std::any_of(awaited.begin(), awaited.end(), [&](TaskId id) {
             return id == other || knowledge.ended_before(other, id);
           });
  });
}

// Takes away what all waiters of a signal know anyway: single notifications, and then waits that nothing is left of.
void drop_known(Plan& plan, const Knowledge& knowledge) {
  std::vector<std::vector<TaskId>> notifiers = notifiers_of(plan);
  std::vector<std::vector<TaskId>> waiters(plan.signals.size());
  for (std::size_t t = 0; t < plan.tasks.size(); ++t) {
    for (const Wait& wait : plan.tasks[t].waits) waiters[wait.signal].push_back(static_cast<TaskId>(t));
  }
  for (std::size_t s = 0; s < plan.signals.size(); ++s) {
    const Wait wait{.signal = static_cast<SignalId>(s)};
    std::vector<TaskId>& awaited = notifiers[s];
    // A single waiter may do without the whole signal; the others need what they do not know.
    std::erase_if(waiters[s], [&](TaskId waiter) {
      const bool needless = std::all_of(awaited.begin(), awaited.end(), [&](TaskId id) {
        return known_without(plan, knowledge, notifiers, waiter, wait, id);
      });
      if (needless)
        std::erase_if(plan.tasks[waiter].waits, [&](const Wait& other) { return other.signal == wait.signal; });
      return needless;
    });
    std::erase_if(awaited, [&](TaskId id) {
      const bool known = std::all_of(waiters[s].begin(), waiters[s].end(), [&](TaskId waiter) {
        return known_without(plan, knowledge, notifiers, waiter, wait, id);
      });
      if (known)
        std::erase_if(plan.tasks[id].notifies, [&](const Notify& other) { return other.signal == wait.signal; });
      return known;
    });
  }
}

// A signal between neighbours of a lane.
void mark_after_previous(Plan& plan) {
  const std::vector<std::vector<TaskId>> notifiers = notifiers_of(plan);
  std::vector<int> waiters(plan.signals.size(), 0);
  for (const Task& task : plan.tasks) {
    for (const Wait& wait : task.waits) ++waiters[wait.signal];
  }
  for (Task& task : plan.tasks) {
    std::erase_if(task.waits, [&](const Wait& wait) {
      const std::vector<TaskId>& awaited = notifiers[wait.signal];
      const bool from_neighbour = waiters[wait.signal] == 1 && awaited.size() == 1 && task.index > 0 &&
                                  plan.lanes[task.lane].tasks[task.index - 1] == awaited[0];
      task.after_previous = task.after_previous || from_neighbour;
      return from_neighbour;
    });
  }
}

// A wait or a notification of a task.
struct Place {
  TaskId task;
  SignalId signal;
};

// Leaves out signals without waits, and counts the notifications of the others anew.
void renumber_signals(Plan& plan) {
  std::vector<SignalId> renamed(plan.signals.size(), -1);
  for (const Task& task : plan.tasks) {
    for (const Wait& wait : task.waits) renamed[wait.signal] = 0;
  }
  std::vector<SignalInfo> kept;
  for (std::size_t s = 0; s < plan.signals.size(); ++s) {
    if (renamed[s] == -1) continue;
    renamed[s] = static_cast<SignalId>(kept.size());
    kept.push_back(plan.signals[s]);
    kept.back().total = 0;
  }
  plan.signals = std::move(kept);
  for (Task& task : plan.tasks) {
    std::erase_if(task.notifies, [&](const Notify& notify) { return renamed[notify.signal] == -1; });
    for (Notify& notify : task.notifies) {
      notify.signal = renamed[notify.signal];
      plan.signals[notify.signal].total += notify.amount;
    }
  }
  for (Task& task : plan.tasks) {
    for (Wait& wait : task.waits) {
      wait.signal = renamed[wait.signal];
      wait.value = plan.signals[wait.signal].total;
    }
  }
}

}  // namespace

void drop_redundant_signals(Plan& plan) {
  const Knowledge knowledge(plan);
  drop_notifications(plan, knowledge);
  drop_known(plan, knowledge);
  mark_after_previous(plan);
  renumber_signals(plan);
}

void drop_needless_acknowledgements(Plan& plan) {
  constexpr std::size_t kCheap = 30'000;  // instances of tasks to look at, beyond the first tries
  const auto idle = [&](TaskId id) { return plan.bodies[plan.tasks[id].body].kind == Body::Kind::none; };
  const std::vector<std::vector<TaskId>> notifiers = notifiers_of(plan);
  std::vector<Place> begins;  // waits for a peer's run to have begun
  std::vector<Place> visits;  // waits for a peer's visit to be over
  std::vector<std::vector<Place>> by_signal(plan.signals.size());
  for (std::size_t t = 0; t < plan.tasks.size(); ++t) {
    for (const Wait& wait : plan.tasks[t].waits) {
      const Place place{static_cast<TaskId>(t), wait.signal};
      const bool begin = std::all_of(notifiers[wait.signal].begin(), notifiers[wait.signal].end(), idle);
      if (!begin && !idle(place.task)) continue;
      (begin ? begins : visits).push_back(place);
      by_signal[wait.signal].push_back(place);
    }
  }
  std::size_t looked_at = 0;
  const auto keep_if_proven = [&](Plan less) {
    const Verdict verdict = verify(less);
    looked_at += verdict.proof.instances;
    if (verdict.proven()) plan = std::move(less);
  };
  const auto try_without = [&](const std::vector<Place>& waits) {
    Plan less = plan;
    std::size_t dropped = 0;
    for (const Place& place : waits) {
      dropped += std::erase_if(less.tasks[place.task].waits, [&](const Wait& w) { return w.signal == place.signal; });
    }
    if (dropped > 0) keep_if_proven(std::move(less));
  };
  try_without(begins);
  try_without(visits);
  for (const std::vector<Place>& waits : by_signal) {
    if (looked_at < kCheap) try_without(waits);
  }
  for (const std::vector<Place>* places : {&begins, &visits}) {
    for (const Place& place : *places) {
      if (looked_at < kCheap) try_without({place});
    }
  }
  for (const std::vector<Place>& waits : by_signal) {
    if (waits.empty()) continue;
    for (TaskId notifier : notifiers[waits[0].signal]) {
      if (looked_at >= kCheap) break;
      Plan less = plan;
      std::erase_if(less.tasks[notifier].notifies, [&](const Notify& n) { return n.signal == waits[0].signal; });
      settle_signals(less);
      keep_if_proven(std::move(less));
    }
  }
  renumber_signals(plan);
}

}  // namespace tileway
