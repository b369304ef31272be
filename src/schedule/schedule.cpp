#include "tileway/schedule.hpp"

#include <fmt/format.h>

#include <algorithm>

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

Schedule Schedule::named(const Program& program, std::string_view name) {
  if (name == "unfused") return unfused(program);
  if (name == "overlapped") return overlapped(program);
  if (name == "collective") return collective(program);
  throw Error(ErrorKind::invalid, {.where = "schedule",
                                   .what = "unknown name",
                                   .expected = "unfused, overlapped or collective",
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
  all_reduces_[communication.index()] = algorithm;
  return *this;
}

Schedule& Schedule::engine(Tensor communication, Engine engine) {
  const int index = communication.index();
  const Op& op = communication.program().ops()[index];
  const std::string where = fmt::format("engine {} of {}", name_of(engine), described(op));
  TW_REQUIRE(is_communication(op.kind), ErrorKind::invalid, .where = where,
             .what = "only a communication's tiles are moved by an engine of choice");
  if (engine == Engine::collective) {
    TW_REQUIRE(op.kind != OpKind::all_to_all_v, ErrorKind::invalid, .where = where,
               .what = "a collective library is told how much it moves before the run",
               .expected = "a communication whose extents are known in the program",
               .got = std::string(name_of(op.kind)), .hint = "Leave it to copy or compute lanes");
    TW_REQUIRE(!all_reduces_.contains(index), ErrorKind::invalid, .where = where,
               .what = "the schedule has chosen how copy and compute lanes do it",
               .hint = "The collective engine has algorithms of its own: choose one or the other");
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

AllReduce Schedule::all_reduce_of(int op) const {
  const auto found = all_reduces_.find(op);
  return found == all_reduces_.end() ? AllReduce::two_shot : found->second;
}

}  // namespace tileway
