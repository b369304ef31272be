// all_to_all_v: how many rows go where is known only when it runs.
//
// Every rank first puts its row of splits to every other. Then all ranks know all splits, and so where in each result
// the rows of each sender lie: the slices of a partition, disjoint whatever the splits are. Each sender writes its
// slice; the receiver zeroes what is left. A sender with nothing to send still notifies.
#include <fmt/format.h>

#include "schedule/lowering.hpp"

namespace tileway {

void Lowering::lower_all_to_all_v(int index, std::int32_t origin) {
  const Op& op = op_at(index);
  const int source = op.operands[0];
  const int splits = op.operands[1];
  const int members = members_of(op.type);
  const Shape table_shape{members, members};
  const Box table_box = Box::whole(table_shape);

  std::vector<BufferId> table;  // all splits, on each member
  std::vector<Join> known;
  for (int m = 0; m < members; ++m) {
    const std::int32_t rank = ranks_of(op.type)[m];
    table.push_back(graph_.add_buffer({.name = fmt::format("%{} splits", index),
                                       .rank = rank,
                                       .dtype = op_at(splits).type.dtype,
                                       .shape = table_shape}));
    known.push_back({rank, {}, {}});
  }
  for (int sender = 0; sender < members; ++sender) {
    Held& own = held_[splits][sender];
    const Box row = Box::whole({1, members});
    for (int receiver = 0; receiver < members; ++receiver) {
      // What stays at home does not queue behind what is sent.
      const Engine engine = receiver == sender ? Engine::compute : mover(index);
      const TaskId put = graph_.add_task(engine, own.rank, origin, {.kind = Body::Kind::copy}, {reading(own, row)},
                                         {writing(table[receiver], {{sender, 0}, {1, members}})});
      graph_.moving[put] = true;
      graph_.depend(put, own, row, false);
      known[receiver].producers.push_back(put);
    }
  }
  for (int m = 0; m < members; ++m) {
    Tiling one;  // a single cell: which rows come from whom is not known here
    for (std::int64_t extent : op.type.local_shape(m)) one.cuts.push_back(cut_dimension(extent, 0, {}));
    held_[index].push_back(new_held(op.type, m, fmt::format("%{}", index), Buffer::Role::scratch, std::move(one)));
  }
  for (int receiver = 0; receiver < members; ++receiver) {
    Held& result = held_[index][receiver];
    const Box all = Box::whole(op.type.local_shape(receiver));
    const auto partition = static_cast<std::int32_t>(graph_.plan.partitions.size());
    graph_.plan.partitions.push_back({.to = receiver, .target = result.buffer});
    const auto slice_of = [&](int slice) {
      Access access = writing(result.buffer, all);
      access.partition = partition;
      access.slice = slice;
      return access;
    };
    const auto table_of = [&](int m) { return Access{.buffer = table[m], .box = table_box}; };
    const auto wrote = [&](TaskId task) {
      for (auto& writers : result.writers) writers.push_back(task);
    };
    for (int sender = 0; sender < members; ++sender) {
      Held& from = held_[source][sender];
      const Box rows = Box::whole(op_at(source).type.local_shape(sender));
      const Body body{.kind = Body::Kind::copy_rows, .from = sender, .to = receiver};
      const TaskId task = graph_.add_task(Engine::compute, from.rank, origin, body,
                                          {table_of(sender), reading(from, rows)}, {slice_of(sender)});
      graph_.moving[task] = true;
      graph_.depend(task, from, rows, false);
      known[sender].consumers.push_back(task);
      wrote(task);
    }
    const Body body{.kind = Body::Kind::zero_rows, .to = receiver};
    const TaskId task =
        graph_.add_task(Engine::compute, result.rank, origin, body, {table_of(receiver)}, {slice_of(members)});
    known[receiver].consumers.push_back(task);
    wrote(task);
  }
  for (Join& join : known) graph_.add_join(std::move(join));
}

}  // namespace tileway
