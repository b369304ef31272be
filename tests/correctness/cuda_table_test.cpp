// What a GPU's kernel follows, made and looked at without a GPU: the table says what the plan says, the kernels of all
// operators compile for every architecture, and a copy engine's copies move what the task's boxes say.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <set>

#include "exec/cuda/copy_engine.hpp"
#include "exec/cuda/table.hpp"
#include "exec/cuda/variant.hpp"
#include "runtime/cuda/compile.hpp"
#include "support/run.hpp"
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
      for (int copy : {0, 2}) {
        const Program program = make_program(op, ranks, DType::bf16, small_size(op));
        const Topology topology = testing::small_topology(ranks, 20, copy);
        const ProvenPlan proven = ProvenPlan::prove(lower(program, Schedule::overlapped(program), topology).plan);
        const Plan& plan = proven.plan();
        const PlanLayout layout(plan);
        const Addresses addresses = made_up(plan, layout);
        const KernelText text(plan, "sm_80");
        for (int rank = 0; rank < ranks; ++rank) {
          const Table table = make_table(addresses, rank, text);
          EXPECT_EQ(fingerprint(read_table(table, addresses, rank)), proven.fingerprint()) << op.name;
        }
      }
    }
  }
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

TEST(CudaKernels, OfAllOperatorsCompileForEveryArchitectureAndWgmmaIsNotSerialised) {
  ASSERT_TRUE(compiler_found()) << compiler_text() << "; scripts/install test brings NVRTC";
  std::size_t images = 0;
  for (const char* architecture : {"sm_80", "sm_90a", "sm_100a"}) {
    std::set<std::string> sources;
    for (const Operator& op : operators()) {
      for (const DType dtype : {DType::f32, DType::bf16}) {
        const Program program = make_program(op, 2, dtype, {});
        sources.insert(
            KernelText(lower(program, Schedule::overlapped(program), Topology::gpus(2)).plan, architecture).source());
      }
    }
    for (const std::string& source : sources) {
      const Image image = compile(source, "tileway_run", architecture);
      EXPECT_EQ(image.cubin.substr(1, 3), "ELF") << architecture;
      // The assembler warns where it takes products of warpgroups one after the other, or does not hand over registers.
      for (const char* sign : {"C7510", "C7508", "serializ", "setmaxnreg ignored"})
        EXPECT_EQ(image.report.find(sign), std::string::npos) << image.report;
      ++images;
    }
  }
  fmt::print("{} kernels for 3 architectures\n", images);
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

}  // namespace
}  // namespace tileway::cuda
