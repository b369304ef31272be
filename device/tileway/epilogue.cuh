// What is done to the elements of a product before they are stored: pointwise functions and casts, each rounded to its
// dtype as if it stood alone, so that the bits do not depend on what is fused with what.
//
// Loads of other operands are coherent: they see what the calling thread has waited for, or another one before the
// workers' last barrier.
#pragma once

#include "tileway/pointwise.cuh"
#include "tileway/team.cuh"

namespace tileway {

inline constexpr i32 kSoFar = -1;  // the element as the steps before have left it
inline constexpr i32 kNoOperand = -2;

// The element of a read in the place (row, column) of the write's box: dimensions align at the last, extents of 1
// broadcast.
template <typename T>
__device__ __forceinline__ float operand_at(const View& view, i64 row, i64 column) {
  i64 offset = 0;
  if (view.dims > 0 && view.extent[view.dims - 1] != 1) offset += column;
  if (view.dims > 1 && view.extent[view.dims - 2] != 1) offset += row * view.stride[view.dims - 2];
  return widen(*at<T>(view, offset));
}

// T: bf16, f16 or float, of the result and of all operands; these are indices of reads, or kSoFar.
template <Function function, typename T, i32 a, i32 b = kNoOperand, i32 c = kNoOperand>
struct Apply {
  template <i32 operand>
  __device__ __forceinline__ static float value(float so_far, const View* reads, i64 row, i64 column) {
    if constexpr (operand == kSoFar)
      return so_far;
    else if constexpr (operand == kNoOperand)
      return 0;
    else
      return operand_at<T>(reads[operand], row, column);
  }
  __device__ __forceinline__ static float run(float so_far, const View* reads, i64 row, i64 column) {
    float result =
        widen(narrow<T>(apply<float>(function, value<a>(so_far, reads, row, column),
                                     value<b>(so_far, reads, row, column), value<c>(so_far, reads, row, column))));
    asm volatile("" : "+f"(result));  // a step ends here: its multiplication and the next one's addition are two
    return result;
  }
};
template <typename T>
struct Cast {
  __device__ __forceinline__ static float run(float so_far, const View*, i64, i64) { return widen(narrow<T>(so_far)); }
};

// Of elements in shared memory, where they lie on their way out and neighbours are neighbours' work: the sums as tensor
// cores leave them would all be work of one thread, and code as often. T: what a product is rounded to first, C: what
// it is stored as. On their way elements take the room of a C.
template <typename T, typename C, typename... Steps>
struct Epilogue {
  static_assert(sizeof(C) >= sizeof(T), "a T finds room where a C will be");
  using Between = Conditional<sizeof(C) == sizeof(T), T, float>;  // holds a T
  const View* reads;
  i64 row;  // where the part begins that it is given
  i64 column;
  u32 rows;  // beyond these, nothing is read
  u32 columns;

  __device__ __forceinline__ void apply_to(u8* element, u32 at_row, u32 at_column) const {
    if (at_row >= rows || at_column >= columns) return;
    float value = widen(narrow<T>(static_cast<float>(widen(*reinterpret_cast<const Between*>(element)))));
    ((value = Steps::run(value, reads, row + at_row, column + at_column)), ...);
    *reinterpret_cast<C*>(element) = narrow<C>(value);
  }
};
// Nothing is done: elements are stored as C at once.
template <typename T, typename C>
struct Epilogue<T, C> {
  using Between = C;
};

}  // namespace tileway
