// The device's bodies on this machine, task by task from the table that a kernel would follow: every operator and
// random programs give the interpreter's values, wherever the caller's memory lies.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "support/emulated_gpu.hpp"
#include "support/quick.hpp"
#include "support/random_program.hpp"

namespace tileway {
namespace {

bool rounds(const Program& program) {
  return std::any_of(program.ops().begin(), program.ops().end(),
                     [](const Op& op) { return op.kind == OpKind::rms_norm || op.kind == OpKind::layer_norm; });
}

TEST(DeviceBodies, OfEveryOperatorGiveTheInterpretersValues) {
  testing::DeviceBodiesRun counts;
  std::vector<std::vector<std::int64_t>> sizes{{37, 19, 23, 7}, {24, 40, 24, 8}};
  if (!testing::quick()) sizes.push_back({24, 20, 12, 6});
  for (const Operator& op : operators()) {
    for (int ranks : {1, 2, 3, 4}) {
      for (const DType dtype : {DType::f32, DType::bf16, DType::e4m3}) {
        if (!testing::takes(op, dtype)) continue;
        for (const std::vector<std::int64_t>& some : sizes) {
          const Program program = make_program(
              op, ranks, dtype, {some.begin(), some.begin() + static_cast<std::ptrdiff_t>(op.extents.size())});
          if (rounds(program)) continue;
          for (const char* schedule : {"unfused", "overlapped"}) {
            for (std::uint64_t seed = 1; seed <= 2; ++seed) {
              const int behind = static_cast<int>(seed % 2);
              testing::expect_exact(program, Schedule::named(program, schedule),
                                    testing::small_topology(ranks, 3, ranks % 2), seed,
                                    testing::emulated_gpus(behind, counts));
              ASSERT_FALSE(HasFailure()) << op.name << " " << schedule << " " << name_of(dtype) << " on " << ranks
                                         << " ranks, memory " << behind << " behind, seed " << seed;
            }
          }
        }
      }
    }
  }
  for (const auto& [variant, times] : counts.all()) fmt::print("{:>7} x {}\n", times, variant);
  for (const char* variant :
       {"copy<u32>", "copy<u8>", "copy_rows<u16, i64>", "zero_rows<u8, i64>", "reduce_ranks<float, ReduceOp::sum>",
        "reduce_ranks<bf16, ReduceOp::sum>", "embedding_bag<float, i64>"})
    EXPECT_TRUE(counts.all().contains(variant)) << variant;
}

TEST(DeviceBodies, OfRandomProgramsGiveTheInterpretersValues) {
  testing::DeviceBodiesRun counts;
  const std::uint64_t last = testing::quick() ? 40 : 200;
  for (std::uint64_t seed = 1; seed <= last && !HasFailure(); ++seed) {
    testing::RandomProgram generator(seed);
    Program program = generator.program();
    const Schedule schedule = generator.schedule(program);
    testing::expect_exact(program, schedule, generator.topology(program.world()), seed,
                          testing::emulated_gpus(static_cast<int>(seed % 2), counts));
    if (HasFailure()) fmt::print("seed {} fails\n{}", seed, program.to_text());
  }
  for (const auto& [variant, times] : counts.all()) fmt::print("{:>7} x {}\n", times, variant);
}

}  // namespace
}  // namespace tileway
