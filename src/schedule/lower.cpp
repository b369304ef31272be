#include <fmt/format.h>

#include <algorithm>

#include "schedule/lowering.hpp"
#include "schedule/order.hpp"
#include "schedule/reduce.hpp"
#include "tileway/error.hpp"

namespace tileway {

Access reading(const Held& held, Box box) { return {.buffer = held.buffer, .box = box}; }

Access writing(BufferId buffer, Box box) {
  return {.buffer = buffer, .box = box, .mode = Access::Mode::write, .stage = Stage::store};
}

Box moved(Box box, const Dims& start) {
  for (std::size_t d = 0; d < start.size(); ++d) box.start[d] -= start[d];
  return box;
}

Box hull(const Box& a, const Box& b) {
  Box both = a;
  for (std::size_t d = 0; d < a.start.size(); ++d) {
    both.start[d] = std::min(a.start[d], b.start[d]);
    both.extent[d] = std::max(a.start[d] + a.extent[d], b.start[d] + b.extent[d]) - both.start[d];
  }
  return both;
}

Box localised(const Box& box, const TensorType& type, int member) {
  if (!type.placement.is_shard()) return box;
  const auto dim = static_cast<std::size_t>(type.placement.dim);
  const std::int64_t start = type.shard_start(member);
  const std::int64_t end = start + type.placement.sizes[member];
  Box local = box;
  const std::int64_t low = std::max(box.start[dim], start);
  const std::int64_t high = std::min(box.start[dim] + box.extent[dim], end);
  local.start[dim] = low - start;
  local.extent[dim] = std::max<std::int64_t>(0, high - low);
  return local;
}

Tiling localised(const Tiling& tiling, const TensorType& type, int member) {
  if (!type.placement.is_shard()) return tiling;
  Tiling local = tiling;
  const std::int64_t start = type.shard_start(member);
  const std::int64_t extent = type.placement.sizes[member];
  std::vector<std::int64_t>& cuts = local.cuts[type.placement.dim];
  std::erase_if(cuts, [&](std::int64_t cut) { return cut < start || cut > start + extent; });
  for (std::int64_t& cut : cuts) cut -= start;
  if (extent == 0) cuts = {0};
  return local;
}

Lowering::Lowering(const Program& program, const Schedule& schedule, const Topology& topology)
    : program_(program), schedule_(schedule), graph_(program.name(), topology) {
  TW_REQUIRE(topology.ranks == program.world(), ErrorKind::invalid, .where = program.name(),
             .what = "the topology has another number of ranks than the program",
             .expected = std::to_string(program.world()), .got = std::to_string(topology.ranks));
  graph_.plan.schedule = schedule.name();
}

Held Lowering::new_held(const TensorType& type, int member, const std::string& name, Buffer::Role role, Tiling tiling) {
  Held held;
  held.rank = ranks_of(type)[member];
  held.buffer = graph_.add_buffer(
      {.name = name, .rank = held.rank, .role = role, .dtype = type.dtype, .shape = type.local_shape(member)});
  held.tiling = std::move(tiling);
  if (!held.tiling.cuts.empty() || role == Buffer::Role::scratch) {
    held.writers.resize(held.tiling.count());
    held.consumers.resize(held.tiling.count());
  }
  return held;
}

void Lowering::bind(int index) {
  const Op& op = op_at(index);
  const bool input = op.kind == OpKind::input;
  for (int member = 0; member < members_of(op.type); ++member) {
    const Buffer::Role role = input ? Buffer::Role::input : Buffer::Role::constant;
    Held held = new_held(op.type, member, input ? op.name : fmt::format("%{}", index), role, {});
    graph_.plan.buffers[held.buffer].value = op.value;
    if (input) graph_.plan.inputs.push_back({op.name, held.rank, held.buffer});
    held_[index].push_back(std::move(held));
  }
}

void Lowering::lower_op(int index, std::int32_t origin) {
  const Op& op = op_at(index);
  if (schedule_.absorbed(index)) return;
  if (op.kind == OpKind::input || op.kind == OpKind::constant) {
    bind(index);
  } else if (op.kind == OpKind::all_to_all_v) {
    lower_all_to_all_v(index, origin);
  } else if (is_communication(op.kind)) {
    lower_communication(index, origin);
  } else {
    lower_compute(index, origin);
  }
}

Lowered Lowering::run() {
  held_.resize(program_.ops().size());
  for (std::size_t i = 0; i < program_.ops().size(); ++i) {
    const Op& op = program_.ops()[i];
    const std::string_view name = op.kind == OpKind::pointwise ? name_of(op.function) : name_of(op.kind);
    lower_op(static_cast<int>(i), graph_.add_origin(fmt::format("%{} {}", i, name)));
  }
  for (const auto& members : held_) {
    for (const Held& held : members) graph_.close(held);
  }
  graph_.finish();
  for (const Program::Output& output : program_.outputs()) {
    for (const Held& held : held_[output.op]) graph_.plan.outputs.push_back({output.name, held.rank, held.buffer});
  }
  for (const Op& op : program_.ops()) {
    if (op.kind == OpKind::input) {
      graph_.plan.description.push_back(fmt::format("input '{}' is {}", op.name, to_string(op.type)));
    }
  }
  for (const Op& op : program_.ops()) {
    const std::string how = op.precision == Precision::exact ? "" : fmt::format(" {}", name_of(op.precision));
    graph_.plan.description.push_back(fmt::format("{}{} gives {}", name_of(op.kind), how, to_string(op.type)));
  }
  Lowered lowered;
  lowered.predicted = assign_lanes(graph_);
  assign_signals(graph_);
  drop_redundant_signals(graph_.plan);
  drop_needless_acknowledgements(graph_.plan);
  lowered.plan = std::move(graph_.plan);
  check_structure(lowered.plan);
  return lowered;
}

Lowered lower(const Program& program, const Schedule& schedule, const Topology& topology) {
  return Lowering(program, schedule, topology).run();
}

}  // namespace tileway
