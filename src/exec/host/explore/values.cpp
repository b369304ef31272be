#include "exec/host/explore/values.hpp"

#include <algorithm>
#include <cstring>

#include "base/element.hpp"
#include "plan/joint.hpp"
#include "tileway/error.hpp"

namespace tileway::host {
namespace {

constexpr std::byte kPoison{0xff};
constexpr std::size_t kGuard = 64;  // bytes before and behind

// Calls `visit(offset in the buffer, offset in the dense box)` in elements, for every row of the box.
template <typename Visit>
void for_each_row(const Shape& shape, const Box& box, const Visit& visit) {
  if (box.empty()) return;
  const Dims strides = row_major_strides(shape);
  const std::int64_t length = box.extent.empty() ? 1 : box.extent.back();
  Dims at = box.start;
  for (std::int64_t row = 0; row < box.volume() / length; ++row) {
    std::int64_t rest = row;
    std::int64_t offset = box.start.empty() ? 0 : box.start.back();
    for (std::size_t d = at.size(); d-- > 1;) {
      at[d - 1] = box.start[d - 1] + rest % box.extent[d - 1];
      rest /= box.extent[d - 1];
      offset += at[d - 1] * strides[d - 1];
    }
    visit(offset, row * length, length);
  }
}

void check_guards(const std::vector<std::byte>& bytes) {
  const auto poisoned = [](std::byte b) { return b == kPoison; };
  TW_ASSERT(std::all_of(bytes.begin(), bytes.begin() + kGuard, poisoned));
  TW_ASSERT(std::all_of(bytes.end() - kGuard, bytes.end(), poisoned));
}

}  // namespace

Values::Values(const verifier::Sequence& sequence, const std::vector<PartsByName>& inputs)
    : sequence_(sequence),
      plan_(sequence.plan(0)),
      joints_(joints_of(plan_)),
      inputs_(inputs),
      outputs_(inputs.size()) {
  for (const Buffer& buffer : plan_.buffers) {
    first_slot_.push_back(slots_.size());
    const std::size_t bytes = static_cast<std::size_t>(volume(buffer.shape)) * size_of(buffer.dtype);
    slots_.resize(slots_.size() + buffer.slots, std::vector<std::byte>(bytes, kPoison));
    if (buffer.role != Buffer::Role::constant) continue;
    const Array array = Array::filled(buffer.dtype, buffer.shape, buffer.value);
    if (bytes > 0) std::memcpy(slots_.back().data(), array.data(), bytes);
  }
}

std::vector<std::byte>& Values::memory(BufferId buffer, int run) {
  return slots_[first_slot_[buffer] + run % plan_.buffers[buffer].slots];
}

void Values::take_caller(const Instance& caller) {
  for (const Plan::Binding& output : plan_.outputs) {
    if (output.rank != caller.rank || caller.run == 0) continue;
    const Buffer& buffer = plan_.buffers[output.buffer];
    std::vector<Array>& parts = outputs_[caller.run - 1][output.name];
    parts.resize(plan_.ranks());
    parts[output.rank] = Array(buffer.dtype, buffer.shape);
    const std::vector<std::byte>& bytes = memory(output.buffer, caller.run - 1);
    if (!bytes.empty()) std::memcpy(parts[output.rank].data(), bytes.data(), bytes.size());
  }
  for (const Plan::Binding& input : plan_.inputs) {
    if (input.rank != caller.rank || caller.run == sequence_.runs()) continue;
    const Array& part = inputs_[caller.run].at(input.name).at(input.rank);
    std::vector<std::byte>& bytes = memory(input.buffer, caller.run);
    TW_REQUIRE(part.bytes() == bytes.size(), ErrorKind::invalid, .where = "input '" + input.name + "'",
               .what = "the array does not fit", .expected = std::to_string(bytes.size()) + " bytes",
               .got = std::to_string(part.bytes()));
    if (!bytes.empty()) std::memcpy(bytes.data(), part.data(), bytes.size());
  }
}

Values::Copy Values::room_for(const Access& access) const {
  const Buffer& buffer = plan_.buffers[access.buffer];
  const std::size_t bytes = static_cast<std::size_t>(access.box.volume()) * size_of(buffer.dtype);
  Copy copy{std::vector<std::byte>(bytes + 2 * kGuard, kPoison), {}};
  copy.view = {copy.bytes.data() + kGuard, buffer.dtype, access.box.extent, row_major_strides(access.box.extent)};
  return copy;
}

Values::Copy Values::copy_in(const Access& access, int run) {
  const Buffer& buffer = plan_.buffers[access.buffer];
  Copy copy = room_for(access);
  const auto size = static_cast<std::int64_t>(size_of(buffer.dtype));
  const std::byte* from = memory(access.buffer, run).data();
  for_each_row(buffer.shape, access.box, [&](std::int64_t in_buffer, std::int64_t in_box, std::int64_t length) {
    std::memcpy(copy.view.data + in_box * size, from + in_buffer * size, static_cast<std::size_t>(length * size));
  });
  return copy;
}

void Values::copy_out(const Copy& copy, const Access& access, int run) {
  check_guards(copy.bytes);
  const Buffer& buffer = plan_.buffers[access.buffer];
  const auto size = static_cast<std::int64_t>(size_of(buffer.dtype));
  std::byte* to = memory(access.buffer, run).data();
  for_each_row(buffer.shape, access.box, [&](std::int64_t in_buffer, std::int64_t in_box, std::int64_t length) {
    std::memcpy(to + in_buffer * size, copy.view.data + in_box * size, static_cast<std::size_t>(length * size));
  });
}

void Values::run_joint(const Instance& instance, std::span<const View> writes) {
  const Task& task = plan_.tasks[instance.task];
  const Body& body = plan_.bodies[task.body];
  const std::vector<TaskId>& members = joints_[task.joint];
  const auto self =
      static_cast<std::size_t>(std::find(members.begin(), members.end(), instance.task) - members.begin());
  for (std::size_t w = 0; w < writes.size(); ++w) {
    if (task.writes[w].box.empty()) continue;
    std::vector<View> reads;
    for (const auto& [member, read] : sources_of(body, members.size(), self, w))
      reads.push_back(captured_.at(sequence_.instance(instance.run, members[member])).at(read).view);
    const bool moves = body.kind == Body::Kind::exchange;
    run_body(
        {{.kind = moves ? Body::Kind::copy : Body::Kind::reduce_ranks, .op = body.op}, reads, writes.subspan(w, 1)});
  }
}

// All of the task's effects come at its store: bodies of the host have no earlier ones.
void Values::run_task(const Instance& instance) {
  const Task& task = plan_.tasks[instance.task];
  std::vector<View> reads;
  for (auto& [place, copy] : captured_[sequence_.instance(instance.run, instance.task)]) reads.push_back(copy.view);
  std::vector<Copy> copies;
  std::vector<View> writes;
  for (const Access& access : task.writes) {
    // A body with a dynamic region leaves the rest of its box as it is.
    copies.push_back(access.partition == -1 ? room_for(access) : copy_in(access, instance.run));
    writes.push_back(copies.back().view);
  }
  if (task.joint == -1) {
    run_body({plan_.bodies[task.body], reads, writes});
  } else {
    run_joint(instance, writes);
  }
  for (std::size_t w = 0; w < task.writes.size(); ++w) {
    const Access& access = task.writes[w];
    if (access.mode != Access::Mode::accumulate) {
      copy_out(copies[w], access, instance.run);
      continue;
    }
    Copy sum = copy_in(access, instance.run);
    const std::array<View, 2> terms{sum.view, copies[w].view};
    Copy result = room_for(access);
    run_body({{.kind = Body::Kind::reduce_ranks, .op = access.op}, terms, std::span(&result.view, 1)});
    copy_out(result, access, instance.run);
  }
}

void Values::take(const Event& event) {
  const Instance& instance = event.instance;
  if (instance.task == -1) {
    take_caller(instance);
    return;
  }
  const Task& task = plan_.tasks[instance.task];
  Captured& captured = captured_[sequence_.instance(instance.run, instance.task)];
  for (std::size_t r = 0; r < task.reads.size(); ++r) {
    if (task.reads[r].stage == event.stage) captured.emplace(r, copy_in(task.reads[r], instance.run));
  }
  if (event.stage != Stage::store) return;
  run_task(instance);
  // The other members of a joint still need what this one has read.
  if (task.joint == -1) captured_.erase(sequence_.instance(instance.run, instance.task));
}

}  // namespace tileway::host
