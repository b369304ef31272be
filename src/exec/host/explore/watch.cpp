#include "exec/host/explore/watch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "plan/verify/rules.hpp"

namespace tileway::host {

using Mode = Access::Mode;

Watch::Watch(const verifier::Sequence& sequence)
    : sequence_(sequence),
      plan_(sequence.plan(0)),
      waiters_(plan_.signals.size()),
      caller_writes_(sequence.ranks()),
      caller_reads_(sequence.ranks()) {
  for (const Buffer& buffer : plan_.buffers) {
    first_slot_.push_back(slots_.size());
    slots_.resize(slots_.size() + buffer.slots);
  }
  std::vector<std::set<std::int32_t>> raised_by(plan_.signals.size());
  for (const Task& task : plan_.tasks) {
    for (const Notify& notify : task.notifies) raised_by[notify.signal].insert(task.rank);
  }
  for (std::size_t t = 0; t < plan_.tasks.size(); ++t) {
    for (const Wait& wait : plan_.tasks[t].waits) {
      if (raised_by[wait.signal].size() > 1) waiters_[wait.signal].push_back(static_cast<TaskId>(t));
    }
  }
  const auto whole = [&](const Plan::Binding& binding, Mode mode) {
    return Access{.buffer = binding.buffer, .box = Box::whole(plan_.buffers[binding.buffer].shape), .mode = mode};
  };
  for (const Plan::Binding& input : plan_.inputs) caller_writes_[input.rank].push_back(whole(input, Mode::write));
  for (const Plan::Binding& output : plan_.outputs) caller_reads_[output.rank].push_back(whole(output, Mode::read));
}

// Slots and accesses of a step. A caller reads the outputs of the run before and writes the inputs of the run to come.
std::vector<std::pair<std::size_t, const Access*>> Watch::touches(const Event& event) const {
  std::vector<std::pair<std::size_t, const Access*>> all;
  const auto add = [&](const Access& access, int run) {
    if (!access.box.empty())
      all.emplace_back(first_slot_[access.buffer] + run % plan_.buffers[access.buffer].slots, &access);
  };
  const auto& [run, id, rank] = event.instance;
  if (id == -1) {
    if (run < sequence_.runs()) {
      for (const Access& write : caller_writes_[rank]) add(write, run);
    }
    if (run > 0) {
      for (const Access& read : caller_reads_[rank]) add(read, run - 1);
    }
    return all;
  }
  for (const auto* list : {&plan_.tasks[id].reads, &plan_.tasks[id].writes}) {
    for (const Access& access : *list) {
      if (access.stage == event.stage) add(access, run);
    }
  }
  return all;
}

std::optional<Finding> Watch::conflict(const Open& a, const Open& b) const {
  const Access& x = *a.access;
  const Access& y = *b.access;
  if (a.event.instance == b.event.instance || !overlaps(x.box, y.box)) return std::nullopt;
  if (x.mode == Mode::accumulate && y.mode == Mode::accumulate && x.op == y.op) return std::nullopt;
  if (x.partition != -1 && x.partition == y.partition && x.slice != y.slice) return std::nullopt;
  const Buffer& buffer = plan_.buffers[x.buffer];
  return Finding{
      Fault::race,
      {a.event.instance, b.event.instance},
      fmt::format("{} and {} can touch {} of buffer {} '{}' of rank {} at the same time\n",
                  verifier::describe(sequence_, a.event.instance), verifier::describe(sequence_, b.event.instance),
                  to_string(intersect(x.box, y.box)), x.buffer, buffer.name, buffer.rank)};
}

std::optional<Finding> Watch::ahead(const Stepper& stepper, const Step& step) const {
  const auto& [run, id, rank] = step.event.instance;
  if (id == -1 || run == 0 || step.event.stage != Stage::store) return std::nullopt;
  for (const Notify& notify : plan_.tasks[id].notifies) {
    for (TaskId waiter : waiters_[notify.signal]) {
      for (const Wait& wait : plan_.tasks[waiter].waits) {
        if (wait.signal != notify.signal || stepper.over(run - 1, waiter, wait.stage)) continue;
        const Instance late{run - 1, waiter, plan_.tasks[waiter].rank};
        return Finding{Fault::run_ahead,
                       {late, step.event.instance},
                       fmt::format("{} can raise signal {} before {} has waited for it\n",
                                   verifier::describe(sequence_, step.event.instance), notify.signal,
                                   verifier::describe(sequence_, late))};
      }
    }
  }
  return std::nullopt;
}

std::optional<Finding> Watch::opened(const Stepper& stepper, const Step& step) {
  std::optional<Finding> finding = ahead(stepper, step);
  for (const auto& [slot, access] : touches(step.event)) {
    const Open open{step.event, access};
    const auto meet = [&](const std::vector<Open>& others) {
      for (const Open& other : others) {
        if (!finding) finding = conflict(other, open);
      }
    };
    meet(slots_[slot].writes);
    if (access->mode != Mode::read) meet(slots_[slot].reads);
    (access->mode == Mode::read ? slots_[slot].reads : slots_[slot].writes).push_back(open);
  }
  return finding;
}

void Watch::closed(const Step& step) {
  for (const auto& [slot, access] : touches(step.event)) {
    std::vector<Open>& list = access->mode == Mode::read ? slots_[slot].reads : slots_[slot].writes;
    const auto found = std::find_if(list.begin(), list.end(), [&, wanted = access](const Open& open) {
      return open.access == wanted && open.event == step.event;
    });
    *found = list.back();
    list.pop_back();
  }
}

}  // namespace tileway::host
