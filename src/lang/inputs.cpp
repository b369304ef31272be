#include "tileway/inputs.hpp"

#include <algorithm>
#include <limits>
#include <random>

#include "tileway/error.hpp"

namespace tileway {
namespace {

// Standard distributions differ between libraries; these do not.
class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  std::int64_t below(std::int64_t bound) {
    return static_cast<std::int64_t>(engine_() % static_cast<std::uint64_t>(bound));
  }
  double normal() {  // sum of twelve uniforms, less six
    double sum = -6;
    for (int i = 0; i < 12; ++i) sum += static_cast<double>(engine_() >> 11) * 0x1p-53;
    return sum;
  }

 private:
  std::mt19937_64 engine_;
};

// How an input is used: the smallest table that it indexes, or as splits, or as a scale.
struct Use {
  std::int64_t rows = std::numeric_limits<std::int64_t>::max();
  const Op* splits_of = nullptr;
  bool scale = false;
};

Use use_of(const Program& program, int input) {
  Use use;
  for (const Op& op : program.ops()) {
    if (op.kind == OpKind::scaled_matmul && (op.operands[2] == input || op.operands[3] == input)) use.scale = true;
    if (op.operands.size() != 2 || op.operands[1] != input) continue;
    const Shape& first = program.ops()[op.operands[0]].type.shape;
    if (op.kind == OpKind::gather_rows || op.kind == OpKind::embedding_bag)
      use.rows = std::min(use.rows, first[first.size() - 2]);
    if (op.kind == OpKind::all_to_all_v) use.splits_of = &op;
  }
  return use;
}

Array random_splits(const Program& program, const Op& op, const TensorType& type, Random& random) {
  const auto n = static_cast<int>(type.shape[0]);
  const TensorType& x = program.ops()[op.operands[0]].type;
  Array splits(type.dtype, type.shape);
  std::vector<std::int64_t> room(n, op.extent);
  for (int from = 0; from < n; ++from) {
    std::int64_t left = x.placement.sizes[from];
    for (int to = 0; to < n; ++to) {
      const std::int64_t rows = random.below(std::min(left, room[to]) + 1) * random.below(2);  // zeros are common
      splits.set(std::int64_t{from} * n + to, static_cast<double>(rows));
      left -= rows;
      room[to] -= rows;
    }
  }
  return splits;
}

}  // namespace

Bindings random_inputs(const Program& program, std::uint64_t seed, Fill fill) {
  Bindings bindings;
  Random random(seed);
  for (std::size_t i = 0; i < program.ops().size(); ++i) {
    const Op& op = program.ops()[i];
    if (op.kind != OpKind::input) continue;
    const Use use = use_of(program, static_cast<int>(i));
    const bool indices = use.rows != std::numeric_limits<std::int64_t>::max();
    TW_REQUIRE(!indices || use.rows > 0 || volume(op.type.shape) == 0, ErrorKind::invalid,
               .where = "input '" + op.name + "'", .what = "no index is valid in a table without rows");
    const auto draw = [&] {
      if (use.splits_of != nullptr) return random_splits(program, *use.splits_of, op.type, random);
      Array whole(op.type.dtype, op.type.shape);
      for (std::int64_t e = 0; e < whole.size(); ++e) {
        const bool normal = fill == Fill::normal && is_floating(op.type.dtype);
        if (indices) {
          whole.set(e, static_cast<double>(random.below(use.rows)));
        } else if (use.scale) {  // normals stay within +-6
          whole.set(e, normal ? 1 + random.normal() / 8 : static_cast<double>(1 + random.below(2)));
        } else {
          whole.set(e, normal ? random.normal() : static_cast<double>(random.below(5) - 2));
        }
      }
      return whole;
    };
    std::vector<Array>& parts = bindings[op.name];
    parts.resize(program.world());
    const std::vector<int>& ranks = program.groups()[op.type.group];
    const bool partial = op.type.placement.is_partial();
    const Array whole = partial ? Array() : draw();
    for (std::size_t m = 0; m < ranks.size(); ++m) {
      parts[ranks[m]] = partial ? draw() : local_part(whole, op.type, static_cast<int>(m));
    }
  }
  return bindings;
}

}  // namespace tileway
