// Products of matrices (matmul_parts.cuh) on the tensor cores, by mma.sync: 32 bytes of k at a time in ascending order,
// rounded once. So does scaled_matmul, for sm_89 and up, of A and B of e4m3, B [n, k], and scales in reads[2] and
// reads[3] (scales.cuh); but it has the tensor cores add no more than 32 products: they keep few bits of sums of 8-bit
// elements, so each such sum is added to the others in fp32.
#pragma once

#include "tileway/matmul_parts.cuh"

namespace tileway {

template <typename T>
struct MatmulMma {
  static constexpr bool kKMajorB = sizeof(T) == 1;  // B lies as A does, rows along k
  static constexpr u32 kRows = 128;
  static constexpr u32 kColumns = 128;
  static constexpr u32 kDepth = 64 / sizeof(T);
  static constexpr u32 kStages = 4;
  static constexpr u32 kBytesA = kRows * kDepth * sizeof(T);
  static constexpr u32 kRowsB = kKMajorB ? kColumns : kDepth;
  static constexpr u32 kColumnsB = kKMajorB ? kDepth : kColumns;
  static constexpr u32 kBytesB = kRowsB * kColumnsB * sizeof(T);
};

// Of shared memory: for all stages, and for the tile of C, which takes their place. The host may ask with a type of its
// own of the same size.
template <typename T, typename C = T>
constexpr u32 matmul_mma_shared_bytes() {
  constexpr u32 stages = MatmulMma<T>::kStages * (MatmulMma<T>::kBytesA + MatmulMma<T>::kBytesB);
  constexpr u32 result = MatmulMma<T>::kRows * MatmulMma<T>::kColumns * sizeof(C);
  return stages > result ? stages : result;
}
template <typename C>
constexpr u32 scaled_matmul_shared_bytes() {
  return matmul_mma_shared_bytes<u8, C>();
}

// What tensor cores multiply: operands of 16 bits or 8 as they are, whose products fp32 holds exactly; or fp32 operands
// rounded to tf32, which has 10 bits behind the point, to nearest and ties away from zero.
enum class MmaOperands { exact, tf32 };

}  // namespace tileway

#ifdef __CUDACC__

#include "tileway/epilogue.cuh"
#include "tileway/scales.cuh"

namespace tileway {
namespace matmul {

// Four 8 x 8 matrices of 16 bits, eight lanes giving the rows of each. Lane l gets elements 2 (l % 4) and the next of
// row l / 4; or, transposed, of column l / 4.
template <bool kTransposed>
__device__ inline void load_matrices(u32 (&to)[4], u32 address) {
  if constexpr (kTransposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address));
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address));
  }
}
__device__ inline void round_to_tf32(u32& value) {
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(value) : "f"(__uint_as_float(value)));
}
__device__ inline u32 load_tf32(u32 address) {
  u32 value;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(value) : "r"(address));
  round_to_tf32(value);
  return value;
}

// sum += a b, 16 x 8 elements, 32 bytes of k. Of the sum lane l holds columns 2 (l % 4) and the next: of row l / 4,
// then of row l / 4 + 8.
template <typename T>
__device__ inline void multiply_add(float (&sum)[4], const u32 (&a)[4], const u32 (&b)[2]) {
  if constexpr (same_type<T, bf16>)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  if constexpr (same_type<T, f16>)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  if constexpr (same_type<T, float>)
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  if constexpr (same_type<T, e4m3>) {
    float few[4] = {};
    asm("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(few[0]), "+f"(few[1]), "+f"(few[2]), "+f"(few[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#pragma unroll
    for (u32 e = 0; e < 4; ++e) sum[e] += few[e];
  }
}

// Half a stage, 32 bytes of k, for a warp's 64 rows and 32 columns.
template <typename T>
__device__ inline void multiply_half(float (&sums)[4][4][4], u32 stage, u32 half, u32 first_row, u32 first_column) {
  using Shape = MatmulMma<T>;
  constexpr u32 row_bytes = Shape::kColumnsB * sizeof(T);
  const u32 tile_b = stage + Shape::kBytesA;
  const u32 lane = worker() % 32;
  u32 a[4][4];
  u32 b[4][2];
#pragma unroll
  for (u32 i = 0; i < 4; ++i) {
    load_matrices<false>(a[i], stage + tile_byte<64>(first_row + 16 * i + lane % 16, 32 * half + lane / 16 * 16));
    if constexpr (sizeof(T) == 4) {
#pragma unroll
      for (u32 e = 0; e < 4; ++e) round_to_tf32(a[i][e]);
    }
  }
#pragma unroll
  for (u32 j = 0; j < 4; ++j) {
    if constexpr (sizeof(T) == 4) {  // there is no ldmatrix that transposes 32 bits
      const u32 byte = (first_column + 8 * j + lane / 4) * 4;
      b[j][0] = load_tf32(tile_b + tile_byte<row_bytes>(8 * half + lane % 4, byte));
      b[j][1] = load_tf32(tile_b + tile_byte<row_bytes>(8 * half + lane % 4 + 4, byte));
    } else if (j % 2 == 0) {
      u32 two[4];
      if constexpr (Shape::kKMajorB) {
        const u32 row = first_column + 8 * j + lane / 16 * 8 + lane % 8;
        load_matrices<false>(two, tile_b + tile_byte<row_bytes>(row, 32 * half + lane / 8 % 2 * 16));
      } else {
        const u32 byte = (first_column + 8 * j + lane / 16 * 8) * 2;
        load_matrices<true>(two, tile_b + tile_byte<row_bytes>(16 * half + lane % 16, byte));
      }
      b[j][0] = two[0], b[j][1] = two[1];
      b[j + 1][0] = two[2], b[j + 1][1] = two[3];
    }
  }
#pragma unroll
  for (u32 i = 0; i < 4; ++i)
#pragma unroll
    for (u32 j = 0; j < 4; ++j) multiply_add<T>(sums[i][j], a[i], b[j]);
}

// A warp's 64 rows and 32 columns of sums, each by its row's scale and its column's.
__device__ inline void scale(float (&sums)[4][4][4], const Scales& scales, u32 first_row, u32 first_column) {
  const u32 lane = worker() % 32;
  float columns[4][2];
#pragma unroll
  for (u32 j = 0; j < 4; ++j)
#pragma unroll
    for (u32 c = 0; c < 2; ++c) columns[j][c] = scales.of_column(first_column + 8 * j + lane % 4 * 2 + c);
#pragma unroll
  for (u32 i = 0; i < 4; ++i) {
    const u32 row = first_row + 16 * i + lane / 4;
    const float rows[2] = {scales.of_row(row), scales.of_row(row + 8)};
#pragma unroll
    for (u32 j = 0; j < 4; ++j) Scales::apply(sums[i][j], rows, columns[j]);
  }
}

// Adds the products of one part to a warp's 64 x 32 sums. Nothing is under way to shared memory when it returns. Two
// functions, as it were: what one way of bringing operands keeps in registers the other has no room for.
template <typename T, bool kStraight, typename C>
__device__ __forceinline__ void add_products(float (&sums)[4][4][4], const Part<typename Travel<T>::Stored, C>& part,
                                             u8* shared, u32 first_row, u32 first_column) {
  using Shape = MatmulMma<T>;
  constexpr u32 kStageBytes = Shape::kBytesA + Shape::kBytesB;
  Operand<T, Shape::kRows, Shape::kDepth, kStraight> a{part.a, part.stride_a, {}};
  Operand<T, Shape::kRowsB, Shape::kColumnsB, kStraight> b{part.b, part.stride_b, {}};
  i64 left = part.depth;  // not yet begun
  const auto depth = [&] { return static_cast<i32>(min(left, static_cast<i64>(Shape::kDepth))); };
  const auto begin_b = [&](u8* to) {
    if constexpr (Shape::kKMajorB)
      b.begin(to, part.columns, depth());
    else
      b.begin(to, depth(), part.columns);
  };
  const auto end_step = [&] {
    asm volatile("cp.async.commit_group;" ::: "memory");  // one a step, be it empty: they are counted
    a.from += Shape::kDepth;
    b.from += Shape::kKMajorB ? Shape::kDepth : Shape::kDepth * b.stride;
    left -= Shape::kDepth;
  };
  for (u32 stage = 0; stage < Shape::kStages - 1; ++stage) {
    u8* to = shared + stage * kStageBytes;
    a.begin(to, part.rows, depth());
    a.finish(to);
    begin_b(to + Shape::kBytesA);
    b.finish(to + Shape::kBytesA);
    end_step();
  }
  const u32 steps = static_cast<u32>((part.depth + Shape::kDepth - 1) / Shape::kDepth);
#pragma unroll 1
  for (u32 step = 0; step < steps; ++step) {
    asm volatile("cp.async.wait_group %0;" ::"n"(Shape::kStages - 2) : "memory");
    sync_workers();  // everyone's copies of this step are there, and the stage of the step before is free
    const u32 stage = shared_address(shared) + step % Shape::kStages * kStageBytes;
    u8* to = shared + (step + Shape::kStages - 1) % Shape::kStages * kStageBytes;
    // Elements by way of registers travel while a half is multiplied, those of A first: together they are too many.
    a.begin(to, part.rows, depth());
    multiply_half<T>(sums, stage, 0, first_row, first_column);
    a.finish(to);
    begin_b(to + Shape::kBytesA);
    multiply_half<T>(sums, stage, 1, first_row, first_column);
    b.finish(to + Shape::kBytesA);
    end_step();
  }
  asm volatile("cp.async.wait_group 0;" ::: "memory");
}

}  // namespace matmul

// T: bf16 or f16 with exact operands, float with tf32. Steps are an epilogue's (epilogue.cuh), after which elements are
// of C. Shared memory: matmul_mma_shared_bytes<T>(). Of e4m3 the product is scaled, and C another type: see
// scaled_matmul.
template <typename T, MmaOperands kOperands = MmaOperands::exact, typename C = T, typename... Steps>
__device__ inline void matmul_mma(const Arguments& arguments) {
  static_assert((sizeof(T) <= 2) == (kOperands == MmaOperands::exact),
                "tensor cores multiply bf16, f16 and e4m3 exactly, and float only rounded to tf32");
  constexpr bool kScaled = same_type<T, e4m3>;
  using Shape = MatmulMma<T>;
  using Stored = typename matmul::Travel<T>::Stored;
  u8* shared = arguments.shared;
  __builtin_assume(__isShared(shared));
  const u32 lane = worker() % 32;
  const u32 first_row = worker() / 128 * 64;  // of 64 x 32 elements, a warp's
  const u32 first_column = worker() / 32 % 4 * 32;
  const matmul::Parts<Shape::kRows, Shape::kColumns> parts{arguments};
  for (u32 index = 0; index < parts.count(); ++index) {
    const matmul::Part<Stored, C> part = parts.template at<Stored, C, Shape::kKMajorB>(index);
    float sums[4][4][4] = {};
    const bool straight = matmul::aligned(16, part.a, part.stride_a) && matmul::aligned(16, part.b, part.stride_b);
    if (straight)
      matmul::add_products<T, true>(sums, part, shared, first_row, first_column);
    else
      matmul::add_products<T, false>(sums, part, shared, first_row, first_column);
    sync_workers();
    if constexpr (kScaled) {
      const Scales scales(arguments.reads, parts.row_of(index), parts.column_of(index), part.rows, part.columns);
      matmul::scale(sums, scales, first_row, first_column);
    }
    using Last = Epilogue<T, C, Steps...>;
#pragma unroll
    for (u32 i = 0; i < 4; ++i)
#pragma unroll
      for (u32 j = 0; j < 4; ++j)
#pragma unroll
        for (u32 e = 0; e < 4; e += 2)
          matmul::stage_two<typename Last::Between, Shape::kColumns>(shared, first_row + 16 * i + lane / 4 + 4 * e,
                                                                     first_column + 8 * j + lane % 4 * 2, sums[i][j][e],
                                                                     sums[i][j][e + 1]);
    if constexpr (sizeof...(Steps) > 0)
      matmul::go_on<Last, C, Shape::kRows, Shape::kColumns>(shared, parts, part, index);
    matmul::store<Shape::kRows, Shape::kColumns>(shared, parts.template at<Stored, C, Shape::kKMajorB>(index));
  }
}

// C: float, bf16 or f16, from operands of e4m3. Shared memory: scaled_matmul_shared_bytes<C>().
template <typename C>
__device__ inline void scaled_matmul(const Arguments& arguments) {
  matmul_mma<e4m3, MmaOperands::exact, C>(arguments);
}

}  // namespace tileway

#endif  // __CUDACC__
