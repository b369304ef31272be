// What a GPU's kernel follows, made and looked at without a GPU: the table says what the plan says, the kernels of all
// operators compile for every architecture, and a copy engine's copies move what the task's boxes say.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <random>
#include <set>

#include "exec/cuda/brought.hpp"
#include "exec/cuda/copy_engine.hpp"
#include "exec/cuda/library_engine.hpp"
#include "exec/cuda/table.hpp"
#include "exec/cuda/variant.hpp"
#include "exec/host/kernels/kernels.hpp"
#include "runtime/cuda/compile.hpp"
#include "support/run.hpp"
#include "support/sass.hpp"
#include "tileway/error.hpp"
#include "tileway/ops.hpp"
#include "tileway/verify.hpp"

namespace tileway::cuda {
namespace {

// Addresses as a process might see them; nothing is there.
Addresses made_up(const Plan& plan, const PlanLayout& layout) {
  Addresses addresses{plan, layout, {}, Address{1} << 40};
  for (int rank = 0; rank < plan.ranks(); ++rank) addresses.symmetric.push_back((Address{2} + rank) << 40);
  addresses.board = Address{1} << 50;
  return addresses;
}

std::vector<std::int64_t> small_size(const Operator& op) {
  const std::vector<std::int64_t> size{37, 19, 24, 7};
  return {size.begin(), size.begin() + static_cast<std::ptrdiff_t>(op.extents.size())};
}

TEST(CudaTable, ReadBackItIsThePlanThatWasProven) {
  for (const Operator& op : operators()) {
    for (int ranks : {1, 2, 3, 5}) {
      for (const char* rest : {"copy=0", "copy=2", "copy=0,movers=4", "copy=2,library=1"}) {
        const Topology topology = Topology::parse(fmt::format("ranks={},lanes=20,{}", ranks, rest));
        const bool fp8 = testing::takes(op, DType::e4m3) && ranks == 3 && topology.library == 0;
        const Program program = make_program(op, ranks, fp8 ? DType::e4m3 : DType::bf16, small_size(op));
        const Schedule schedule = topology.library > 0 ? Schedule::library(program) : Schedule::overlapped(program);
        const ProvenPlan proven = ProvenPlan::prove(lower(program, schedule, topology).plan);
        const Plan& plan = proven.plan();
        const PlanLayout layout(plan);
        const Addresses addresses = made_up(plan, layout);
        const KernelText text(plan, "sm_100a");
        for (int rank = 0; rank < ranks; ++rank) {
          const Table table = make_table(addresses, rank, text);
          EXPECT_EQ(fingerprint(read_table(table, addresses, rank)), proven.fingerprint()) << op.name;
        }
      }
    }
  }
}

std::int64_t offset_of(const View& view, std::int64_t flat) {
  std::int64_t offset = 0;
  for (u32 d = view.dims; d-- > 0;) {
    offset += flat % view.extent[d] * view.stride[d];
    flat /= view.extent[d];
  }
  return offset;
}

// As device/tileway/walk.cuh does it.
std::int64_t divided(std::int64_t x, const View& view) {
  return static_cast<std::int64_t>((static_cast<std::uint64_t>(2 * x) * view.reciprocal >> 32) >> view.shift);
}

TEST(CudaTable, RowsOfAViewAreWhereItsElementsLie) {
  std::mt19937_64 random(7);
  const auto between = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  int even = 0;
  int aligned = 0;
  for (int round = 0; round < 4000; ++round) {
    Plan plan;
    Shape shape;
    Box box;
    for (std::int64_t d = between(0, 5); d > 0; --d) {
      shape.push_back(between(1, 3) == 1 ? 8 * between(1, 3) : between(1, 9));
      const bool whole = between(0, 1) == 0;
      box.start.push_back(whole ? 0 : between(0, shape.back() - 1));
      box.extent.push_back(whole ? shape.back() : between(1, shape.back() - box.start.back()));
    }
    const DType dtype = std::array{DType::bf16, DType::f32, DType::e4m3}[between(0, 2)];
    plan.topology.ranks = 1;
    plan.buffers.push_back({.name = "b", .rank = 0, .role = Buffer::Role::scratch, .dtype = dtype, .shape = shape});
    const PlanLayout layout(plan);
    const View view = made_up(plan, layout).view({.buffer = 0, .box = box});
    const auto bytes = static_cast<std::int64_t>(size_of(dtype));
    aligned += view.align == 16 ? 1 : 0;
    even += view.columns != 0 ? 1 : 0;
    for (std::int64_t flat = 0; flat < box.volume(); ++flat) {
      const std::int64_t offset = offset_of(view, flat);
      if (view.columns != 0) {
        const std::int64_t row = divided(flat, view);
        ASSERT_EQ(row * view.row_stride + flat - row * view.columns, offset) << to_string(shape) << ' ' << flat;
      }
      // Whole packs: an element's place in one is its place among the elements.
      ASSERT_EQ((static_cast<std::int64_t>(view.data) + offset * bytes) % view.align, flat * bytes % view.align)
          << to_string(shape) << ' ' << flat;
    }
  }
  EXPECT_GT(even, 2000);
  EXPECT_GT(aligned, 200);
  EXPECT_LT(aligned, 2000);
  for (int round = 0; round < 100'000; ++round) {
    View view{};
    const std::int64_t columns = between(1, std::int64_t{1} << between(0, 31)) - (round % 2);
    if (columns < 1) continue;
    Plan plan;
    plan.topology.ranks = 1;
    plan.buffers.push_back(
        {.name = "b", .rank = 0, .role = Buffer::Role::scratch, .dtype = DType::e4m3, .shape = {columns}});
    view = made_up(plan, PlanLayout(plan)).view({.buffer = 0, .box = {{0}, {columns}}});
    for (std::int64_t x : {between(0, (std::int64_t{1} << 31) - 1), columns - 1, columns, 2 * columns - 1}) {
      if (x >= std::int64_t{1} << 31) continue;
      ASSERT_EQ(divided(x, view), x / columns) << x << " / " << columns;
    }
  }
}

TEST(CudaTable, WhatPeersUseTooIsCopiedBetweenTheCallersMemoryAndTheExecutors) {
  const auto copies = [](const char* op, const std::vector<const char*>& names) {
    const Program program = make_program(find_operator(op), 2, DType::bf16, {});
    const Plan plan = lower(program, Schedule::overlapped(program), Topology::parse("ranks=2,lanes=20,copy=2")).plan;
    const PlanLayout layout(plan);
    Addresses addresses = made_up(plan, layout);
    for (const auto* bindings : {&plan.inputs, &plan.outputs}) {
      for (const Plan::Binding& binding : *bindings) {
        const bool named = std::find(names.begin(), names.end(), binding.name) != names.end();
        if (named && binding.rank == 0) addresses.brought[binding.buffer] = (Address{7} << 40) + 2;
      }
    }
    return copies_of(addresses);
  };
  const BroughtCopies sums = copies("gemm_all_reduce", {"x", "y"});  // of x nobody else takes anything
  EXPECT_TRUE(sums.in.empty());
  ASSERT_EQ(sums.out.size(), 1U);
  EXPECT_EQ(sums.out[0].to, (Address{7} << 40) + 2);
  EXPECT_NE(sums.out[0].from, sums.out[0].to);
  const Program program = make_program(find_operator("gemm_all_reduce"), 2, DType::bf16, {});
  EXPECT_EQ(sums.out[0].bytes, volume(program.ops()[program.outputs()[0].op].type.shape) * 2);
  const BroughtCopies none = copies("gemm_reduce_scatter", {"x", "w", "y"});
  EXPECT_TRUE(none.in.empty() && none.out.empty());
}

// A collective has more arguments than a kernel takes, and no kernel takes them.
TEST(CudaTable, OfCollectivesIsThePlanThatWasProven) {
  for (const Operator& op : operators()) {
    for (int ranks : {2, 3, 24}) {
      const Program program = make_program(op, ranks, DType::bf16, small_size(op));
      const Topology topology = Topology::parse(fmt::format("ranks={},lanes=20,collective=1", ranks));
      const ProvenPlan proven = ProvenPlan::prove(lower(program, Schedule::collective(program), topology).plan);
      const PlanLayout layout(proven.plan());
      const Addresses addresses = made_up(proven.plan(), layout);
      for (int rank : {0, ranks - 1}) {
        const Table table = make_table(addresses, rank, KernelText(proven.plan(), "sm_80"));
        EXPECT_EQ(fingerprint(read_table(table, addresses, rank)), proven.fingerprint()) << op.name;
      }
    }
  }
}

TEST(CudaTable, WhateverIsChangedInItIsSeen) {
  const Program program =
      make_program(find_operator("gemm_all_reduce"), 2, DType::bf16, std::vector<std::int64_t>{37, 19, 24});
  const ProvenPlan proven =
      ProvenPlan::prove(lower(program, Schedule::overlapped(program), testing::small_topology(2, 3, 1)).plan);
  const PlanLayout layout(proven.plan());
  const Addresses addresses = made_up(proven.plan(), layout);
  const Table table = make_table(addresses, 0, KernelText(proven.plan(), "sm_80"));
  const auto seen = [&](auto change) {
    Table changed = table;
    change(changed);
    try {
      return fingerprint(read_table(changed, addresses, 0)) != proven.fingerprint();
    } catch (const Error&) {
      return true;
    }
  };
  EXPECT_FALSE(seen([](Table&) {}));
  EXPECT_TRUE(seen([](Table& t) { t.waits.back().value -= 1; }));
  EXPECT_TRUE(seen([](Table& t) { t.waits.back().signal += 8; }));
  EXPECT_TRUE(seen([](Table& t) { t.waits.back().total += 1; }));
  EXPECT_TRUE(seen([](Table& t) { t.notifies.front().amount += 1; }));
  EXPECT_TRUE(seen([](Table& t) { t.notifies.front().system ^= 1; }));
  EXPECT_TRUE(seen([](Table& t) { t.notifies.front().signal += 8; }));
  EXPECT_TRUE(seen([](Table& t) { t.views.back().data += 2; }));
  EXPECT_TRUE(seen([](Table& t) { t.views.back().extent[0] += 1; }));
  EXPECT_TRUE(seen([](Table& t) { t.tasks.back().body += 1; }));
  EXPECT_TRUE(seen([](Table& t) { t.lanes.front().tasks -= 1; }));
  EXPECT_TRUE(seen([](Table& t) { std::swap(t.tasks[t.lanes[0].first].task, t.tasks[t.lanes[1].first].task); }));
  EXPECT_TRUE(seen([](Table& t) { t.bodies.back().op ^= 1; }));
}

TEST(CudaTable, WhereTheCallerHasItsOperandsDecidesWhetherTheyAreLoadedAhead) {
  const Program program =
      make_program(find_operator("gemm_all_reduce"), 2, DType::bf16, std::vector<std::int64_t>{136, 264, 144});
  const Plan plan = lower(program, Schedule::overlapped(program), testing::small_topology(2, 5, 0)).plan;
  const auto x = std::find_if(plan.inputs.begin(), plan.inputs.end(),
                              [](const Plan::Binding& input) { return input.name == "x" && input.rank == 0; });
  const Address aligned = Address{7} << 40;
  EXPECT_TRUE(KernelText(plan, "sm_90a").loads_ahead());
  EXPECT_TRUE(KernelText(plan, "sm_90a", {{x->buffer, aligned}}).loads_ahead());
  EXPECT_FALSE(KernelText(plan, "sm_90a", {{x->buffer, aligned + 2}}).loads_ahead());
  // What is brought takes no room, and the table names where it lies.
  const PlanLayout layout(plan, {x->buffer});
  EXPECT_LT(layout.private_bytes[0], PlanLayout(plan).private_bytes[0]);
  EXPECT_EQ(layout.private_bytes[1], PlanLayout(plan).private_bytes[1]);
  Addresses addresses = made_up(plan, layout);
  addresses.brought[x->buffer] = aligned + 2;
  const Table table = make_table(addresses, 0, KernelText(plan, "sm_90a", addresses.brought));
  EXPECT_TRUE(
      std::any_of(table.views.begin(), table.views.end(), [&](const View& view) { return view.data == aligned + 2; }));
  EXPECT_EQ(fingerprint(read_table(table, addresses, 0)), fingerprint(plan));
  try {
    make_table(addresses, 0, KernelText(plan, "sm_90a"));
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("Options::memory"), std::string::npos) << error.what();
  }
}

constexpr int kMultiplies = 4;  // in a loop of products

// How often a loop over elements may go to local memory. Products of e4m3 by mma.sync have twice the sums, and for
// sm_90a and sm_100a the assembler widens their operands: they lack a few registers.
int most_spills(const std::string& source) {
  return source.find("scaled_matmul<") != std::string::npos && source.find("HopperPipeline") == std::string::npos ? 12
                                                                                                                  : 0;
}

TEST(CudaKernels, OfAllOperatorsCompileForEveryArchitectureTheirLoopsKeepTheirRegistersAndManyLoadsUnderWay) {
  ASSERT_TRUE(compiler_found()) << compiler_text() << "; scripts/install test brings NVRTC";
  ASSERT_EQ(testing::why_no_sass(), "");
  std::size_t images = 0;
  std::size_t loops = 0;
  for (const std::string architecture : {"sm_80", "sm_89", "sm_90a", "sm_100a"}) {
    std::set<std::string> sources;
    for (const Operator& op : operators()) {
      for (const DType dtype : {DType::f32, DType::bf16, DType::e4m3}) {
        const bool fp8 = dtype == DType::e4m3;
        if (fp8 && (architecture == "sm_80" || !testing::takes(op, dtype))) continue;
        if (!fp8 && architecture == "sm_89") continue;  // as sm_80
        // Also of a size that TMA cannot load.
        for (const std::vector<std::int64_t>& size : {std::vector<std::int64_t>{}, small_size(op)}) {
          const Program program = make_program(op, 2, dtype, size);
          sources.insert(
              KernelText(lower(program, Schedule::overlapped(program), Topology::gpus(2)).plan, architecture).source());
        }
      }
    }
    const Program tf32 = make_program(find_operator("gemm_all_reduce"), 2, DType::f32, {}, Precision::tf32);
    if (architecture != "sm_89")
      sources.insert(
          KernelText(lower(tf32, Schedule::overlapped(tf32), Topology::gpus(2)).plan, architecture).source());
    for (const std::string& source : sources) {
      const Image image = compile(source, "tileway_run", architecture);
      EXPECT_EQ(image.cubin.substr(1, 3), "ELF") << architecture;
      // The assembler warns where it takes products of warpgroups one after the other, or does not hand over registers.
      for (const char* sign : {"C7510", "C7508", "serializ", "setmaxnreg ignored"})
        EXPECT_EQ(image.report.find(sign), std::string::npos) << image.report;
      std::size_t loops_here = 0;
      int loads = 0;
      for (const testing::Loop& loop : testing::loops_of(image.cubin)) {
        if (loop.function.find("body_") != std::string::npos) loads = std::max(loads, loop.wide_loads_together);
        // The walk over a lane's tasks, and that over the tiles of a task, may put things aside.
        const bool of_elements =
            loop.function.find("body_") != std::string::npos && loop.multiplies_within < kMultiplies;
        if (!of_elements && loop.multiplies < kMultiplies) continue;
        EXPECT_LE(loop.spill_stores + loop.spill_loads, most_spills(source))
            << architecture << ", " << loop.function << ", a loop of " << loop.instructions << " with "
            << loop.multiplies << " multiplications\n"
            << source;
        loops_here += loop.multiplies >= kMultiplies ? 1 : 0;
      }
      if (source.find("matmul") != std::string::npos || source.find("Hopper") != std::string::npos) {
        EXPECT_GT(loops_here, 0U) << architecture << "\n" << source;
      }
      // Eight of each of two ranks; else eight of what is copied, the last where it is stored.
      const bool sums = source.find("reduce_ranks<bf16") != std::string::npos;
      const bool copies = source.find(" copy<") != std::string::npos;
      const int wanted = sums ? 16 : copies ? 7 : 0;
      EXPECT_GE(loads, wanted) << architecture << "\n" << source;
      loops += loops_here;
      ++images;
    }
  }
  fmt::print("{} kernels for 4 architectures, {} loops that multiply\n", images, loops);
}

// More sums than registers.
TEST(CudaKernels, ThatLackRegistersInALoopAreFound) {
  ASSERT_TRUE(compiler_found()) << compiler_text();
  ASSERT_EQ(testing::why_no_sass(), "");
  const std::string source =
      R"(extern "C" __global__ void __launch_bounds__(1024, 2) greedy(const float* a, float* c, int n) {
  float sums[48] = {};
  for (int k = 0; k < n; ++k) {
#pragma unroll
    for (int i = 0; i < 48; ++i) sums[i] += a[k] * a[n + k + i];
  }
#pragma unroll
  for (int i = 0; i < 48; ++i) c[i] = sums[i];
})";
  for (const char* architecture : {"sm_80", "sm_90a", "sm_100a"}) {
    int found = 0;
    for (const testing::Loop& loop : testing::loops_of(compile(source, "greedy", architecture).cubin))
      found += loop.multiplies >= kMultiplies && loop.spill_stores > 0 && loop.spill_loads > 0 ? 1 : 0;
    EXPECT_GT(found, 0) << architecture;
  }
}

TEST(CudaKernels, BesideALibraryHaveNoProductsAndLessToHold) {
  ASSERT_TRUE(compiler_found()) << compiler_text();
  const Program program = make_program(find_operator("gemm_all_reduce"), 2, DType::bf16, {});
  const Topology topology = Topology::parse("ranks=2,lanes=16,copy=2,library=1");
  const KernelText text(lower(program, Schedule::library(program), topology).plan, "sm_90a");
  EXPECT_EQ(text.products_text(), "by cuBLASLt");
  EXPECT_EQ(compile(text.source(), "tileway_run", "sm_90a").cubin.substr(1, 3), "ELF");
}

// Boxes of random larger buffers, filled with their elements' numbers; copies are carried out as a copy engine would.
TEST(CopyEngine, CopiesMoveTheElementsOfOneBoxToThoseOfTheOther) {
  std::mt19937 random(3);
  const auto below = [&](int n) { return static_cast<i64>(random() % static_cast<unsigned>(n)); };
  std::size_t copies_made = 0;
  for (int round = 0; round < 2000; ++round) {
    std::vector<i64> extents;
    for (i64 d = 0, dims = below(4) + 1; d < dims; ++d) extents.push_back(below(6) + 1);
    i64 volume = 1;
    for (i64 extent : extents) volume *= extent;
    struct Boxed {
      std::vector<std::uint16_t> memory;
      View view{};
      std::vector<i64> offsets;
    };
    const auto box_in_buffer = [&](const std::vector<i64>& shape) {
      Boxed boxed;
      std::vector<i64> starts;
      i64 stride = 1;
      i64 offset = 0;
      boxed.view.dims = static_cast<u32>(shape.size());
      boxed.view.slots = 1;
      for (u32 d = boxed.view.dims; d-- > 0;) {
        const i64 start = below(3) == 0 ? below(3) : 0;
        boxed.view.stride[d] = stride;
        boxed.view.extent[d] = shape[d];
        offset += start * stride;
        stride *= shape[d] + start + (below(3) == 0 ? below(3) : 0);
      }
      boxed.memory.resize(static_cast<std::size_t>(stride));
      for (auto& element : boxed.memory) element = static_cast<std::uint16_t>(random());
      boxed.view.data = reinterpret_cast<Address>(boxed.memory.data() + offset);
      for (i64 flat = 0; flat < volume; ++flat) {
        i64 rest = flat;
        i64 at = offset;
        for (u32 d = boxed.view.dims; d-- > 0;) {
          at += rest % shape[d] * boxed.view.stride[d];
          rest /= shape[d];
        }
        boxed.offsets.push_back(at);
      }
      return boxed;
    };
    Boxed from = box_in_buffer(extents);
    Boxed to = box_in_buffer(below(2) == 0 ? extents : std::vector<i64>{1, volume});
    std::vector<std::uint16_t> expected = to.memory;
    for (i64 flat = 0; flat < volume; ++flat) expected[to.offsets[flat]] = from.memory[from.offsets[flat]];
    for (const Copy2D& copy : copies_of(from.view, to.view, 2)) {
      ++copies_made;
      EXPECT_TRUE(copy.height == 1 || (copy.from_pitch >= copy.width && copy.to_pitch >= copy.width));
      for (std::size_t row = 0; row < copy.height; ++row)
        std::memcpy(reinterpret_cast<void*>(copy.to + row * copy.to_pitch),
                    reinterpret_cast<const void*>(copy.from + row * copy.from_pitch), copy.width);
    }
    ASSERT_EQ(to.memory, expected) << "round " << round;
  }
  EXPECT_LT(copies_made, 2000U * 12) << "rows that lie evenly apart are one copy";
}

// A box of a random larger buffer of small whole numbers.
struct Operand {
  std::vector<float> memory;
  View view{};
  host::View host_view;

  Operand(const Dims& extents, const std::function<i64(int)>& below) {
    view.dims = static_cast<u32>(extents.size());
    view.slots = 1;
    i64 stride = 1;
    i64 offset = 0;
    host_view.strides = extents;
    for (u32 d = view.dims; d-- > 0;) {
      const i64 start = below(3) == 0 ? below(3) : 0;
      view.extent[d] = extents[d];
      view.stride[d] = host_view.strides[d] = stride;
      offset += start * stride;
      stride *= std::max<i64>(1, extents[d]) + start + (below(3) == 0 ? below(3) : 0);
    }
    memory.resize(static_cast<std::size_t>(stride));
    for (float& element : memory) element = static_cast<float>(below(5) - 2);
    view.data = reinterpret_cast<Address>(memory.data() + offset);
    host_view.extent = extents;
    aim(memory);
  }
  // Has the host work on other memory of the kind.
  void aim(std::vector<float>& other) {
    const auto offset = reinterpret_cast<float*>(view.data) - memory.data();
    host_view.data = reinterpret_cast<std::byte*>(other.data() + offset);
  }
};

// Calls are carried out as a library would, by strides alone.
void carry_out(const Products& call) {
  const auto at = [](const Products::Matrices& matrices, i64 batch, i64 row, i64 column) {
    return reinterpret_cast<float*>(matrices.first) + batch * matrices.batch_stride + row * matrices.row_stride +
           column;
  };
  for (i64 i = 0; i < call.count; ++i) {
    for (i64 row = 0; row < call.m; ++row) {
      for (i64 column = 0; column < call.n; ++column) {
        float sum = 0;
        for (i64 k = 0; k < call.k; ++k) sum += *at(call.a, i, row, k) * *at(call.b, i, k, column);
        *at(call.c, i, row, column) = sum;
      }
    }
  }
}

TEST(LibraryEngine, ProductsAreThoseOfTheBodyForAnyBoxesAndLeadingDimensions) {
  std::mt19937 random(5);
  const auto below = [&](int n) { return static_cast<i64>(random() % static_cast<unsigned>(n)); };
  std::size_t calls_made = 0;
  std::size_t batches = 0;
  for (int round = 0; round < 3000; ++round) {
    const i64 m = below(5), n = below(5), k = below(5);
    Dims lead;
    for (i64 d = below(4); d > 0; --d) lead.push_back(1 + below(3));
    // An operand has all leading dimensions or only the last ones, and 1 where it is the same for all.
    const auto shape_of = [&](i64 rows, i64 columns, bool whole) {
      Dims shape;
      const std::size_t left_out = whole ? 0 : static_cast<std::size_t>(below(static_cast<int>(lead.size()) + 1));
      for (std::size_t d = left_out; d < lead.size(); ++d) shape.push_back(!whole && below(3) == 0 ? 1 : lead[d]);
      shape.push_back(rows);
      shape.push_back(columns);
      return shape;
    };
    const bool a_is_whole = below(2) == 0;
    Operand a(shape_of(m, k, a_is_whole), below);
    Operand b(shape_of(k, n, !a_is_whole), below);
    Operand c(shape_of(m, n, true), below);
    std::vector<float> expected = c.memory;
    c.aim(expected);
    const Body body{.kind = Body::Kind::matmul};
    const std::array reads{a.host_view, b.host_view};
    const std::array writes{c.host_view};
    host::run_body({body, reads, writes});
    for (const Products& call : products_of(a.view, b.view, c.view, DType::f32, false)) {
      ++calls_made;
      batches += call.count > 1;
      EXPECT_TRUE(call.a.row_stride >= call.k && call.b.row_stride >= call.n && call.c.row_stride >= call.n);
      carry_out(call);
    }
    ASSERT_EQ(c.memory, expected) << "round " << round;
  }
  EXPECT_GT(batches, 500U);
  EXPECT_LT(calls_made, 3000U * 3) << "what lies evenly apart is one call";
}

}  // namespace
}  // namespace tileway::cuda
