// Schedules agree bit for bit, with each other and with the interpreter, on numbers whose sums round.
#include <fmt/format.h>

#include "support/run.hpp"
#include "tileway/ops.hpp"

namespace tileway {
namespace {

TEST(Bits, EveryCutOfAMatmulAndItsCollectiveGivesTheInterpretersBits) {
  for (const char* name : {"gemm_all_reduce", "gemm_reduce_scatter"}) {
    for (DType dtype : {DType::f32, DType::bf16}) {
      Program program = make_program(find_operator(name), 3, dtype, std::vector<std::int64_t>{65, 130, 771});
      Bindings inputs = random_inputs(program, 7, Fill::normal);
      const Bindings expected = interpret(program, inputs);
      const auto expect_bits = [&](const Schedule& schedule, const std::string& cut) {
        const Plan plan = lower(program, schedule, testing::small_topology(3)).plan;
        EXPECT_EQ(testing::run_threads(program, plan, {inputs}).outputs, expected)
            << fmt::format("{} {} {} {}", name, name_of(dtype), schedule.name(), cut);
      };
      expect_bits(Schedule::unfused(program), "default tiles");
      for (const Shape& tile : {Shape{0, 0}, Shape{33, 32}, Shape{1, 32}, Shape{7, 130}, Shape{64, 5}}) {
        expect_bits(Schedule::overlapped(program).tile(Tensor(&program, 2), tile), to_string(tile));
      }
    }
  }
}

}  // namespace
}  // namespace tileway
