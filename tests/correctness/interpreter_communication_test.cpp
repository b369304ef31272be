// The interpreter's collectives: which values arrive where, and where they are rounded.
#include "support/values.hpp"

namespace tileway {
namespace {

using testing::bf16;
using testing::f32;
using testing::held;
using testing::i32;
using testing::i64;
using testing::kNan;
using testing::PerRank;
using testing::run;

PerRank reduced(ReduceOp op, const std::vector<Array>& partials, Arithmetic arithmetic = Arithmetic::declared) {
  Program p("all_reduce", static_cast<int>(partials.size()));
  p.output("y", all_reduce(p.input("x", partials[0].dtype(), partials[0].shape(), Partial(op))));
  return run(p, {{"x", partials}}, arithmetic);
}

TEST(InterpreterCommunication, AllReduceCombinesOnEveryRank) {
  const std::vector<Array> x{f32({2}, {1, -5}), f32({2}, {4, 3}), f32({2}, {2, 7})};
  EXPECT_EQ(reduced(ReduceOp::sum, x), (PerRank{{7, 5}, {7, 5}, {7, 5}}));
  EXPECT_EQ(reduced(ReduceOp::max, x), (PerRank{{4, 7}, {4, 7}, {4, 7}}));
  EXPECT_EQ(reduced(ReduceOp::min, x), (PerRank{{1, -5}, {1, -5}, {1, -5}}));
}

TEST(InterpreterCommunication, MaximaOverRanksPassNanOn) {
  for (ReduceOp op : {ReduceOp::max, ReduceOp::min}) {
    const PerRank y = reduced(op, {f32({2}, {kNan, 1}), f32({2}, {1, kNan})});
    EXPECT_TRUE(y[0][0] != y[0][0] && y[1][1] != y[1][1]) << name_of(op);
  }
}

TEST(InterpreterCommunication, ASumRunsInRankOrderInFp32) {
  // 2^24 + 1 is not a float: the ones survive only where they meet first.
  const Array big = f32({1}, {16777216});
  const Array one = f32({1}, {1});
  EXPECT_EQ(reduced(ReduceOp::sum, {big, one, one})[0][0], 16777216);
  EXPECT_EQ(reduced(ReduceOp::sum, {one, one, big})[0][0], 16777218);
  EXPECT_EQ(reduced(ReduceOp::sum, {big, one, one}, Arithmetic::exact)[0][0], 16777218);
}

TEST(InterpreterCommunication, ASumIsRoundedOnlyAfterTheLastRank) {
  // Neighbours of 256 in bf16 are 2 apart: rounded after each rank, the sum would stay 256.
  EXPECT_EQ(reduced(ReduceOp::sum, {bf16({1}, {256}), bf16({1}, {1}), bf16({1}, {1})})[0][0], 258);
}

TEST(InterpreterCommunication, EveryPartialIsRoundedBeforeTheSum) {
  Program p("gemm", 2);
  const Tensor a = p.input("a", DType::bf16, {1, 4}, Shard(1));
  p.output("y", all_reduce(matmul(a, p.input("b", DType::bf16, {4, 1}, Shard(0)))));
  const Bindings inputs{{"a", {bf16({1, 2}, {1, 0.00390625}), bf16({1, 2}, {0, 0.00390625})}},
                        {"b", {bf16({2, 1}, {1, 1}), bf16({2, 1}, {1, 1})}}};
  // Rank 0's 1 + 2^-8 becomes 1, and again with rank 1's 2^-8; the exact sum 1 + 2^-7 would be a bf16.
  EXPECT_EQ(run(p, inputs), (PerRank{{1}, {1}}));
  EXPECT_EQ(run(p, inputs, Arithmetic::exact), (PerRank{{1.0078125}, {1.0078125}}));
}

TEST(InterpreterCommunication, IntegersAreSummedExactly) {
  EXPECT_EQ(reduced(ReduceOp::sum, {i32({1}, {16777217}), i32({1}, {2})})[1][0], 16777219);
}

TEST(InterpreterCommunication, ReduceScatterGivesEachRankItsPartOfTheSum) {
  Program p("reduce_scatter", 3);
  p.output("y", reduce_scatter(p.input("x", DType::f32, {2, 3}, Partial()), 1, {2, 0, 1}));
  const Bindings inputs{{"x",
                         {f32({2, 3}, {1, 2, 3, 4, 5, 6}), f32({2, 3}, {10, 20, 30, 40, 50, 60}),
                          f32({2, 3}, {100, 200, 300, 400, 500, 600})}}};
  EXPECT_EQ(run(p, inputs), (PerRank{{111, 222, 444, 555}, {}, {333, 666}}));
}

TEST(InterpreterCommunication, ReduceLeavesTheSumOnTheRootAlone) {
  Program p("reduce", 3);
  p.output("y", reduce(p.input("x", DType::f32, {2}, Partial()), 1));
  EXPECT_EQ(run(p, {{"x", {f32({2}, {1, 2}), f32({2}, {10, 20}), f32({2}, {100, 200})}}}),
            (PerRank{{}, {111, 222}, {}}));
}

TEST(InterpreterCommunication, BroadcastGivesTheRootsTensorToAll) {
  Program p("broadcast", 3);
  p.output("y", broadcast(p.input("x", DType::f32, {2}, Shard(0, {0, 0, 2})), 2));
  EXPECT_EQ(run(p, {{"x", {f32({0}, {}), f32({0}, {}), f32({2}, {5, 6})}}}), (PerRank{{5, 6}, {5, 6}, {5, 6}}));
}

TEST(InterpreterCommunication, AllGatherJoinsUnevenPartsAlongTheirDimension) {
  Program p("all_gather", 3);
  p.output("y", all_gather(p.input("x", DType::f32, {2, 3}, Shard(1, {1, 0, 2}))));
  const std::vector<double> whole{1, 2, 3, 4, 5, 6};
  EXPECT_EQ(run(p, {{"x", {f32({2, 1}, {1, 4}), f32({2, 0}, {}), f32({2, 2}, {2, 3, 5, 6})}}}),
            (PerRank{whole, whole, whole}));
}

TEST(InterpreterCommunication, AllToAllMovesTheCutToAnotherDimension) {
  Program p("all_to_all", 2);
  p.output("y", all_to_all(p.input("x", DType::f32, {3, 3}, Shard(0)), 1, {1, 2}));
  EXPECT_EQ(run(p, {{"x", {f32({2, 3}, {1, 2, 3, 4, 5, 6}), f32({1, 3}, {7, 8, 9})}}}),
            (PerRank{{1, 4, 7}, {2, 3, 5, 6, 8, 9}}));
}

TEST(InterpreterCommunication, AllToAllVPacksWhatArrivesInRankOrderAndFillsWithZeros) {
  Program p("all_to_all_v", 3);
  const Tensor x = p.input("x", DType::f32, {7, 2}, Shard(0, {4, 1, 2}));
  p.output("y", all_to_all_v(x, p.input("splits", DType::i64, {3, 3}, Shard(0)), 3));
  // Rank 0 keeps its fourth row to itself unsent; rank 1 sends its row to rank 0; rank 2 sends one to 0 and one to 2.
  const Bindings inputs{
      {"x", {f32({4, 2}, {1, 2, 3, 4, 5, 6, 7, 8}), f32({1, 2}, {9, 10}), f32({2, 2}, {11, 12, 13, 14})}},
      {"splits", {i64({1, 3}, {1, 0, 2}), i64({1, 3}, {1, 0, 0}), i64({1, 3}, {1, 0, 1})}}};
  EXPECT_EQ(run(p, inputs), (PerRank{{1, 2, 9, 10, 11, 12}, {0, 0, 0, 0, 0, 0}, {3, 4, 5, 6, 13, 14}}));
}

TEST(InterpreterCommunication, ASubgroupWorksAmongItselfAndOthersHoldNothing) {
  Program p("subgroup", 4);
  const int group = p.group({1, 3});
  const Tensor x = p.input("x", DType::f32, {3}, Shard(0), group);
  p.output("y", all_gather(x * p.constant(2, DType::f32, group)));
  Bindings inputs{{"x", {Array(), f32({2}, {1, 2}), Array(), f32({1}, {3})}}};
  const Bindings y = interpret(p, inputs);
  EXPECT_EQ(y.at("y"), (std::vector{Array(), f32({3}, {2, 4, 6}), Array(), f32({3}, {2, 4, 6})}));
}

TEST(InterpreterCommunication, SendMovesMemberIsPartToMemberIOfTheOtherGroup) {
  Program p("send", 5);
  const int stage0 = p.group({0, 3});
  const int stage1 = p.group({1, 4});
  p.output("y", send(p.input("x", DType::f32, {3}, Shard(0), stage0), stage1));
  EXPECT_EQ(run(p, {{"x", {f32({2}, {1, 2}), Array(), Array(), f32({1}, {3}), Array()}}}),
            (PerRank{{}, {1, 2}, {}, {}, {3}}));
}

TEST(InterpreterCommunication, SendMovesPartialsUncombined) {
  Program p("send", 4);
  const int stage0 = p.group({0, 1});
  const int stage1 = p.group({1, 2});
  const Tensor there = send(p.input("x", DType::f32, {1}, Partial(), stage0), stage1);
  p.output("y", there);
  p.output("sum", all_reduce(there));
  Bindings inputs{{"x", {f32({1}, {1}), f32({1}, {10}), Array(), Array()}}};
  const Bindings y = interpret(p, inputs);
  EXPECT_EQ(held(y, "y"), (PerRank{{}, {1}, {10}, {}}));
  EXPECT_EQ(held(y, "sum"), (PerRank{{}, {11}, {11}, {}}));
}

}  // namespace
}  // namespace tileway
