// e4m3: what its codes mean, how numbers are rounded to it, that it moves, and that kernels and interpreter agree on
// its products.
#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <set>
#include <string>

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

// The meaning of a code, by the definition: bias 7, three bits behind the point, denormal numbers without exponent.
double meaning(int code) {
  const int exponent = code >> 3 & 15;
  const int fraction = code & 7;
  if (exponent == 15 && fraction == 7) return kNan;
  const double magnitude = exponent == 0 ? std::ldexp(fraction, -9) : std::ldexp(8 + fraction, exponent - 10);
  return code >= 128 ? -magnitude : magnitude;
}

int rounded(double value) { return static_cast<int>(Array::from(DType::e4m3, {1}, {value}).data()[0]); }

TEST(E4m3, HasANameAndAByte) {
  EXPECT_EQ(name_of(DType::e4m3), "e4m3");
  EXPECT_EQ(parse_dtype("e4m3"), DType::e4m3);
  EXPECT_EQ(size_of(DType::e4m3), 1U);
  EXPECT_TRUE(is_floating(DType::e4m3));
}

TEST(E4m3, EveryCodeMeansWhatTheDefinitionSaysAndComesBack) {
  Array all(DType::e4m3, {256});
  for (int code = 0; code < 256; ++code) all.data()[code] = static_cast<std::byte>(code);
  for (int code = 0; code < 256; ++code) {
    const double value = all.at(code);
    if ((code & 127) == 127) {
      EXPECT_TRUE(std::isnan(value)) << code;
      continue;
    }
    EXPECT_EQ(value, meaning(code)) << code;
    EXPECT_EQ(std::signbit(value), code >= 128) << code;
    EXPECT_EQ(rounded(value), code);
  }
  EXPECT_EQ(all.at(0x7e), 448);
  EXPECT_EQ(all.at(0x08), 0x1p-6);  // the smallest normal number
  EXPECT_EQ(all.at(0x01), 0x1p-9);  // and the smallest of all
  EXPECT_EQ(all.cast(DType::f32).cast(DType::e4m3).values().size(), 256U);
}

TEST(E4m3, RoundsToNearestTiesToEven) {
  for (int code = 0; code < 0x7e; ++code) {
    const double low = meaning(code);
    const double high = meaning(code + 1);
    const double middle = (low + high) / 2;
    const int even = code % 2 == 0 ? code : code + 1;
    EXPECT_EQ(rounded(middle), even) << middle;
    EXPECT_EQ(rounded(std::nextafter(middle, 0)), code) << middle;  // of doubles, which no float tells from the middle
    EXPECT_EQ(rounded(std::nextafter(middle, 1e9)), code + 1) << middle;
    EXPECT_EQ(rounded(-middle), even + 128) << middle;
    EXPECT_EQ(rounded(std::nextafter(static_cast<float>(middle), 0.0F)), code) << middle;
  }
  EXPECT_EQ(rounded(0x1p-10), 0);
  EXPECT_EQ(rounded(std::nextafter(0x1p-10, 1)), 1);
  EXPECT_EQ(rounded(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_EQ(rounded(-0.0), 0x80);
}

TEST(E4m3, SaturatesAndKeepsNan) {
  for (const double beyond : {448.0, 463.0, 464.0, 465.0, 480.0, 1e9, 1e300, kInfinity}) {
    EXPECT_EQ(rounded(beyond), 0x7e) << beyond;
    EXPECT_EQ(rounded(-beyond), 0xfe) << beyond;
  }
  EXPECT_EQ(rounded(kNan), 0x7f);
}

TEST(E4m3, CastsOfTheInterpreterAndTheHostAreTheSame) {
  std::vector<double> values{0,    -0.0, 1,    -1.0625, 17,     0x1p-10, 0x1.8p-9, 448,       449,
                             -464, 1e30, 3.14, -2.71,   0.0001, 0.33,    100.5,    kInfinity, -kInfinity};
  for (int code = 0; code < 127; ++code) values.push_back(meaning(code) * 1.03);
  const auto n = static_cast<std::int64_t>(values.size());
  for (const DType wide : {DType::f32, DType::bf16, DType::f16}) {
    for (const DType back : {DType::f32, DType::bf16, DType::f16}) {
      Program p("casts", 1);
      const Tensor narrow = cast(p.input("x", wide, {n}, Replicate()), DType::e4m3);
      p.output("narrow", narrow);
      p.output("back", cast(narrow, back));
      Bindings inputs{{"x", {Array::from(wide, {n}, values)}}};
      const Bindings expected = interpret(p, inputs);
      const Plan plan = lower(p, Schedule::unfused(p), testing::small_topology(1)).plan;
      EXPECT_EQ(testing::run_threads(p, plan, {inputs}).outputs, expected);
      for (std::int64_t i = 0; i < n; ++i) {
        EXPECT_EQ(static_cast<int>(expected.at("narrow")[0].data()[i]), rounded(inputs.at("x")[0].at(i)));
        EXPECT_EQ(expected.at("back")[0].at(i), meaning(rounded(inputs.at("x")[0].at(i))));  // e4m3 is a part of all
      }
    }
  }
}

// a [2, 3], b [2, 3], a scale for each row of a and column of the product.
TEST(E4m3, AScaledProductIsTheSumTimesBothScalesRoundedOnce) {
  const auto product = [](DType out, const std::vector<double>& rows, const std::vector<double>& columns) {
    Program p("product", 1);
    const auto scale = [&](const char* name, const std::vector<double>& values, bool down) {
      const auto n = static_cast<std::int64_t>(values.size());
      return p.input(name, DType::f32, down ? Shape{n, 1} : Shape{1, n}, Replicate());
    };
    p.output("y", scaled_matmul(p.input("a", DType::e4m3, {2, 3}, Replicate()),
                                p.input("b", DType::e4m3, {2, 3}, Replicate()), scale("sa", rows, true),
                                scale("sb", columns, false), out));
    const auto n = static_cast<std::int64_t>(rows.size());
    const Bindings inputs{{"a", {Array::from(DType::e4m3, {2, 3}, {1, 2, 3, -4, 0.5, 448})}},
                          {"b", {Array::from(DType::e4m3, {2, 3}, {1, 1, 1, 2, -1, 0.25})}},
                          {"sa", {f32({n, 1}, rows)}},
                          {"sb", {f32({1, n}, columns)}}};
    return testing::run(p, inputs)[0];
  };
  EXPECT_EQ(product(DType::f32, {1}, {1}), (std::vector<double>{6, 0.75, 444.5, 103.5}));
  EXPECT_EQ(product(DType::f32, {1, 2}, {3, 0.5}), (std::vector<double>{18, 0.375, 2667, 103.5}));
  EXPECT_EQ(product(DType::bf16, {1, 2}, {3, 0.5}), (std::vector<double>{18, 0.375, 2672, 103.5}));
  EXPECT_EQ(product(DType::f16, {1e4}, {1}), (std::vector<double>{60000, 7500, kInfinity, kInfinity}));
}

Program sharded(int ranks) {
  Program p("sharded", ranks);
  const Tensor x = p.input("x", DType::e4m3, {33, 70}, Shard(0));
  const Tensor w = p.input("w", DType::e4m3, {45, 70}, Replicate());
  const Tensor rows = p.input("rows", DType::f32, {33, 1}, Replicate());
  const Tensor all = p.input("all", DType::f32, {1, 1}, Replicate());
  p.output("y", scaled_matmul(all_gather(x), w, rows, all, DType::bf16));
  return p;
}

TEST(E4m3, ProgramsAndPlansKeepAScaledProductInTheirFilesAndShowIt) {
  const Program p = sharded(2);
  const std::string text = p.to_json();
  EXPECT_EQ(Program::from_json(text).to_json(), text);
  EXPECT_NE(p.to_text().find("%5 = scaled_matmul(%4, %1, %2, %3, bf16) : bf16[33, 45] Replicate"), std::string::npos)
      << p.to_text();
  const Plan plan = lower(p, Schedule::overlapped(p), testing::small_topology(2)).plan;
  const Plan loaded = plan_from_json(to_json(plan));
  EXPECT_EQ(to_json(loaded), to_json(plan));
  EXPECT_EQ(fingerprint(loaded), fingerprint(plan));
  EXPECT_NE(to_text(plan, true).find(" scaled_matmul\n"), std::string::npos);
}

TEST(E4m3, AProductOfWhatIsGatheredWaitsForTheRowsThatItReads) {
  const Program p = sharded(3);
  const Plan plan = lower(p, Schedule::overlapped(p), testing::small_topology(3)).plan;
  std::set<SignalId> awaited;  // by rank 0
  for (const Task& task : plan.tasks) {
    if (plan.bodies[task.body].kind != Body::Kind::scaled_matmul) continue;
    EXPECT_LE(task.reads[0].box.extent[0], 11) << "a tile reads two sources";
    EXPECT_EQ(task.reads[1].box.extent[1], 70);
    EXPECT_EQ(task.reads[2].box.extent, (Dims{task.writes[0].box.extent[0], 1}));
    EXPECT_EQ(task.reads[3].box.extent, (Dims{1, 1}));
    for (const Wait& wait : task.waits) {
      if (task.rank == 0) awaited.insert(wait.signal);
    }
  }
  EXPECT_GE(awaited.size(), 3U) << "one for the rows of each rank";
}

TEST(E4m3, TheHostsKernelGivesTheInterpretersBitsForEveryCut) {
  for (const char* name : {"gemm_all_reduce", "gemm_reduce_scatter", "all_gather_gemm", "gemm_all_to_all"}) {
    Program program = make_program(find_operator(name), 3, DType::e4m3, std::vector<std::int64_t>{65, 130, 371});
    Bindings inputs = random_inputs(program, 7, Fill::normal);
    const Bindings expected = interpret(program, inputs);
    EXPECT_EQ(expected.at("y")[0].dtype(), DType::bf16);
    int product = 0;
    while (program.ops()[product].kind != OpKind::scaled_matmul) ++product;
    for (const Shape& tile : {Shape{0, 0}, Shape{33, 32}, Shape{1, 32}, Shape{7, 130}, Shape{64, 5}}) {
      const Schedule schedule = Schedule::overlapped(program).tile(Tensor(&program, product), tile);
      const Plan plan = lower(program, schedule, testing::small_topology(3)).plan;
      EXPECT_EQ(testing::run_threads(program, plan, {inputs}).outputs, expected) << name << " " << to_string(tile);
    }
  }
}

TEST(E4m3, RandomScalesArePositive) {
  const Program p =
      make_program(find_operator("gemm_all_reduce"), 1, DType::e4m3, std::vector<std::int64_t>{50, 70, 3});
  for (const Fill fill : {Fill::integers, Fill::normal}) {
    const Bindings inputs = random_inputs(p, 5, fill);
    for (const char* name : {"x_scale", "w_scale"}) {
      for (const double value : inputs.at(name)[0].values()) {
        EXPECT_GT(value, 0);
        EXPECT_TRUE(fill == Fill::normal || value == 1 || value == 2) << value;
      }
    }
  }
}

std::string kernel_of(const char* name, const std::vector<std::int64_t>& size, const std::string& architecture) {
  const Program p = make_program(find_operator(name), 2, DType::e4m3, size);
  return cuda::KernelText(lower(p, Schedule::overlapped(p), Topology::gpus(2)).plan, architecture).source();
}

TEST(E4m3, Sm80HasNoFp8ProductsAndSaysSo) {
  testing::expect_refusal(
      [] {
        kernel_of("gemm_all_reduce", {128, 128, 128}, "sm_80");
      },
      {"kernels for sm_80", "fp8 products need sm_89 or newer"});
  const Program moved = make_program(find_operator("all_to_all_v"), 2, DType::e4m3, {});
  EXPECT_NO_THROW(cuda::KernelText(lower(moved, Schedule::unfused(moved), Topology::gpus(2)).plan, "sm_80"));
}

TEST(E4m3, OnGpusProductsAreThoseOfTheTensorCores) {
  ASSERT_TRUE(cuda::compiler_found()) << cuda::compiler_text() << "; scripts/install test brings NVRTC";
  const std::vector<std::int64_t> even{1024, 4096, 4096};
  const std::vector<std::int64_t> odd{1024, 4097, 4097};  // rows that begin anywhere
  const auto ptx = [](const std::string& source, const char* architecture) {
    return cuda::ptx_of(source, "tileway_run", architecture);
  };
  const auto has = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  constexpr const char* kWgmma = "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3";
  constexpr const char* kMma = "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32";
  const std::string hopper = kernel_of("gemm_all_reduce", even, "sm_90a");
  EXPECT_TRUE(has(hopper, "HopperPipeline<e4m3,")) << hopper;
  EXPECT_TRUE(has(ptx(hopper, "sm_90a"), kWgmma));
  EXPECT_FALSE(has(ptx(hopper, "sm_90a"), kMma));
  for (const char* architecture : {"sm_89", "sm_90a", "sm_100a"}) {
    const std::string source = kernel_of("gemm_all_reduce", odd, architecture);
    EXPECT_TRUE(has(source, "scaled_matmul<bf16>(arguments)")) << source;
    EXPECT_TRUE(has(ptx(source, architecture), kMma)) << architecture;
    EXPECT_EQ(cuda::compile(source, "tileway_run", architecture).cubin.substr(1, 3), "ELF") << architecture;
  }
}

// All codes both ways, as a plan's bodies.
TEST(E4m3, CastsCompileForEveryArchitecture) {
  for (const char* architecture : {"sm_80", "sm_90a", "sm_100a"}) {
    Program p("casts", 1);
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::i32, DType::i64}) {
      const std::string name(name_of(dtype));
      p.output(name, cast(cast(p.input(name, dtype, {300}, Replicate()), DType::e4m3), dtype));
    }
    const std::string source =
        cuda::KernelText(lower(p, Schedule::unfused(p), Topology::gpus(1)).plan, architecture).source();
    EXPECT_EQ(cuda::compile(source, "tileway_run", architecture).cubin.substr(1, 3), "ELF") << architecture;
  }
}

}  // namespace
}  // namespace tileway
