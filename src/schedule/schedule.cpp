#include "tileway/schedule.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "schedule/tiling.hpp"
#include "tileway/error.hpp"

namespace tileway {
namespace {

std::string described(const Op& op) { return std::string(name_of(op.kind)) + " at " + op.where; }

// Why the edge cannot be overlapped; empty if it can.
std::string obstacle(const Program& program, int producer, int consumer) {
  const Op& from = program.ops()[producer];
  const Op& to = program.ops()[consumer];
  if (std::find(to.operands.begin(), to.operands.end(), producer) == to.operands.end())
    return "it does not read the producer";
  if (from.kind == OpKind::input || from.kind == OpKind::constant) return "the producer is ready before the run";
  if (to.kind == OpKind::all_to_all_v)
    return "which rows it sends where is known only once all splits and rows are there";
  return {};
}

// Why nothing but `reader` may need the result of `op`; empty if nothing else does.
std::string other_readers(const Program& program, int op, int reader) {
  for (std::size_t i = 0; i < program.ops().size(); ++i) {
    const std::vector<int>& operands = program.ops()[i].operands;
    if (static_cast<int>(i) != reader && std::find(operands.begin(), operands.end(), op) != operands.end())
      return "another operation reads the producer's result";
  }
  for (const Program::Output& output : program.outputs()) {
    if (output.op == op) return "the producer's result is an output";
  }
  return {};
}

// The operand that continues a chain of steps to the left; -1 at its beginning, a product, or where there is none.
int absorbed_operand(const Program& program, const std::set<int>& absorbed, int op) {
  for (int operand : program.ops()[op].operands) {
    if (absorbed.contains(operand)) return operand;
  }
  return -1;
}

// Why the tasks of a product cannot do `function` too; empty if they can.
std::string obstacle_to_epilogue(const Program& program, const std::set<int>& absorbed, int product, int function) {
  const Op& from = program.ops()[product];
  const Op& to = program.ops()[function];
  const auto floating = [](const Op& op) { return is_floating(op.type.dtype) && op.type.dtype != DType::e4m3; };
  if (to.kind != OpKind::pointwise && to.kind != OpKind::cast) return "it is no function of single elements";
  if (std::find(to.operands.begin(), to.operands.end(), product) == to.operands.end())
    return "it does not read the product";
  std::size_t steps = 1;
  int first = product;
  for (int before = absorbed_operand(program, absorbed, first); before != -1; ++steps) {
    first = before;
    before = absorbed_operand(program, absorbed, first);
  }
  if (program.ops()[first].kind != OpKind::matmul) return "there is no matmul to go on with";
  if (size_of(to.type.dtype) < size_of(program.ops()[first].type.dtype))
    return "the result's dtype is narrower than the product's";
  if (absorbed_operand(program, absorbed, function) != -1) return "it goes on with another product";
  if (from.type.shape.size() != 2) return "the product has more than two dimensions";
  if (!floating(from) || !floating(to)) return "elements are computed in f32, bf16 or f16";
  if (from.type.shape != to.type.shape || from.type.group != to.type.group ||
      !(from.type.placement == to.type.placement))
    return "the result has another shape or placement than the product";
  if (steps > kMostSteps) return fmt::format("more than {} steps", kMostSteps);
  return other_readers(program, product, function);
}

// Why the producer's tasks cannot do what the communication would; empty if they can.
std::string obstacle_to_fusion(const Program& program, int producer, int communication) {
  const Op& from = program.ops()[producer];
  const Op& to = program.ops()[communication];
  if (to.kind != OpKind::reduce_scatter && to.kind != OpKind::all_reduce && to.kind != OpKind::all_to_all)
    return "not every tile of it goes to one place";
  if (std::string reason = obstacle(program, producer, communication); !reason.empty()) return reason;
  if (is_communication(from.kind) || from.kind == OpKind::update) return "the producer is not a computation";
  if (std::string reason = other_readers(program, producer, communication); !reason.empty()) return reason;
  if (to.type.placement.is_shard()) {
    const auto dim = static_cast<std::size_t>(to.type.placement.dim);
    for (std::size_t m = 0; m < program.groups()[from.type.group].size(); ++m) {
      if (keeps_whole(from, program, static_cast<int>(m), dim))
        return fmt::format("the producer's tiles take dimension {} whole, and go to several members", dim);
    }
  }
  return {};
}

}  // namespace

Schedule Schedule::unfused(const Program&) { return Schedule("unfused"); }

Schedule Schedule::overlapped(const Program& program) {
  Schedule schedule("overlapped");
  for (std::size_t i = 0; i < program.ops().size(); ++i) {
    for (int producer : program.ops()[i].operands) {
      const int consumer = static_cast<int>(i);
      if (obstacle(program, producer, consumer).empty()) schedule.overlap_.emplace(producer, consumer);
    }
  }
  return schedule;
}

Schedule Schedule::fused(const Program& program) {
  Schedule schedule = overlapped(program);
  schedule.name_ = "fused";
  for (std::size_t i = 0; i < program.ops().size(); ++i) {
    const auto index = static_cast<int>(i);
    for (int operand : program.ops()[i].operands) {
      if (!schedule.absorbed(operand) && obstacle_to_epilogue(program, schedule.absorbed_, operand, index).empty())
        schedule.absorbed_.insert(operand);
    }
    if (is_communication(program.ops()[i].kind) &&
        obstacle_to_fusion(program, program.ops()[i].operands[0], index).empty())
      schedule.fused_[index] = std::numeric_limits<int>::max();
  }
  return schedule;
}

Schedule Schedule::collective(const Program& program) {
  Schedule schedule = overlapped(program);
  schedule.name_ = "collective";
  for (std::size_t i = 0; i < program.ops().size(); ++i) {
    const OpKind kind = program.ops()[i].kind;
    if (is_communication(kind) && kind != OpKind::all_to_all_v)
      schedule.engines_[static_cast<int>(i)] = Engine::collective;
  }
  return schedule;
}

Schedule Schedule::library(const Program& program) {
  Schedule schedule = overlapped(program);
  schedule.name_ = "library";
  for (std::size_t i = 0; i < program.ops().size(); ++i) {
    if (program.ops()[i].kind == OpKind::matmul) schedule.engines_[static_cast<int>(i)] = Engine::library;
  }
  return schedule;
}

Schedule Schedule::named(const Program& program, std::string_view name) {
  if (name == "unfused") return unfused(program);
  if (name == "overlapped") return overlapped(program);
  if (name == "fused") return fused(program);
  if (name == "collective") return collective(program);
  if (name == "library") return library(program);
  throw Error(ErrorKind::invalid, {.where = "schedule",
                                   .what = "unknown name",
                                   .expected = "unfused, overlapped, fused, collective or library",
                                   .got = std::string(name)});
}

Schedule& Schedule::overlap(Tensor producer, Tensor consumer) {
  const Program& program = producer.program();
  TW_REQUIRE(&program == &consumer.program(), ErrorKind::invalid, .where = "overlap",
             .what = "values of different programs");
  const std::string reason = obstacle(program, producer.index(), consumer.index());
  TW_REQUIRE(reason.empty(), ErrorKind::invalid,
             .where = "overlap of " + described(program.ops()[producer.index()]) + " with " +
                      described(program.ops()[consumer.index()]),
             .what = reason);
  overlap_.emplace(producer.index(), consumer.index());
  return *this;
}

Schedule& Schedule::fuse_epilogue(Tensor product, Tensor function) {
  const Program& program = product.program();
  const std::string where =
      "fusion of " + described(program.ops()[product.index()]) + " with " + described(program.ops()[function.index()]);
  const std::string reason = obstacle_to_epilogue(program, absorbed_, product.index(), function.index());
  TW_REQUIRE(reason.empty(), ErrorKind::invalid, .where = where, .what = reason);
  TW_REQUIRE(engine_of(product.index()) != Engine::library, ErrorKind::invalid, .where = where,
             .what = "a library multiplies");
  absorbed_.insert(product.index());
  return *this;
}

Schedule& Schedule::fuse(Tensor producer, Tensor communication, int last) {
  const Program& program = producer.program();
  const int index = communication.index();
  const std::string where =
      "fusion of " + described(program.ops()[producer.index()]) + " with " + described(program.ops()[index]);
  const std::string reason = obstacle_to_fusion(program, producer.index(), index);
  TW_REQUIRE(reason.empty(), ErrorKind::invalid, .where = where, .what = reason);
  TW_REQUIRE(last >= 0, ErrorKind::invalid, .where = where, .what = "a negative number of tiles",
             .got = std::to_string(last));
  TW_REQUIRE(engine_of(index) != Engine::collective, ErrorKind::invalid, .where = where,
             .what = "a collective library moves the tiles");
  TW_REQUIRE(all_reduce_of(index) == AllReduce::two_shot, ErrorKind::invalid, .where = where,
             .what = "in one shot every tile goes to every member");
  overlap_.emplace(producer.index(), index);
  fused_[index] = last == 0 ? std::numeric_limits<int>::max() : last;
  return *this;
}

Schedule& Schedule::tile(Tensor value, Shape extents) {
  const bool fits = extents.size() == value.shape().size() &&
                    std::all_of(extents.begin(), extents.end(), [](auto e) { return e >= 0; });
  TW_REQUIRE(fits, ErrorKind::invalid, .where = "tile of " + described(value.program().ops()[value.index()]),
             .what = "the tile does not fit the tensor",
             .expected = std::to_string(value.shape().size()) + " extents, none negative", .got = to_string(extents));
  tiles_[value.index()] = extents;
  return *this;
}

Schedule& Schedule::group(Tensor communication, int tiles) {
  const Op& op = communication.program().ops()[communication.index()];
  TW_REQUIRE(is_communication(op.kind) && tiles >= 1, ErrorKind::invalid, .where = "group of " + described(op),
             .what = "only a communication moves tiles together", .expected = "a communication and at least 1 tile",
             .got = std::to_string(tiles));
  groups_[communication.index()] = tiles;
  return *this;
}

Schedule& Schedule::all_reduce(Tensor communication, AllReduce algorithm) {
  const Op& op = communication.program().ops()[communication.index()];
  TW_REQUIRE(op.kind == OpKind::all_reduce, ErrorKind::invalid, .where = "all_reduce algorithm of " + described(op),
             .what = "not an all_reduce");
  TW_REQUIRE(engine_of(communication.index()) != Engine::collective, ErrorKind::invalid,
             .where = "all_reduce algorithm of " + described(op),
             .what = "the collective engine has algorithms of its own");
  TW_REQUIRE(algorithm == AllReduce::two_shot || fused_tiles_of(communication.index()) == 0, ErrorKind::invalid,
             .where = "all_reduce algorithm of " + described(op),
             .what = "it is fused with its producer, and in one shot every tile goes to every member");
  all_reduces_[communication.index()] = algorithm;
  return *this;
}

Schedule& Schedule::engine(Tensor value, Engine engine) {
  const int index = value.index();
  const Op& op = value.program().ops()[index];
  const std::string where = fmt::format("engine {} of {}", name_of(engine), described(op));
  if (engine == Engine::library) {
    TW_REQUIRE(op.kind == OpKind::matmul, ErrorKind::invalid, .where = where,
               .what = "the library has matrix products only", .expected = "a matmul",
               .got = std::string(name_of(op.kind)), .hint = "Leave it to compute lanes");
    TW_REQUIRE(!absorbed(index), ErrorKind::invalid, .where = where,
               .what = "its tasks go on with what is done to its elements");
  } else {
    const bool back = op.kind == OpKind::matmul && engine == Engine::compute;
    TW_REQUIRE(is_communication(op.kind) || back, ErrorKind::invalid, .where = where,
               .what = "only a communication's tiles are moved by an engine of choice");
  }
  if (engine == Engine::collective) {
    TW_REQUIRE(op.kind != OpKind::all_to_all_v, ErrorKind::invalid, .where = where,
               .what = "a collective library is told how much it moves before the run",
               .expected = "a communication whose extents are known in the program",
               .got = std::string(name_of(op.kind)), .hint = "Leave it to copy or compute lanes");
    TW_REQUIRE(!all_reduces_.contains(index), ErrorKind::invalid, .where = where,
               .what = "the schedule has chosen how copy and compute lanes do it",
               .hint = "The collective engine has algorithms of its own: choose one or the other");
    TW_REQUIRE(fused_tiles_of(index) == 0, ErrorKind::invalid, .where = where,
               .what = "it is fused with its producer, whose tasks move the tiles");
  }
  engines_[index] = engine;
  return *this;
}

const Shape* Schedule::tile_of(int op) const {
  const auto found = tiles_.find(op);
  return found == tiles_.end() ? nullptr : &found->second;
}

int Schedule::group_of(int op) const {
  const auto found = groups_.find(op);
  return found == groups_.end() ? 1 : found->second;
}

Engine Schedule::engine_of(int op) const {
  const auto found = engines_.find(op);
  return found == engines_.end() ? Engine::copy : found->second;
}

int Schedule::fused_tiles_of(int op) const {
  const auto found = fused_.find(op);
  return found == fused_.end() ? 0 : found->second;
}

AllReduce Schedule::all_reduce_of(int op) const {
  const auto found = all_reduces_.find(op);
  return found == all_reduces_.end() ? AllReduce::two_shot : found->second;
}

}  // namespace tileway
