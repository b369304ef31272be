// The structure that everything else relies on: indices, boxes, ownership, totals, complete outputs, arguments that
// fit. Order (races, deadlock) is not looked at here.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "plan/check.hpp"
#include "tileway/error.hpp"

namespace tileway {
namespace {

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
  }
  for (std::size_t s = 0; s < plan.signals.size(); ++s) {
    require_rank(plan.signals[s].rank, fmt::format("signal {}", s));
    if (plan.signals[s].total > (1U << 30))
      refuse(fmt::format("signal {}", s), "the total is too large", "at most 2^30");
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
  if (access.modulus != 1)
    refuse(where, "boxes that recur over several runs are not supported", "modulus 1", std::to_string(access.modulus));
  if (access.partition != -1) {
    require_index(plan.partitions, access.partition, where, "partition");
    if (plan.partitions[access.partition].target != access.buffer) refuse(where, "the partition is of another buffer");
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
    for (const Wait& wait : task.waits) {
      require_index(plan.signals, wait.signal, where, "signal");
      const SignalInfo& signal = plan.signals[wait.signal];
      if (signal.rank != task.rank)
        refuse(where, fmt::format("waits for signal {} of rank {}", wait.signal, signal.rank));
      if (signal.kind != SignalInfo::Kind::add) refuse(where, fmt::format("signal {} is not of kind add", wait.signal));
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
