// Programs that must be refused where they are written, with the operation, the operands and the rule.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "error/inputs.hpp"
#include "tileway/error.hpp"
#include "tileway/program.hpp"

namespace tileway {
namespace {

using testing::in;

struct Case {
  const char* name;
  std::function<void(Program&)> build;
  std::vector<const char*> expected;  // parts of the message
};

// A product of e4m3[4, 6] and e4m3[8, 6] with a scale a row, unless told otherwise.
struct Scaled {
  DType dtype = DType::e4m3;
  Shape b{8, 6};
  Shape scale_a{4, 1};
  Shape scale_b{1, 8};
  DType scale = DType::f32;
  DType out = DType::bf16;
  Placement place_a = Replicate();
  Placement place_b = Replicate();
  Placement place_scale_a = Replicate();
};
void scaled(Program& p, const Scaled& how) {
  const Tensor a = in(p, "a", {4, 6}, how.place_a, how.dtype);
  const Tensor b = in(p, "b", how.b, how.place_b, how.dtype);
  scaled_matmul(a, b, in(p, "sa", how.scale_a, how.place_scale_a, how.scale),
                in(p, "sb", how.scale_b, Replicate(), how.scale), how.out);
}

const Case kCases[] = {
    {"shard plus partial",
     [](Program& p) {
       const Tensor y = matmul(in(p, "x", {6, 8}, Shard(1)), in(p, "w", {8, 4}, Shard(0)));
       y + in(p, "b", {6, 4}, Shard(0));
     },
     {"add(%2 f32[6, 4] Partial(sum), %3 f32[6, 4] Shard(0, [3, 3]))",
      "programs_test.cpp:", "all_reduce or reduce_scatter the Partial first"}},
    {"partial plus replicate",
     [](Program& p) { in(p, "x", {4}, Partial()) + in(p, "b", {4}, Replicate()); },
     {"this function of a Partial"}},
    {"gelu of a partial", [](Program& p) { gelu(in(p, "x", {4}, Partial())); }, {"gelu(%0", "Partial"}},
    {"partial times partial",
     [](Program& p) { in(p, "x", {4}, Partial()) * in(p, "y", {4}, Partial()); },
     {"mul(", "Partial"}},
    {"one over a partial", [](Program& p) { in(p, "x", {4}, Replicate()) / in(p, "y", {4}, Partial()); }, {"div("}},
    {"sum of maxima",
     [](Program& p) {
       const Tensor x = in(p, "x", {4}, Partial(ReduceOp::max));
       x + x;
     },
     {"add("}},
    {"shapes that do not broadcast",
     [](Program& p) {
       in(p, "x", {4, 3}, Replicate()) + in(p, "y", {4, 2}, Replicate());
     },
     {"do not broadcast"}},
    {"dtypes that differ",
     [](Program& p) { in(p, "x", {4}, Replicate()) + in(p, "y", {4}, Replicate(), DType::bf16); },
     {"the dtypes differ; expected f32, got bf16. cast"}},
    {"shards that differ",
     [](Program& p) {
       in(p, "x", {4, 4}, Shard(0)) + in(p, "y", {4, 4}, Shard(1));
     },
     {"sharded differently"}},
    {"shard sizes that differ",
     [](Program& p) {
       in(p, "x", {4}, Shard(0, {1, 3})) + in(p, "y", {4}, Shard(0, {2, 2}));
     },
     {"sharded differently"}},
    {"a broadcast shard",
     [](Program& p) {
       in(p, "x", {1, 4}, Shard(0)) + in(p, "y", {3, 4}, Replicate());
     },
     {"a sharded dimension would be broadcast"}},
    {"exp of integers",
     [](Program& p) { pointwise(Function::exp, {in(p, "x", {4}, Replicate(), DType::i32)}); },
     {"not defined on integers"}},
    {"too few operands",
     [](Program& p) { pointwise(Function::add, {in(p, "x", {4}, Replicate())}); },
     {"wrong number of operands; expected 2, got 1"}},
    {"matmul of vectors",
     [](Program& p) {
       matmul(in(p, "x", {4}, Replicate()), in(p, "y", {4, 2}, Replicate()));
     },
     {"at least 2 dimensions"}},
    {"matmul with another k",
     [](Program& p) {
       matmul(in(p, "x", {4, 3}, Replicate()), in(p, "y", {4, 2}, Replicate()));
     },
     {"k = 3 on the right, got 4"}},
    {"matmul sharded on one side of k",
     [](Program& p) {
       matmul(in(p, "x", {4, 4}, Shard(1)), in(p, "y", {4, 2}, Replicate()));
     },
     {"contraction is sharded on one side only"}},
    {"matmul sharded twice",
     [](Program& p) {
       matmul(in(p, "x", {4, 4}, Shard(0)), in(p, "y", {4, 2}, Shard(1)));
     },
     {"both sides are sharded"}},
    {"matmul of integers",
     [](Program& p) {
       const Tensor x = in(p, "x", {4, 4}, Replicate(), DType::i32);
       matmul(x, x);
     },
     {"not defined on integers"}},
    {"matmul of bf16 in tf32",
     [](Program& p) {
       const Tensor x = in(p, "x", {4, 4}, Replicate(), DType::bf16);
       matmul(x, x, Precision::tf32);
     },
     {"matmul(%0 bf16[4, 4] Replicate, %0 bf16[4, 4] Replicate) at programs_test.cpp:",
      "tf32 is a precision of products of f32; expected f32, got bf16. leave the precision out"}},
    {"add of e4m3",
     [](Program& p) {
       const Tensor x = in(p, "x", {4, 4}, Replicate(), DType::e4m3);
       x + x;
     },
     {"add(%0 e4m3[4, 4] Replicate, %0 e4m3[4, 4] Replicate) at programs_test.cpp:",
      "e4m3 is not computed with, only cast, moved and multiplied by scaled_matmul; expected f32, bf16 or f16, got "
      "e4m3. cast first"}},
    {"matmul of e4m3",
     [](Program& p) {
       const Tensor x = in(p, "x", {4, 4}, Replicate(), DType::e4m3);
       matmul(x, x);
     },
     {"matmul(", "e4m3 is not computed with"}},
    {"softmax of e4m3",
     [](Program& p) {
       softmax(in(p, "x", {4, 4}, Replicate(), DType::e4m3));
     },
     {"softmax(", "cast first"}},
    {"a norm of e4m3",
     [](Program& p) {
       rms_norm(in(p, "x", {4, 4}, Replicate(), DType::e4m3), in(p, "g", {4}, Replicate(), DType::e4m3));
     },
     {"rms_norm(", "cast first"}},
    {"a maximum of e4m3",
     [](Program& p) {
       reduce_dim(in(p, "x", {4, 4}, Replicate(), DType::e4m3), ReduceOp::max, 0);
     },
     {"reduce_dim(", "cast first"}},
    {"a bag of e4m3",
     [](Program& p) {
       embedding_bag(in(p, "t", {4, 4}, Replicate(), DType::e4m3), in(p, "i", {2, 2}, Replicate(), DType::i32));
     },
     {"embedding_bag(", "cast first"}},
    {"sums over ranks of e4m3",
     [](Program& p) { all_reduce(in(p, "x", {4}, Partial(), DType::e4m3)); },
     {"all_reduce(", "cast first"}},
    {"parts of sums over ranks of e4m3",
     [](Program& p) { reduce_scatter(in(p, "x", {4}, Partial(), DType::e4m3), 0); },
     {"reduce_scatter(", "cast first"}},
    {"a reduce of e4m3",
     [](Program& p) { reduce(in(p, "x", {4}, Partial(), DType::e4m3), 0); },
     {"reduce(", "cast first"}},
    {"scaled_matmul of bf16",
     [](Program& p) { scaled(p, {.dtype = DType::bf16}); },
     {"scaled_matmul(%0 bf16[4, 6] Replicate, ", ") at programs_test.cpp:",
      "scaled_matmul takes matrices of e4m3; expected e4m3[m, k] and e4m3[n, k], got bf16[4, 6] Replicate. cast to "
      "e4m3"}},
    {"scaled_matmul of vectors", [](Program& p) { scaled(p, {.b = {8}}); }, {"takes matrices of e4m3", "got e4m3[8]"}},
    {"scaled_matmul of b as matmul takes it",
     [](Program& p) {
       scaled(p, {.b = {6, 8}});
     },
     {"the contracted dimensions differ; expected k = 6 along the rows of both, got 8. b is given transposed"}},
    {"scaled_matmul to e4m3",
     [](Program& p) { scaled(p, {.out = DType::e4m3}); },
     {"no dtype of a product; expected f32, bf16 or f16, got e4m3"}},
    {"scaled_matmul with a scale that fits nothing",
     [](Program& p) {
       scaled(p, {.scale_a = {1, 4}});
     },
     {"the scale of %0 does not fit; expected f32[1, 1] or f32[4, 1], got f32[1, 4]"}},
    {"scaled_matmul with a scale for each of k",
     [](Program& p) {
       scaled(p, {.scale_b = {1, 6}});
     },
     {"the scale of %1 does not fit; expected f32[1, 1] or f32[1, 8], got f32[1, 6]"}},
    {"scaled_matmul with bf16 scales",
     [](Program& p) { scaled(p, {.scale = DType::bf16}); },
     {"the scale of %0 does not fit; expected f32[1, 1] or f32[4, 1], got bf16[4, 1]"}},
    {"scaled_matmul with a sharded scale of what is whole",
     [](Program& p) { scaled(p, {.place_scale_a = Shard(0)}); },
     {"the scale of %0 is not placed as the product; expected Replicate, got Shard(0, [2, 2]). all_gather it first"}},
    {"scaled_matmul with a scale sharded otherwise",
     [](Program& p) {
       scaled(p, {.place_a = Shard(0), .place_scale_a = Shard(0, {1, 3})});
     },
     {"expected Replicate or Shard(0, [2, 2]), got Shard(0, [1, 3])"}},
    {"scaled_matmul with a partial scale",
     [](Program& p) { scaled(p, {.place_scale_a = Partial()}); },
     {"the scale of %0 is not placed as the product"}},
    {"scaled_matmul sharded on one side of k",
     [](Program& p) { scaled(p, {.place_a = Shard(1)}); },
     {"contraction is sharded on one side only"}},
    {"scaled_matmul sharded twice",
     [](Program& p) { scaled(p, {.place_a = Shard(0), .place_b = Shard(0)}); },
     {"both sides are sharded"}},
    {"a softmax in tf32",
     [](Program& p) {
       Op op{.kind = OpKind::softmax};
       op.operands = {in(p, "x", {4, 4}, Replicate()).index()};
       op.precision = Precision::tf32;
       p.append(op);
     },
     {"softmax(%0 f32[4, 4] Replicate)", "only a matmul has a precision; got tf32"}},
    {"matmul of partials",
     [](Program& p) {
       const Tensor x = in(p, "x", {4, 4}, Partial());
       matmul(x, x);
     },
     {"multiplied by a Replicate"}},
    {"matmul batches",
     [](Program& p) {
       matmul(in(p, "x", {2, 4, 4}, Replicate()), in(p, "y", {3, 4, 4}, Replicate()));
     },
     {"batch dimensions"}},
    {"softmax over shards",
     [](Program& p) {
       softmax(in(p, "x", {4, 4}, Shard(1)));
     },
     {"last dimension is sharded"}},
    {"softmax of a partial",
     [](Program& p) {
       softmax(in(p, "x", {4, 4}, Partial()));
     },
     {"row function of a Partial"}},
    {"norm weights",
     [](Program& p) {
       rms_norm(in(p, "x", {4, 4}, Replicate()), in(p, "g", {3}, Replicate()));
     },
     {"expected f32[4] Replicate, got f32[3]"}},
    {"a dimension too many",
     [](Program& p) {
       reduce_dim(in(p, "x", {4, 4}, Replicate()), ReduceOp::sum, 2);
     },
     {"expected 0 to 1, got 2"}},
    {"mean across ranks",
     [](Program& p) {
       reduce_dim(in(p, "x", {4, 4}, Shard(0)), ReduceOp::mean, 0);
     },
     {"Take the sum and scale"}},
    {"max of a sum",
     [](Program& p) {
       reduce_dim(in(p, "x", {4, 4}, Partial()), ReduceOp::max, 0);
     },
     {"this reduction of a Partial"}},
    {"reshape to another size",
     [](Program& p) {
       reshape(in(p, "x", {4, 4}, Replicate()), {4, 5});
     },
     {"16 elements, got [4, 5]"}},
    {"reshape that tears a shard",
     [](Program& p) {
       reshape(in(p, "x", {6, 4}, Shard(0, {1, 5})), {4, 6});
     },
     {"a rank's part would be torn"}},
    {"not a permutation",
     [](Program& p) {
       transpose(in(p, "x", {4, 4}, Replicate()), {0, 0});
     },
     {"not a permutation"}},
    {"slice past the end",
     [](Program& p) {
       slice(in(p, "x", {4, 4}, Replicate()), 0, 3, 2);
     },
     {"the slice leaves the tensor"}},
    {"slice across shards",
     [](Program& p) {
       slice(in(p, "x", {4, 4}, Shard(0)), 0, 1, 2);
     },
     {"the sliced dimension is sharded"}},
    {"floating indices",
     [](Program& p) {
       gather_rows(in(p, "t", {4, 4}, Replicate()), in(p, "i", {2}, Replicate()));
     },
     {"indices are integers"}},
    {"lookup with both sharded",
     [](Program& p) {
       gather_rows(in(p, "t", {4, 4}, Shard(0)), in(p, "i", {2}, Shard(0), DType::i32));
     },
     {"no rule for these placements"}},
    {"a bag of maxima",
     [](Program& p) {
       embedding_bag(in(p, "t", {4, 4}, Replicate()), in(p, "i", {2, 2}, Replicate(), DType::i32), ReduceOp::max);
     },
     {"sum or mean"}},
    {"a mean bag of integers",
     [](Program& p) {
       embedding_bag(in(p, "t", {4, 4}, Replicate(), DType::i32), in(p, "i", {2, 2}, Replicate(), DType::i32),
                     ReduceOp::mean);
     },
     {"the mean of integers"}},
    {"update of what is no input",
     [](Program& p) {
       const Tensor x = in(p, "x", {4}, Replicate());
       update(x + x, x);
     },
     {"only an input can be updated"}},
    {"update with another type",
     [](Program& p) { update(in(p, "s", {4}, Replicate()), in(p, "x", {4}, Shard(0))); },
     {"does not fit the state"}},
    {"use after update",
     [](Program& p) {
       const Tensor s = in(p, "s", {4}, Replicate());
       update(s, s + s);
       s + s;
     },
     {"%0 has been updated in place", "Use what update returned"}},
    {"output before update",
     [](Program& p) {
       const Tensor s = in(p, "s", {4}, Replicate());
       p.output("y", s);
       update(s, s + s);
     },
     {"output 'y' is the state before the update"}},
    {"all_reduce of a shard",
     [](Program& p) { all_reduce(in(p, "x", {4}, Shard(0))); },
     {"expected Partial, got Shard(0, [2, 2])"}},
    {"reduce_scatter of a replicate",
     [](Program& p) { reduce_scatter(in(p, "x", {4}, Replicate()), 0); },
     {"cut a Replicate with shard"}},
    {"reduce_scatter of a scalar",
     [](Program& p) { reduce_scatter(in(p, "x", {}, Partial()), 0); },
     {"the sharded dimension does not exist"}},
    {"all_gather of a partial", [](Program& p) { all_gather(in(p, "x", {4}, Partial())); }, {"all_reduce a Partial"}},
    {"all_to_all of a replicate",
     [](Program& p) {
       all_to_all(in(p, "x", {4, 4}, Replicate()), 0);
     },
     {"shard a Replicate"}},
    {"sizes that do not add up",
     [](Program& p) {
       in(p, "x", {4}, Shard(0, {1, 2}));
     },
     {"2 sizes that add up to 4"}},
    {"sizes for other ranks",
     [](Program& p) {
       in(p, "x", {4}, Shard(0, {1, 1, 2}));
     },
     {"2 sizes that add up to 4"}},
    {"negative sizes",
     [](Program& p) {
       in(p, "x", {4}, Shard(0, {-1, 5}));
     },
     {"2 sizes that add up to 4"}},
    {"partial mean", [](Program& p) { in(p, "x", {4}, Partial(ReduceOp::mean)); }, {"there is no Partial(mean)"}},
    {"broadcast from everywhere",
     [](Program& p) { broadcast(in(p, "x", {4}, Shard(0)), 0); },
     {"not on the root alone"}},
    {"a root outside the group",
     [](Program& p) { reduce(in(p, "x", {4}, Partial()), 2); },
     {"the root is not in the group; expected 0 to 1, got 2"}},
    {"splits of another shape",
     [](Program& p) {
       all_to_all_v(in(p, "x", {4, 4}, Shard(0)), in(p, "s", {2, 3}, Shard(0), DType::i32), 4);
     },
     {"the splits do not fit the group"}},
    {"rows that are not sharded",
     [](Program& p) {
       all_to_all_v(in(p, "x", {4, 4}, Shard(1)), in(p, "s", {2, 2}, Shard(0), DType::i32), 4);
     },
     {"rows sharded: Shard(0)"}},
    {"send to fewer ranks", [](Program& p) { send(in(p, "x", {4}, Shard(0)), p.group({0})); }, {"a group of 2 ranks"}},
    {"operands of two groups",
     [](Program& p) { in(p, "x", {4}, Replicate()) + in(p, "y", {4}, Replicate(), DType::f32, p.group({1})); },
     {"operands of different groups"}},
    {"a group out of range",
     [](Program& p) {
       p.group({0, 2});
     },
     {"ascending ranks from 0 to 1"}},
    {"a name twice",
     [](Program& p) {
       in(p, "x", {4}, Replicate());
       in(p, "x", {4}, Replicate());
     },
     {"input 'x' at programs_test.cpp:", "the name is taken"}},
    {"f64", [](Program& p) { in(p, "x", {4}, Replicate(), DType::f64); }, {"f64 is not a type of programs"}},
    {"a negative extent", [](Program& p) { in(p, "x", {-4}, Replicate()); }, {"a negative extent"}},
    {"a giant",
     [](Program& p) {
       in(p, "x", {1 << 30, 1 << 30, 1 << 30}, Replicate());
     },
     {"at most 2^40 elements"}},
    {"operands of two programs",
     [](Program& p) {
       Program q("q", 2);
       in(p, "x", {4}, Replicate()) + in(q, "y", {4}, Replicate());
     },
     {"operands of different programs"}},
};

TEST(Programs, AreRefusedWhereTheyAreWrittenWithTheRule) {
  for (const Case& test : kCases) {
    Program p("refused", 2);
    try {
      test.build(p);
      ADD_FAILURE() << test.name << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::invalid);
      for (const char* part : test.expected)
        EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << test.name << ": " << error.what();
    }
  }
}

}  // namespace
}  // namespace tileway
