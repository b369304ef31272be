// What must run on a GPU at once, and whether it does: counted without one.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>

#include "exec/cuda/fit.hpp"
#include "runtime/cuda/cublaslt.hpp"
#include "runtime/cuda/nccl.hpp"
#include "tileway/error.hpp"

namespace tileway::cuda {
namespace {

// A rank of a plan with one lane of an engine has so many blocks of its own on a GPU of 132 multiprocessors, of which
// each holds `a_multiprocessor`.
struct Rank {
  const char* gpu;
  int blocks;
};
Plan plan_of(int ranks, Engine engine) {
  Plan plan;
  plan.topology.ranks = ranks;
  for (int rank = 0; rank < ranks; ++rank) plan.lanes.push_back({rank, engine, {}});
  return plan;
}

// What each rank has left, or -1 on all ranks with the words in `refusal`.
std::vector<int> left(const std::vector<Rank>& ranks, Engine engine, int a_multiprocessor, std::string& refusal) {
  const int size = static_cast<int>(ranks.size());
  const Plan plan = plan_of(size, engine);
  std::vector<int> free(ranks.size(), -1);
  std::vector<std::string> refusals(ranks.size());
  Group::threads(size, [&](Group& group) {
    const Rank& rank = ranks[group.rank()];
    const Gpu gpu{.uuid = rank.gpu, .multiprocessors = 132};
    try {
      free[group.rank()] = require_fit(group, plan, gpu, rank.blocks, 132 * a_multiprocessor).free_multiprocessors;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::invalid);
      refusals[group.rank()] = error.what();
    }
  });
  for (const std::string& text : refusals) EXPECT_EQ(text, refusals[0]);
  refusal = refusals[0];
  return free;
}

TEST(CudaFit, ALibraryHasWhatTheBlocksOfAllRanksLeave) {
  std::string refusal;
  EXPECT_EQ(left({{"A", 16}, {"B", 20}}, Engine::library, 1, refusal), (std::vector<int>{116, 112}));
  EXPECT_EQ(left({{"A", 16}, {"A", 20}, {"B", 5}}, Engine::library, 1, refusal), (std::vector<int>{96, 96, 127}));
  // Though several blocks fit a multiprocessor, each may have one of its own.
  EXPECT_EQ(left({{"A", 100}}, Engine::library, 5, refusal), (std::vector<int>{32}));
  EXPECT_EQ(refusal, "");
}

TEST(CudaFit, TooLittleForALibraryIsRefusedOnEveryRank) {
  std::string refusal;
  const int most = 132 - kLibraryMultiprocessors;
  left({{"A", most}, {"B", most}}, Engine::library, 1, refusal);
  EXPECT_EQ(refusal, "");
  for (const std::vector<Rank>& ranks :
       {std::vector<Rank>{{"A", most + 1}, {"B", 16}}, {{"A", most - 10}, {"A", 11}, {"B", 1}}}) {
    left(ranks, Engine::library, 1, refusal);
    EXPECT_NE(refusal.find("on A: they leave the library of matrix products too few multiprocessors; expected 16 or "
                           "more, got 15 of 132"),
              std::string::npos)
        << refusal;
    left(ranks, Engine::compute, 1, refusal);
    EXPECT_EQ(refusal, "");
  }
  left({{"A", 200}}, Engine::library, 5, refusal);
  EXPECT_NE(refusal.find("got 0 of 132"), std::string::npos) << refusal;
}

TEST(CudaFit, BlocksOfACollectiveLibraryCountAsMultiprocessors) {
  std::string refusal;
  const int most = 132 - kCollectiveBlocks;
  EXPECT_EQ(left({{"A", most}, {"B", most - 1}}, Engine::collective, 1, refusal), (std::vector<int>{0, 1}));
  left({{"A", most + 1}, {"B", 1}}, Engine::collective, 1, refusal);
  EXPECT_NE(refusal.find("they do not fit the GPU at once"), std::string::npos) << refusal;
  left({{"A", 2 * most}, {"B", 1}}, Engine::collective, 2, refusal);
  EXPECT_EQ(refusal, "");
}

}  // namespace
}  // namespace tileway::cuda
