// Tiles of device/tileway/matmul_hopper.cuh, every element against a kernel too simple to be wrong. Needs one Hopper
// GPU and says so where there is none. scripts/gpu.sh runs it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "gpu/hopper_matmul_kernels.hpp"
#include "runtime/cuda/compile.hpp"
#include "runtime/cuda/driver.hpp"
#include "runtime/cuda/memory.hpp"
#include "runtime/cuda/tensor_map.hpp"
#include "tileway/error.hpp"
#include "tileway/group.hpp"

namespace tileway::cuda {
namespace {

using testing::Box;
using testing::Found;
using testing::Job;
using testing::kReference;
using testing::kSharedBytes;
using testing::kTiles;

constexpr unsigned kThreads = 384;

// A kernel under test.
struct Type {
  const char* name;
  const char* operand;
  const char* result;
  unsigned operand_bytes = 2;
  unsigned result_bytes = 2;
};
constexpr Type kBf16{"bf16", "bf16", "bf16"};
constexpr Type kTypes[]{
    kBf16, {"f16", "f16", "f16"}, {"e4m3_bf16", "e4m3", "bf16", 1, 2}, {"e4m3_f32", "e4m3", "f32", 1, 4}};

struct Shape {
  unsigned m, n, k;
  unsigned batches = 1;
  bool a_batched = true, b_batched = true;
};

// Where boxes lie in their buffers: 0 fills them; 1 is within them, aligned; 2 the same with C as misaligned as can be.
enum class Around { nothing, aligned, misaligned };

class Bench {
 public:
  explicit Bench(Group& group) : device_(0), memory_(group, device_, kBytes), gpu_(gpus()[0]) {
    const auto load = [&](Module& module, const char* source, const char* name) {
      check(driver()->ModuleLoadData(&module, compile(source, name, "sm_90a").cubin.data()), "loading kernels");
    };
    load(tiles_, kTiles, "hopper_matmul_test");
    load(reference_, kReference, "hopper_matmul_reference");
    for (const Type& type : kTypes)
      check(driver()->FuncSetAttribute(function(tiles_, fmt::format("matmul_{}", type.name)), 8, kSharedBytes),
            "asking for shared memory");
    check(driver()->MemsetD8(memory_.on(0), 0, kControl), "clearing");
  }

  // Fills, multiplies, compares every element.
  void expect_right(const Shape& shape, const Type& type, bool exact, Around around, unsigned seed) {
    prepare(shape, type, around);
    fill(type, exact, seed);
    multiply(type);
    const std::string what =
        fmt::format("{}x{}x{} ({} batches), {}, {}, around {}", shape.m, shape.n, shape.k, shape.batches, type.name,
                    exact ? "integers" : "normals", static_cast<int>(around));
    expect_compared(what, type, exact);
  }

  void expect_compared(const std::string& what, const Type& type, bool exact) {
    check(driver()->MemsetD8(memory_.on(0) + kFound, 0, sizeof(Found)), "clearing");
    launch(reference_, "compare", type.name, a_, b_, c_, exact ? 1U : 0U, memory_.on(0) + kFound);
    check(driver()->CtxSynchronize(), what.c_str());
    TW_REQUIRE(read<unsigned>(kFailed) == 0, ErrorKind::lost, .where = what, .what = "a wait did not end");
    const auto found = read<Found>(kFound);
    TW_REQUIRE(
        found.inside + found.outside == 0, ErrorKind::lost, .where = what,
        .what = fmt::format("{} elements are wrong, {} around the box were touched", found.inside, found.outside),
        .got = fmt::format("{} at ({}, {}, {}), not {} within {}", found.got, found.batch, found.row, found.column,
                           found.want, found.bound));
  }

  void prepare(const Shape& shape, const Type& type, Around around) {
    // Rows of A and B begin at multiples of 16 bytes, C's where they like.
    const bool alone = around == Around::nothing;
    const bool fp8 = type.operand_bytes == 1;
    const auto box = [&](std::size_t at, unsigned rows, unsigned columns, unsigned batches, unsigned step) {
      Box made{memory_.on(0) + at, batches, rows, columns, rows, (columns + 15) / 16 * 16};
      if (alone) return made;
      return Box{made.data, batches, rows, columns, rows + 5, made.stride + 3 * step, 2, step};
    };
    a_ = box(kA, shape.m, shape.k, shape.a_batched ? shape.batches : 1, 16);
    b_ = box(kB, fp8 ? shape.n : shape.k, fp8 ? shape.k : shape.n, shape.b_batched ? shape.batches : 1, fp8 ? 16 : 8);
    c_ = box(kC, shape.m, shape.n, shape.batches, around == Around::misaligned ? 3 : 8);
    const TensorBox result = tensor_box(c_, type.result_bytes);
    const bool c_mapped = tma_can_store(result);
    const std::vector<TensorMap> maps{tensor_map(tensor_box(a_, type.operand_bytes), kLinesOfA),
                                      tensor_map(tensor_box(b_, type.operand_bytes), fp8 ? kLinesOfKMajorB : kLinesOfB),
                                      c_mapped ? tensor_map(result, kLinesOfC) : TensorMap{}};
    check(driver()->MemcpyHtoD(memory_.on(0) + kMaps, maps.data(), sizeof(TensorMap) * maps.size()), "copying maps");
    const std::int64_t first = std::int64_t{c_.first_row} * c_.stride + c_.first_column;
    job_ = {.maps = memory_.on(0) + kMaps,
            .c = c_.data + type.result_bytes * first,
            .c_stride = c_.stride,
            .c_batch = std::int64_t{c_.buffer_rows} * c_.stride,
            .patience_ns = 2'000'000'000,
            .abort = memory_.on(0) + kAbort,
            .failed = memory_.on(0) + kFailed,
            .m = shape.m,
            .n = shape.n,
            .k = shape.k,
            .batches = shape.batches,
            .a_batched = shape.a_batched,
            .b_batched = shape.b_batched,
            .c_mapped = c_mapped,
            .row_scales = memory_.on(0) + kScales,
            .column_scale = memory_.on(0) + kColumnScale};
  }

  void fill(const Type& type, bool exact, unsigned seed) {
    launch(reference_, "fill", type.operand, a_, exact ? 0U : 1U, seed);
    launch(reference_, "fill", type.operand, b_, exact ? 0U : 1U, seed + 77);
    launch(reference_, "fill", type.result, c_, 2U, 0U);
    launch(reference_, "fill", "scales", job_.row_scales, job_.m, job_.column_scale);
  }

  void multiply(const Type& type) {
    void* list[] = {&job_};
    check(driver()->LaunchKernel(function(tiles_, fmt::format("matmul_{}", type.name)), blocks(), 1, 1, kThreads, 1, 1,
                                 kSharedBytes, nullptr, list, nullptr),
          "multiplying");
  }

  // The median of 20, in microseconds.
  double time(const Shape& shape, const Type& type) {
    prepare(shape, type, Around::nothing);
    fill(type, false, 3);
    Event from = nullptr, to = nullptr;
    check(driver()->EventCreate(&from, 0), "timing");
    check(driver()->EventCreate(&to, 0), "timing");
    std::vector<float> times;
    for (int run = -3; run < 20; ++run) {
      float ms = 0;
      check(driver()->EventRecord(from, nullptr), "timing");
      multiply(type);
      check(driver()->EventRecord(to, nullptr), "timing");
      check(driver()->EventSynchronize(to), "timing");
      check(driver()->EventElapsedTime(&ms, from, to), "timing");
      if (run >= 0) times.push_back(ms);
    }
    std::nth_element(times.begin(), times.begin() + 10, times.end());
    return 1e3 * times[10];
  }

  // How many sides of blocks gave up, and after how long, when one side does nothing or the flag is up.
  std::pair<unsigned, double> in_vain(unsigned idle, bool raised, std::uint64_t patience_ns) {
    prepare({1024, 1024, 4096}, kBf16, Around::nothing);
    job_.idle = idle;
    job_.patience_ns = patience_ns;
    check(driver()->MemsetD8(memory_.on(0) + kAbort, raised ? 1 : 0, 4), "giving up");
    const auto begin = std::chrono::steady_clock::now();
    multiply(kBf16);
    check(driver()->CtxSynchronize(), "waiting in vain");
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    const auto failed = read<unsigned>(kFailed);
    check(driver()->MemsetD8(memory_.on(0), 0, kControl), "clearing");
    return {failed, seconds};
  }

  unsigned blocks() const { return static_cast<unsigned>(gpu_.multiprocessors); }

 private:
  static constexpr std::size_t kMaps = 0, kAbort = 1024, kFailed = 1088, kFound = 1152, kColumnScale = 1280,
                               kScales = 4096, kControl = 65536;
  static constexpr std::size_t kMost = std::size_t{80} << 20;
  static constexpr std::size_t kA = kControl, kB = kA + kMost, kC = kB + kMost, kBytes = kC + kMost;

  static TensorBox tensor_box(const Box& box, unsigned element_bytes) {
    const std::uint64_t first = std::uint64_t{box.first_row} * box.stride + box.first_column;
    return {.first = box.data + element_bytes * first,
            .rows = box.rows,
            .columns = box.columns,
            .row_stride = box.stride,
            .batches = box.batches,
            .batch_stride = std::uint64_t{box.buffer_rows} * box.stride,
            .element_bytes = element_bytes};
  }
  static Function function(Module module, const std::string& name) {
    Function found = nullptr;
    check(driver()->ModuleGetFunction(&found, module, name.c_str()), name.c_str());
    return found;
  }
  template <typename... Arguments>
  void launch(Module module, const char* name, const char* dtype, Arguments... arguments) {
    void* list[] = {&arguments...};
    check(driver()->LaunchKernel(function(module, fmt::format("{}_{}", name, dtype)), 8 * blocks(), 1, 1, 256, 1, 1, 0,
                                 nullptr, list, nullptr),
          name);
  }
  template <typename T>
  T read(std::size_t at) {
    T value{};
    check(driver()->MemcpyDtoH(&value, memory_.on(0) + at, sizeof(T)), "reading");
    return value;
  }

  Device device_;
  SymmetricMemory memory_;
  Gpu gpu_;
  Module tiles_ = nullptr;
  Module reference_ = nullptr;
  Box a_, b_, c_;
  Job job_;
};

// In a process of its own, which may use the GPU: others that fork come after it.
template <typename Body>
void on_hopper(const Body& body) {
  Group::spawn(1, [&](Group& group) {
    const std::vector<Gpu> all = gpus();
    if (all.empty() || all[0].major != 9) {
      fmt::print("skipped: {}\n", all.empty() ? why_not() : fmt::format("{} is not a Hopper GPU", all[0].name));
      return;
    }
    Bench bench(group);
    body(bench);
  });
}

// Needs NVRTC but no GPU.
TEST(HopperMatmul, ProcessesKernelsCompile) {
  Group::spawn(1, [](Group&) {
    if (!compiler_found()) {
      fmt::print("skipped: {}\n", compiler_text());
      return;
    }
    compile(kTiles, "hopper_matmul_test", "sm_90a");
    compile(kReference, "hopper_matmul_reference", "sm_90a");
  });
}

TEST(HopperMatmul, TensorLoadsTakeAlignedBoxesOnly) {
  const TensorBox good{.first = 4096, .rows = 3, .columns = 5, .row_stride = 8};
  EXPECT_TRUE(tma_can_take(good));
  const auto but = [&](auto change) {
    TensorBox box = good;
    change(box);
    return tma_can_take(box);
  };
  EXPECT_FALSE(but([](TensorBox& box) { box.first += 8; }));
  EXPECT_FALSE(but([](TensorBox& box) { box.row_stride = 12; }));
  EXPECT_FALSE(but([](TensorBox& box) { box.columns = 9; }));
  EXPECT_FALSE(but([](TensorBox& box) { box.rows = 0; }));
  EXPECT_FALSE(but([](TensorBox& box) { box.rows = std::uint64_t{1} << 32; }));
  EXPECT_FALSE(but([](TensorBox& box) { box.row_stride = std::uint64_t{1} << 40; }));
  EXPECT_FALSE(but([](TensorBox& box) { box.batches = 2, box.batch_stride = 28; }));
  EXPECT_TRUE(but([](TensorBox& box) { box.batches = 2, box.batch_stride = 24; }));
  EXPECT_FALSE(but([](TensorBox& box) { box.element_bytes = 1; }));
  EXPECT_TRUE(but([](TensorBox& box) { box.element_bytes = 1, box.row_stride = 16; }));
}

// They would write the three elements behind each row.
TEST(HopperMatmul, TensorStoresTakeWholeSixteensOfBytesOnly) {
  TensorBox box{.first = 4096, .rows = 3, .columns = 5, .row_stride = 8};
  EXPECT_FALSE(tma_can_store(box));
  box.columns = 8;
  EXPECT_TRUE(tma_can_store(box));
  box.columns = 4, box.element_bytes = 4;
  EXPECT_TRUE(tma_can_store(box));
  box.first += 8;
  EXPECT_FALSE(tma_can_store(box));
}

TEST(HopperMatmul, ProcessesEveryElementIsRight) {
  on_hopper([](Bench& bench) {
    std::vector<Shape> shapes;
    for (const unsigned m : {1, 16, 100, 128, 1000, 1024, 4096})
      for (const unsigned n : {8, 96, 256, 1000, 4096})
        for (const unsigned k : {8, 64, 104, 1000, 4096}) shapes.push_back({m, n, k});
    for (const Shape odd : {Shape{5, 3, 3}, Shape{129, 263, 65}, Shape{130, 1, 72}, Shape{64, 511, 127}})
      shapes.push_back(odd);
    for (const unsigned m : {100, 300})
      for (const auto& [a_batched, b_batched] : {std::pair(true, true), {true, false}, {false, true}})
        shapes.push_back({m, 520, 200, 3, a_batched, b_batched});
    unsigned cases = 0;
    for (const Shape& shape : shapes) {
      for (const Type& type : kTypes) {
        if (type.operand_bytes == 1 && shape.batches > 1) continue;  // scaled products have no batch
        for (const bool exact : {true, false}) {
          bench.expect_right(shape, type, exact, static_cast<Around>(cases % 3), cases * 1009);
          ++cases;
        }
      }
    }
    fmt::print("{} products, every element right\n", cases);
  });
}

TEST(HopperMatmul, ProcessesASideThatIsLeftAloneGivesUp) {
  on_hopper([](Bench& bench) {
    const unsigned tiles = 32;  // one a block
    const unsigned sides = std::min(tiles, bench.blocks());
    for (const unsigned idle : {1U, 2U}) {
      const auto [late, seconds] = bench.in_vain(idle, false, 100'000'000);
      TW_REQUIRE(late == sides && seconds > 0.09 && seconds < 2, ErrorKind::lost, .where = "a wait in vain",
                 .what = "it did not end at its deadline", .got = fmt::format("{} after {:.2f} s", late, seconds));
      const auto [aborted, soon] = bench.in_vain(idle, true, 20'000'000'000);
      TW_REQUIRE(aborted == sides && soon < 2, ErrorKind::lost, .where = "a wait after an abort",
                 .what = "it did not end", .got = fmt::format("{} after {:.2f} s", aborted, soon));
    }
    bench.expect_right({300, 300, 300}, kBf16, true, Around::aligned, 1);  // the next kernel knows nothing of it
  });
}

TEST(HopperMatmul, ProcessesHowFast) {
  on_hopper([](Bench& bench) {
    for (const Shape shape : {Shape{1024, 8192, 4096}, Shape{4096, 8192, 4096}}) {
      for (const Type& type : {kBf16, kTypes[2]}) {
        const double us = bench.time(shape, type);
        fmt::print("{}x{}x{} {}: {:.1f} us, {:.0f} TFLOP/s\n", shape.m, shape.n, shape.k, type.name, us,
                   2e-6 * shape.m * shape.n * shape.k / us);
        bench.expect_compared("the timed product", type, false);
      }
    }
  });
}

}  // namespace
}  // namespace tileway::cuda
