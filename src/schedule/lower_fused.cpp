// Communications whose tiles, all or the last, are written to where they go by the very tasks that make them.
#include <limits>
#include <set>

#include "schedule/lowering.hpp"
#include "tileway/error.hpp"

namespace tileway {

Tiling Lowering::fused_tiling(int index, const Tiling& coarse) const {
  const int source = op_at(index).operands[0];
  const TensorType& from = op_at(source).type;
  Tiling tiling;
  for (std::size_t d = 0; d < coarse.cuts.size(); ++d) {
    std::set<std::int64_t> ends;  // of the producer's tiles, in the whole tensor
    for (int m = 0; m < members_of(from); ++m) {
      const std::int64_t start = from.placement.is_shard(static_cast<int>(d)) ? from.shard_start(m) : 0;
      for (std::int64_t cut : held_[source][m].tiling.cuts[d]) ends.insert(start + cut);
    }
    std::set<std::int64_t> cuts = ends;
    if (!brought_by_producer(index, std::numeric_limits<int>::max())) {
      cuts.clear();
      for (std::int64_t cut : coarse.cuts[d]) cuts.insert(*ends.lower_bound(cut));
    }
    tiling.cuts.emplace_back(cuts.begin(), cuts.end());
  }
  return tiling;
}

void Lowering::redirect(Held& held, const Box& box, BufferId to, const Dims& start, std::vector<TaskId>& tasks) {
  held.tiling.overlapping(box, [&](std::size_t cell) {
    const Box tile = held.tiling.box(cell);
    TW_ASSERT(intersect(tile, box) == tile && held.writers[cell].size() == 1);
    const TaskId task = held.writers[cell].front();
    graph_.redirect(task, writing(to, moved(tile, start)));
    tasks.push_back(task);
  });
}

void Lowering::move_by_producer(int index, const Box& box, int sender, int receiver) {
  const Op& op = op_at(index);
  const int source = op.operands[0];
  const Box from_box = localised(box, op_at(source).type, sender);
  const Box to_box = localised(box, op.type, receiver);
  Held& result = held_[index][receiver];
  std::vector<TaskId> tasks;
  redirect(held_[source][sender], from_box, result.buffer, moved(from_box, to_box.start).start, tasks);
  for (TaskId task : tasks) result.written(graph_.plan.tasks[task].writes[0].box, task);
}

}  // namespace tileway
