// Who judges products that ran on a GPU: an independent kernel, which makes the operands anew from their places in the
// whole matrices and knows nothing of tiles, ranks' memory or engines.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "runtime/cuda/compile.hpp"
#include "runtime/cuda/driver.hpp"
#include "runtime/cuda/memory.hpp"

namespace tileway::testing::gemms {

inline constexpr const char* kJudgeSource = R"(
#include "tileway/types.cuh"
namespace tileway {
// Numbers that tf32 holds, so that it does not matter whether operands are rounded to it or cut.
struct tf32 {
  float value;
};
template <>
struct WideOf<tf32> {
  using type = float;
};
template <>
__device__ inline float widen(tf32 value) {
  return value.value;
}
template <>
__device__ inline tf32 narrow<tf32>(float value) {
  return {__uint_as_float(__float_as_uint(value) & 0xffffe000u)};
}
}  // namespace tileway
using namespace tileway;

__device__ u32 scrambled(u32 which, u32 seed, u64 row, u64 column) {
  u32 h = static_cast<u32>(row) * 2654435761u ^ static_cast<u32>(column) * 2246822519u ^ (seed * 4 + which) * 3266489917u;
  h ^= h >> 15;
  h *= 2246822519u;
  h ^= h >> 13;
  h *= 3266489917u;
  return h ^ h >> 16;
}
// The element at (row, column) of operand `which`: whole numbers -1, 0 and 1, those of the second operand mostly 0, or
// any in [-1, 1), rounded to T.
template <typename T>
__device__ T value_at(u32 which, u32 seed, u32 whole, u64 row, u64 column) {
  const u32 h = scrambled(which, seed, row, column);
  float value = static_cast<float>(static_cast<i32>(h)) * (1.0f / 2147483648.0f);
  if (whole != 0) value = which == 0 ? (h & 1 ? 1.0f : -1.0f) : h % 16 == 0 ? 1.0f : h % 16 == 1 ? -1.0f : 0.0f;
  return narrow<T>(value);
}

// The scale of a row of the first operand or of a column of the second: 1 or 2, or any from 0.5 to 1.5.
__device__ float scale_at(u32 which, u32 seed, u32 whole, u64 index) {
  const u32 h = scrambled(2 + which, seed, index, 0);
  return whole != 0 ? static_cast<float>(1 + h % 2) : 0.5f + static_cast<float>(h >> 8) * 0x1p-24f;
}
extern "C" __global__ void fill_scales(float* to, u64 count, u64 first, u32 which, u32 seed, u32 whole) {
  for (u64 i = blockIdx.x * static_cast<u64>(blockDim.x) + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
    to[i] = scale_at(which, seed, whole, first + i);
}

template <typename T>
__device__ void fill(T* to, u64 rows, u64 columns, u64 first_row, u64 first_column, u32 which, u32 seed, u32 whole) {
  const u64 threads = static_cast<u64>(gridDim.x) * blockDim.x;
  for (u64 i = blockIdx.x * static_cast<u64>(blockDim.x) + threadIdx.x; i < rows * columns; i += threads) {
    const u64 row = first_row + i / columns, column = first_column + i % columns;
    const bool transposed = same_type<T, e4m3> && which == 1;
    to[i] = value_at<T>(which, seed, whole, transposed ? column : row, transposed ? row : column);
  }
}

struct Found {
  u64 wrong;
  u32 claimed;
  u32 unused;
  u64 row, column;
  double got, want, bound;
};

// The whole of an operand, for what follows.
template <typename T>
__device__ void write_operand(float* to, u64 rows, u64 columns, u32 which, u32 seed, u32 whole) {
  const u64 threads = static_cast<u64>(gridDim.x) * blockDim.x;
  for (u64 i = blockIdx.x * static_cast<u64>(blockDim.x) + threadIdx.x; i < rows * columns; i += threads)
    to[i] = widen(value_at<T>(which, seed, whole, i / columns, i % columns));
}

// What a rank holds of y, against a b: the sum over `parts` ranges of the depth, each part rounded to T, all summed in
// fp32 and rounded. `slack`: what sums may lose of their terms' magnitudes. By blocks of 16 x 16 threads with 4 x 4
// elements each.
struct Compared {
  u64 rows, columns, first_row, first_column;
  u64 depth, b_columns;
  u32 parts, seed, whole;
  float unit, slack;
};
template <typename Operand, typename T>
__device__ void compare(const T* y, const float* a, const float* b, const Compared& c, Found* found) {
  constexpr u32 kTile = 64, kStep = 16;
  __shared__ float rows_of_a[kStep][kTile + 1];
  __shared__ float rows_of_b[kStep][kTile];
  const u32 across = threadIdx.x % 16, down = threadIdx.x / 16;
  const u64 tiles_across = (c.columns + kTile - 1) / kTile;
  const u64 tiles = tiles_across * ((c.rows + kTile - 1) / kTile);
  const u64 chunk = (c.depth + c.parts - 1) / c.parts;
  for (u64 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const u64 tile_row = tile / tiles_across * kTile, tile_column = tile % tiles_across * kTile;
    float total[4][4] = {}, bound[4][4] = {};
    for (u32 part = 0; part < c.parts; ++part) {
      float sum[4][4] = {}, size[4][4] = {};
      const u64 end = min((part + 1) * chunk, c.depth);
      for (u64 k0 = part * chunk; k0 < end; k0 += kStep) {
        __syncthreads();
        for (u32 i = threadIdx.x; i < kStep * kTile; i += blockDim.x) {
          const u64 row = tile_row + i / kStep, k = k0 + i % kStep;
          rows_of_a[i % kStep][i / kStep] =
              row < c.rows && k < end ? a[(c.first_row + row) * c.depth + k] : 0.0f;
          const u64 column = tile_column + i % kTile, kb = k0 + i / kTile;
          rows_of_b[i / kTile][i % kTile] =
              column < c.columns && kb < end ? b[kb * c.b_columns + c.first_column + column] : 0.0f;
        }
        __syncthreads();
        for (u32 k = 0; k < kStep; ++k) {
#pragma unroll
          for (u32 i = 0; i < 4; ++i) {
#pragma unroll
            for (u32 j = 0; j < 4; ++j) {
              const float product = rows_of_a[k][down + 16 * i] * rows_of_b[k][across + 16 * j];
              sum[i][j] += product;
              size[i][j] += fabsf(product);
            }
          }
        }
      }
      for (u32 i = 0; i < 4; ++i) {
        for (u32 j = 0; j < 4; ++j) {
          const u64 row = c.first_row + tile_row + down + 16 * i;
          const u64 column = c.first_column + tile_column + across + 16 * j;
          float scale = 1;
          if (same_type<Operand, e4m3>)
            scale = scale_at(0, c.seed, c.whole, row) * scale_at(1, c.seed, c.whole, column);
          total[i][j] += widen(narrow<T>(sum[i][j] * scale));
          bound[i][j] += 2 * c.unit * fabsf(sum[i][j] * scale) + size[i][j] * scale * c.slack;
        }
      }
    }
    for (u32 i = 0; i < 4; ++i) {
      for (u32 j = 0; j < 4; ++j) {
        const u64 row = tile_row + down + 16 * i, column = tile_column + across + 16 * j;
        if (row >= c.rows || column >= c.columns) continue;
        const float allowed = c.whole != 0 ? 0 : bound[i][j] + 2 * c.unit * fabsf(total[i][j]) + 1e-6f;
        const float want = widen(narrow<T>(total[i][j]));
        const float got = widen(y[row * c.columns + column]);
        if (fabsf(got - want) <= allowed) continue;
        atomicAdd(&found->wrong, 1ull);
        if (atomicCAS(&found->claimed, 0u, 1u) != 0) continue;
        found->row = c.first_row + row;
        found->column = c.first_column + column;
        found->got = got;
        found->want = want;
        found->bound = allowed;
      }
    }
  }
}
)";

// Kernels of one type of operands and results: "fill_bf16", "write_bf16", "compare_bf16".
inline std::string kernels_of(const std::string& type, const std::string& result, const std::string& name) {
  return fmt::format(R"(
extern "C" __global__ void fill_{1}({0}* to, u64 rows, u64 columns, u64 first_row, u64 first_column, u32 which,
                                    u32 seed, u32 whole) {{
  fill<{0}>(to, rows, columns, first_row, first_column, which, seed, whole);
}}
extern "C" __global__ void write_{1}(float* to, u64 rows, u64 columns, u32 which, u32 seed, u32 whole) {{
  write_operand<{0}>(to, rows, columns, which, seed, whole);
}}
extern "C" __global__ void compare_{1}(const {2}* y, const float* a, const float* b, Compared c, Found* found) {{
  compare<{0}, {2}>(y, a, b, c, found);
}}
)",
                     type, name, result);
}

// What the kernels are told, and what they find.
struct Compared {
  std::int64_t rows, columns, first_row, first_column;
  std::int64_t depth, b_columns;
  std::uint32_t parts, seed, whole;
  float unit, slack;
};
struct Found {
  std::uint64_t wrong = 0;
  std::uint32_t claimed = 0;
  std::uint32_t unused = 0;
  std::uint64_t row = 0, column = 0;
  double got = 0, want = 0, bound = 0;
};

inline std::string judge_source() {
  return kJudgeSource + kernels_of("float", "float", "f32") + kernels_of("bf16", "bf16", "bf16") +
         kernels_of("f16", "f16", "f16") + kernels_of("e4m3", "bf16", "e4m3") + kernels_of("tf32", "float", "tf32");
}

// One rank's, kept for all cases.
class Judge {
 public:
  explicit Judge(const cuda::Gpu& gpu)
      : device_(gpu.ordinal), found_(sizeof(Found)), a_(kOperandBytes), b_(kOperandBytes) {
    const std::string source = judge_source();
    const std::string architecture = cuda::architecture_of(gpu);
    cuda::check(
        cuda::driver()->ModuleLoadData(&module_, cuda::compile(source, "gemm_shapes_test", architecture).cubin.data()),
        "loading kernels");
    // All of them at once: the driver may load a kernel when it is first asked for, and then waits for all that runs.
    for (const char* type : {"bf16", "f16", "f32", "tf32", "e4m3"}) {
      for (const char* kernel : {"fill_", "write_", "compare_"}) function(std::string(kernel) + type);
    }
    function("fill_scales");
  }
  template <typename... Arguments>
  void launch(const std::string& name, Arguments... arguments) const {
    void* list[] = {&arguments...};
    cuda::check(cuda::driver()->LaunchKernel(function(name), 1056, 1, 1, 256, 1, 1, 0, nullptr, list, nullptr),
                name.c_str());
  }
  // How many elements of y, what a rank holds of it, are not what they should be; and one of those.
  Found compare(const std::string& type, cuda::Address y, const Compared& compared, std::int64_t rows) const {
    Found found{};
    cuda::check(cuda::driver()->MemcpyHtoD(found_.address(), &found, sizeof(found)), "clearing");
    launch("write_" + type, a_.address(), rows, compared.depth, 0U, compared.seed, compared.whole);
    launch("write_" + type, b_.address(), compared.depth, compared.b_columns, 1U, compared.seed, compared.whole);
    launch("compare_" + type, y, a_.address(), b_.address(), compared, found_.address());
    cuda::check(cuda::driver()->StreamSynchronize(nullptr), "comparing");
    cuda::check(cuda::driver()->MemcpyDtoH(&found, found_.address(), sizeof(found)), "reading");
    return found;
  }
  void use() const { device_.use(); }

 private:
  static constexpr std::size_t kOperandBytes = std::size_t{8192} * 16384 * sizeof(float);  // HowFast's are the largest

  cuda::Function function(const std::string& name) const {
    cuda::Function found = nullptr;
    cuda::check(cuda::driver()->ModuleGetFunction(&found, module_, name.c_str()), name.c_str());
    cuda::check(cuda::driver()->FuncLoad(found), name.c_str());
    return found;
  }

  cuda::Device device_;
  cuda::PinnedMemory found_;
  cuda::DeviceMemory a_, b_;  // operands as fp32
  cuda::Module module_ = nullptr;
};

}  // namespace tileway::testing::gemms
