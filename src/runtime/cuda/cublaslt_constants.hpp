// Numbers of cuBLASLt's binary interface, as far as they are used; a test holds them against its header.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace tileway::cuda::cublaslt {

inline constexpr int kSuccess = 0;  // cublasStatus_t

inline constexpr int kFloat = 0;  // cudaDataType_t
inline constexpr int kHalf = 2;
inline constexpr int kBfloat16 = 14;

inline constexpr int kCompute32F = 68;  // cublasComputeType_t
inline constexpr int kCompute32FFastTf32 = 77;

inline constexpr int kMultiprocessorTarget = 15;  // cublasLtMatmulDescAttributes_t, int32_t

inline constexpr int kBatchCount = 5;          // cublasLtMatrixLayoutAttribute_t, int32_t
inline constexpr int kStridedBatchOffset = 6;  // int64_t

inline constexpr int kMaxWorkspaceBytes = 1;    // cublasLtMatmulPreferenceAttributes_t, uint64_t
inline constexpr int kReductionSchemeMask = 3;  // uint32_t
inline constexpr int kMinAlignmentOfA = 5;      // uint32_t
inline constexpr int kMinAlignmentOfB = 6;      // uint32_t
inline constexpr int kMinAlignmentOfC = 7;      // uint32_t
inline constexpr int kMinAlignmentOfD = 8;      // uint32_t

inline constexpr std::uint32_t kReduceInComputeType = 2;  // cublasLtReductionScheme_t

inline constexpr int kClusterShape = 8;  // cublasLtMatmulAlgoConfigAttributes_t, uint16_t
// How many blocks a cluster has, by cublasLtClusterShape_t. What has no cluster says 0; shapes beyond these are odd,
// and none has more than 16.
inline constexpr std::array<int, 17> kClusterBlocks{1, 1, 1, 2, 4, 2, 4, 8, 4, 8, 16, 8, 8, 16, 16, 16, 16};
inline constexpr int kLargestCluster = 16;

struct Algorithm {  // cublasLtMatmulAlgo_t
  std::uint64_t data[8];
};
struct HeuristicResult {  // cublasLtMatmulHeuristicResult_t
  Algorithm algorithm;
  std::size_t workspace_bytes;
  int state;
  float waves;
  int reserved[4];
};

}  // namespace tileway::cuda::cublaslt
