// Tiles that nobody has asked for.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "tileway/program.hpp"
#include "tileway/schedule.hpp"

namespace tileway {
namespace {

struct Tiles {
  int count = 0;
  std::int64_t rows = 0;     // the most
  std::int64_t columns = 0;  // the most
  std::int64_t matrices = 0;
  bool aligned = true;  // each begins at sixteen bytes of bf16, if rows do
};

// Of a product on one rank with thread blocks.
Tiles tiles_of(Shape a, Shape b, int lanes) {
  Program program("product", 1);
  program.output(
      "y", matmul(program.input("a", DType::bf16, a, Replicate()), program.input("b", DType::bf16, b, Replicate())));
  const Topology topology = Topology::parse(fmt::format("ranks=1,lanes={},copy=0", lanes));
  const Plan plan = lower(program, Schedule::unfused(program), topology).plan;
  Tiles tiles;
  for (const Task& task : plan.tasks) {
    if (plan.bodies[task.body].kind != Body::Kind::matmul) continue;
    const Box& box = task.writes[0].box;
    const std::size_t dims = box.extent.size();
    ++tiles.count;
    tiles.rows = std::max(tiles.rows, box.extent[dims - 2]);
    tiles.columns = std::max(tiles.columns, box.extent[dims - 1]);
    tiles.matrices = std::max(tiles.matrices, box.volume() / (box.extent[dims - 2] * box.extent[dims - 1]));
    tiles.aligned = tiles.aligned && box.start[dims - 1] % 8 == 0;
  }
  return tiles;
}

TEST(Tiles, ThatRunAtTheSameTimeShareWhatTheyLoad) {
  Program program("product", 1);
  program.output("y", matmul(program.input("a", DType::bf16, {4096, 512}, Replicate()),
                             program.input("b", DType::bf16, {512, 8192}, Replicate())));
  const std::size_t lanes = 132;
  const Plan plan = lower(program, Schedule::unfused(program), Topology::parse("ranks=1,lanes=132,copy=0")).plan;
  std::vector<std::pair<int, const Box*>> by_place;  // in their lanes
  for (const Task& task : plan.tasks) {
    if (plan.bodies[task.body].kind == Body::Kind::matmul) by_place.emplace_back(task.index, &task.writes[0].box);
  }
  std::stable_sort(by_place.begin(), by_place.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::size_t sides = 0;  // of what a wave loads of A and of B
  std::size_t waves = 0;
  for (; (waves + 1) * lanes <= by_place.size(); ++waves) {
    std::set<std::int64_t> rows;
    std::set<std::int64_t> columns;
    for (std::size_t i = waves * lanes; i < (waves + 1) * lanes; ++i) {
      rows.insert(by_place[i].second->start[0]);
      columns.insert(by_place[i].second->start[1]);
    }
    sides += 128 * rows.size() + 256 * columns.size();
  }
  // Squares would be 2 x 2080; row by row it is 5 x 128 and all 8192.
  EXPECT_LE(sides / waves, 5500U);
}

TEST(Tiles, OfProductsOnBlocksAreWhatTensorCoresMultiplyAtOnceWhateverTheSize) {
  for (std::int64_t m : {1, 16, 127, 128, 129, 1000, 2880, 4097}) {
    for (std::int64_t n : {1, 7, 64, 97, 200, 1000, 1408, 2880, 5000}) {
      const Tiles tiles = tiles_of({m, 64}, {64, n}, 132);
      const std::string size = fmt::format("{} x {}", m, n);
      EXPECT_LE(tiles.rows, 128) << size;
      EXPECT_LE(tiles.columns, 256) << size;
      EXPECT_TRUE(tiles.aligned) << size;
      // One usual tile for each, or, where those are few, narrower ones of which each lane gets one at most.
      const std::int64_t usual = (m + 127) / 128 * ((n + 255) / 256);
      EXPECT_GE(tiles.count, usual) << size;
      EXPECT_LE(tiles.count, std::max<std::int64_t>(usual, 132)) << size;
    }
  }
  EXPECT_EQ(tiles_of({1, 4096}, {4096, 4096}, 132).count, 64);
  EXPECT_EQ(tiles_of({1000, 64}, {64, 2880}, 132).count, 8 * 12);
}

TEST(Tiles, OfSmallMatricesOfABatchGoTogetherAndToAllLanes) {
  const Tiles few = tiles_of({12, 6, 16, 32}, {12, 6, 32, 16}, 132);
  EXPECT_EQ(few.count, 72);
  const Tiles many = tiles_of({400, 6, 16, 32}, {400, 6, 32, 16}, 132);
  EXPECT_LE(many.count, 2 * 132);
  EXPECT_GE(many.count, 100);
  EXPECT_GE(many.matrices, 10);
}

TEST(Tiles, OfSmallTensorsGoToAllLanes) {
  Program program("small", 1);
  const Tensor x = program.input("x", DType::f32, {192, 768}, Replicate());
  program.output("y", gelu(x));
  const Plan plan = lower(program, Schedule::unfused(program), Topology::parse("ranks=1,lanes=132,copy=0")).plan;
  const auto computes = [&](const Task& task) { return plan.bodies[task.body].kind == Body::Kind::pointwise; };
  EXPECT_GE(std::count_if(plan.tasks.begin(), plan.tasks.end(), computes), 64);
}

}  // namespace
}  // namespace tileway
