// Programs that must be refused where they are written, with the operation, the operands and the rule.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "tileway/error.hpp"
#include "tileway/program.hpp"
#include "tileway/schedule.hpp"

namespace tileway {
namespace {

struct Case {
  const char* name;
  std::function<void(Program&)> build;
  std::vector<const char*> expected;  // parts of the message
};

Tensor in(Program& p, const char* name, Shape shape, Placement placement, DType dtype = DType::f32, int group = 0) {
  return p.input(name, dtype, shape, std::move(placement), group);
}

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

void expect_refused(const std::function<void()>& body, const std::string& part) {
  try {
    body();
    ADD_FAILURE() << "accepted; expected: " << part;
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

TEST(Schedules, AreRefusedWithTheReason) {
  Program p("p", 2);
  const Tensor x = in(p, "x", {8, 4}, Shard(0));
  const Tensor w = in(p, "w", {4, 4}, Replicate());
  const Tensor y = matmul(x, w);
  const Tensor z = all_gather(y);
  const Tensor splits = in(p, "s", {2, 2}, Shard(0), DType::i32);
  const Tensor v = all_to_all_v(y, splits, 8);
  Schedule s = Schedule::unfused(p);
  expect_refused([&] { s.overlap(x, y); }, "the producer is ready before the run");
  expect_refused([&] { s.overlap(x, z); }, "it does not read the producer");
  expect_refused([&] { s.overlap(y, v); }, "known only once all splits and rows are there");
  expect_refused([&] { s.tile(y, {4}); }, "expected 2 extents, none negative, got [4]");
  expect_refused([&] { s.tile(y, {4, -1}); }, "none negative");
  expect_refused([&] { s.group(y, 2); }, "only a communication moves tiles together");
  expect_refused([&] { s.group(z, 0); }, "at least 1 tile");
  expect_refused([&] { s.all_reduce(z, AllReduce::one_shot); }, "not an all_reduce");
  expect_refused([&] { Schedule::named(p, "fast"); },
                 "expected unfused, overlapped, fused, collective or library, got fast");
  expect_refused([&] { lower(p, s, Topology::parse("ranks=3,lanes=1")); }, "another number of ranks");
}

TEST(Schedules, ThatFuseAreRefusedWithTheReason) {
  Program p("p", 2);
  const Tensor x = in(p, "x", {8, 4}, Shard(1));
  const Tensor w = in(p, "w", {4, 4}, Shard(0));
  const Tensor rows = softmax(in(p, "r", {8, 4}, Shard(0)));
  const Tensor columns = all_to_all(rows, 1);
  const Tensor y = matmul(x, w);
  const Tensor z = all_reduce(y);
  const Tensor t = matmul(x, w);
  const Tensor two = all_reduce(t);
  const Tensor more = reduce_scatter(t, 0);
  const Tensor gathered = all_gather(more);
  const Tensor out = matmul(x, w);
  p.output("out", out);
  const Tensor last = all_reduce(out);
  const Tensor again = all_reduce(in(p, "p", {4}, Partial()));
  Schedule s = Schedule::overlapped(p);
  expect_refused([&] { s.fuse(x, y); }, "not every tile of it goes to one place");
  expect_refused([&] { s.fuse(more, gathered); }, "not every tile of it goes to one place");
  expect_refused([&] { s.fuse(y, two); }, "it does not read the producer");
  expect_refused([&] { s.fuse(t, two); }, "another operation reads the producer's result");
  expect_refused([&] { s.fuse(out, last); }, "the producer's result is an output");
  expect_refused([&] { s.fuse(Tensor(&p, p.ops()[again.index()].operands[0]), again); }, "ready before the run");
  expect_refused([&] { s.fuse(y, z, -1); }, "a negative number of tiles; got -1");
  expect_refused([&] { s.fuse(rows, columns); }, "take dimension 1 whole, and go to several members");
  s.fuse(y, z);
  expect_refused([&] { s.all_reduce(z, AllReduce::one_shot); }, "it is fused with its producer");
  expect_refused([&] { s.engine(z, Engine::collective); }, "it is fused with its producer");
  s = Schedule::overlapped(p).all_reduce(z, AllReduce::one_shot);
  expect_refused([&] { s.fuse(y, z); }, "every tile goes to every member");
  s = Schedule::collective(p);
  expect_refused([&] { s.fuse(y, z); }, "a collective library moves the tiles");
}

TEST(Schedules, WithACollectiveLibraryAreRefusedWithTheReason) {
  Program p("p", 2);
  const Tensor x = in(p, "x", {8, 4}, Partial());
  const Tensor y = all_reduce(x);
  const Tensor z_part = in(p, "z", {8, 4}, Shard(0));
  const Tensor z = all_gather(z_part);
  Schedule s = Schedule::overlapped(p);
  expect_refused([&] { s.engine(x, Engine::collective); }, "only a communication's tiles");
  const Tensor splits = in(p, "s", {2, 2}, Shard(0), DType::i32);
  expect_refused([&] { s.engine(all_to_all_v(z_part, splits, 8), Engine::collective); },
                 "expected a communication whose extents are known in the program, got all_to_all_v");
  s.engine(z, Engine::collective).engine(y, Engine::collective);
  expect_refused([&] { s.all_reduce(y, AllReduce::one_shot); }, "has algorithms of its own");
  s.engine(y, Engine::copy).all_reduce(y, AllReduce::one_shot);
  expect_refused([&] { s.engine(y, Engine::collective); }, "choose one or the other");
  s = Schedule::collective(p);
  expect_refused([&] { lower(p, s, Topology::parse("ranks=2,lanes=1")); },
                 "expected collective=1 or more in the topology, got collective=0");
  s.tile(y, {4, 2});
  expect_refused([&] { lower(p, s, Topology::parse("ranks=2,lanes=1,collective=1")); },
                 "the collective engine takes contiguous memory");
  s.tile(y, {4, 0});
  lower(p, s, Topology::parse("ranks=2,lanes=1,collective=1"));
}

TEST(Schedules, WithCollectivesOfMoreGroupsThanLanesAreRefused) {
  Program p("p", 3);
  all_reduce(in(p, "x", {4}, Partial()));
  all_reduce(p.input("part", DType::f32, {4}, Partial(), p.group({0, 1})));
  expect_refused([&] { lower(p, Schedule::collective(p), Topology::parse("ranks=3,lanes=1,collective=1")); },
                 "rank 0 has no collective lane left");
}

TEST(Schedules, WithALibraryOfProductsAreRefusedWithTheReason) {
  Program p("p", 2);
  const Tensor x = in(p, "x", {8, 4}, Shard(0));
  const Tensor y = matmul(x, in(p, "w", {4, 4}, Replicate()));
  const Tensor z = all_gather(y);
  Schedule s = Schedule::overlapped(p);
  expect_refused([&] { s.engine(z, Engine::library); }, "expected a matmul, got all_gather");
  expect_refused([&] { s.engine(x, Engine::library); }, "the library has matrix products only");
  expect_refused([&] { s.engine(y, Engine::copy); }, "only a communication's tiles");
  expect_refused([&] { s.engine(x, Engine::compute); }, "only a communication's tiles");
  s = Schedule::library(p);
  expect_refused([&] { lower(p, s, Topology::parse("ranks=2,lanes=1")); },
                 "expected library=1 or more in the topology, got library=0");
  lower(p, s, Topology::parse("ranks=2,lanes=1,library=1"));
}

TEST(Topologies, AreRefusedByKey) {
  expect_refused([] { Topology::parse(""); }, "the number of ranks is missing");
  expect_refused([] { Topology::parse("ranks=0"); }, "impossible value of 'ranks'");
  expect_refused([] { Topology::parse("ranks=2,lanes=0"); }, "impossible value of 'lanes'");
  expect_refused([] { Topology::parse("ranks=2,ranks=3"); }, "comes twice");
  expect_refused([] { Topology::parse("ranks=2,width=3"); }, "unknown key 'width'");
  expect_refused([] { Topology::parse("ranks=2,lanes"); }, "cannot read 'lanes'");
  expect_refused([] { Topology::parse("ranks=2,lanes=1.5"); }, "impossible value of 'lanes'");
  expect_refused([] { Topology::parse("ranks=2,link_gb_s=0"); }, "a rate of zero");
  expect_refused([] { Topology::parse("ranks=1e30"); }, "impossible value of 'ranks'");
  expect_refused([] { Topology::parse("ranks=2,lanes=4,movers=4"); }, "none is left to compute; expected less than 4");
  expect_refused([] { Topology::parse("ranks=2,library=-1"); }, "cannot read 'library=-1'");
}

}  // namespace
}  // namespace tileway
