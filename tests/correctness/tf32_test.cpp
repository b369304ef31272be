// tf32 as a precision of products: what is rounded, where it is kept, and that kernels and interpreter agree on it.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>

#include "base/tf32.hpp"
#include "exec/cuda/variant.hpp"
#include "runtime/cuda/compile.hpp"
#include "support/run.hpp"
#include "support/values.hpp"
#include "tileway/ops.hpp"

namespace tileway {
namespace {

using testing::f32;
using testing::kInfinity;
using testing::kNan;

float from_bits(std::uint32_t bits) { return std::bit_cast<float>(bits); }
std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }

TEST(Tf32, RoundsToTenBitsTiesAwayFromZero) {
  EXPECT_EQ(rounded_to_tf32(0.0F), 0.0F);
  EXPECT_TRUE(std::signbit(rounded_to_tf32(-0.0F)));
  EXPECT_EQ(rounded_to_tf32(2047.0F), 2047.0F);
  EXPECT_EQ(rounded_to_tf32(2048.0F), 2048.0F);
  // From 2048 on the numbers are 2 apart: ties go away from zero, also where the even neighbour is nearer to it.
  EXPECT_EQ(rounded_to_tf32(2049.0F), 2050.0F);
  EXPECT_EQ(rounded_to_tf32(-2049.0F), -2050.0F);
  EXPECT_EQ(rounded_to_tf32(2051.0F), 2052.0F);
  EXPECT_EQ(rounded_to_tf32(2048.9998F), 2048.0F);
  EXPECT_EQ(rounded_to_tf32(2049.0002F), 2050.0F);
  EXPECT_EQ(rounded_to_tf32(4095.0F), 4096.0F);  // into the next power of two
  EXPECT_EQ(rounded_to_tf32(1.0F + 0x1p-11F), 1.0F + 0x1p-10F);
  EXPECT_EQ(rounded_to_tf32(1.0F + 0x1p-11F - 0x1p-23F), 1.0F);
}

TEST(Tf32, RoundsDenormalNumbersAtTheSameBit) {
  EXPECT_EQ(rounded_to_tf32(0x1p-149F), 0.0F);
  EXPECT_EQ(bits_of(rounded_to_tf32(-0x1p-149F)), 0x80000000U);
  EXPECT_EQ(rounded_to_tf32(from_bits(0x00000FFF)), 0.0F);
  EXPECT_EQ(rounded_to_tf32(from_bits(0x00001000)), 0x1p-136F);  // half the smallest
  EXPECT_EQ(rounded_to_tf32(from_bits(0x80001000)), -0x1p-136F);
  EXPECT_EQ(rounded_to_tf32(from_bits(0x007FFFFF)), 0x1p-126F);  // the largest becomes normal
}

TEST(Tf32, KeepsTheLargestNumbersInfinitiesAndNan) {
  EXPECT_EQ(rounded_to_tf32(from_bits(0x7F7FE000)), from_bits(0x7F7FE000));
  EXPECT_EQ(rounded_to_tf32(from_bits(0x7F7FEFFF)), from_bits(0x7F7FE000));
  EXPECT_EQ(rounded_to_tf32(from_bits(0x7F7FF000)), std::numeric_limits<float>::infinity());
  EXPECT_EQ(rounded_to_tf32(-std::numeric_limits<float>::max()), -std::numeric_limits<float>::infinity());
  EXPECT_EQ(rounded_to_tf32(std::numeric_limits<float>::infinity()), std::numeric_limits<float>::infinity());
  EXPECT_EQ(rounded_to_tf32(-std::numeric_limits<float>::infinity()), -std::numeric_limits<float>::infinity());
  for (const std::uint32_t nan : {0x7F800001U, 0x7FC00000U, 0x7FFFFFFFU, 0xFF800001U, 0xFFFFFFFFU})
    EXPECT_TRUE(std::isnan(rounded_to_tf32(from_bits(nan)))) << fmt::format("{:08x}", nan);
}

TEST(Tf32, TheInterpreterRoundsBothOperandsAndAddsInFp32) {
  Program p("product", 1);
  const Tensor a = p.input("a", DType::f32, {1, 2}, Replicate());
  const Tensor b = p.input("b", DType::f32, {2, 1}, Replicate());
  p.output("y", matmul(a, b, Precision::tf32));
  // 2049 becomes 2050 on either side; the sum 2050 * 2050 + 1 is no number of tf32 and stays.
  const Bindings inputs{{"a", {f32({1, 2}, {2049, 1})}}, {"b", {f32({2, 1}, {2049, 1})}}};
  EXPECT_EQ(testing::run(p, inputs)[0][0], 4202501);
  EXPECT_EQ(testing::run(p, inputs, Arithmetic::exact)[0][0], 4198402) << "fp64 means the exact product";
  EXPECT_TRUE(std::isnan(testing::run(p, {{"a", {f32({1, 2}, {kNan, 1})}}, {"b", {f32({2, 1}, {1, 1})}}})[0][0]));
  const double largest = std::numeric_limits<float>::max();
  EXPECT_EQ(testing::run(p, {{"a", {f32({1, 2}, {largest, 0})}}, {"b", {f32({2, 1}, {0.5, 1})}}})[0][0], kInfinity);
}

TEST(Tf32, AProgramsPrecisionIsForProductsOfF32ThatNameNone) {
  Program p("products", 1);
  const Tensor x = p.input("x", DType::f32, {4, 4}, Replicate());
  const Tensor h = p.input("h", DType::bf16, {4, 4}, Replicate());
  const auto precision = [&](Tensor y) { return p.ops()[y.index()].precision; };
  EXPECT_EQ(precision(matmul(x, x)), Precision::exact);
  p.set_matmul_precision(Precision::tf32);
  EXPECT_EQ(precision(matmul(x, x)), Precision::tf32);
  EXPECT_EQ(precision(matmul(x, x, Precision::exact)), Precision::exact);
  EXPECT_EQ(precision(matmul(h, h)), Precision::exact);
  p.set_matmul_precision(Precision::exact);
  EXPECT_EQ(precision(matmul(x, x)), Precision::exact);
}

// A tf32 product and an exact one of the same operands.
Program both() {
  Program p("both", 2);
  const Tensor x = p.input("x", DType::f32, {6, 8}, Shard(1));
  const Tensor w = p.input("w", DType::f32, {8, 4}, Shard(0));
  p.output("rounded", all_reduce(matmul(x, w, Precision::tf32)));
  p.output("exact", all_reduce(matmul(x, w)));
  return p;
}

TEST(Tf32, AProgramKeepsItInItsFileAndShowsIt) {
  const Program p = both();
  const std::string text = p.to_json();
  const Program loaded = Program::from_json(text);
  EXPECT_EQ(loaded.to_json(), text);
  EXPECT_EQ(loaded.ops()[2].precision, Precision::tf32);
  EXPECT_EQ(loaded.ops()[4].precision, Precision::exact);
  EXPECT_NE(text.find(R"("precision":"tf32")"), std::string::npos) << text;
  const std::size_t first = text.find("precision");
  EXPECT_EQ(first, text.rfind("precision")) << "an exact product is written as in older files";
  EXPECT_NE(p.to_text().find("%2 = matmul(%0, %1, tf32) : f32[6, 4] Partial(sum)"), std::string::npos) << p.to_text();
  EXPECT_NE(p.to_text().find("%4 = matmul(%0, %1) : f32[6, 4] Partial(sum)"), std::string::npos) << p.to_text();
}

TEST(Tf32, APlanKeepsItInABodyOfItsOwn) {
  const Program p = both();
  const Plan plan = lower(p, Schedule::overlapped(p), testing::small_topology(2)).plan;
  int rounded = 0;
  int exact = 0;
  for (const Body& body : plan.bodies) {
    if (body.kind == Body::Kind::matmul) ++(body.tf32 ? rounded : exact);
  }
  EXPECT_EQ(rounded, 1);
  EXPECT_EQ(exact, 1);
  EXPECT_FALSE((Body{.kind = Body::Kind::matmul, .tf32 = true} == Body{.kind = Body::Kind::matmul}));
  const std::string text = to_json(plan);
  const Plan loaded = plan_from_json(text);
  EXPECT_EQ(to_json(loaded), text);
  EXPECT_TRUE(loaded.bodies == plan.bodies);
  EXPECT_EQ(fingerprint(loaded), fingerprint(plan));
  Plan other = plan;
  for (Body& body : other.bodies) body.tf32 = false;
  EXPECT_NE(fingerprint(other), fingerprint(plan));
  EXPECT_NE(to_text(plan, true).find(" matmul tf32\n"), std::string::npos);
  EXPECT_NE(to_text(plan, true).find(" matmul\n"), std::string::npos);
  EXPECT_NE(std::find(plan.description.begin(), plan.description.end(), "matmul tf32 gives f32[6, 4] Partial(sum)"),
            plan.description.end());
}

TEST(Tf32, TheHostsKernelGivesTheInterpretersBitsForEveryCut) {
  for (const char* name : {"gemm_all_reduce", "all_gather_gemm"}) {
    const std::vector<std::int64_t> size{65, 130, 771};
    Program program = make_program(find_operator(name), 3, DType::f32, size, Precision::tf32);
    const Program unrounded = make_program(find_operator(name), 3, DType::f32, size);
    Bindings inputs = random_inputs(program, 7, Fill::normal);
    const Bindings expected = interpret(program, inputs);
    EXPECT_FALSE(expected == interpret(unrounded, inputs));
    const int product = name[0] == 'g' ? 2 : 3;
    for (const Shape& tile : {Shape{0, 0}, Shape{33, 32}, Shape{1, 32}, Shape{7, 130}, Shape{64, 5}}) {
      const Schedule schedule = Schedule::overlapped(program).tile(Tensor(&program, product), tile);
      const Plan plan = lower(program, schedule, testing::small_topology(3)).plan;
      EXPECT_EQ(testing::run_threads(program, plan, {inputs}).outputs, expected) << name << " " << to_string(tile);
    }
  }
}

TEST(Tf32, TheHostsKernelRoundsEdgesAsTheInterpreterDoes) {
  Program p("edges", 1);
  const Tensor a = p.input("a", DType::f32, {12, 1}, Replicate());
  const Tensor b = p.input("b", DType::f32, {1, 12}, Replicate());
  p.output("y", matmul(a, b, Precision::tf32));
  const double largest = std::numeric_limits<float>::max();
  const std::vector<double> edges{0,         -0.0,        1 + 0x1p-11, -1 - 0x1p-11, 2049,      2051,
                                  0x1p-137F, 0x1.8p-136F, 0x1p-126,    largest,      kInfinity, from_bits(0x7F7FE000)};
  Bindings inputs{{"a", {f32({12, 1}, edges)}}, {"b", {f32({1, 12}, edges)}}};
  const std::vector<double> expected = testing::run(p, inputs)[0];
  const Plan plan = lower(p, Schedule::unfused(p), testing::small_topology(1)).plan;
  const std::vector<double> got = testing::run_threads(p, plan, {inputs}).outputs.at("y")[0].values();
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (std::isnan(expected[i])) {
      EXPECT_TRUE(std::isnan(got[i])) << i;
    } else {
      EXPECT_EQ(got[i], expected[i]) << i;
    }
  }
}

TEST(Tf32, TheErrorIsThatOfItsRoundingAndIsAllowed) {
  const auto accuracy = [](Precision precision) {
    const Program p = make_program(find_operator("gemm_all_reduce"), 2, DType::f32,
                                   std::vector<std::int64_t>{16, 16, 256}, precision);
    Bindings inputs = random_inputs(p, 3, Fill::normal);
    const Bindings before = inputs;
    return measure_accuracy(p, before, interpret(p, inputs));
  };
  const Accuracy rounded = accuracy(Precision::tf32);
  EXPECT_GT(rounded.error, 100 * accuracy(Precision::exact).error);
  EXPECT_LE(rounded.error, rounded.allowed);
}

TEST(Tf32, OnGpusItIsTheTensorCoresProductAndCompiles) {
  const Program p = both();
  const Plan plan = lower(p, Schedule::overlapped(p), testing::small_topology(2)).plan;
  const cuda::KernelText text(plan, "sm_90a");
  const std::string variant = "matmul_mma<float, MmaOperands::tf32>";
  const std::string source = text.source();
  EXPECT_FALSE(text.loads_ahead(variant));
  for (const std::string& part :
       {variant + "(arguments)", std::string("matmul_plain<float>(arguments)"),
        std::string("matmul_mma_shared_bytes<float>()"), std::string("matmul_plain_shared_bytes<float>()")})
    EXPECT_NE(source.find(part), std::string::npos) << part << " is not in\n" << source;
  ASSERT_TRUE(cuda::compiler_found()) << cuda::compiler_text() << "; scripts/install test brings NVRTC";
  EXPECT_EQ(cuda::compile(source, "tileway_run", "sm_90a").cubin.substr(1, 3), "ELF");
}

}  // namespace
}  // namespace tileway
