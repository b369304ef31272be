// The structure that everything else relies on: indices, boxes, ownership, totals, complete outputs, arguments that
// fit. Order (races, deadlock) is not looked at here.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "plan/check.hpp"
#include "plan/joint.hpp"
#include "tileway/error.hpp"

namespace tileway {
namespace {

constexpr std::int64_t kMostSlots = 16;

[[noreturn]] void refuse(const std::string& where, std::string what, std::string expected = {}, std::string got = {}) {
  throw Error(
      ErrorKind::invalid,
      {.where = "plan, " + where, .what = std::move(what), .expected = std::move(expected), .got = std::move(got)});
}

template <typename Vector>
void require_index(const Vector& vector, std::int64_t index, const std::string& where, const char* what) {
  if (index < 0 || index >= static_cast<std::int64_t>(vector.size())) {
    refuse(where, fmt::format("no such {}", what), fmt::format("0 to {}", static_cast<std::int64_t>(vector.size()) - 1),
           std::to_string(index));
  }
}

void check_declarations(const Plan& plan) {
  if (plan.ranks() < 1) refuse("topology", "no ranks");
  const auto require_rank = [&](std::int32_t rank, const std::string& where) {
    if (rank < 0 || rank >= plan.ranks())
      refuse(where, "no such rank", fmt::format("0 to {}", plan.ranks() - 1), std::to_string(rank));
  };
  for (std::size_t b = 0; b < plan.buffers.size(); ++b) {
    const std::string where = fmt::format("buffer {} '{}'", b, plan.buffers[b].name);
    require_rank(plan.buffers[b].rank, where);
    checked_volume(plan.buffers[b].shape, "plan, " + where);
    if (plan.buffers[b].dtype == DType::f64) refuse(where, "f64 is not a type of plans");
    if (plan.buffers[b].slots < 1 || (plan.buffers[b].slots > 1 && plan.buffers[b].role == Buffer::Role::constant))
      refuse(where, "impossible slots", "1, or more where it is not constant", std::to_string(plan.buffers[b].slots));
    if (plan.buffers[b].slots > 1 && !plan.buffers[b].shared.empty()) refuse(where, "shared memory has one slot");
  }
  std::int64_t period = 1;
  for (const Buffer& buffer : plan.buffers) {
    period = std::lcm(period, std::int64_t{buffer.slots});
    if (period > kMostSlots)
      refuse("slots", "memory recurs only after many runs", fmt::format("at most {}", kMostSlots));
  }
  for (std::size_t s = 0; s < plan.signals.size(); ++s) {
    require_rank(plan.signals[s].rank, fmt::format("signal {}", s));
    if (plan.signals[s].total > (1U << 30))
      refuse(fmt::format("signal {}", s), "the total is too large", "at most 2^30");
    if (plan.signals[s].kind != SignalInfo::Kind::add && plan.signals[s].total != 1)
      refuse(fmt::format("signal {}", s), "only signals of kind add count", "total 1");
    if (plan.signals[s].kind == SignalInfo::Kind::packet) {
      require_index(plan.buffers, plan.signals[s].buffer, fmt::format("signal {}", s), "buffer");
      if (plan.buffers[plan.signals[s].buffer].rank != plan.signals[s].rank)
        refuse(fmt::format("signal {}", s), "its packets lie on another rank");
    }
  }
  for (const auto* bindings : {&plan.inputs, &plan.outputs}) {
    for (const Plan::Binding& binding : *bindings) {
      const std::string where = fmt::format("tensor '{}' of rank {}", binding.name, binding.rank);
      require_index(plan.buffers, binding.buffer, where, "buffer");
      if (plan.buffers[binding.buffer].rank != binding.rank) refuse(where, "its buffer lies on another rank");
    }
  }
  for (std::size_t p = 0; p < plan.partitions.size(); ++p) {
    require_index(plan.buffers, plan.partitions[p].target, fmt::format("partition {}", p), "buffer");
  }
  std::vector<std::int32_t> seen(plan.tasks.size(), 0);
  for (std::size_t l = 0; l < plan.lanes.size(); ++l) {
    const std::string where = fmt::format("lane {}", l);
    require_rank(plan.lanes[l].rank, where);
    for (std::size_t i = 0; i < plan.lanes[l].tasks.size(); ++i) {
      const TaskId id = plan.lanes[l].tasks[i];
      require_index(plan.tasks, id, where, "task");
      const Task& task = plan.tasks[id];
      if (task.lane != static_cast<std::int32_t>(l) || task.index != static_cast<std::int32_t>(i) ||
          task.rank != plan.lanes[l].rank) {
        refuse(where, fmt::format("task {} does not say that it is number {} here", id, i));
      }
      ++seen[id];
    }
  }
  for (std::size_t t = 0; t < seen.size(); ++t) {
    if (seen[t] != 1) refuse(task_name(plan, static_cast<TaskId>(t)), "not in exactly one lane");
  }
}

void check_access(const Plan& plan, const Task& task, const Access& access, bool write, const std::string& where) {
  require_index(plan.buffers, access.buffer, where, "buffer");
  const Buffer& buffer = plan.buffers[access.buffer];
  if (!access.box.inside(buffer.shape)) {
    refuse(where, fmt::format("a box outside buffer {} '{}'", access.buffer, buffer.name),
           "inside " + to_string(buffer.shape), to_string(access.box));
  }
  if (buffer.rank != task.rank && !buffer.symmetric) {
    refuse(where, fmt::format("buffer {} '{}' of rank {} is not symmetric", access.buffer, buffer.name, buffer.rank));
  }
  if (write == (access.mode == Access::Mode::read)) refuse(where, "an access whose mode does not fit its list");
  if (write && buffer.role == Buffer::Role::constant) refuse(where, fmt::format("writes constant {}", access.buffer));
  if (access.partition != -1) {
    require_index(plan.partitions, access.partition, where, "partition");
    if (plan.partitions[access.partition].target != access.buffer) refuse(where, "the partition is of another buffer");
  }
}

// A body reads and writes in an order of its own: what it writes overlaps nothing else of its own, but for a read of
// the same box.
void check_own_overlap(const Plan& plan, const Task& task, const std::string& where) {
  const auto same_slice = [](const Access& a, const Access& b) { return a.partition == -1 || a.slice == b.slice; };
  for (std::size_t w = 0; w < task.writes.size(); ++w) {
    const Access& write = task.writes[w];
    const auto refuse_overlap = [&](const Access& other) {
      if (other.buffer == write.buffer && same_slice(write, other) && overlaps(write.box, other.box))
        refuse(where, fmt::format("works on overlapping boxes of buffer {} '{}'", write.buffer,
                                  plan.buffers[write.buffer].name));
    };
    for (std::size_t other = 0; other < w; ++other) refuse_overlap(task.writes[other]);
    for (const Access& read : task.reads) {
      if (read.box != write.box) refuse_overlap(read);
    }
  }
}

// What set, gate and packet signals promise beyond a total of one.
void check_single_signals(const Plan& plan) {
  std::vector<std::int32_t> waiters(plan.signals.size(), 0);
  for (std::size_t t = 0; t < plan.tasks.size(); ++t) {
    const Task& task = plan.tasks[t];
    const std::string where = task_name(plan, static_cast<TaskId>(t));
    for (const Wait& wait : task.waits) ++waiters[wait.signal];
    for (const Notify& notify : task.notifies) {
      const SignalInfo& signal = plan.signals[notify.signal];
      if (signal.kind == SignalInfo::Kind::gate && signal.rank != task.rank)
        refuse(where, fmt::format("opens gate {} of rank {}: a gate is local", notify.signal, signal.rank));
      if (signal.kind != SignalInfo::Kind::packet) continue;
      const bool writes = std::any_of(task.writes.begin(), task.writes.end(),
                                      [&](const Access& write) { return write.buffer == signal.buffer; });
      if (!writes)
        refuse(where,
               fmt::format("raises packet signal {} and does not write its buffer {}", notify.signal, signal.buffer));
    }
  }
  for (std::size_t s = 0; s < plan.signals.size(); ++s) {
    if (plan.signals[s].kind == SignalInfo::Kind::gate && waiters[s] != 1)
      refuse(fmt::format("signal {}", s), "a gate has one waiter, which closes it", "1", std::to_string(waiters[s]));
  }
}

// What each member takes is what others give, element for element; what it keeps is no part of an exchange.
void check_given(const Plan& plan, const std::vector<TaskId>& members, const std::string& where) {
  const auto text = [&](const Access& access) {
    return fmt::format("{} elements of {}", access.box.volume(), name_of(plan.buffers[access.buffer].dtype));
  };
  for (std::size_t self = 0; self < members.size(); ++self) {
    const Task& task = plan.tasks[members[self]];
    const Body& body = plan.bodies[task.body];
    const std::string name = task_name(plan, members[self]);
    if (body.kind != Body::Kind::all_reduce && task.reads.size() != members.size())
      refuse(where, name + " does not read something for each member", std::to_string(members.size()),
             std::to_string(task.reads.size()));
    if (body.kind == Body::Kind::exchange && !(task.reads[self].box.empty() && task.writes[self].box.empty()))
      refuse(where, name + " exchanges something with itself");
  }
  for (std::size_t self = 0; self < members.size(); ++self) {
    const Task& task = plan.tasks[members[self]];
    for (std::size_t w = 0; w < task.writes.size(); ++w) {
      for (const auto& [member, read] : sources_of(plan.bodies[task.body], members.size(), self, w)) {
        const std::string given = text(plan.tasks[members[member]].reads[read]);
        if (given != text(task.writes[w]))
          refuse(where,
                 fmt::format("{} takes from {} something else than that gives", task_name(plan, members[self]),
                             task_name(plan, members[member])),
                 text(task.writes[w]), given);
      }
    }
  }
}

// The tasks of a joint are of different ranks, do one thing and work on their ranks' own memory; a lane has one
// communicator: all its joints have members in the same lanes. Joints run on collective lanes, and nothing else does.
void check_joints(const Plan& plan) {
  for (std::size_t t = 0; t < plan.tasks.size(); ++t) {
    const Task& task = plan.tasks[t];
    const std::string where = task_name(plan, static_cast<TaskId>(t));
    const bool collective = plan.lanes[task.lane].engine == Engine::collective;
    if ((task.joint != -1) != collective) refuse(where, "joint tasks, and only they, are on collective lanes");
    if ((task.joint != -1) != is_joint(plan.bodies[task.body].kind))
      refuse(where, "joint tasks, and only they, have the body of a collective",
             "all_reduce, reduce_scatter or exchange", std::string(name_of(plan.bodies[task.body].kind)));
    if (task.joint < -1 || task.joint >= static_cast<std::int32_t>(plan.tasks.size()))
      refuse(where, "no such joint", "a number below that of tasks", std::to_string(task.joint));
    if (collective && task.index > 0 && !task.after_previous)
      refuse(where, "a collective lane is serial: its tasks are marked after_previous");
    if (task.joint == -1) continue;
    for (const auto* list : {&task.reads, &task.writes}) {
      for (const Access& access : *list) {
        if (plan.buffers[access.buffer].rank != task.rank)
          refuse(where,
                 fmt::format("a collective takes buffer {} of rank {}: a library is handed the rank's own memory",
                             access.buffer, plan.buffers[access.buffer].rank));
      }
    }
  }
  std::map<std::int32_t, std::vector<std::int32_t>> communicator;  // by lane
  const std::vector<std::vector<TaskId>> joints = joints_of(plan);
  for (std::size_t joint = 0; joint < joints.size(); ++joint) {
    const std::vector<TaskId>& tasks = joints[joint];
    if (tasks.empty()) continue;
    std::string where = fmt::format("joint {} of", joint);
    for (TaskId id : tasks) where += fmt::format(" task {}", id);
    const Task& first = plan.tasks[tasks[0]];
    std::vector<std::int32_t> lanes;
    std::vector<std::int32_t> ranks;
    for (TaskId id : tasks) {
      const Task& task = plan.tasks[id];
      lanes.push_back(task.lane);
      ranks.push_back(task.rank);
      if (!(plan.bodies[task.body] == plan.bodies[first.body]))
        refuse(where, fmt::format("{} does something else than {}", task_name(plan, id), task_name(plan, tasks[0])));
    }
    std::sort(lanes.begin(), lanes.end());
    std::sort(ranks.begin(), ranks.end());
    if (std::adjacent_find(ranks.begin(), ranks.end()) != ranks.end()) refuse(where, "two tasks of one rank");
    for (std::int32_t lane : lanes) {
      const auto [known, fresh] = communicator.emplace(lane, lanes);
      if (!fresh && known->second != lanes)
        refuse(where, fmt::format("lane {} belongs to a communicator with other members", lane));
    }
    check_given(plan, tasks, where);
  }
}

void check_tasks(const Plan& plan) {
  std::vector<std::uint64_t> notified(plan.signals.size(), 0);
  for (std::size_t t = 0; t < plan.tasks.size(); ++t) {
    const Task& task = plan.tasks[t];
    const std::string where = task_name(plan, static_cast<TaskId>(t));
    require_index(plan.bodies, task.body, where, "body");
    require_index(plan.origins, task.origin, where, "origin");
    for (const Access& access : task.reads) check_access(plan, task, access, false, where);
    for (const Access& access : task.writes) check_access(plan, task, access, true, where);
    check_own_overlap(plan, task, where);
    for (const Wait& wait : task.waits) {
      require_index(plan.signals, wait.signal, where, "signal");
      const SignalInfo& signal = plan.signals[wait.signal];
      if (signal.rank != task.rank)
        refuse(where, fmt::format("waits for signal {} of rank {}", wait.signal, signal.rank));
      if (wait.value > signal.total) {
        refuse(where, fmt::format("waits for more than signal {} reaches", wait.signal),
               fmt::format("at most {}", signal.total), std::to_string(wait.value));
      }
    }
    for (const Notify& notify : task.notifies) {
      require_index(plan.signals, notify.signal, where, "signal");
      notified[notify.signal] += notify.amount;
    }
    check_arguments(plan, static_cast<TaskId>(t));
  }
  check_single_signals(plan);
  check_joints(plan);
  for (std::size_t s = 0; s < plan.signals.size(); ++s) {
    if (notified[s] != plan.signals[s].total) {
      refuse(fmt::format("signal {}", s), "the total is not what its notifications add up to",
             std::to_string(notified[s]), std::to_string(plan.signals[s].total));
    }
  }
}

// Every element of every output is written exactly once, or is the caller's own.
void check_outputs(const Plan& plan) {
  std::map<BufferId, std::vector<const Access*>> writes;
  std::map<BufferId, std::size_t> slices;
  for (const Plan::Binding& output : plan.outputs) writes[output.buffer];
  for (const Task& task : plan.tasks) {
    for (const Access& write : task.writes) {
      const auto found = writes.find(write.buffer);
      if (found == writes.end()) continue;
      if (write.mode != Access::Mode::write) continue;  // it adds to what was written
      if (write.partition != -1) {
        ++slices[write.buffer];
      } else if (!write.box.empty()) {
        found->second.push_back(&write);
      }
    }
  }
  for (auto& [id, list] : writes) {
    const Buffer& buffer = plan.buffers[id];
    const std::string where = fmt::format("output buffer {} '{}' of rank {}", id, buffer.name, buffer.rank);
    if (buffer.role != Buffer::Role::scratch && list.empty()) continue;
    if (slices.contains(id)) {
      if (!list.empty()) refuse(where, "is written both by partition and by box");
      continue;
    }
    std::int64_t written = 0;
    for (const Access* write : list) written += write->box.volume();
    if (written != volume(buffer.shape)) {
      refuse(where, "is not written exactly once", fmt::format("{} elements", volume(buffer.shape)),
             std::to_string(written));
    }
    std::sort(list.begin(), list.end(), [](const Access* a, const Access* b) {
      return std::lexicographical_compare(a->box.start.begin(), a->box.start.end(), b->box.start.begin(),
                                          b->box.start.end());
    });
    for (std::size_t i = 0; i < list.size(); ++i) {
      for (std::size_t j = i + 1; j < list.size(); ++j) {
        const Box& a = list[i]->box;
        const Box& b = list[j]->box;
        if (!a.start.empty() && b.start[0] >= a.start[0] + a.extent[0]) break;
        if (overlaps(a, b)) refuse(where, "is written twice at " + to_string(intersect(a, b)));
      }
    }
  }
}

}  // namespace

std::string task_name(const Plan& plan, TaskId id) {
  const Task& task = plan.tasks[id];
  const bool known = task.origin >= 0 && task.origin < static_cast<std::int32_t>(plan.origins.size());
  return fmt::format("task {} (rank {}, {})", id, task.rank, known ? plan.origins[task.origin] : "?");
}

void check_structure(const Plan& plan) {
  check_declarations(plan);
  check_tasks(plan);
  check_outputs(plan);
}

}  // namespace tileway
