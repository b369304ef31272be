#include <numeric>

#include "tileway/error.hpp"
#include "tileway/program.hpp"

namespace tileway {

Placement Replicate() { return {}; }

Placement Shard(int dim, std::vector<std::int64_t> sizes) {
  return {.kind = Placement::Kind::shard, .dim = dim, .sizes = std::move(sizes)};
}

Placement Partial(ReduceOp op) { return {.kind = Placement::Kind::partial, .op = op}; }

std::string to_string(const Placement& placement) {
  if (placement.is_replicate()) return "Replicate";
  if (placement.is_partial()) return "Partial(" + std::string(name_of(placement.op)) + ")";
  std::string text = "Shard(" + std::to_string(placement.dim);
  if (!placement.sizes.empty()) {
    text += ", [";
    for (std::size_t i = 0; i < placement.sizes.size(); ++i) {
      text += (i ? ", " : "") + std::to_string(placement.sizes[i]);
    }
    text += "]";
  }
  return text + ")";
}

Shape TensorType::local_shape(int member) const {
  Shape local = shape;
  if (placement.is_shard()) local[placement.dim] = placement.sizes[member];
  return local;
}

std::int64_t TensorType::shard_start(int member) const {
  if (!placement.is_shard()) return 0;
  return std::accumulate(placement.sizes.begin(), placement.sizes.begin() + member, std::int64_t{0});
}

std::string to_string(const TensorType& type) {
  return std::string(name_of(type.dtype)) + to_string(type.shape) + " " + to_string(type.placement);
}

}  // namespace tileway
