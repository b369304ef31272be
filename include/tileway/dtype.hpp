// Element types of tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tileway {

// e4m3 is the 8-bit float of tensor cores, float8_e4m3fn elsewhere: bias 7, no infinities, NaN 0x7f and 0xff. It is
// moved, cast and multiplied (scaled_matmul); for other arithmetic it is cast first. Rounding to it is to nearest even
// and saturates: what lies beyond +-448, infinities included, becomes +-448, as cvt.rn.satfinite does; NaN stays NaN.
// f64 exists for the interpreter's exact mode; programs are written in the other six.
enum class DType : std::uint8_t { f32, bf16, f16, e4m3, i32, i64, f64 };

// Bytes of one element.
std::size_t size_of(DType dtype);
// "f32", "bf16", "f16", "e4m3", "i32", "i64", "f64".
std::string_view name_of(DType dtype);
// The inverse of name_of. Throws Error (invalid) for any other text.
DType parse_dtype(std::string_view text);
bool is_floating(DType dtype);

// How values of several ranks, or along a dimension, are combined. `mean` is a row reduction only: a mean over ranks
// is a sum and a scale.
enum class ReduceOp : std::uint8_t { sum, max, min, mean };
std::string_view name_of(ReduceOp op);
ReduceOp parse_reduce_op(std::string_view text);

}  // namespace tileway
