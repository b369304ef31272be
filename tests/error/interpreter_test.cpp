// What the interpreter refuses, and what it says.
#include "support/values.hpp"

namespace tileway {
namespace {

using testing::expect_refusal;
using testing::f32;
using testing::i32;

void expect_refused_run(const Program& program, Bindings inputs, const std::vector<std::string>& parts,
                        Arithmetic arithmetic = Arithmetic::declared) {
  expect_refusal([&] { interpret(program, inputs, arithmetic); }, parts);
}

Program scale() {
  Program p("scale", 2);
  p.output("y", p.input("x", DType::f32, {3}, Shard(0)) * 2.0);
  return p;
}

TEST(InterpreterRefuses, AMissingInput) { expect_refused_run(scale(), {}, {"input 'x'", "scale"}); }

TEST(InterpreterRefuses, AnInputThatIsNotThereForEveryRank) {
  expect_refused_run(scale(), {{"x", {f32({2}, {1, 2})}}}, {"input 'x'", "expected 2", "got 1"});
}

TEST(InterpreterRefuses, AnInputOfAnotherDtype) {
  expect_refused_run(scale(), {{"x", {f32({2}, {1, 2}), i32({1}, {3})}}}, {"input 'x'", "rank 1", "f32[1]", "i32[1]"});
}

TEST(InterpreterRefuses, AnInputOfAnotherLocalShape) {
  expect_refused_run(scale(), {{"x", {f32({3}, {1, 2, 3}), f32({1}, {3})}}},
                     {"input 'x'", "rank 0", "f32[2]", "f32[3]"});
  expect_refused_run(scale(), {{"x", {f32({2}, {1, 2}), Array()}}}, {"input 'x'", "rank 1", "f32[1]", "f32[0]"});
}

TEST(InterpreterRefuses, F64UnlessItIsExactAndTheInputFloating) {
  const Array two = Array::from(DType::f64, {2}, {1, 2});
  const Array one = Array::from(DType::f64, {1}, {3});
  expect_refused_run(scale(), {{"x", {two, one}}}, {"rank 0", "f32[2]", "f64[2]"});
  Bindings inputs{{"x", {two, one}}};
  EXPECT_NO_THROW(interpret(scale(), inputs, Arithmetic::exact));
  Program p("count", 1);
  p.output("y", p.input("n", DType::i32, {2}, Replicate()));
  expect_refused_run(p, {{"n", {two}}}, {"input 'n'", "i32[2]", "f64[2]"}, Arithmetic::exact);
}

TEST(InterpreterRefuses, AnIndexOutsideTheTableWhoeverHoldsIt) {
  for (const Placement& placement : {Replicate(), Shard(0)}) {
    for (int index : {-1, 3}) {
      Program p("lookup", 1);
      const Tensor table = p.input("table", DType::f32, {3, 1}, placement);
      const Tensor i = p.input("i", DType::i32, {1, 2}, Replicate());
      const Bindings inputs{{"table", {f32({3, 1}, {1, 2, 3})}}, {"i", {i32({1, 2}, {0, static_cast<double>(index)})}}};
      const std::vector<std::string> parts{"interpreter_test.cpp:", "index < 3", "got " + std::to_string(index)};
      Program gather = Program::from_json(p.to_json());
      p.output("y", embedding_bag(table, i));
      expect_refused_run(p, inputs, parts);
      gather.output("y", gather_rows(Tensor(&gather, 0), Tensor(&gather, 1)));
      expect_refused_run(gather, inputs, parts);
    }
  }
}

void expect_refused_splits(const std::vector<double>& from0, const std::vector<double>& from1,
                           const std::vector<std::string>& parts) {
  Program p("exchange", 2);
  const Tensor x = p.input("x", DType::f32, {5, 1}, Shard(0));
  p.output("y", all_to_all_v(x, p.input("splits", DType::i32, {2, 2}, Shard(0)), 4));
  expect_refused_run(
      p, {{"x", {f32({3, 1}, {1, 2, 3}), f32({2, 1}, {4, 5})}}, {"splits", {i32({1, 2}, from0), i32({1, 2}, from1)}}},
      parts);
}

TEST(InterpreterRefuses, ANegativeSplit) {
  expect_refused_splits({1, 1}, {2, -2}, {"all_to_all_v", "interpreter_test.cpp:", "member 1", "at least 0", "got -2"});
}

TEST(InterpreterRefuses, MoreRowsSentThanAMemberHolds) {
  expect_refused_splits({1, 1}, {2, 1}, {"all_to_all_v", "member 1", "at most 2", "got 3"});
}

TEST(InterpreterRefuses, MoreRowsReceivedThanFit) {
  expect_refused_splits({3, 0}, {2, 0}, {"all_to_all_v", "member 0", "at most 4", "got 5"});
}

TEST(InterpreterRefuses, WithoutHavingStoredAnything) {
  Program p("half_done", 1);
  const Tensor state = p.input("state", DType::f32, {1}, Replicate());
  update(state, state + 1.0);
  const Tensor table = p.input("table", DType::f32, {1, 1}, Replicate());
  p.output("y", gather_rows(table, p.input("i", DType::i32, {1}, Replicate())));
  Bindings inputs{{"state", {f32({1}, {7})}}, {"table", {f32({1, 1}, {0})}}, {"i", {i32({1}, {1})}}};
  expect_refusal([&] { interpret(p, inputs); }, {"gather_rows"});
  EXPECT_EQ(inputs.at("state")[0], f32({1}, {7}));
}

}  // namespace
}  // namespace tileway
