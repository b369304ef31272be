// The interpreter on one rank: what each computation means, in numbers worked out by hand.
#include <cmath>

#include "support/values.hpp"
#include "tileway/inputs.hpp"

namespace tileway {
namespace {

using testing::bf16;
using testing::expect_near;
using testing::f32;
using testing::i32;
using testing::i64;
using testing::kInfinity;
using testing::kNan;
using testing::run;

using Values = std::vector<double>;

Values unary(Function function, const Array& x, Arithmetic arithmetic) {
  Program p("unary", 1);
  p.output("y", pointwise(function, {p.input("x", x.dtype(), x.shape(), Replicate())}));
  return run(p, {{"x", {x}}}, arithmetic)[0];
}

Values binary(Function function, const Array& a, const Array& b) {
  Program p("binary", 1);
  const Tensor left = p.input("a", a.dtype(), a.shape(), Replicate());
  const Tensor right = p.input("b", b.dtype(), b.shape(), Replicate());
  p.output("y", pointwise(function, {left, right}));
  return run(p, {{"a", {a}}, {"b", {b}}})[0];
}

TEST(Interpreter, EveryFunctionOfOneOperandHasItsTabulatedValue) {
  struct Case {
    Function function;
    double x;
    double y;
  };
  const std::vector<Case> cases{
      {Function::neg, 1.5, -1.5},           {Function::abs, -2, 2},
      {Function::exp, 1, 2.7182818285},     {Function::log, 10, 2.3025850930},
      {Function::sqrt, 2, 1.4142135624},    {Function::rsqrt, 16, 0.25},
      {Function::tanh, 1, 0.7615941560},    {Function::erf, 0.5, 0.5204998778},
      {Function::sigmoid, 2, 0.8807970780}, {Function::relu, -3, 0},
      {Function::relu, 2.5, 2.5},           {Function::gelu, 1, 0.8413447461},
      {Function::gelu, -1, -0.1586552539},  {Function::silu, 2, 1.7615941560},
      {Function::silu, -1, -0.2689414214},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(name_of(c.function));
    expect_near({c.y}, unary(c.function, f32({1}, {c.x}), Arithmetic::declared), 1e-6);
    expect_near({c.y}, unary(c.function, f32({1}, {c.x}), Arithmetic::exact), 1e-10);
  }
}

TEST(Interpreter, EveryFunctionOfTwoOperandsIsItsArithmetic) {
  const Array a = f32({3}, {6, -1, 2});
  const Array b = f32({3}, {4, 2, 2});
  EXPECT_EQ(binary(Function::add, a, b), (Values{10, 1, 4}));
  EXPECT_EQ(binary(Function::sub, a, b), (Values{2, -3, 0}));
  EXPECT_EQ(binary(Function::mul, a, b), (Values{24, -2, 4}));
  EXPECT_EQ(binary(Function::div, a, b), (Values{1.5, -0.5, 1}));
  EXPECT_EQ(binary(Function::maximum, a, b), (Values{6, 2, 2}));
  EXPECT_EQ(binary(Function::minimum, a, b), (Values{4, -1, 2}));
  EXPECT_EQ(binary(Function::greater, a, b), (Values{1, 0, 0}));
  EXPECT_EQ(binary(Function::equal, a, b), (Values{0, 0, 1}));
}

TEST(Interpreter, MaximumAndMinimumPassNanOn) {
  for (Function function : {Function::maximum, Function::minimum}) {
    const Values y = binary(function, f32({2}, {kNan, 1}), f32({2}, {1, kNan}));
    EXPECT_TRUE(std::isnan(y[0]) && std::isnan(y[1])) << name_of(function);
  }
}

TEST(Interpreter, WhereTakesTheSecondOperandForWhatIsNotZero) {
  Program p("where", 1);
  const Tensor c = p.input("c", DType::f32, {3}, Replicate());
  const Tensor a = p.input("a", DType::f32, {3}, Replicate());
  p.output("y", pointwise(Function::where, {c, a, p.constant(-1, DType::f32)}));
  EXPECT_EQ(run(p, {{"c", {f32({3}, {1, 0, -0.5})}}, {"a", {f32({3}, {7, 8, 9})}}})[0], (Values{7, -1, 9}));
}

TEST(Interpreter, BroadcastingAlignsAtTheLastDimension) {
  EXPECT_EQ(binary(Function::add, f32({2, 1}, {10, 20}), f32({3}, {1, 2, 3})), (Values{11, 12, 13, 21, 22, 23}));
  EXPECT_EQ(binary(Function::sub, f32({2, 2}, {1, 2, 3, 4}), f32({2}, {1, 2})), (Values{0, 0, 2, 2}));
}

TEST(Interpreter, IntegersDoNotPassThroughFloats) {
  EXPECT_EQ(binary(Function::add, i32({1}, {16777217}), i32({1}, {2})), (Values{16777219}));
  EXPECT_EQ(binary(Function::mul, i64({1}, {94906265}), i64({1}, {94906265})), (Values{9007199136250225}));
}

TEST(Interpreter, EachResultIsRoundedOnceToNearestEven) {
  // bf16 numbers from 1 on are 2^-7 apart, so half of that, 2^-8, is a tie.
  EXPECT_EQ(binary(Function::add, bf16({2}, {1, 1.0078125}), bf16({2}, {0.00390625, 0.00390625})),
            (Values{1, 1.015625}));
}

TEST(Interpreter, SumsAreFp32InIndexOrderAndFp64WhenExact) {
  Program p("sum", 1);
  p.output("y", reduce_dim(p.input("x", DType::f32, {2, 3}, Replicate()), ReduceOp::sum, 1));
  // 2^24 + 1 is not a float: it rounds to 2^24 both times, but 1 + 1 + 2^24 survives.
  const Bindings inputs{{"x", {f32({2, 3}, {16777216, 1, 1, 1, 1, 16777216})}}};
  EXPECT_EQ(run(p, inputs)[0], (Values{16777216, 16777218}));
  EXPECT_EQ(run(p, inputs, Arithmetic::exact)[0], (Values{16777218, 16777218}));
}

TEST(Interpreter, MatmulSumsBf16ProductsWithoutRoundingBetween) {
  Program p("long", 1);
  p.output("y", matmul(p.input("a", DType::bf16, {1, 3}, Replicate()), p.input("b", DType::bf16, {3, 1}, Replicate())));
  // In bf16 256 + 1 is 256.
  EXPECT_EQ(run(p, {{"a", {bf16({1, 3}, {256, 1, 1})}}, {"b", {bf16({3, 1}, {1, 1, 1})}}})[0], (Values{258}));
}

TEST(Interpreter, MatmulMultipliesRowsByColumns) {
  Program p("square", 1);
  p.output("y", matmul(p.input("a", DType::f32, {2, 2}, Replicate()), p.input("b", DType::f32, {2, 2}, Replicate())));
  EXPECT_EQ(run(p, {{"a", {f32({2, 2}, {1, 2, 3, 4})}}, {"b", {f32({2, 2}, {5, 6, 7, 8})}}})[0],
            (Values{19, 22, 43, 50}));
}

TEST(Interpreter, MatmulBroadcastsBatchesOnBothSides) {
  Program p("batches", 1);
  const Tensor a = p.input("a", DType::f32, {2, 1, 1, 2}, Replicate());
  const Tensor b = p.input("b", DType::f32, {3, 2, 1}, Replicate());
  p.output("y", matmul(a, b));
  EXPECT_EQ(run(p, {{"a", {f32({2, 1, 1, 2}, {1, 1, 2, 1})}}, {"b", {f32({3, 2, 1}, {1, 2, 3, 4, 5, 6})}}})[0],
            (Values{3, 7, 11, 4, 10, 16}));
}

TEST(Interpreter, MatmulOverNothingIsZero) {
  Program p("empty", 1);
  p.output("y", matmul(p.input("a", DType::f32, {1, 0}, Replicate()), p.input("b", DType::f32, {0, 2}, Replicate())));
  EXPECT_EQ(run(p, {{"a", {Array(DType::f32, {1, 0})}}, {"b", {Array(DType::f32, {0, 2})}}})[0], (Values{0, 0}));
}

TEST(Interpreter, CastTruncatesToIntegersAndRoundsToFloats) {
  const auto cast_of = [](const Array& x, DType dtype, Arithmetic arithmetic = Arithmetic::declared) {
    Program p("cast", 1);
    p.output("y", cast(p.input("x", x.dtype(), x.shape(), Replicate()), dtype));
    return run(p, {{"x", {x}}}, arithmetic)[0];
  };
  EXPECT_EQ(cast_of(f32({4}, {2.7, -2.7, 0.5, -0.5}), DType::i32), (Values{2, -2, 0, 0}));
  EXPECT_EQ(cast_of(f32({2}, {2.7, -2.7}), DType::i64, Arithmetic::exact), (Values{2, -2}));
  EXPECT_EQ(cast_of(i32({1}, {16777217}), DType::f32), (Values{16777216}));
  EXPECT_EQ(cast_of(i32({1}, {16777217}), DType::f32, Arithmetic::exact), (Values{16777217}));
  EXPECT_EQ(cast_of(f32({1}, {1.00390625}), DType::bf16), (Values{1}));
}

TEST(Interpreter, CastToIntegersStopsAtTheirBounds) {
  Program p("cast", 1);
  p.output("y", cast(p.input("x", DType::f32, {4}, Replicate()), DType::i32));
  EXPECT_EQ(run(p, {{"x", {f32({4}, {3e9, -3e9, kInfinity, kNan})}}})[0],
            (Values{2147483647, -2147483648.0, 2147483647, 0}));
}

TEST(Interpreter, CastBetweenIntegersKeepsTheLowBits) {
  Program p("cast", 1);
  p.output("y", cast(p.input("x", DType::i64, {2}, Replicate()), DType::i32));
  EXPECT_EQ(run(p, {{"x", {i64({2}, {4294967301, 2147483648})}}})[0], (Values{5, -2147483648.0}));
}

TEST(Interpreter, SoftmaxSumsToOneAndDoesNotOverflow) {
  Program p("softmax", 1);
  p.output("y", softmax(p.input("x", DType::f32, {2, 3}, Replicate())));
  const Bindings inputs{{"x", {f32({2, 3}, {1, 2, 3, 1000, 1000, -1000})}}};
  const Values expected{0.0900305732, 0.2447284711, 0.6652409558, 0.5, 0.5, 0};
  expect_near(expected, run(p, inputs)[0], 1e-6);
  expect_near(expected, run(p, inputs, Arithmetic::exact)[0], 1e-10);
}

TEST(Interpreter, LayerNormSubtractsTheMeanBeforeItSquares) {
  Program p("layer_norm", 1);
  const Tensor x = p.input("x", DType::f32, {2, 2}, Replicate());
  const Tensor gamma = p.input("gamma", DType::f32, {2}, Replicate());
  const Tensor beta = p.input("beta", DType::f32, {2}, Replicate());
  p.output("y", layer_norm(x, gamma, beta, 3));
  // Variance 1 and epsilon 3: both rows become -1/2 and 1/2. The square of 10001 is not a float.
  const Bindings inputs{
      {"x", {f32({2, 2}, {1, 3, 10001, 10003})}}, {"gamma", {f32({2}, {2, 4})}}, {"beta", {f32({2}, {10, 20})}}};
  EXPECT_EQ(run(p, inputs)[0], (Values{9, 22, 9, 22}));
}

TEST(Interpreter, RmsNormDividesByTheRootMeanSquare) {
  Program p("rms_norm", 1);
  const Tensor x = p.input("x", DType::f32, {1, 2}, Replicate());
  p.output("y", rms_norm(x, p.input("gamma", DType::f32, {2}, Replicate()), 6));
  // Mean square 10, and 6, make 16.
  EXPECT_EQ(run(p, {{"x", {f32({1, 2}, {2, 4})}}, {"gamma", {f32({2}, {10, 20})}}})[0], (Values{5, 20}));
}

TEST(Interpreter, ReductionsRunAlongTheirDimension) {
  const auto reduced = [](ReduceOp op, int dim) {
    Program p("reduce_dim", 1);
    p.output("y", reduce_dim(p.input("x", DType::f32, {2, 3}, Replicate()), op, dim, dim == 1));
    return run(p, {{"x", {f32({2, 3}, {1, 5, 3, 4, 2, 6})}}})[0];
  };
  EXPECT_EQ(reduced(ReduceOp::sum, 0), (Values{5, 7, 9}));
  EXPECT_EQ(reduced(ReduceOp::sum, 1), (Values{9, 12}));
  EXPECT_EQ(reduced(ReduceOp::mean, 1), (Values{3, 4}));
  EXPECT_EQ(reduced(ReduceOp::max, 1), (Values{5, 6}));
  EXPECT_EQ(reduced(ReduceOp::max, 0), (Values{4, 5, 6}));
  EXPECT_EQ(reduced(ReduceOp::min, 0), (Values{1, 2, 3}));
}

TEST(Interpreter, ReductionsOfNothingAreTheirNeutralElements) {
  const auto reduced = [](ReduceOp op, DType dtype) {
    Program p("reduce_dim", 1);
    p.output("y", reduce_dim(p.input("x", dtype, {0, 1}, Replicate()), op, 0));
    return run(p, {{"x", {Array(dtype, {0, 1})}}})[0];
  };
  EXPECT_EQ(reduced(ReduceOp::sum, DType::f32), (Values{0}));
  EXPECT_EQ(reduced(ReduceOp::max, DType::bf16), (Values{-kInfinity}));
  EXPECT_EQ(reduced(ReduceOp::min, DType::f32), (Values{kInfinity}));
  EXPECT_TRUE(std::isnan(reduced(ReduceOp::mean, DType::f32)[0]));
  EXPECT_EQ(reduced(ReduceOp::max, DType::i32), (Values{-2147483648.0}));
  EXPECT_EQ(reduced(ReduceOp::min, DType::i32), (Values{2147483647}));
  EXPECT_EQ(reduced(ReduceOp::max, DType::i64), (Values{-9223372036854775808.0}));
  EXPECT_EQ(reduced(ReduceOp::min, DType::i64), (Values{9223372036854775807.0}));
}

TEST(Interpreter, ReshapeKeepsRowMajorOrder) {
  Program p("reshape", 1);
  p.output("y", reshape(p.input("x", DType::f32, {2, 3}, Replicate()), {3, 2}));
  Bindings inputs{{"x", {f32({2, 3}, {1, 2, 3, 4, 5, 6})}}};
  EXPECT_EQ(interpret(p, inputs).at("y")[0], f32({3, 2}, {1, 2, 3, 4, 5, 6}));
}

TEST(Interpreter, TransposePutsDimensionPermutationIAtI) {
  Program p("transpose", 1);
  p.output("y", transpose(p.input("x", DType::f32, {2, 2, 3}, Replicate()), {2, 0, 1}));
  Bindings inputs{{"x", {f32({2, 2, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12})}}};
  EXPECT_EQ(interpret(p, inputs).at("y")[0], f32({3, 2, 2}, {1, 4, 7, 10, 2, 5, 8, 11, 3, 6, 9, 12}));
}

TEST(Interpreter, SliceTakesARangeOfOneDimension) {
  Program p("slice", 1);
  p.output("y", slice(p.input("x", DType::f32, {2, 4}, Replicate()), 1, 1, 2));
  EXPECT_EQ(run(p, {{"x", {f32({2, 4}, {1, 2, 3, 4, 5, 6, 7, 8})}}})[0], (Values{2, 3, 6, 7}));
}

TEST(Interpreter, GatherRowsAppendsTheWidthToTheIndices) {
  Program p("gather", 1);
  const Tensor table = p.input("table", DType::f32, {3, 2}, Replicate());
  p.output("y", gather_rows(table, p.input("i", DType::i32, {2, 2}, Replicate())));
  Bindings inputs{{"table", {f32({3, 2}, {1, 2, 3, 4, 5, 6})}}, {"i", {i32({2, 2}, {2, 0, 1, 2})}}};
  EXPECT_EQ(interpret(p, inputs).at("y")[0], f32({2, 2, 2}, {5, 6, 1, 2, 3, 4, 5, 6}));
}

TEST(Interpreter, EmbeddingBagAddsOrAveragesTheRowsOfABag) {
  for (ReduceOp op : {ReduceOp::sum, ReduceOp::mean}) {
    Program p("bag", 1);
    const Tensor table = p.input("table", DType::f32, {3, 2}, Replicate());
    p.output("y", embedding_bag(table, p.input("i", DType::i64, {2, 2}, Replicate()), op));
    const Bindings inputs{{"table", {f32({3, 2}, {1, 2, 3, 4, 5, 6})}}, {"i", {i64({2, 2}, {0, 2, 1, 1})}}};
    EXPECT_EQ(run(p, inputs)[0], op == ReduceOp::sum ? (Values{6, 8, 6, 8}) : (Values{3, 4, 3, 4}));
  }
}

TEST(Interpreter, EmbeddingBagLooksUpInTheTableOfItsOwnIndex) {
  Program p("bags", 1);
  const Tensor tables = p.input("tables", DType::f32, {2, 2, 1}, Replicate());
  p.output("y", embedding_bag(tables, p.input("i", DType::i32, {2, 3, 2}, Replicate())));
  const Bindings inputs{{"tables", {f32({2, 2, 1}, {1, 10, 100, 1000})}},
                        {"i", {i32({2, 3, 2}, {0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1})}}};
  EXPECT_EQ(run(p, inputs)[0], (Values{2, 11, 20, 200, 1100, 2000}));
}

TEST(Interpreter, ConstantsAreScalarsInTheirDtype) {
  Program p("constant", 1);
  const Tensor x = p.input("x", DType::bf16, {2}, Replicate());
  p.output("y", x * p.constant(1.00390625, DType::bf16));
  const Bindings inputs{{"x", {bf16({2}, {1, 128})}}};
  EXPECT_EQ(run(p, inputs)[0], (Values{1, 128}));
  EXPECT_EQ(run(p, inputs, Arithmetic::exact)[0], (Values{1.00390625, 128.5}));
}

TEST(Interpreter, ExactOutputsAreF64ForFloatsAndDeclaredForIntegers) {
  Program p("exact", 1);
  const Tensor x = p.input("x", DType::bf16, {1}, Replicate());
  p.output("third", x / p.constant(3, DType::bf16));
  p.output("count", p.input("n", DType::i32, {1}, Replicate()));
  Bindings inputs{{"x", {Array::from(DType::f64, {1}, {1})}}, {"n", {i32({1}, {7})}}};
  const Bindings outputs = interpret(p, inputs, Arithmetic::exact);
  EXPECT_EQ(outputs.at("third")[0], Array::from(DType::f64, {1}, {0.3333333333333333}));
  EXPECT_EQ(outputs.at("count")[0], i32({1}, {7}));
}

// A product of a single element, its sum over k in another order.
TEST(Accuracy, OfOneElementAllowsAnyOrderOfItsSumAndNotALostTerm) {
  const std::int64_t k = 1001;
  Program p("product", 1);
  const Tensor a = p.input("a", DType::f32, {1, k}, Replicate());
  const Tensor b = p.input("b", DType::f32, {k, 1}, Replicate());
  p.output("y", matmul(a, b));
  for (std::uint32_t seed = 1; seed <= 50; ++seed) {
    Bindings inputs = random_inputs(p, seed, Fill::normal);
    Bindings reversed = inputs;
    Bindings lost = inputs;
    for (const char* name : {"a", "b"}) {
      for (std::int64_t i = 0; i < k; ++i) reversed[name][0].set(i, inputs[name][0].at(k - 1 - i));
      lost[name][0].set(k / 2, 0);
    }
    const Accuracy right = measure_accuracy(p, inputs, interpret(p, reversed));
    EXPECT_LE(right.error, right.allowed) << "seed " << seed;
    const double term = inputs["a"][0].at(k / 2) * inputs["b"][0].at(k / 2);
    if (std::abs(term) < 1e-4) continue;
    const Accuracy wrong = measure_accuracy(p, inputs, interpret(p, lost));
    EXPECT_GT(wrong.error, wrong.allowed) << "seed " << seed << ", without " << term;
  }
}

}  // namespace
}  // namespace tileway
