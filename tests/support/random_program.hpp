// Random programs, schedules and topologies.
//
// Operations are drawn until enough have been accepted, so the placement rules are exercised too. Values stay small
// integers (a bound is carried along and values are clamped when it grows), so every order of sums gives the same.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "support/run.hpp"
#include "tileway/error.hpp"

namespace tileway::testing {

class RandomProgram {
 public:
  explicit RandomProgram(std::uint64_t seed) : random_(seed) {}

  Program program() {
    const int ranks = pick<int>({1, 2, 2, 3, 3, 4, 5, 8});
    Program p("random", ranks);
    p_ = &p;
    dtype_ = pick<DType>({DType::f32, DType::f32, DType::bf16, DType::f16});
    value_.clear();
    Tensor x = fresh({extent(), extent()});
    const int wanted = 6 + below(8);
    for (int tries = 0; static_cast<int>(p.ops().size()) < wanted + inputs_in(p) && tries < 400; ++tries) x = step(x);
    if (x.placement().is_partial() && below(2) == 0) x = keep(all_reduce(x), bound(x) * p.world());
    p.output("y", x);
    // A second output, so that a value is both read on and given out.
    const int middle = static_cast<int>(p.ops().size()) / 2;
    if (p.ops()[middle].kind != OpKind::input && p.updated_by(middle) < 0) p.output("middle", Tensor(&p, middle));
    p_ = nullptr;
    return p;
  }

  Schedule schedule(Program& p) {
    if (below(8) == 0) return Schedule::unfused(p);
    Schedule s = Schedule::overlapped(p);
    if (below(3) == 0) {  // only some of the edges
      s = Schedule::unfused(p);
      for (std::size_t i = 0; i < p.ops().size(); ++i) {
        for (int operand : p.ops()[i].operands) {
          if (below(2) == 0) continue;
          try {
            s.overlap(Tensor(&p, operand), Tensor(&p, static_cast<int>(i)));
          } catch (const Error&) {  // not legal: an input, or all_to_all_v
          }
        }
      }
    }
    for (std::size_t i = 0; i < p.ops().size(); ++i) {
      const Tensor value(&p, static_cast<int>(i));
      if (below(3) == 0) {
        Shape tile;
        for (std::size_t d = 0; d < value.shape().size(); ++d) tile.push_back(below(4) == 0 ? 0 : 1 + below(7));
        s.tile(value, tile);
      }
      if (is_communication(p.ops()[i].kind) && below(3) == 0) s.group(value, 1 + below(3));
      if (p.ops()[i].kind == OpKind::all_reduce && below(2) == 0) s.all_reduce(value, AllReduce::one_shot);
      for (int operand : p.ops()[i].operands) {
        if (s.absorbed(operand) || below(2) == 0) continue;
        try {
          s.fuse_epilogue(Tensor(&p, operand), value);
        } catch (const Error&) {  // not legal: no product, or somebody else reads it
        }
      }
      if (!is_communication(p.ops()[i].kind) || below(2) == 0) continue;
      try {
        s.fuse(Tensor(&p, p.ops()[i].operands[0]), value, below(3));
      } catch (const Error&) {  // not legal: its tiles go to several places, or someone else reads them
      }
    }
    return s;
  }

  Topology topology(int ranks) { return small_topology(ranks, 1 + below(3), below(3)); }

 private:
  int below(int n) { return static_cast<int>(random_() % static_cast<std::uint64_t>(n)); }
  template <typename T>
  T pick(std::initializer_list<T> from) {
    return *(from.begin() + below(static_cast<int>(from.size())));
  }
  std::int64_t extent() { return pick<std::int64_t>({1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 16, 19}); }
  static int inputs_in(const Program& p) {
    return static_cast<int>(std::count_if(p.ops().begin(), p.ops().end(), [](const Op& op) {
      return op.kind == OpKind::input || op.kind == OpKind::constant;
    }));
  }

  Placement placement(const Shape& shape) {
    const int dims = static_cast<int>(shape.size());
    if (dims == 0 || below(3) == 0) return Replicate();
    const int dim = below(dims);
    if (below(3) > 0) return Shard(dim);
    std::vector<std::int64_t> sizes(p_->world(), 0);  // any cut, with empty parts
    for (std::int64_t left = shape[dim]; left > 0;) {
      const std::int64_t take = 1 + below(static_cast<int>(left));
      sizes[below(p_->world())] += take;
      left -= take;
    }
    return Shard(dim, sizes);
  }
  Tensor fresh(Shape shape, Placement where) {
    const Tensor t = p_->input(fmt::format("x{}", p_->ops().size()), dtype_, shape, std::move(where));
    return keep(t, 2);
  }
  Tensor fresh(Shape shape) { return fresh(shape, below(6) == 0 ? Partial() : placement(shape)); }

  double bound(Tensor x) const { return value_.at(x.index()); }
  Tensor keep(Tensor x, double bound) {
    value_.resize(p_->ops().size(), 0);
    value_[x.index()] = bound;
    return x;
  }
  // Largest integer that all sums below may reach and still be exact.
  static constexpr double kLimit = 1 << 20;

  Tensor clamped(Tensor x) {
    if (bound(x) <= 8 || x.placement().is_partial()) return x;
    const Tensor high = p_->constant(3, x.dtype(), x.type().group);
    const Tensor low = p_->constant(-3, x.dtype(), x.type().group);
    return keep(pointwise(Function::maximum, {pointwise(Function::minimum, {x, high}), low}), 3);
  }

  Tensor step(Tensor x) {
    try {
      const Tensor next = clamped(x.placement().is_partial() ? from_partial(x)
                                  : below(5) < 3             ? compute(x)
                                                             : communicate(x));
      value_.resize(p_->ops().size(), 0);
      return next;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::invalid) << error.what();
      value_.resize(p_->ops().size(), 2);  // inputs that were made for what was refused stay unused
      return x;
    }
  }

  Tensor from_partial(Tensor x) {
    const int n = p_->world();
    switch (below(6)) {
      case 0:
        return keep(x + x, 2 * bound(x));
      case 1:
        return keep(reduce(x, below(n)), bound(x) * n);
      case 2:
      case 3:
        return keep(reduce_scatter(x, below(static_cast<int>(x.shape().size()))), bound(x) * n);
      default:
        return keep(all_reduce(x), bound(x) * n);
    }
  }

  Tensor communicate(Tensor x) {
    const int dims = static_cast<int>(x.shape().size());
    const Placement target = placement(x.shape());
    if (x.placement().is_replicate()) return keep(shard(x, target.dim, target.sizes), bound(x));
    if (dims == 0) return x;
    switch (below(4)) {
      case 0:
        return keep(all_gather(x), bound(x));
      case 1:
        return dynamic(x);
      default:
        return keep(all_to_all(x, target.is_shard() ? target.dim : below(dims), target.sizes), bound(x));
    }
  }

  Tensor dynamic(Tensor x) {
    const std::int64_t n = p_->world();
    std::int64_t rows = 1 + below(9);
    const Tensor splits = p_->input(fmt::format("s{}", p_->ops().size()), pick<DType>({DType::i32, DType::i64}), {n, n},
                                    Shard(0, std::vector<std::int64_t>(n, 1)));
    keep(splits, 0);
    return keep(all_to_all_v(x, splits, rows), bound(x));
  }

  Tensor compute(Tensor x) {
    const int dims = static_cast<int>(x.shape().size());
    const double b = bound(x);
    switch (below(11)) {
      case 0:
      case 1:
      case 2:
        return product(x);
      case 3: {
        const Tensor other = fresh(x.shape(), below(2) == 0 ? Replicate() : x.placement());
        const auto function = pick<Function>({Function::add, Function::sub, Function::maximum, Function::minimum});
        return keep(pointwise(function, {x, other}), b + 2);
      }
      case 4:
        return keep(pointwise(pick<Function>({Function::neg, Function::abs, Function::relu}), {x}), b);
      case 5: {
        const ReduceOp op = pick<ReduceOp>({ReduceOp::sum, ReduceOp::max, ReduceOp::min});
        const int dim = below(std::max(1, dims));
        // Empty parts have no maximum: only sums go across ranks.
        if (dims < 2 || (op != ReduceOp::sum && x.placement().is_shard(dim))) return x;
        return keep(reduce_dim(x, op, dim, below(2) == 0), b * static_cast<double>(x.shape()[dim]));
      }
      case 6: {
        if (dims < 2) return x;
        Shape order;
        for (int d = 0; d < dims; ++d) order.push_back(d);
        std::shuffle(order.begin(), order.end(), random_);
        return keep(transpose(x, order), b);
      }
      case 7: {
        if (dims == 3) return keep(reshape(x, {x.shape()[0] * x.shape()[1], x.shape()[2]}), b);
        if (dims == 2)
          return keep(
              reshape(x, below(2) == 0 ? Shape{x.shape()[0], x.shape()[1], 1} : Shape{1, x.shape()[0], x.shape()[1]}),
              b);
        return x;
      }
      case 8: {
        const int dim = below(std::max(1, dims));
        if (dims == 0 || x.shape()[dim] < 2) return x;
        return keep(slice(x, dim, below(static_cast<int>(x.shape()[dim])) / 2, (x.shape()[dim] + 1) / 2), b);
      }
      case 9: {
        if (dims != 2 || x.shape()[0] == 0) return x;
        const Shape shape = below(2) == 0 ? Shape{extent(), 3} : Shape{extent()};
        const Tensor ids = p_->input(fmt::format("i{}", p_->ops().size()), DType::i32, shape, placement(shape));
        keep(ids, 0);
        if (shape.size() == 2) return keep(embedding_bag(x, ids), 3 * b);
        return keep(gather_rows(x, ids), b);
      }
      default: {
        const Tensor state = fresh(x.shape(), x.placement());
        return keep(update(state, x), b);
      }
    }
  }

  Tensor product(Tensor x) {
    const int dims = static_cast<int>(x.shape().size());
    if (dims < 2) return x;
    const std::int64_t k = x.shape().back();
    if (bound(x) * 2 * static_cast<double>(k) * p_->world() > kLimit) return x;
    const std::int64_t n = extent();
    Placement where = Replicate();
    if (x.placement().is_replicate() && below(2) == 0) where = Shard(1);
    if (x.placement().is_shard(dims - 1)) where = Shard(0, x.placement().sizes);
    // Integers up to 2^11 are numbers of tf32.
    const bool tf32 = x.dtype() == DType::f32 && bound(x) <= 2048 && below(3) == 0;
    // Integers up to 16 are numbers of e4m3. Scales are 1 or 2.
    if (dims == 2 && bound(x) <= 16 && below(4) == 0) {
      if (where.is_shard()) where.dim = 1 - where.dim;  // [n, k]
      const std::string name = std::to_string(p_->ops().size());
      const Tensor w = p_->input("w" + name, DType::e4m3, {n, k}, where);
      const Tensor rows = p_->input("r" + name, DType::f32, {below(2) == 0 ? x.shape()[0] : 1, 1}, Replicate());
      const Tensor columns = p_->input("c" + name, DType::f32, {1, below(2) == 0 ? n : 1}, Replicate());
      value_.resize(p_->ops().size(), 2);
      return keep(scaled_matmul(cast(x, DType::e4m3), w, rows, columns, dtype_), bound(x) * 8 * static_cast<double>(k));
    }
    const Tensor other = fresh({k, n}, where);
    return keep(matmul(x, other, tf32 ? Precision::tf32 : Precision::exact), bound(x) * 2 * static_cast<double>(k));
  }

  std::mt19937_64 random_;
  Program* p_ = nullptr;
  DType dtype_ = DType::f32;
  std::vector<double> value_;  // by op: no element is larger
};

}  // namespace tileway::testing
