// Every ready-made operator gives the interpreter's values, however it is scheduled.
#include "support/run.hpp"
#include "tileway/ops.hpp"

namespace tileway {
namespace {

TEST(Operators, OnIntegersEveryScheduleGivesTheInterpretersValues) {
  for (const Operator& op : operators()) {
    for (int ranks : {1, 2, 3, 5, 8}) {
      std::vector<std::int64_t> size;
      for (std::size_t i = 0; i < op.extents.size(); ++i) size.push_back(std::vector<std::int64_t>{37, 19, 23, 7}[i]);
      for (const DType dtype : {DType::bf16, DType::e4m3}) {
        if (!testing::takes(op, dtype)) continue;
        const Program program = make_program(op, ranks, dtype, size);
        for (const char* name : {"unfused", "overlapped", "fused"}) {
          testing::expect_exact(program, Schedule::named(program, name), testing::small_topology(ranks), 1);
        }
      }
    }
  }
}

}  // namespace
}  // namespace tileway
