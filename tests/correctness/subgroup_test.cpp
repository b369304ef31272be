// Programs whose tensors live on some of the ranks only.
#include "support/run.hpp"

namespace tileway {
namespace {

// Two groups work side by side, then one sends to the other: a pipeline of two stages.
Program pipeline(int world, DType dtype) {
  Program p("pipeline", world);
  std::vector<int> front;
  std::vector<int> back;
  for (int r = 0; r < world; ++r) (r < world / 2 ? front : back).push_back(r);
  const int a = p.group(front);
  const int b = p.group(back);
  const Tensor x = p.input("x", dtype, {9, 8}, Shard(1), a);
  const Tensor w = p.input("w", dtype, {8, 7}, Shard(0), a);
  const Tensor v = p.input("v", dtype, {7, 5}, Replicate(), b);
  const Tensor slices =
      send(reduce_scatter(matmul(x, w), 0), b);  // 1/n of the tensor crosses, then it is gathered there
  p.output("y", matmul(all_gather(slices), v));
  p.output("partial", send(matmul(x, w), b));
  return p;
}

TEST(Subgroups, APipelineOfTwoGroupsGivesTheInterpretersValues) {
  for (int world : {2, 4, 6}) {
    const Program program = pipeline(world, DType::bf16);
    for (const char* schedule : {"unfused", "overlapped"}) {
      testing::expect_exact(program, Schedule::named(program, schedule), testing::small_topology(world), 3);
    }
  }
}

TEST(Subgroups, AccuracyIsMeasuredOnTheRanksThatHoldTheOutput) {
  const Program program = pipeline(4, DType::f32);
  const Bindings inputs = random_inputs(program, 1, Fill::normal);
  const Plan plan = lower(program, Schedule::overlapped(program), testing::small_topology(4)).plan;
  const Accuracy accuracy = measure_accuracy(program, inputs, testing::run_threads(program, plan, {inputs}).outputs);
  EXPECT_GT(accuracy.error, 0);
  EXPECT_LE(accuracy.error, accuracy.allowed);
}

}  // namespace
}  // namespace tileway
