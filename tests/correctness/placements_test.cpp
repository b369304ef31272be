// Every operation, in every placement that it has a rule for, on 1 to 8 ranks and on shapes that nothing divides.
//
// Three things are compared: the interpreter over n ranks with the interpreter over one (so that placements do not
// change the meaning), and both schedules on the host executor with the interpreter: bit for bit on integers for what
// is exact there, within twice the error of the same dtype for the rest.
#include <fmt/format.h>

#include <functional>
#include <map>
#include <optional>
#include <set>

#include "support/quick.hpp"
#include "support/run.hpp"

namespace tileway {
namespace {

// e is an extent that varies: 1 leaves most ranks without anything.
using Build = std::function<Tensor(Program&, DType, std::int64_t e)>;

struct Case {
  std::string op;
  std::string placement;
  bool exact;  // on integers
  Build build;
};

Tensor in(Program& p, const char* name, DType dtype, Shape shape, Placement placement) {
  return p.input(name, dtype, shape, std::move(placement));
}

Tensor indices(Program& p, Shape shape, Placement placement) {
  return p.input("i", DType::i64, shape, std::move(placement));
}

Tensor partial(Program& p, DType d, std::int64_t e) {
  return matmul(in(p, "pa", d, {e, 11}, Shard(1)), in(p, "pb", d, {11, 6}, Shard(0)));
}

// A scaled product [m, n] in d, of k; scales for each row and column where there is a placement for them, else for all.
struct Scaled {
  Placement a, b;
  std::optional<Placement> rows{}, columns{};
};
Tensor scaled(Program& p, DType d, std::int64_t m, std::int64_t n, std::int64_t k, const Scaled& how) {
  const Tensor rows = in(p, "sa", DType::f32, {how.rows ? m : 1, 1}, how.rows.value_or(Replicate()));
  const Tensor columns = in(p, "sb", DType::f32, {1, how.columns ? n : 1}, how.columns.value_or(Replicate()));
  return scaled_matmul(in(p, "a", DType::e4m3, {m, k}, how.a), in(p, "b", DType::e4m3, {n, k}, how.b), rows, columns,
                       d);
}

// A Partial(max): the maximum along a sharded dimension.
Tensor partial_max(Program& p, DType d, std::int64_t e) {
  return reduce_dim(in(p, "m", d, {9, e, 5}, Shard(0)), ReduceOp::max, 0);
}

std::vector<Case> cases() {
  std::vector<Case> all;
  const auto add = [&](std::string op, std::string placement, bool exact, Build build) {
    all.push_back({std::move(op), std::move(placement), exact, std::move(build)});
  };
  using P = Program&;
  using D = DType;
  using E = std::int64_t;
  const std::vector<std::pair<std::string, Placement>> placements{
      {"R", Replicate()}, {"S0", Shard(0)}, {"S1", Shard(1)}};

  for (int f = 0; f < kFunctionCount; ++f) {
    const auto function = static_cast<Function>(f);
    for (const auto& [name, placement] : placements) {
      add(std::string(name_of(function)), name, defined_on_integers(function), [=](P p, D d, E e) {
        std::vector<Tensor> operands;
        for (int k = 0; k < operand_count(function); ++k) {
          // Positive and away from 0, so that log, sqrt and div have a value.
          const Tensor x = in(p, fmt::format("x{}", k).c_str(), d, {e, 13}, placement);
          operands.push_back(defined_on_integers(function) ? x : x * x + 1.0);
        }
        return pointwise(function, operands);
      });
    }
  }
  add("add", "R+S1 broadcast", true, [](P p, D d, E e) {
    return in(p, "x", d, {e, 9}, Shard(1)) + in(p, "b", d, {9}, Replicate());
  });
  add("add", "S1+S0 vector", true, [](P p, D d, E e) {
    return in(p, "x", d, {e, 9}, Shard(1)) + in(p, "b", d, {9}, Shard(0));
  });
  add("add", "S0+column", true, [](P p, D d, E e) {
    return in(p, "x", d, {e, 9}, Shard(0)) + in(p, "b", d, {e, 1}, Replicate());
  });
  add("add", "P+P", true, [](P p, D d, E e) {
    const Tensor x = partial(p, d, e);
    return all_reduce(x + x);
  });
  add("mul", "P*R", true, [](P p, D d, E e) { return all_reduce(partial(p, d, e) * in(p, "r", d, {6}, Replicate())); });
  add("neg", "P", true, [](P p, D d, E e) { return all_reduce(pointwise(Function::neg, {partial(p, d, e)})); });
  for (const auto& [name, placement] : placements) {
    add("cast", name, true, [=](P p, D d, E e) {
      return cast(in(p, "x", d, {e, 7}, placement), d == D::f32 ? D::bf16 : D::f32);
    });
    add("cast i32", name, true, [=](P p, D d, E e) { return cast(in(p, "x", d, {e, 7}, placement), D::i32); });
  }
  add("matmul", "R,R", true, [](P p, D d, E e) {
    return matmul(in(p, "a", d, {e, 11}, Replicate()), in(p, "b", d, {11, 6}, Replicate()));
  });
  add("matmul", "S0,R", true, [](P p, D d, E e) {
    return matmul(in(p, "a", d, {e, 11}, Shard(0)), in(p, "b", d, {11, 6}, Replicate()));
  });
  add("matmul", "R,S1", true, [](P p, D d, E e) {
    return matmul(in(p, "a", d, {7, 11}, Replicate()), in(p, "b", d, {11, e}, Shard(1)));
  });
  add("matmul", "S1,S0", true, [](P p, D d, E e) {
    return all_reduce(matmul(in(p, "a", d, {5, e}, Shard(1)), in(p, "b", d, {e, 6}, Shard(0))));
  });
  add("matmul", "P,R", true, [](P p, D d, E e) {
    return all_reduce(matmul(partial(p, d, e), in(p, "c", d, {6, 3}, Replicate())));
  });
  add("matmul", "R,P", true, [](P p, D d, E e) {
    return all_reduce(matmul(in(p, "c", d, {3, e}, Replicate()), partial(p, d, e)));
  });
  add("matmul", "batch S0,S0", true, [](P p, D d, E e) {
    return matmul(in(p, "a", d, {e, 4, 5}, Shard(0)), in(p, "b", d, {e, 5, 3}, Shard(0)));
  });
  add("matmul", "batch S0,R", true, [](P p, D d, E e) {
    return matmul(in(p, "a", d, {e, 4, 5}, Shard(0)), in(p, "b", d, {e, 5, 3}, Replicate()));
  });
  add("matmul", "batch S0,matrix", true, [](P p, D d, E e) {
    return matmul(in(p, "a", d, {e, 4, 5}, Shard(0)), in(p, "b", d, {5, 3}, Replicate()));
  });
  add("matmul", "batch R,S1 matrix", true, [](P p, D d, E e) {
    return matmul(in(p, "a", d, {3, 4, 5}, Replicate()), in(p, "b", d, {5, e}, Shard(1)));
  });
  add("matmul", "batch S1,R", true, [](P p, D d, E e) {
    return matmul(in(p, "a", d, {3, e, 5}, Shard(1)), in(p, "b", d, {3, 5, 4}, Replicate()));
  });
  add("matmul", "batch K", true, [](P p, D d, E e) {
    return all_reduce(matmul(in(p, "a", d, {2, 4, e}, Shard(2)), in(p, "b", d, {2, e, 3}, Shard(1))));
  });
  add("scaled_matmul", "R,R", true, [](P p, D d, E e) { return scaled(p, d, e, 6, 11, {Replicate(), Replicate()}); });
  add("scaled_matmul", "R,R rows R", true, [](P p, D d, E e) {
    return scaled(p, d, e, 6, 11, {Replicate(), Replicate(), Replicate(), Replicate()});
  });
  add("scaled_matmul", "S0,R rows S0", true, [](P p, D d, E e) {
    return scaled(p, d, e, 6, 11, {Shard(0), Replicate(), Shard(0), Replicate()});
  });
  add("scaled_matmul", "S0,R rows R", true, [](P p, D d, E e) {
    return scaled(p, d, e, 6, 11, {Shard(0), Replicate(), Replicate()});
  });
  add("scaled_matmul", "R,S0 columns S1", true, [](P p, D d, E e) {
    return scaled(p, d, 7, e, 11, {Replicate(), Shard(0), Replicate(), Shard(1)});
  });
  add("scaled_matmul", "R,S0 columns R", true, [](P p, D d, E e) {
    return scaled(p, d, 7, e, 11, {Replicate(), Shard(0), {}, Replicate()});
  });
  add("scaled_matmul", "S1,S1", true, [](P p, D d, E e) {
    return all_reduce(scaled(p, d, 5, 6, e, {Shard(1), Shard(1), Replicate(), Replicate()}));
  });
  add("scaled_matmul", "P,R", true, [](P p, D d, E e) {
    const Tensor one = in(p, "one", D::f32, {1, 1}, Replicate());
    const Tensor x = cast(partial(p, D::f32, e), D::e4m3);
    return all_reduce(scaled_matmul(x, in(p, "c", D::e4m3, {3, 6}, Replicate()), one, one, d));
  });
  add("scaled_matmul", "gathered,R", true, [](P p, D d, E e) {
    const Tensor x = all_gather(in(p, "x", D::e4m3, {e, 11}, Shard(0)));
    const Tensor rows = all_gather(in(p, "sx", D::f32, {e, 1}, Shard(0)));
    return scaled_matmul(x, in(p, "w", D::e4m3, {6, 11}, Replicate()), rows, in(p, "sw", D::f32, {1, 6}, Replicate()),
                         d);
  });
  for (const auto& [name, placement] :
       std::vector<std::pair<std::string, Placement>>{{"R", Replicate()}, {"S0", Shard(0)}, {"S1", Shard(1)}}) {
    add("softmax", name, false, [=](P p, D d, E e) { return softmax(in(p, "x", d, {3, e, 17}, placement)); });
    add("layer_norm", name, false, [=](P p, D d, E e) {
      return layer_norm(in(p, "x", d, {3, e, 17}, placement), in(p, "g", d, {17}, Replicate()),
                        in(p, "b", d, {17}, Replicate()));
    });
    add("rms_norm", name, false, [=](P p, D d, E e) {
      return rms_norm(in(p, "x", d, {3, e, 17}, placement), in(p, "g", d, {17}, Replicate()));
    });
  }
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max, ReduceOp::min, ReduceOp::mean}) {
    const std::string reduce = "reduce_dim " + std::string(name_of(op));
    const bool exact = op != ReduceOp::mean;
    for (int dim = 0; dim < 3; ++dim) {
      add(reduce, fmt::format("R dim {}", dim), exact, [=](P p, D d, E e) {
        return reduce_dim(in(p, "x", d, {5, e, 7}, Replicate()), op, dim);
      });
      add(reduce, fmt::format("S1 dim {}", dim), exact, [=](P p, D d, E e) {
        // The sharded dimension keeps an element on every rank: a maximum of nothing has no finite value.
        const Tensor x = in(p, "x", d, {5, dim == 1 ? 8 * e : e, 7}, Shard(1));
        if (dim == 1 && op == ReduceOp::mean) return reduce_dim(x, op, 2, true);
        const Tensor y = reduce_dim(x, op, dim, true);
        return dim == 1 ? all_reduce(y) : y;
      });
    }
  }
  add("reduce_dim sum", "P", true,
      [](P p, D d, E e) { return all_reduce(reduce_dim(partial(p, d, e), ReduceOp::sum, 1)); });
  add("reshape", "R", true, [](P p, D d, E e) { return reshape(in(p, "x", d, {e, 12}, Replicate()), {e * 3, 2, 2}); });
  add("reshape", "S0 merged", true, [](P p, D d, E e) {
    return reshape(in(p, "x", d, {e, 3, 4}, Shard(0)), {e * 3, 4});
  });
  add("reshape", "S0 split", true, [](P p, D d, E e) {
    return reshape(in(p, "x", d, {e, 3, 4}, Shard(0)), {e, 12, 1});
  });
  add("reshape", "S1 heads", true, [](P p, D d, E e) {
    std::vector<std::int64_t> sizes(p.world(), 0);
    for (std::int64_t h = 0; h < 12; ++h) sizes[h % p.world()] += 4;
    return reshape(in(p, "x", d, {e, 48}, Shard(1, sizes)), {e, 12, 4});
  });
  add("reshape", "P", true, [](P p, D d, E e) { return all_reduce(reshape(partial(p, d, e), {6, e})); });
  for (const auto& [name, placement] : std::vector<std::pair<std::string, Placement>>{
           {"R", Replicate()}, {"S0", Shard(0)}, {"S1", Shard(1)}, {"S2", Shard(2)}}) {
    add("transpose", name, true, [=](P p, D d, E e) {
      return transpose(in(p, "x", d, {3, e, 5}, placement), {2, 0, 1});
    });
  }
  add("transpose", "P", true, [](P p, D d, E e) { return all_reduce(transpose(partial(p, d, e), {1, 0})); });
  add("slice", "R", true, [](P p, D d, E e) { return slice(in(p, "x", d, {e, 9}, Replicate()), 1, 2, 5); });
  add("slice", "S0", true, [](P p, D d, E e) { return slice(in(p, "x", d, {e, 9}, Shard(0)), 1, 2, 5); });
  add("slice", "P", true, [](P p, D d, E e) { return all_reduce(slice(partial(p, d, e), 1, 1, 4)); });
  add("gather_rows", "R,R", true, [](P p, D d, E e) {
    return gather_rows(in(p, "t", d, {10, 6}, Replicate()), indices(p, {e, 3}, Replicate()));
  });
  add("gather_rows", "R,S0", true, [](P p, D d, E e) {
    return gather_rows(in(p, "t", d, {10, 6}, Replicate()), indices(p, {e, 3}, Shard(0)));
  });
  add("gather_rows", "S1,R", true, [](P p, D d, E e) {
    return gather_rows(in(p, "t", d, {10, e}, Shard(1)), indices(p, {4}, Replicate()));
  });
  add("gather_rows", "S0,R", true, [](P p, D d, E e) {
    return all_reduce(gather_rows(in(p, "t", d, {10, 6}, Shard(0)), indices(p, {e}, Replicate())));
  });
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::mean}) {
    const std::string bag = "embedding_bag " + std::string(name_of(op));
    const bool exact = op == ReduceOp::sum;
    add(bag, "R,R", exact, [=](P p, D d, E e) {
      return embedding_bag(in(p, "t", d, {10, 6}, Replicate()), indices(p, {e, 3}, Replicate()), op);
    });
    add(bag, "R,S0", exact, [=](P p, D d, E e) {
      return embedding_bag(in(p, "t", d, {10, 6}, Replicate()), indices(p, {e, 3}, Shard(0)), op);
    });
    add(bag, "S1,R", exact, [=](P p, D d, E e) {
      return embedding_bag(in(p, "t", d, {10, e}, Shard(1)), indices(p, {4, 3}, Replicate()), op);
    });
    add(bag, "S0,R", exact, [=](P p, D d, E e) {
      return all_reduce(embedding_bag(in(p, "t", d, {10, 6}, Shard(0)), indices(p, {e, 3}, Replicate()), op));
    });
    add(bag, "tables S0,S0", exact, [=](P p, D d, E e) {
      return embedding_bag(in(p, "t", d, {e, 10, 6}, Shard(0)), indices(p, {e, 5, 3}, Shard(0)), op);
    });
    add(bag, "tables R,S1", exact, [=](P p, D d, E e) {
      return embedding_bag(in(p, "t", d, {2, 10, 6}, Replicate()), indices(p, {2, e, 3}, Shard(1)), op);
    });
    add(bag, "tables S2,R", exact, [=](P p, D d, E e) {
      return embedding_bag(in(p, "t", d, {2, 10, e}, Shard(2)), indices(p, {2, 5, 3}, Replicate()), op);
    });
    add(bag, "tables S1,R", exact, [=](P p, D d, E e) {
      return all_reduce(embedding_bag(in(p, "t", d, {2, 10, 6}, Shard(1)), indices(p, {2, e, 3}, Replicate()), op));
    });
  }
  for (int dim : {0, 1})
    add("shard", fmt::format("R to S{}", dim), true, [=](P p, D d, E e) {
      return shard(in(p, "x", d, {e, 7}, Replicate()), dim);
    });
  for (const auto& [name, placement] : placements) {
    add("update", name, true, [=](P p, D d, E e) {
      const Tensor state = in(p, "s", d, {e, 7}, placement);
      return update(state, state + in(p, "x", d, {e, 7}, placement));
    });
  }
  add("all_reduce", "P sum", true, [](P p, D d, E e) { return all_reduce(partial(p, d, e)); });
  add("all_reduce", "P max", true, [](P p, D d, E e) { return all_reduce(partial_max(p, d, e)); });
  for (int dim : {0, 1}) {
    add("reduce_scatter", fmt::format("P to S{}", dim), true,
        [=](P p, D d, E e) { return reduce_scatter(partial(p, d, e), dim); });
    add("all_gather", fmt::format("S{}", dim), true, [=](P p, D d, E e) {
      return all_gather(in(p, "x", d, {e, 7}, Shard(dim)));
    });
    add("all_to_all", fmt::format("S{} to S{}", dim, 1 - dim), true, [=](P p, D d, E e) {
      return all_to_all(in(p, "x", d, {e, 7}, Shard(dim)), 1 - dim);
    });
  }
  add("all_to_all", "S0 resized", true, [](P p, D d, E e) {
    std::vector<std::int64_t> sizes(p.world(), 0);
    sizes.back() = e;
    return all_to_all(in(p, "x", d, {e, 7}, Shard(0)), 0, sizes);
  });
  add("reduce", "P to last", true, [](P p, D d, E e) { return reduce(partial(p, d, e), p.world() - 1); });
  add("broadcast", "first", true, [](P p, D d, E e) {
    std::vector<std::int64_t> sizes(p.world(), 0);
    sizes[0] = e;
    return broadcast(in(p, "x", d, {e, 7}, Shard(0, sizes)), 0);
  });
  return all;
}

// Only moves elements, so that e4m3 will do; no Partial comes in.
bool moves(const Case& test) {
  const std::set<std::string> movements{"reshape", "transpose",  "slice",      "gather_rows",
                                        "shard",   "all_gather", "all_to_all", "broadcast"};
  const bool sums = test.placement == "P" || (test.op == "gather_rows" && test.placement == "S0,R");
  return movements.contains(test.op) && !sums;
}

// What the members hold, put together.
Array whole(const Program& program, const Bindings& outputs) {
  const TensorType& type = program.ops()[program.outputs()[0].op].type;
  return joined(outputs.at("y"), type);
}

TEST(Placements, EveryOperationInEveryPlacementEqualsItsMeaningOnOneRank) {
  const bool quick = testing::quick();
  const std::vector<int> rank_counts = quick ? std::vector<int>{1, 3} : std::vector<int>{1, 2, 3, 5, 8};
  std::map<std::string, std::map<int, int>> covered;
  std::vector<std::string> order;
  for (const Case& test : cases()) {
    const std::string label =
        fmt::format("{:<20} {:<18} {}", test.op, test.placement, test.exact ? "exact" : "2x error");
    order.push_back(label);
    for (int ranks : rank_counts) {
      for (std::int64_t e : {1, 6, 19}) {
        for (DType dtype : {DType::f32, DType::bf16, DType::f16, DType::e4m3}) {
          if (dtype == DType::e4m3 && !moves(test)) continue;
          if (dtype != DType::bf16 && (e == 6 || quick)) continue;  // every dtype, every extent, not every pair
          const std::string context = fmt::format("{} on {} ranks, e = {}, {}", label, ranks, e, name_of(dtype));
          Program program("case", ranks);
          program.output("y", test.build(program, dtype, e));
          Program one("case", 1);
          one.output("y", test.build(one, dtype, e));
          const Fill fill = test.exact ? Fill::integers : Fill::normal;
          const Bindings inputs = random_inputs(program, 7, fill);
          Bindings many_inputs = inputs;
          Bindings one_inputs = random_inputs(one, 7, fill);
          const Array many = whole(program, interpret(program, many_inputs, Arithmetic::exact));
          const Array single = whole(one, interpret(one, one_inputs, Arithmetic::exact));
          EXPECT_LE(max_difference(many, single), test.exact ? 0 : 1e-9) << context;
          for (const char* schedule : {"unfused", "overlapped"}) {
            const Topology topology = testing::small_topology(ranks, 2, schedule[0] == 'u' ? 0 : 1);
            if (test.exact) {
              testing::expect_exact(program, Schedule::named(program, schedule), topology, 7);
              continue;
            }
            const Plan plan = lower(program, Schedule::named(program, schedule), topology).plan;
            const Accuracy accuracy =
                measure_accuracy(program, inputs, testing::run_threads(program, plan, {inputs}).outputs);
            EXPECT_LE(accuracy.error, accuracy.allowed) << context << " " << schedule;
          }
          ++covered[label][ranks];
          if (::testing::Test::HasFailure()) FAIL() << context;
        }
      }
    }
  }
  fmt::print("{:<50} combinations of extent and dtype checked, by ranks\n{:50}", "", "");
  for (int ranks : rank_counts) fmt::print("{:>4}", ranks);
  fmt::print("\n");
  for (const std::string& label : order) {
    fmt::print("{:<50}", label);
    for (int ranks : rank_counts) {
      fmt::print("{:>4}", covered[label][ranks]);
      EXPECT_GT(covered[label][ranks], 0) << "a hole: " << label;
    }
    fmt::print("\n");
  }
}

}  // namespace
}  // namespace tileway
