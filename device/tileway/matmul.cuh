// Products of matrices by the workers of a block together: C = A B, for the boxes that one task reads and writes.
//
// reads[0] is A [.., m, k], reads[1] is B [.., k, n], writes[0] is C [.., m, n]: row-major boxes of one element type
// with last stride 1 and any other strides, aligned or not. Dimensions before the last two align at the last of them;
// those of A and B that are 1 or missing are repeated. Any extent may be 0; with k = 0 the product is zeros.
// For scaled_matmul A and B are of e4m3, B is [n, k], and reads[2] and reads[3] are scales (scales.cuh).
//
// matmul_plain computes in fp32 on the CUDA cores: an element of C is fma(a, b, sum) over ascending k from 0, rounded
// once. matmul_mma computes on the tensor cores, 32 bytes of k at a time in ascending order, and rounds once. So does
// scaled_matmul, for sm_89 and up, but has the tensor cores add no more than 32 products: they keep few bits of sums of
// 8-bit elements, so each such sum is added to the others in fp32. In all of them the bits of an element depend neither
// on the tile it is computed in nor on alignment: k is cut from its beginning, and copies of any width fill the same
// tiles.
//
// Only elements of the boxes are touched; what lies beyond an edge is a zero in shared memory. Loads are coherent, so
// what was waited for is seen. All workers call these functions, while none uses the shared memory; on return it is
// free again. C is written by ordinary stores: after the next barrier of the workers one of them may notify.
#pragma once

#include "tileway/types.cuh"

namespace tileway {

struct MatmulPlain {
  static constexpr u32 kRows = 128;
  static constexpr u32 kColumns = 64;
  static constexpr u32 kDepth = 16;
  static constexpr u32 kPitch = kRows + 4;  // of a column of A, which lies across: fewer bank conflicts
  static constexpr u32 kFloats = kDepth * (kPitch + kColumns);
};
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

// Of shared memory: for two steps or all stages, and for the tile of C, which takes their place. The host may ask with
// a type of its own of the same size.
template <typename T>
constexpr u32 matmul_plain_shared_bytes() {
  constexpr u32 steps = 2 * MatmulPlain::kFloats * sizeof(float);
  constexpr u32 result = MatmulPlain::kRows * MatmulPlain::kColumns * sizeof(T);
  return steps > result ? steps : result;
}
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
#include "tileway/team.cuh"

namespace tileway {
namespace matmul {

// How elements are held in memory, and in a register on their way to shared memory: bytes are four together. (The
// compiler stumbles over __isGlobal of a pointer to a structure of one byte.)
template <typename T>
struct Travel {
  using Stored = T;
  using Held = T;
};
template <>
struct Travel<e4m3> {
  using Stored = u8;
  using Held = u32;
};

// A part of one product: rows x columns elements of C, and where they and what they need begin.
template <typename T, typename C>
struct Part {
  const T* a;
  const T* b;
  C* c;
  i64 stride_a;
  i64 stride_b;
  i64 stride_c;
  i64 depth;
  i32 rows;
  i32 columns;
};

// Where matrix `index` of the batch of C lies in a view.
template <typename T>
__device__ inline T* matrix_at(const View& view, const View& c, u32 index) {
  i64 offset = 0;
  for (u32 back = 3; back <= c.dims; ++back) {
    const u32 extent = static_cast<u32>(c.extent[c.dims - back]);
    const bool repeated = back > view.dims || view.extent[view.dims - back] == 1;
    if (!repeated) offset += index % extent * view.stride[view.dims - back];
    index /= extent;
  }
  T* matrix = at<T>(view, offset);
  __builtin_assume(__isGlobal(matrix));
  return matrix;
}

// The parts of at most kRows x kColumns. Any is found from its index, so that nothing else of the walk over them has to
// stay in registers meanwhile.
template <u32 kRows, u32 kColumns>
struct Parts {
  const Arguments& arguments;

  __device__ const View& c() const { return arguments.writes[0]; }
  __device__ u32 down() const { return static_cast<u32>((c().extent[c().dims - 2] + kRows - 1) / kRows); }
  __device__ u32 across() const { return static_cast<u32>((c().extent[c().dims - 1] + kColumns - 1) / kColumns); }
  __device__ u32 count() const {
    u32 matrices = 1;
    for (u32 d = 0; d + 2 < c().dims; ++d) matrices *= static_cast<u32>(c().extent[d]);
    return matrices * down() * across();
  }
  __device__ i64 column_of(u32 index) const { return static_cast<i64>(index % across()) * kColumns; }
  __device__ i64 row_of(u32 index) const { return static_cast<i64>(index / across() % down()) * kRows; }
  template <typename T, typename C = T, bool kKMajorB = false>
  __device__ Part<T, C> at(u32 index) const {
    const View& a = arguments.reads[0];
    const View& b = arguments.reads[1];
    const i64 column = column_of(index);
    const i64 row = row_of(index);
    const u32 matrix = index / across() / down();
    Part<T, C> part;
    part.stride_a = a.stride[a.dims - 2];
    part.stride_b = b.stride[b.dims - 2];
    part.stride_c = c().stride[c().dims - 2];
    part.a = matrix_at<T>(a, c(), matrix) + row * part.stride_a;
    part.b = matrix_at<T>(b, c(), matrix) + (kKMajorB ? column * part.stride_b : column);
    part.c = matrix_at<C>(c(), c(), matrix) + row * part.stride_c + column;
    part.depth = a.extent[a.dims - 1];
    part.rows = static_cast<i32>(min(c().extent[c().dims - 2] - row, static_cast<i64>(kRows)));
    part.columns = static_cast<i32>(min(c().extent[c().dims - 1] - column, static_cast<i64>(kColumns)));
    return part;
  }
};

// Whether all rows start at multiples of so many bytes.
template <typename T>
__device__ inline bool aligned(u32 bytes, const T* first, i64 stride) {
  return ((reinterpret_cast<u64>(first) | static_cast<u64>(stride) * sizeof(T)) & (bytes - 1)) == 0;
}

// The same value, which the compiler does not recognize. It would keep all that follows from it in registers through a
// loop, dozens of addresses, where working them out again costs little.
__device__ inline u32 again(u32 value) {
  asm volatile("" : "+r"(value));
  return value;
}

__device__ inline u32 shared_address(const u8* shared) { return static_cast<u32>(__cvta_generic_to_shared(shared)); }

// Where a byte of a row lies in a tile in shared memory. The sixteens of bytes of a row change places by the row, so
// that neither eight rows at one place (ldmatrix) nor four rows at one of 32 bytes meet in a bank.
template <u32 kRowBytes>
__device__ inline u32 tile_byte(u32 row, u32 byte) {
  static_assert(kRowBytes == 64 || kRowBytes % 128 == 0, "two rows fill the banks, or one does");
  const u32 change = kRowBytes == 64 ? row >> 1 & 3 : (row & 3) << 1 | (row >> 2 & 1);
  return row * kRowBytes + (byte ^ change << 4);
}

// Brings the kRows x kColumns tiles of an operand to shared memory, zeros where it has ended: straight there
// (cp.async), which wants rows that start at multiples of 16 bytes, or by way of registers.
template <typename E, u32 kRows, u32 kColumns, bool kStraight>
struct Operand {
  using T = typename Travel<E>::Stored;
  using Held = typename Travel<E>::Held;
  static constexpr u32 kTogether = sizeof(Held) / sizeof(T);
  static constexpr u32 kUnits = kColumns / kTogether;
  static_assert(kWorkers % kUnits == 0, "a worker stays in its column");
  static constexpr u32 kCount = kRows * kUnits / kWorkers;
  static constexpr u32 kApart = kWorkers / kUnits;  // a worker's rows
  static constexpr u32 kRowBytes = kColumns * sizeof(T);
  static constexpr u32 kSixteen = 16 / sizeof(T);

  const T* from;  // the next tile
  i64 stride;
  Held held[kStraight ? 1 : kCount];

  __device__ void load(i32 rows, i32 columns) {
    const u32 thread = again(worker());
    const i32 row = static_cast<i32>(thread / kUnits);
    const i32 column = static_cast<i32>(thread % kUnits * kTogether);
    const T* element = from + row * stride + column;
#pragma unroll
    for (i32 i = 0; i < static_cast<i32>(kCount); ++i, element += kApart * stride) {
      held[i] = Held{};
      if (row + i * static_cast<i32>(kApart) >= rows) continue;
      if constexpr (kTogether == 1) {
        if (column < columns) held[i] = *element;
      } else {
#pragma unroll
        for (i32 e = 0; e < static_cast<i32>(kTogether); ++e)
          if (column + e < columns) held[i] |= static_cast<Held>(element[e]) << 8 * e;
      }
    }
  }
  __device__ void copy(u8* tile, i32 rows, i32 columns) const {
    if (rows <= 0 || columns <= 0) return;  // a step that there is not: nobody looks
    constexpr u32 sixteens = kColumns / kSixteen;
    const u32 thread = again(worker());
    const u32 column = thread % sixteens * kSixteen;
    const i32 left = min(max(columns - static_cast<i32>(column), 0), static_cast<i32>(kSixteen));
#pragma unroll
    for (u32 i = 0; i < kRows * sixteens / kWorkers; ++i) {
      const u32 row = thread / sixteens + i * (kWorkers / sixteens);
      const bool inside = static_cast<i32>(row) < rows && left > 0;
      const T* source = inside ? from + row * stride + column : from;
      const u32 bytes = inside ? static_cast<u32>(left) * sizeof(T) : 0;  // the rest of the sixteen is zeros
      const u32 to = shared_address(tile) + tile_byte<kRowBytes>(row, column * sizeof(T));
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(source), "r"(bytes) : "memory");
    }
  }
  // A tile sets out; and arrives, once its copies have been waited for.
  __device__ void begin(u8* tile, i32 rows, i32 columns) {
    if constexpr (kStraight)
      copy(tile, rows, columns);
    else
      load(rows, columns);
  }
  __device__ void finish(u8* tile) const {
    if constexpr (kStraight) return;
    const u32 thread = again(worker());
#pragma unroll
    for (u32 i = 0; i < kCount; ++i) {
      const u32 byte = tile_byte<kRowBytes>(thread / kUnits + i * kApart, thread % kUnits * sizeof(Held));
      *reinterpret_cast<Held*>(tile + byte) = held[i];
    }
  }
};

// Two elements of a row of C, the first in an even column, to its tile in shared memory.
template <typename T, u32 kColumns>
__device__ inline void stage_two(u8* tile, u32 row, u32 column, float first, float second) {
  u8* to = tile + tile_byte<kColumns * sizeof(T)>(row, column * sizeof(T));
  if constexpr (sizeof(T) == 2) {
    *reinterpret_cast<u32*>(to) = narrow<T>(first).bits | static_cast<u32>(narrow<T>(second).bits) << 16;
  } else {
    *reinterpret_cast<float2*>(to) = make_float2(first, second);
  }
}
// There a product's epilogue goes on with the elements.
template <typename Last, typename C, u32 kRows, u32 kColumns, typename AllParts, typename OnePart>
__device__ inline void go_on(u8* tile, const AllParts& parts, const OnePart& part, u32 index) {
  const Last last{parts.arguments.reads, parts.row_of(index), parts.column_of(index), static_cast<u32>(part.rows),
                  static_cast<u32>(part.columns)};
  sync_workers();
#pragma unroll 8
  for (u32 i = worker(); i < kRows * kColumns; i += kWorkers)
    last.apply_to(tile + tile_byte<kColumns * sizeof(C)>(i / kColumns, i % kColumns * sizeof(C)), i / kColumns,
                  i % kColumns);
}
// And from there to C, a Unit a worker, neighbours by neighbours: C may be a peer's.
template <typename Unit, u32 kRows, u32 kColumns, typename A, typename T>
__device__ inline void store_units(const u8* tile, const Part<A, T>& part) {
  constexpr i32 elements = sizeof(Unit) / sizeof(T);
  constexpr u32 units = kColumns / elements;
  for (u32 i = worker(); i < kRows * units; i += kWorkers) {
    const i32 row = static_cast<i32>(i / units);
    const i32 column = static_cast<i32>(i % units) * elements;
    if (row >= part.rows || column >= part.columns) continue;
    const u8* from = tile + tile_byte<kColumns * sizeof(T)>(row, column * sizeof(T));
    T* to = part.c + row * part.stride_c + column;
    if (column + elements <= part.columns) {
      *reinterpret_cast<Unit*>(to) = *reinterpret_cast<const Unit*>(from);
    } else {
      for (i32 e = 0; e < part.columns - column; ++e) to[e] = reinterpret_cast<const T*>(from)[e];
    }
  }
}
template <u32 kRows, u32 kColumns, typename A, typename T>
__device__ inline void store(const u8* tile, const Part<A, T>& part) {
  sync_workers();
  if (aligned(16, part.c, part.stride_c)) {
    store_units<uint4, kRows, kColumns>(tile, part);
  } else if (aligned(4, part.c, part.stride_c)) {
    store_units<u32, kRows, kColumns>(tile, part);
  } else if constexpr (sizeof(T) < 4) {
    store_units<T, kRows, kColumns>(tile, part);
  }
  sync_workers();
}

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

}  // namespace matmul

// T: float, bf16 or f16. Shared memory: matmul_plain_shared_bytes<T>().
template <typename T, typename C = T, typename... Steps>
__device__ inline void matmul_plain(const Arguments& arguments) {
  using Shape = MatmulPlain;
  u8* shared = arguments.shared;
  __builtin_assume(__isShared(shared));
  const u32 first_row = worker() / 16 * 8;  // of 8 x 4 elements
  const u32 first_column = worker() % 16 * 4;
  const matmul::Parts<Shape::kRows, Shape::kColumns> parts{arguments};
  for (u32 index = 0; index < parts.count(); ++index) {
    const matmul::Part<T, C> part = parts.template at<T, C>(index);
    matmul::Operand<T, Shape::kRows, Shape::kDepth, false> a{part.a, part.stride_a, {}};
    matmul::Operand<T, Shape::kDepth, Shape::kColumns, false> b{part.b, part.stride_b, {}};
    i64 left = part.depth;  // not yet loaded
    const auto load = [&] {
      const i32 depth = static_cast<i32>(min(left, static_cast<i64>(Shape::kDepth)));
      a.load(part.rows, depth);
      b.load(depth, part.columns);
      a.from += Shape::kDepth;
      b.from += Shape::kDepth * b.stride;
      left -= Shape::kDepth;
    };
    float sums[8][4] = {};
    const u32 steps = static_cast<u32>((part.depth + Shape::kDepth - 1) / Shape::kDepth);
    load();
    for (u32 step = 0; step < steps; ++step) {
      float* columns_a = reinterpret_cast<float*>(shared) + step % 2 * Shape::kFloats;
      float* rows_b = columns_a + Shape::kDepth * Shape::kPitch;
      float* to_a = columns_a + worker() % Shape::kDepth * Shape::kPitch + worker() / Shape::kDepth;
#pragma unroll
      for (u32 i = 0; i < a.kCount; ++i) to_a[i * a.kApart] = widen(a.held[i]);
#pragma unroll
      for (u32 i = 0; i < b.kCount; ++i) rows_b[worker() + i * kWorkers] = widen(b.held[i]);
      sync_workers();  // and all are done with the step before, whose place the next one takes
      load();
#pragma unroll
      for (u32 k = 0; k < Shape::kDepth; ++k) {
        const float4* from_a = reinterpret_cast<const float4*>(columns_a + k * Shape::kPitch + first_row);
        const float4 low = from_a[0], high = from_a[1];
        const float4 four = *reinterpret_cast<const float4*>(rows_b + k * Shape::kColumns + first_column);
        const float row_values[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
        const float column_values[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
        for (u32 i = 0; i < 8; ++i)
#pragma unroll
          for (u32 j = 0; j < 4; ++j) sums[i][j] = __fmaf_rn(row_values[i], column_values[j], sums[i][j]);
      }
    }
    sync_workers();
    using Last = Epilogue<T, C, Steps...>;
#pragma unroll
    for (u32 i = 0; i < 8; ++i)
#pragma unroll
      for (u32 j = 0; j < 4; j += 2)
        matmul::stage_two<typename Last::Between, Shape::kColumns>(shared, first_row + i, first_column + j, sums[i][j],
                                                                   sums[i][j + 1]);
    if constexpr (sizeof...(Steps) > 0)
      matmul::go_on<Last, C, Shape::kRows, Shape::kColumns>(shared, parts, part, index);
    matmul::store<Shape::kRows, Shape::kColumns>(shared, parts.template at<T, C>(index));
  }
}

namespace matmul {

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
// of C. Shared memory: matmul_mma_shared_bytes<T>(). Of e4m3 the product
// is scaled, and C another type: see scaled_matmul.
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
