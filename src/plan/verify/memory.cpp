#include "plan/verify/memory.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

namespace tileway::verifier {

std::vector<Box> without(Box box, const Box& hole) {
  const Box common = intersect(box, hole);
  if (common.empty()) return {box};
  std::vector<Box> left;
  for (std::size_t d = 0; d < box.start.size(); ++d) {
    const std::int64_t low = common.start[d];
    const std::int64_t high = low + common.extent[d];
    const std::int64_t end = box.start[d] + box.extent[d];
    if (box.start[d] < low) {
      Box before = box;
      before.extent[d] = low - box.start[d];
      left.push_back(before);
    }
    if (high < end) {
      Box after = box;
      after.start[d] = high;
      after.extent[d] = end - high;
      left.push_back(after);
    }
    box.start[d] = low;
    box.extent[d] = common.extent[d];
  }
  return left;
}

std::vector<Memory> memories(const Sequence& sequence) {
  std::vector<Memory> all;
  std::map<std::pair<std::int32_t, std::string>, std::size_t> shared;
  for (int run = 0; run < sequence.runs(); ++run) {
    if (sequence.epoch(run) > 0) continue;
    const Plan& plan = sequence.plan(run);
    const int number = sequence.plan_number(run);
    std::vector<std::size_t> memory_of;
    for (const Buffer& buffer : plan.buffers) {
      std::size_t memory = all.size();
      if (!buffer.shared.empty()) memory = shared.emplace(std::pair(buffer.rank, buffer.shared), memory).first->second;
      if (memory == all.size()) all.push_back(Memory{buffer.slots, {}, {}});
      memory_of.push_back(memory);
    }
    for (std::size_t t = 0; t < plan.tasks.size(); ++t) {
      const Task& task = plan.tasks[t];
      for (const auto* list : {&task.reads, &task.writes}) {
        for (const Access& access : *list) {
          if (access.box.empty()) continue;
          all[memory_of[access.buffer]].touches.push_back(
              {number, static_cast<TaskId>(t), task.rank, access.buffer, &access});
        }
      }
    }
    const auto add_caller = [&](const Plan::Binding& binding, Access::Mode mode) {
      Memory& memory = all[memory_of[binding.buffer]];
      const Box box = Box::whole(plan.buffers[binding.buffer].shape);
      if (box.empty()) return;
      memory.callers.push_back(std::make_unique<Access>(Access{.buffer = binding.buffer, .box = box, .mode = mode}));
      memory.touches.push_back({number, -1, binding.rank, binding.buffer, memory.callers.back().get()});
    };
    for (const Plan::Binding& input : plan.inputs) add_caller(input, Access::Mode::write);
    for (const Plan::Binding& output : plan.outputs) add_caller(output, Access::Mode::read);
  }
  return all;
}

std::optional<Box> uncovered(const Box& box, const std::vector<Box>& covers) {
  std::vector<Box> left{box};
  std::vector<Box> next;
  for (const Box& cover : covers) {
    next.clear();
    for (const Box& piece : left) {
      for (const Box& rest : without(piece, cover)) next.push_back(rest);
    }
    left.swap(next);
    if (left.empty()) return std::nullopt;
  }
  return left[0];
}

int slices_of(const Plan& plan, std::int32_t partition) {
  for (const Task& task : plan.tasks) {
    for (const Access& write : task.writes) {
      if (write.partition == partition) return static_cast<int>(task.reads[0].box.extent[0]) + 1;
    }
  }
  return 0;
}

}  // namespace tileway::verifier
