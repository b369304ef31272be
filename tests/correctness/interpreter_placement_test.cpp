// The interpreter on several ranks: what each computes from its own part.
#include "support/values.hpp"

namespace tileway {
namespace {

using testing::bf16;
using testing::f32;
using testing::i32;
using testing::i64;
using testing::PerRank;
using testing::run;

std::vector<Array> on_each(int ranks, const Array& array) { return std::vector<Array>(ranks, array); }

TEST(InterpreterPlacement, AReplicatedOperandIsCutToUnevenAndEmptyParts) {
  for (bool leading : {false, true}) {
    Program p("bias", 4);
    const Tensor x = p.input("x", DType::f32, {1, 5}, Shard(1));
    const Tensor b = p.input("b", DType::f32, leading ? Shape{1, 5} : Shape{5}, Replicate());
    p.output("y", b - x);
    // torch.chunk cuts 5 into 2, 2, 1 and nothing.
    const Bindings inputs{{"x", {f32({1, 2}, {1, 2}), f32({1, 2}, {3, 4}), f32({1, 1}, {5}), f32({1, 0}, {})}},
                          {"b", on_each(4, f32(leading ? Shape{1, 5} : Shape{5}, {10, 20, 30, 40, 50}))}};
    EXPECT_EQ(run(p, inputs), (PerRank{{9, 18}, {27, 36}, {45}, {}}));
  }
}

TEST(InterpreterPlacement, AnOperandThatBroadcastsAlongTheShardedDimensionIsNotCut) {
  Program p("column", 2);
  const Tensor x = p.input("x", DType::f32, {3, 2}, Shard(0, {1, 2}));
  const Tensor row = p.input("row", DType::f32, {1, 2}, Replicate());
  const Tensor column = p.input("column", DType::f32, {3, 1}, Replicate());
  p.output("y", pointwise(Function::where, {x, row, column}));
  const Bindings inputs{{"x", {f32({1, 2}, {1, 0}), f32({2, 2}, {0, 1, 0, 0})}},
                        {"row", on_each(2, f32({1, 2}, {1, 2}))},
                        {"column", on_each(2, f32({3, 1}, {10, 20, 30}))}};
  EXPECT_EQ(run(p, inputs), (PerRank{{1, 10}, {20, 2, 30, 30}}));
}

TEST(InterpreterPlacement, MatmulWithRowsShardedKeepsTheRightSideWhole) {
  Program p("rows", 2);
  p.output("y", matmul(p.input("a", DType::f32, {2, 2}, Shard(0)), p.input("b", DType::f32, {2, 2}, Replicate())));
  const Bindings inputs{{"a", {f32({1, 2}, {1, 2}), f32({1, 2}, {3, 4})}},
                        {"b", on_each(2, f32({2, 2}, {5, 6, 7, 8}))}};
  EXPECT_EQ(run(p, inputs), (PerRank{{19, 22}, {43, 50}}));
}

TEST(InterpreterPlacement, MatmulWithColumnsShardedKeepsTheLeftSideWhole) {
  Program p("columns", 2);
  p.output("y", matmul(p.input("a", DType::f32, {2, 2}, Replicate()), p.input("b", DType::f32, {2, 2}, Shard(1))));
  const Bindings inputs{{"a", on_each(2, f32({2, 2}, {1, 2, 3, 4}))},
                        {"b", {f32({2, 1}, {5, 7}), f32({2, 1}, {6, 8})}}};
  EXPECT_EQ(run(p, inputs), (PerRank{{19, 43}, {22, 50}}));
}

TEST(InterpreterPlacement, MatmulWithBatchesShardedCutsTheOtherSidesBatches) {
  Program p("batches", 2);
  const Tensor a = p.input("a", DType::f32, {3, 1, 1}, Shard(0, {1, 2}));
  p.output("y", matmul(a, p.input("b", DType::f32, {1, 3, 1, 1}, Replicate())));
  const Bindings inputs{{"a", {f32({1, 1, 1}, {2}), f32({2, 1, 1}, {3, 4})}},
                        {"b", on_each(2, f32({1, 3, 1, 1}, {10, 100, 1000}))}};
  EXPECT_EQ(run(p, inputs), (PerRank{{20}, {300, 4000}}));
}

TEST(InterpreterPlacement, MatmulWithTheContractionShardedLeavesPartialSums) {
  Program p("contraction", 3);
  const Tensor a = p.input("a", DType::f32, {1, 3}, Shard(1, {1, 2, 0}));
  p.output("y", matmul(a, p.input("b", DType::f32, {3, 1}, Shard(0, {1, 2, 0}))));
  const Bindings inputs{{"a", {f32({1, 1}, {2}), f32({1, 2}, {3, 4}), f32({1, 0}, {})}},
                        {"b", {f32({1, 1}, {10}), f32({2, 1}, {100, 1000}), f32({0, 1}, {})}}};
  EXPECT_EQ(run(p, inputs), (PerRank{{20}, {4300}, {0}}));
}

TEST(InterpreterPlacement, AReductionAlongTheShardedDimensionLeavesPartials) {
  for (ReduceOp op : {ReduceOp::sum, ReduceOp::max, ReduceOp::min}) {
    Program p("partials", 2);
    p.output("y", reduce_dim(p.input("x", DType::f32, {3, 2}, Shard(0)), op, 0));
    const PerRank expected = op == ReduceOp::sum   ? PerRank{{4, 6}, {-5, 7}}
                             : op == ReduceOp::max ? PerRank{{3, 4}, {-5, 7}}
                                                   : PerRank{{1, 2}, {-5, 7}};
    EXPECT_EQ(run(p, {{"x", {f32({2, 2}, {1, 2, 3, 4}), f32({1, 2}, {-5, 7})}}}), expected);
  }
}

TEST(InterpreterPlacement, AnEmptyPartDoesNotDisturbAReductionOfIntegers) {
  for (ReduceOp op : {ReduceOp::max, ReduceOp::min}) {
    Program p("empty", 2);
    const Tensor x = p.input("x", DType::i64, {1}, Shard(0, {0, 1}));
    p.output("y", all_reduce(reduce_dim(x, op, 0)));
    EXPECT_EQ(run(p, {{"x", {i64({0}, {}), i64({1}, {-7})}}}), (PerRank{{-7}, {-7}})) << name_of(op);
  }
}

TEST(InterpreterPlacement, ShardReshapeTransposeAndSliceMoveWhatEachRankHolds) {
  Program p("views", 2);
  const Tensor parts = shard(p.input("x", DType::f32, {3, 4}, Replicate()), 0, {1, 2});
  p.output("part", parts);
  p.output("split", reshape(parts, {3, 2, 2}));
  p.output("turned", transpose(parts, {1, 0}));
  p.output("middle", slice(parts, 1, 1, 2));
  Bindings inputs{{"x", on_each(2, f32({3, 4}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}))}};
  const Bindings y = interpret(p, inputs);
  EXPECT_EQ(y.at("part"), (std::vector{f32({1, 4}, {1, 2, 3, 4}), f32({2, 4}, {5, 6, 7, 8, 9, 10, 11, 12})}));
  EXPECT_EQ(y.at("split"), (std::vector{f32({1, 2, 2}, {1, 2, 3, 4}), f32({2, 2, 2}, {5, 6, 7, 8, 9, 10, 11, 12})}));
  EXPECT_EQ(y.at("turned"), (std::vector{f32({4, 1}, {1, 2, 3, 4}), f32({4, 2}, {5, 9, 6, 10, 7, 11, 8, 12})}));
  EXPECT_EQ(y.at("middle"), (std::vector{f32({1, 2}, {2, 3}), f32({2, 2}, {6, 7, 10, 11})}));
}

TEST(InterpreterPlacement, ATableShardedByRowsYieldsZerosWhereAnotherRankHoldsTheRow) {
  Program p("rows", 3);
  const Tensor table = p.input("table", DType::f32, {3, 2}, Shard(0, {2, 0, 1}));
  p.output("y", gather_rows(table, p.input("i", DType::i32, {3}, Replicate())));
  const Bindings inputs{{"table", {f32({2, 2}, {1, 2, 3, 4}), f32({0, 2}, {}), f32({1, 2}, {5, 6})}},
                        {"i", on_each(3, i32({3}, {2, 0, 1}))}};
  EXPECT_EQ(run(p, inputs), (PerRank{{0, 0, 1, 2, 3, 4}, {0, 0, 0, 0, 0, 0}, {5, 6, 0, 0, 0, 0}}));
}

TEST(InterpreterPlacement, ATableShardedByColumnsOrShardedIndicesGiveShardedRows) {
  Program p("columns", 2);
  const Tensor whole = p.input("whole", DType::f32, {2, 3}, Replicate());
  const Tensor i = p.input("i", DType::i32, {3}, Replicate());
  p.output("columns", gather_rows(shard(whole, 1, {1, 2}), i));
  p.output("indices", gather_rows(whole, shard(i, 0, {2, 1})));
  Bindings inputs{{"whole", on_each(2, f32({2, 3}, {1, 2, 3, 4, 5, 6}))}, {"i", on_each(2, i32({3}, {1, 0, 1}))}};
  const Bindings y = interpret(p, inputs);
  EXPECT_EQ(y.at("columns"), (std::vector{f32({3, 1}, {4, 1, 4}), f32({3, 2}, {5, 6, 2, 3, 5, 6})}));
  EXPECT_EQ(y.at("indices"), (std::vector{f32({2, 3}, {4, 5, 6, 1, 2, 3}), f32({1, 3}, {4, 5, 6})}));
}

TEST(InterpreterPlacement, EveryPlacementOfAnEmbeddingBagLooksUpTheSameRows) {
  Program p("bags", 2);
  const Tensor table = p.input("table", DType::f32, {3, 2}, Replicate());
  const Tensor bags = p.input("bags", DType::i32, {2, 2}, Replicate());
  const auto bag = [](Tensor t, Tensor i) { return embedding_bag(t, i, ReduceOp::mean); };
  p.output("bags", bag(table, shard(bags, 0, {2, 0})));
  p.output("columns", bag(shard(table, 1), bags));
  p.output("rows", bag(shard(table, 0, {1, 2}), bags));
  Bindings inputs{{"table", on_each(2, f32({3, 2}, {2, 20, 4, 40, 6, 60}))},
                  {"bags", on_each(2, i32({2, 2}, {0, 2, 1, 1}))}};
  const Bindings y = interpret(p, inputs);
  EXPECT_EQ(y.at("bags"), (std::vector{f32({2, 2}, {4, 40, 4, 40}), f32({0, 2}, {})}));
  EXPECT_EQ(y.at("columns"), (std::vector{f32({2, 1}, {4, 4}), f32({2, 1}, {40, 40})}));
  // Each rank divides its part of the sum by the whole length of the bag.
  EXPECT_EQ(y.at("rows"), (std::vector{f32({2, 2}, {1, 10, 0, 0}), f32({2, 2}, {3, 30, 4, 40})}));
}

TEST(InterpreterPlacement, EveryPlacementOfSeveralTablesLooksUpTheSameRows) {
  Program p("tables", 2);
  const Tensor tables = p.input("tables", DType::f32, {2, 2, 2}, Replicate());
  const Tensor bags = p.input("bags", DType::i32, {2, 2, 2}, Replicate());
  p.output("tables", embedding_bag(shard(tables, 0), shard(bags, 0)));
  p.output("bags", embedding_bag(tables, shard(bags, 1)));
  p.output("columns", embedding_bag(shard(tables, 2), bags));
  p.output("rows", embedding_bag(shard(tables, 1), bags));
  Bindings inputs{{"tables", on_each(2, f32({2, 2, 2}, {1, 2, 10, 20, 100, 200, 1000, 2000}))},
                  {"bags", on_each(2, i32({2, 2, 2}, {0, 0, 0, 1, 1, 1, 1, 0}))}};
  // In whole: table 0 gives [2, 4] and [11, 22], table 1 gives [2000, 4000] and [1100, 2200].
  const Bindings y = interpret(p, inputs);
  EXPECT_EQ(y.at("tables"), (std::vector{f32({1, 2, 2}, {2, 4, 11, 22}), f32({1, 2, 2}, {2000, 4000, 1100, 2200})}));
  EXPECT_EQ(y.at("bags"), (std::vector{f32({2, 1, 2}, {2, 4, 2000, 4000}), f32({2, 1, 2}, {11, 22, 1100, 2200})}));
  EXPECT_EQ(y.at("columns"), (std::vector{f32({2, 2, 1}, {2, 11, 2000, 1100}), f32({2, 2, 1}, {4, 22, 4000, 2200})}));
  EXPECT_EQ(y.at("rows"), (std::vector{f32({2, 2, 2}, {2, 4, 1, 2, 0, 0, 100, 200}),
                                       f32({2, 2, 2}, {0, 0, 10, 20, 2000, 4000, 1000, 2000})}));
}

TEST(InterpreterPlacement, RowFunctionsWorkOnTheRowsThatARankHolds) {
  Program p("softmax", 2);
  p.output("y", softmax(p.input("x", DType::f32, {2, 2}, Shard(0, {0, 2}))));
  EXPECT_EQ(run(p, {{"x", {f32({0, 2}, {}), f32({2, 2}, {3, 3, 4, 4})}}}), (PerRank{{}, {0.5, 0.5, 0.5, 0.5}}));
}

TEST(InterpreterPlacement, AnUpdateIsSeenByTheNextRunAndNotByThisOnesReaders) {
  for (Arithmetic arithmetic : {Arithmetic::declared, Arithmetic::exact}) {
    Program p("step", 2);
    const Tensor state = p.input("state", DType::bf16, {3}, Shard(0));
    const Tensor before = state * 10.0;
    const Tensor after = update(state, state + p.input("step", DType::bf16, {3}, Shard(0)));
    p.output("before", before);
    p.output("after", after);
    Bindings inputs{{"state", {bf16({2}, {1, 2}), bf16({1}, {3})}}, {"step", {bf16({2}, {1, 1}), bf16({1}, {2})}}};
    Bindings y = interpret(p, inputs, arithmetic);
    EXPECT_EQ(testing::held(y, "before"), (PerRank{{10, 20}, {30}}));
    EXPECT_EQ(testing::held(y, "after"), (PerRank{{2, 3}, {5}}));
    EXPECT_EQ(testing::held(inputs, "state"), (PerRank{{2, 3}, {5}}));
    EXPECT_EQ(inputs.at("state")[0].dtype(), arithmetic == Arithmetic::exact ? DType::f64 : DType::bf16);
    y = interpret(p, inputs, arithmetic);
    EXPECT_EQ(testing::held(y, "before"), (PerRank{{20, 30}, {50}}));
    EXPECT_EQ(testing::held(inputs, "state"), (PerRank{{3, 4}, {7}}));
    EXPECT_EQ(testing::held(inputs, "step"), (PerRank{{1, 1}, {2}}));
  }
}

}  // namespace
}  // namespace tileway
