#include "encoder.hpp"

#include <cmath>

namespace tileway::encoder {
namespace {

constexpr DType kType = DType::f32;
// What is added to the score of a padded token before the softmax: no token gets any weight from it.
constexpr double kMasked = -1e9;

// `count` things over `ranks`, the first ranks taking one more: 12 over 5 is 3, 3, 2, 2, 2.
std::vector<std::int64_t> balanced(std::int64_t count, int ranks, std::int64_t unit = 1) {
  std::vector<std::int64_t> sizes;
  for (int r = 0; r < ranks; ++r) sizes.push_back((count / ranks + (r < count % ranks ? 1 : 0)) * unit);
  return sizes;
}

class Builder {
 public:
  Builder(Program& p, const Config& config, const Batch& batch)
      : p_(p),
        config_(config),
        batch_(batch),
        head_(config.hidden / config.heads),
        heads_(balanced(config.heads, p.world())),
        columns_(balanced(config.heads, p.world(), head_)) {}

  Tensor embeddings(Tensor ids) {
    const Tensor words = weight("embeddings.word_embeddings.weight", {30522, config_.hidden}, Shard(0));
    const Tensor positions = weight("embeddings.position_embeddings.weight", {512, config_.hidden}, Replicate());
    const Tensor types = weight("embeddings.token_type_embeddings.weight", {2, config_.hidden}, Replicate());
    const Tensor sum =
        all_reduce(gather_rows(words, ids)) + slice(positions, 0, 0, batch_.tokens) + slice(types, 0, 0, 1);
    return norm(sum, "embeddings.LayerNorm");
  }

  Tensor layer(Tensor x, const std::string& name, Tensor mask) {
    const Tensor attended = all_reduce(attention(x, name + ".attention", mask));
    x = norm(attended + bias(name + ".attention.output.dense", Replicate()) + x, name + ".attention.output.LayerNorm");
    const Tensor inner =
        gelu(linear(x, name + ".intermediate.dense", config_.hidden, config_.feed_forward, Shard(1), Shard(0)));
    const Tensor outer =
        all_reduce(matmul(inner, matrix(name + ".output.dense", config_.feed_forward, config_.hidden, Shard(0))));
    return norm(outer + bias(name + ".output.dense", Replicate()) + x, name + ".output.LayerNorm");
  }

 private:
  Tensor weight(const std::string& name, Shape shape, Placement placement) {
    return p_.input(name, kType, shape, std::move(placement));
  }
  Tensor matrix(const std::string& name, std::int64_t in, std::int64_t out, Placement placement) {
    return weight(name + ".weight", {in, out}, std::move(placement));
  }
  Tensor bias(const std::string& name, Placement placement, std::int64_t width = 0) {
    return weight(name + ".bias", {width > 0 ? width : config_.hidden}, std::move(placement));
  }
  Tensor linear(Tensor x, const std::string& name, std::int64_t in, std::int64_t out, Placement columns,
                Placement entries) {
    return matmul(x, matrix(name, in, out, std::move(columns))) + bias(name, std::move(entries), out);
  }
  Tensor norm(Tensor x, const std::string& name) {
    const Tensor gamma = weight(name + ".weight", {config_.hidden}, Replicate());
    return layer_norm(x, gamma, weight(name + ".bias", {config_.hidden}, Replicate()), config_.epsilon);
  }
  // [b, s, hidden], sharded by heads -> [b, heads, s, head].
  Tensor by_head(Tensor x, const std::string& name) {
    const Tensor projected = linear(x, name, config_.hidden, config_.hidden, Shard(1, columns_), Shard(0, columns_));
    return transpose(reshape(projected, {batch_.sentences, batch_.tokens, config_.heads, head_}), {0, 2, 1, 3});
  }
  // What each rank's heads contribute: Partial.
  Tensor attention(Tensor x, const std::string& name, Tensor mask) {
    const Tensor query = by_head(x, name + ".self.query");
    const Tensor key = transpose(by_head(x, name + ".self.key"), {0, 1, 3, 2});
    const Tensor value = by_head(x, name + ".self.value");
    const Tensor scores = matmul(query, key) * (1 / std::sqrt(static_cast<double>(head_))) + mask;
    const Tensor mixed = transpose(matmul(softmax(scores), value), {0, 2, 1, 3});
    const Tensor joined = reshape(mixed, {batch_.sentences, batch_.tokens, config_.hidden});
    return matmul(joined, matrix(name + ".output.dense", config_.hidden, config_.hidden, Shard(0, columns_)));
  }

  Program& p_;
  const Config& config_;
  const Batch& batch_;
  std::int64_t head_;
  std::vector<std::int64_t> heads_;
  std::vector<std::int64_t> columns_;
};

}  // namespace

Program build(const Config& config, const Batch& batch, int ranks) {
  Program p("encoder", ranks);
  const std::int64_t b = batch.sentences;
  const std::int64_t s = batch.tokens;
  const Tensor ids = p.input("ids", DType::i32, {b, s}, Replicate());
  const Tensor mask = p.input("mask", kType, {b, 1, 1, s}, Replicate());
  const Tensor pooling = p.input("pooling", kType, {b, s, 1}, Replicate());
  Builder builder(p, config, batch);
  Tensor x = builder.embeddings(ids);
  for (std::int64_t l = 0; l < config.layers; ++l) x = builder.layer(x, "encoder.layer." + std::to_string(l), mask);
  const Tensor mean = reduce_dim(x * pooling, ReduceOp::sum, 1);
  const Tensor length = pointwise(Function::sqrt, {reduce_dim(mean * mean, ReduceOp::sum, 1, true)});
  p.output("embeddings", mean / length);
  return p;
}

Bindings load_inputs(const Program& program, const SafeTensors& weights, const Batch& batch) {
  const auto whole = [&](const Op& op) {
    Array array(op.dtype, op.shape);
    if (op.name == "ids") return Array::from(op.dtype, op.shape, batch.ids);
    if (op.name == "mask") {
      for (std::size_t i = 0; i < batch.mask.size(); ++i)
        array.set(static_cast<std::int64_t>(i), batch.mask[i] > 0 ? 0 : kMasked);
      return array;
    }
    if (op.name == "pooling") {  // each token's share of its sentence's mean
      for (std::int64_t i = 0; i < batch.sentences; ++i) {
        double count = 0;
        for (std::int64_t t = 0; t < batch.tokens; ++t) count += batch.mask[i * batch.tokens + t];
        for (std::int64_t t = 0; t < batch.tokens; ++t)
          array.set(i * batch.tokens + t, batch.mask[i * batch.tokens + t] / count);
      }
      return array;
    }
    const Array stored = weights.load(op.name);
    const bool dense = op.shape.size() == 2 && op.name.find("dense.weight") != std::string::npos;
    const bool projection = op.shape.size() == 2 && op.name.find(".self.") != std::string::npos;
    if (!dense && !projection) return stored;
    // The file has [out, in]; the program multiplies from the left.
    if (stored.shape() != Shape{op.shape[1], op.shape[0]}) return stored;  // refused where the parts are cut
    for (std::int64_t i = 0; i < op.shape[0]; ++i) {
      for (std::int64_t j = 0; j < op.shape[1]; ++j) array.set(i * op.shape[1] + j, stored.at(j * op.shape[0] + i));
    }
    return array;
  };
  Bindings inputs;
  for (const Op& op : program.ops()) {
    if (op.kind != OpKind::input) continue;
    const Array array = whole(op);
    for (int rank = 0; rank < program.world(); ++rank) inputs[op.name].push_back(local_part(array, op.type, rank));
  }
  return inputs;
}

}  // namespace tileway::encoder
