// cuBLASLt without a GPU: its numbers are those of its header, and it takes its descriptors' attributes as we give
// them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "runtime/cuda/cublaslt.hpp"
#include "runtime/cuda/cublaslt_constants.hpp"
#include "runtime/cuda/library.hpp"

#if __has_include(<cublasLt.h>)
#include <cublasLt.h>
#endif

namespace tileway::cuda {
namespace {

using namespace cublaslt;

#if __has_include(<cublasLt.h>)
static_assert(kSuccess == CUBLAS_STATUS_SUCCESS);
static_assert(kFloat == CUDA_R_32F && kHalf == CUDA_R_16F && kBfloat16 == CUDA_R_16BF);
static_assert(kCompute32F == CUBLAS_COMPUTE_32F && kCompute32FFastTf32 == CUBLAS_COMPUTE_32F_FAST_TF32);
static_assert(kMultiprocessorTarget == CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET);
static_assert(kBatchCount == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT);
static_assert(kStridedBatchOffset == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET);
static_assert(kMaxWorkspaceBytes == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
static_assert(kReductionSchemeMask == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK);
static_assert(kMinAlignmentOfA == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
static_assert(kMinAlignmentOfB == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES);
static_assert(kMinAlignmentOfC == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES);
static_assert(kMinAlignmentOfD == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
static_assert(kReduceInComputeType == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
static_assert(kClusterShape == CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID);
static_assert(CUBLASLT_CLUSTER_SHAPE_AUTO == 0 && kClusterBlocks[CUBLASLT_CLUSTER_SHAPE_1x1x1] == 1);
static_assert(kClusterBlocks[CUBLASLT_CLUSTER_SHAPE_2x1x1] == 2 && kClusterBlocks[CUBLASLT_CLUSTER_SHAPE_1x2x1] == 2);
static_assert(kClusterBlocks[CUBLASLT_CLUSTER_SHAPE_4x1x1] == 4 && kClusterBlocks[CUBLASLT_CLUSTER_SHAPE_1x4x1] == 4);
static_assert(kClusterBlocks[CUBLASLT_CLUSTER_SHAPE_2x2x1] == 4);
static_assert(kClusterBlocks[CUBLASLT_CLUSTER_SHAPE_4x2x1] == 8 && kClusterBlocks[CUBLASLT_CLUSTER_SHAPE_2x4x1] == 8);
static_assert(kClusterBlocks[CUBLASLT_CLUSTER_SHAPE_8x1x1] == 8 && kClusterBlocks[CUBLASLT_CLUSTER_SHAPE_1x8x1] == 8);
static_assert(kClusterBlocks[CUBLASLT_CLUSTER_SHAPE_4x4x1] == 16);
static_assert(kClusterBlocks[CUBLASLT_CLUSTER_SHAPE_8x2x1] == 16 && kClusterBlocks[CUBLASLT_CLUSTER_SHAPE_2x8x1] == 16);
static_assert(kClusterBlocks[CUBLASLT_CLUSTER_SHAPE_16x1x1] == 16);
static_assert(kClusterBlocks[CUBLASLT_CLUSTER_SHAPE_1x16x1] == 16 && kClusterBlocks.size() == 17);
static_assert(sizeof(Algorithm) == sizeof(cublasLtMatmulAlgo_t));
static_assert(sizeof(HeuristicResult) == sizeof(cublasLtMatmulHeuristicResult_t));
static_assert(offsetof(HeuristicResult, workspace_bytes) == offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize));
static_assert(offsetof(HeuristicResult, state) == offsetof(cublasLtMatmulHeuristicResult_t, state));
#endif

TEST(CublasLt, ItsDescriptorsTakeTheAttributesInTheSizesThatWeGiveThem) {
  if (!products_found()) {
    fmt::print("skipped: {}\n", products_text());
    return;
  }
  const Library library({"libcublasLt.so.13", "libcublasLt.so.12"});
  if (!library.found()) {
    fmt::print("skipped: {}\n", library.where());
    return;
  }
  using Destroy = int (*)(void*);
  using Set = int (*)(void*, int, const void*, std::size_t);
  const auto find = [&]<typename Function>(Function, const char* name) {
    return reinterpret_cast<Function>(library.find(name));
  };
  const auto set = [](Set setter, void* descriptor, int attribute, auto value) {
    return setter(descriptor, attribute, &value, sizeof(value));
  };
  void* descriptor = nullptr;
  using CreateProduct = int (*)(void**, int, int);
  ASSERT_EQ(find(CreateProduct{}, "cublasLtMatmulDescCreate")(&descriptor, kCompute32F, kFloat), kSuccess);
  const Set set_product = find(Set{}, "cublasLtMatmulDescSetAttribute");
  EXPECT_EQ(set(set_product, descriptor, kMultiprocessorTarget, std::int32_t{116}), kSuccess);
  EXPECT_NE(set(set_product, descriptor, kMultiprocessorTarget, std::int64_t{116}), kSuccess);
  EXPECT_EQ(find(Destroy{}, "cublasLtMatmulDescDestroy")(descriptor), kSuccess);

  using CreateLayout = int (*)(void**, int, std::uint64_t, std::uint64_t, std::int64_t);
  ASSERT_EQ(find(CreateLayout{}, "cublasLtMatrixLayoutCreate")(&descriptor, kBfloat16, 7, 3, 9), kSuccess);
  const Set set_layout = find(Set{}, "cublasLtMatrixLayoutSetAttribute");
  EXPECT_EQ(set(set_layout, descriptor, kBatchCount, std::int32_t{5}), kSuccess);
  EXPECT_NE(set(set_layout, descriptor, kBatchCount, std::int64_t{5}), kSuccess);
  EXPECT_EQ(set(set_layout, descriptor, kStridedBatchOffset, std::int64_t{27}), kSuccess);
  EXPECT_EQ(find(Destroy{}, "cublasLtMatrixLayoutDestroy")(descriptor), kSuccess);

  using CreatePreference = int (*)(void**);
  ASSERT_EQ(find(CreatePreference{}, "cublasLtMatmulPreferenceCreate")(&descriptor), kSuccess);
  const Set set_preference = find(Set{}, "cublasLtMatmulPreferenceSetAttribute");
  EXPECT_EQ(set(set_preference, descriptor, kMaxWorkspaceBytes, std::uint64_t{1} << 25), kSuccess);
  EXPECT_NE(set(set_preference, descriptor, kMaxWorkspaceBytes, std::uint32_t{1} << 25), kSuccess);
  EXPECT_EQ(set(set_preference, descriptor, kReductionSchemeMask, kReduceInComputeType), kSuccess);
  for (int attribute : {kMinAlignmentOfA, kMinAlignmentOfB, kMinAlignmentOfC, kMinAlignmentOfD})
    EXPECT_EQ(set(set_preference, descriptor, attribute, std::uint32_t{2}), kSuccess);
  EXPECT_EQ(find(Destroy{}, "cublasLtMatmulPreferenceDestroy")(descriptor), kSuccess);
}

TEST(CublasLt, AClusterOfTheSizeThatIsAllowedFindsRoomWhereverTheFreeMultiprocessorsLie) {
  EXPECT_EQ(largest_cluster(0), 0);
  EXPECT_EQ(largest_cluster(8), 1);
  EXPECT_EQ(largest_cluster(9), 2);
  EXPECT_GE(largest_cluster(kLibraryMultiprocessors), 2);
  for (int free = 1; free <= 148; ++free) {
    // As evenly over eight groups as can be, the fullest group holds a cluster.
    EXPECT_GE((free + 7) / 8, largest_cluster(free)) << free;
  }
}

}  // namespace
}  // namespace tileway::cuda
