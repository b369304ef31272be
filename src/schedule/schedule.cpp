#include "tileway/schedule.hpp"

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

Schedule Schedule::named(const Program& program, std::string_view name) {
  if (name == "unfused") return unfused(program);
  if (name == "overlapped") return overlapped(program);
  throw Error(
      ErrorKind::invalid,
      {.where = "schedule", .what = "unknown name", .expected = "unfused or overlapped", .got = std::string(name)});
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
  all_reduces_[communication.index()] = algorithm;
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

AllReduce Schedule::all_reduce_of(int op) const {
  const auto found = all_reduces_.find(op);
  return found == all_reduces_.end() ? AllReduce::two_shot : found->second;
}

}  // namespace tileway
