// Computations: each member works on what it holds, a task a tile.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "lang/access.hpp"
#include "schedule/lowering.hpp"
#include "tileway/error.hpp"

namespace tileway {
namespace {

// The dimension of the result along which operand k, sharded before it was gathered, is read element for element; -1
// where there is none.
int result_dim(const Op& op, std::size_t k, const TensorType& source) {
  const int dims = static_cast<int>(source.shape.size());
  const int dim = source.placement.dim;
  const int aligned = dim + static_cast<int>(op.type.shape.size()) - dims;
  switch (op.kind) {
    case OpKind::matmul:
      return dim == (k == 0 ? dims - 1 : dims - 2) ? -1 : aligned;
    case OpKind::scaled_matmul:
      if (k < 2) return dim == 0 ? static_cast<int>(k) : -1;  // b [n, k] has the product's columns as rows
      return source.shape[dim] == 1 ? -1 : aligned;
    case OpKind::pointwise:
      return source.shape[dim] == 1 ? -1 : aligned;
    case OpKind::cast:
      return aligned;
    case OpKind::softmax:
    case OpKind::layer_norm:
    case OpKind::rms_norm:
      return k == 0 ? aligned : -1;
    default:
      return -1;
  }
}

}  // namespace

std::vector<int> Lowering::chain_of(int index) const {
  std::vector<int> chain{index};
  while (true) {
    const std::vector<int>& operands = op_at(chain.front()).operands;
    const auto before =
        std::find_if(operands.begin(), operands.end(), [&](int operand) { return schedule_.absorbed(operand); });
    if (before == operands.end()) return chain;
    chain.insert(chain.begin(), *before);
  }
}

Tiling Lowering::compute_tiling(int index, int member) const {
  const Op& op = op_at(index);
  const std::vector<int> chain = chain_of(index);
  const Shape local = op.type.local_shape(member);
  // All members cut alike, by what suits the one with most.
  Shape most = local;
  for (int m = 0; m < members_of(op.type); ++m) {
    const Shape other = op.type.local_shape(m);
    if (volume(other) > volume(most)) most = other;
  }
  const Topology& topology = graph_.plan.topology;
  Shape tile = computer(index) == Engine::library
                   ? default_library_tile(most, members_of(op.type), topology)
                   : default_tile(op_at(chain.front()), most, members_of(op.type), topology);
  for (int link : chain) {
    if (const Shape* chosen = schedule_.tile_of(link)) tile = *chosen;
  }
  // A tile that an overlapped consumer sends on should not straddle two destinations.
  std::vector<std::vector<std::int64_t>> fixed(local.size());
  for (std::size_t c = index + 1; c < program_.ops().size(); ++c) {
    const Op& consumer = program_.ops()[c];
    const bool sends = is_communication(consumer.kind) && fine(index, static_cast<int>(c));
    if (!sends || !consumer.type.placement.is_shard() || consumer.type.shape.size() != local.size()) continue;
    if (consumer.kind == OpKind::send) continue;
    const int dim = consumer.type.placement.dim;
    const std::int64_t own = op.type.placement.is_shard(dim) ? op.type.shard_start(member) : 0;
    for (int m = 0; m < members_of(consumer.type); ++m) fixed[dim].push_back(consumer.type.shard_start(m) - own);
  }
  // Nor one that reads a gathered operand two sources.
  for (int link : chain) {
    const Op& its = op_at(link);
    for (std::size_t k = 0; k < its.operands.size(); ++k) {
      const Op& producer = op_at(its.operands[k]);
      if (producer.kind != OpKind::all_gather || !fine(its.operands[k], link)) continue;
      const TensorType& source = op_at(producer.operands[0]).type;
      const int dim = result_dim(its, k, source);
      if (dim < 0 || op.type.placement.is_shard(dim)) continue;
      for (int m = 0; m < members_of(source); ++m) fixed[dim].push_back(source.shard_start(m));
    }
  }
  Tiling tiling;
  for (std::size_t d = 0; d < local.size(); ++d) {
    const bool whole = keeps_whole(op, program_, member, d);
    tiling.cuts.push_back(whole ? cut_dimension(local[d], 0, {}) : cut_dimension(local[d], tile[d], fixed[d]));
  }
  return tiling;
}

Body Lowering::body_of(const Op& op, int member) const {
  Body body;
  switch (op.kind) {
    case OpKind::pointwise:
      body.kind = Body::Kind::pointwise;
      body.function = op.function;
      return body;
    case OpKind::cast:
      body.kind = Body::Kind::cast;
      return body;
    case OpKind::matmul:
      body.kind = Body::Kind::matmul;
      body.tf32 = op.precision == Precision::tf32;
      return body;
    case OpKind::scaled_matmul:
      body.kind = Body::Kind::scaled_matmul;
      return body;
    case OpKind::softmax:
      body.kind = Body::Kind::softmax;
      return body;
    case OpKind::layer_norm:
      body.kind = Body::Kind::layer_norm;
      body.value = op.value;
      return body;
    case OpKind::rms_norm:
      body.kind = Body::Kind::rms_norm;
      body.value = op.value;
      return body;
    case OpKind::reduce_dim:
      body.kind = Body::Kind::reduce_dim;
      body.op = op.reduce;
      body.dim = op.dim;
      return body;
    case OpKind::transpose:
      body.kind = Body::Kind::transpose;
      body.dims = op.shape;
      return body;
    case OpKind::gather_rows:
    case OpKind::embedding_bag: {
      const TensorType& table = op_at(op.operands[0]).type;
      const int rows = static_cast<int>(table.shape.size()) - 2;
      body.kind = op.kind == OpKind::gather_rows ? Body::Kind::gather_rows : Body::Kind::embedding_bag;
      if (op.kind == OpKind::embedding_bag) body.op = op.reduce;
      body.rows = table.shape[rows];
      if (table.placement.is_shard(rows)) body.first = table.shard_start(member);
      return body;
    }
    case OpKind::reshape:
    case OpKind::slice:
    case OpKind::shard:
    case OpKind::update:
      body.kind = Body::Kind::copy;
      return body;
    default:
      break;
  }
  TW_ASSERT(!"body_of is for computations");
  return body;
}

std::vector<Step> Lowering::epilogue_of(const std::vector<int>& chain) const {
  std::vector<Step> steps;
  auto next = static_cast<std::int32_t>(op_at(chain.front()).operands.size());  // of the task's reads
  for (std::size_t i = 1; i < chain.size(); ++i) {
    const Op& op = op_at(chain[i]);
    Step step{.cast = op.kind == OpKind::cast, .dtype = op.type.dtype};
    if (!step.cast) step.function = op.function;
    for (std::size_t k = 0; k < op.operands.size(); ++k)
      step.operands[k] = op.operands[k] == chain[i - 1] ? Step::kSoFar : next++;
    steps.push_back(step);
  }
  return steps;
}

std::vector<std::size_t> Lowering::order_of_cells(int index, int first, const Tiling& tiling) const {
  const OpKind kind = op_at(first).kind;
  if (kind == OpKind::matmul || kind == OpKind::scaled_matmul)
    return product_order(tiling, rows_sent_together(index), graph_.plan.topology);
  std::vector<std::size_t> order(tiling.count());
  std::iota(order.begin(), order.end(), std::size_t{0});
  return order;
}

void Lowering::lower_compute(int index, std::int32_t origin) {
  const Op& op = op_at(index);
  const std::vector<int> chain = chain_of(index);
  const Engine engine = computer(index);
  TW_REQUIRE(graph_.plan.topology.lanes_of(engine) > 0, ErrorKind::invalid,
             .where = fmt::format("{}, {}", program_.name(), graph_.plan.origins[origin]),
             .what = "the schedule gives it to a library of matrix products, and there is no lane for one",
             .expected = "library=1 or more in the topology", .got = "library=0",
             .hint = "Leave it multiprocessors: --topology ranks=2,lanes=16,copy=2,library=1");
  for (int member = 0; member < members_of(op.type); ++member) {
    Held held =
        new_held(op.type, member, fmt::format("%{}", index), Buffer::Role::scratch, compute_tiling(index, member));
    const bool in_place = op.kind == OpKind::update;
    if (in_place) {
      graph_.plan.buffers.pop_back();
      held.buffer = held_[op.operands[0]][member].buffer;
    }
    Body body = body_of(op_at(chain.front()), member);
    body.epilogue = epilogue_of(chain);
    std::vector<TaskId> tasks;
    for (std::size_t cell : order_of_cells(index, chain.front(), held.tiling)) {
      const Box box = held.tiling.box(cell);
      std::vector<Access> reads;
      std::vector<std::pair<int, int>> edges;  // by read: from an operation to one of the chain
      for (int link : chain) {
        const std::vector<int>& operands = op_at(link).operands;
        for (std::size_t k = in_place ? 1 : 0; k < operands.size(); ++k) {
          if (schedule_.absorbed(operands[k])) continue;
          reads.push_back(reading(held_[operands[k]][member], operand_box(program_, op_at(link), k, member, box)));
          edges.emplace_back(operands[k], link);
        }
      }
      // It bears the name of what it begins with.
      const std::int32_t its_origin = origin - (index - chain.front());
      const TaskId task = graph_.add_task(engine, held.rank, its_origin, body, reads, {writing(held.buffer, box)});
      for (std::size_t r = 0; r < reads.size(); ++r) {
        const auto [from, to] = edges[r];
        graph_.depend(task, held_[from][member], reads[r].box, fine(from, to));
      }
      held.writers[cell].push_back(task);
      tasks.push_back(task);
    }
    if (in_place) {  // the old value is overwritten once everyone has read it
      graph_.add_join({held.rank, held_[op.operands[0]][member].readers, tasks});
    }
    held_[index].push_back(std::move(held));
  }
}

}  // namespace tileway
