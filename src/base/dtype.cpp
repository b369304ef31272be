#include "tileway/dtype.hpp"

#include <array>
#include <string>
#include <utility>

#include "tileway/error.hpp"

namespace tileway {
namespace {

constexpr std::array<std::pair<std::string_view, std::size_t>, 7> kDTypes{
    {{"f32", 4}, {"bf16", 2}, {"f16", 2}, {"e4m3", 1}, {"i32", 4}, {"i64", 8}, {"f64", 8}}};
constexpr std::array<std::string_view, 4> kReduceOps{"sum", "max", "min", "mean"};

}  // namespace

std::size_t size_of(DType dtype) { return kDTypes[static_cast<std::size_t>(dtype)].second; }

std::string_view name_of(DType dtype) { return kDTypes[static_cast<std::size_t>(dtype)].first; }

DType parse_dtype(std::string_view text) {
  for (std::size_t i = 0; i < kDTypes.size(); ++i) {
    if (kDTypes[i].first == text) return static_cast<DType>(i);
  }
  throw Error(ErrorKind::invalid, {.where = "dtype",
                                   .what = "unknown name",
                                   .expected = "f32, bf16, f16, e4m3, i32 or i64",
                                   .got = std::string(text)});
}

bool is_floating(DType dtype) { return dtype != DType::i32 && dtype != DType::i64; }

std::string_view name_of(ReduceOp op) { return kReduceOps[static_cast<std::size_t>(op)]; }

ReduceOp parse_reduce_op(std::string_view text) {
  for (std::size_t i = 0; i < kReduceOps.size(); ++i) {
    if (kReduceOps[i] == text) return static_cast<ReduceOp>(i);
  }
  throw Error(
      ErrorKind::invalid,
      {.where = "reduction", .what = "unknown name", .expected = "sum, max, min or mean", .got = std::string(text)});
}

}  // namespace tileway
