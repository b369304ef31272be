// What products of matrices by the workers of a block have in common: C = A B, for the boxes that one task reads and
// writes; matmul_plain.cuh and matmul_mma.cuh compute them.
//
// reads[0] is A [.., m, k], reads[1] is B [.., k, n], writes[0] is C [.., m, n]: row-major boxes of one element type
// with last stride 1 and any other strides, aligned or not. Dimensions before the last two align at the last of them;
// those of A and B that are 1 or missing are repeated. Any extent may be 0; with k = 0 the product is zeros. The bits
// of an element depend neither on the tile it is computed in nor on alignment: k is cut from its beginning, and copies
// of any width fill the same tiles.
//
// Only elements of the boxes are touched; what lies beyond an edge is a zero in shared memory. Loads are coherent, so
// what was waited for is seen. All workers call these functions, while none uses the shared memory; on return it is
// free again. C is written by ordinary stores: after the next barrier of the workers one of them may notify.
#pragma once

#include "tileway/types.cuh"

#ifdef __CUDACC__

#include "tileway/team.cuh"

namespace tileway::matmul {

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

}  // namespace tileway::matmul

#endif  // __CUDACC__
